//! Films: the index of a file, which may say anything.

use mp4::atom::atoms;
use mp4::{Layout, Window, cut};

/// The first four bytes are the window, the rest is the content of `moov`. A cut lies in the file,
/// its index is hardly larger than the film's, and is itself a readable index.
pub fn run(data: &[u8]) {
    let Some((&[start, length, key, at], moov)) = data.split_first_chunk() else { return };
    let window = Window {
        start_ms: u64::from(start) * 50,
        length_ms: u64::from(length) * 50,
        key_frame: key & 1 == 1,
    };
    let from = u64::from(at) * 64;
    let layout = Layout { ftyp_len: 24, mdat: from..from + (1 << 20), file_len: from + (2 << 20) };
    let Ok(made) = cut(moov, &layout, &window) else { return };
    assert!(made.data.start < made.data.end && made.data.end <= layout.file_len);
    // An edit list and a header or two a track, and rows of chunks that are split.
    assert!(made.head.len() <= moov.len() * 2 + 200, "{} of {}", made.head.len(), moov.len());
    let (index, mdat) = made.head.split_at(made.head.len() - mdat_header(&made.data));
    assert!(mdat[4..].starts_with(b"mdat"));
    let top: Vec<_> = atoms(index).map(|atom| atom.expect("what was written is read")).collect();
    assert_eq!(top.iter().map(|atom| atom.name).collect::<Vec<_>>(), [*b"moov"]);
    let len = layout.ftyp_len + made.head.len() as u64;
    let end = len + (made.data.end - made.data.start);
    let again = Layout { ftyp_len: 24, mdat: len..end, file_len: end };
    // The whole film does not lie outside the file either.
    let whole = Window { start_ms: 0, length_ms: 0, key_frame: false };
    if let Ok(again_made) = cut(top[0].data, &again, &whole) {
        assert!(again_made.data.end <= end);
    }
}

fn mdat_header(data: &std::ops::Range<u64>) -> usize {
    if data.end - data.start + 8 > u64::from(u32::MAX) { 16 } else { 8 }
}
