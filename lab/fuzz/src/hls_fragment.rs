//! Live streams of films: the index of a file, which may say anything.

use mp4::hls::{Film, Limits, Playlist, Span};

/// The first four bytes are the request, the rest is the content of `moov`. Samples lie in the
/// file, a fragment is whole packets, and both it and the playlist keep their limits.
pub fn run(data: &[u8]) {
    let Some((&[start, length, fragment, at], moov)) = data.split_first_chunk() else { return };
    let Ok(film) = Film::read(moov) else { return };
    let limits = Limits { file_len: (u64::from(at) + 1) << 12, bytes_max: 1 << 16 };
    let start_ms = u64::from(start) * 50;
    let end_ms = (length > 0).then(|| start_ms + u64::from(length) * 50);
    let span = Span { start_ms, end_ms };
    let fragment_ms = u64::from(fragment) + 1;
    let wanted = Playlist { span, fragment_ms, offset_ms: Some(-1), uri: b"f.ts", args: b"" };
    if let Ok(text) = film.playlist(&wanted, &limits) {
        assert!(text.starts_with(b"#EXTM3U") && text.ends_with(b"#EXT-X-ENDLIST\n"));
        assert!(text.len() as u64 <= limits.bytes_max + 200, "{}", text.len());
    }
    let Ok(mut muxer) = film.fragment(span, &limits) else { return };
    let (mut out, mut all) = (Vec::new(), 0);
    while let Some((kind, range)) = muxer.wanted() {
        assert!(range.end <= limits.file_len && range.end <= muxer.end_of(kind));
        all += range.end - range.start;
        assert!(all <= limits.bytes_max);
        // NAL units of 13 bytes, if lengths have one byte, or one that is too long.
        let sample = vec![13; (range.end - range.start) as usize];
        if muxer.feed(&sample, &mut out).is_err() {
            break;
        }
    }
    assert!(out.chunks(188).all(|packet| packet.len() == 188 && packet[0] == 0x47));
}
