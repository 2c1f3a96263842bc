use super::*;
use crate::atom::write;

fn put(out: &mut Vec<u8>, name: &[u8; 4], numbers: &[u32]) {
    write(out, name, |out| numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes())));
}

/// An `avc1` entry with one set of each kind, lengths of 4 bytes.
fn h264(out: &mut Vec<u8>) {
    write(out, b"avc1", |out| {
        out.extend_from_slice(&[0; 78]);
        write(out, b"avcC", |out| {
            out.extend_from_slice(&[1, 66, 0, 30, 0xff, 0xe1, 0, 2, 0x67, 66, 1, 0, 1, 0x68]);
        });
    });
}

/// An `mp4a` entry: AAC with 1000 Hz, as far as the index is concerned, or another object type.
fn mp4a(out: &mut Vec<u8>, object_type: u8) {
    write(out, b"mp4a", |out| {
        out.extend_from_slice(&[0; 28]);
        write(out, b"esds", |out| {
            out.extend_from_slice(&[0, 0, 0, 0, 3, 22, 0, 1, 0, 4, 17, object_type]);
            out.extend_from_slice(&[0; 12]);
            out.extend_from_slice(&[5, 2, 0x12, 0x10]);
        });
    });
}

/// A track: its kind, entry, edit list, and tables; all with 1000 ticks a second.
struct Plan<'a> {
    handler: &'a [u8; 4],
    entry: &'a dyn Fn(&mut Vec<u8>),
    edit: Option<u32>,
    tables: &'a dyn Fn(&mut Vec<u8>),
}

fn moov(plans: &[Plan<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let fill = |out: &mut Vec<u8>, numbers: &[u32], len: usize| {
        let end = out.len() + len;
        numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
        out.resize(end, 0);
    };
    write(&mut out, b"mvhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 100));
    for plan in plans {
        write(&mut out, b"trak", |out| {
            if let Some(at) = plan.edit {
                write(out, b"edts", |out| put(out, b"elst", &[0, 1, 4000, at, 1 << 16]));
            }
            write(out, b"mdia", |out| {
                write(out, b"mdhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 24));
                let handler = u32::from_be_bytes(*plan.handler);
                put(out, b"hdlr", &[0, 0, handler, 0, 0, 0, 0]);
                write(out, b"minf", |out| {
                    write(out, b"stbl", |out| {
                        write(out, b"stsd", |out| {
                            out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
                            (plan.entry)(out);
                        });
                        (plan.tables)(out);
                    });
                });
            });
        });
    }
    out
}

const VIDEO_AT: u32 = 1000;
const AUDIO_AT: u32 = 5000;

/// Video: 100 frames of 40 ms with 8 bytes each, 10 in a chunk, key frames each 800 ms.
fn video_tables(out: &mut Vec<u8>) {
    put(out, b"stts", &[0, 1, 100, 40]);
    put(out, b"stss", &[0, 5, 1, 21, 41, 61, 81]);
    put(out, b"ctts", &[0, 2, 50, 80, 50, 40]);
    put(out, b"stsc", &[0, 1, 1, 10, 1]);
    put(out, b"stsz", &[0, 8, 100]);
    let offsets: Vec<u32> = (0..10).map(|n| VIDEO_AT + n * 80).collect();
    put(out, b"stco", &[&[0, 10], &offsets[..]].concat());
}

/// Audio: 200 frames of 20 ms with 3 bytes each in chunks of 150 and 50.
fn audio_tables(out: &mut Vec<u8>) {
    put(out, b"stts", &[0, 1, 200, 20]);
    put(out, b"stsc", &[0, 2, 1, 150, 1, 2, 50, 1]);
    put(out, b"stsz", &[0, 3, 200]);
    put(out, b"stco", &[0, 2, AUDIO_AT, AUDIO_AT + 450]);
}

const VIDEO: Plan<'_> = Plan { handler: b"vide", entry: &h264, edit: None, tables: &video_tables };
const AUDIO: Plan<'_> =
    Plan { handler: b"soun", entry: &|out| mp4a(out, 0x40), edit: None, tables: &audio_tables };
const LIMITS: Limits = Limits { file_len: 10_000, bytes_max: 1 << 20 };

/// The bytes at a place of the file: a NAL unit with the frame's number, or the audio frame's.
fn content(kind: Kind, range: &FileRange) -> Vec<u8> {
    match kind {
        Kind::Video => {
            let n = (range.start - u64::from(VIDEO_AT)) / 8;
            vec![0, 0, 0, 4, 0x65, n as u8, 1, 2]
        }
        Kind::Audio => vec![((range.start - u64::from(AUDIO_AT)) / 3) as u8, 3, 4],
    }
}

/// A PES packet as a player sees it: times in milliseconds, and the data.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    pid: u16,
    pts: u64,
    dts: u64,
    data: Vec<u8>,
}

fn time(bytes: &[u8]) -> u64 {
    let bits = bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    ((bits >> 3 & 7 << 30) | (bits >> 2 & 0x7fff << 15) | (bits >> 1 & 0x7fff)) / 90
}

fn demux(stream: &[u8]) -> Vec<Seen> {
    let mut open: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut next = std::collections::HashMap::new();
    for packet in stream.chunks(188) {
        assert_eq!((packet.len(), packet[0]), (188, 0x47));
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let counter = next.entry(pid).or_insert(0);
        assert_eq!(packet[3] & 15, *counter & 15);
        *counter += 1;
        let skip = if packet[3] & 0x20 == 0 { 4 } else { 5 + usize::from(packet[4]) };
        if packet[1] & 0x40 != 0 {
            open.push((pid, Vec::new()));
        }
        let pes = open.iter_mut().rev().find(|(of, _)| *of == pid).expect("a start");
        pes.1.extend_from_slice(&packet[skip..]);
    }
    let streams = open.into_iter().filter(|(pid, _)| [0x100, 0x101].contains(pid));
    let seen = |(pid, pes): (u16, Vec<u8>)| {
        assert_eq!(pes[..3], [0, 0, 1]);
        let pts = time(&pes[9..14]);
        let dts = if pes[7] & 0x40 != 0 { time(&pes[14..19]) } else { pts };
        let len = usize::from(u16::from_be_bytes([pes[4], pes[5]]));
        assert!(len == 0 && pid == 0x100 || len + 6 == pes.len());
        Seen { pid, pts, dts, data: pes[9 + usize::from(pes[8])..].to_vec() }
    };
    streams.map(seen).collect()
}

fn fragment(moov: &[u8], start_ms: u64, end_ms: Option<u64>) -> Result<Vec<Seen>, Refused> {
    let mut muxer = Film::read(moov)?.fragment(Span { start_ms, end_ms }, &LIMITS)?;
    let mut out = Vec::new();
    while let Some((kind, range)) = muxer.wanted() {
        assert!(range.end <= muxer.end_of(kind));
        muxer.feed(&content(kind, &range), &mut out)?;
    }
    Ok(demux(&out))
}

/// The numbers of video frames and of audio frames.
fn frames(seen: &[Seen]) -> (Vec<u8>, Vec<u8>) {
    let of = |wanted| seen.iter().filter(move |pes| pes.pid == wanted);
    let video = of(0x100).map(|pes| pes.data[pes.data.len() - 3]).collect();
    let audio = of(0x101).flat_map(|pes| pes.data.chunks(10).map(|frame| frame[7])).collect();
    (video, audio)
}

fn playlist(moov: &[u8], wanted: Playlist<'_>) -> Result<String, Refused> {
    let text = Film::read(moov)?.playlist(&wanted, &LIMITS)?;
    Ok(String::from_utf8(text).unwrap())
}

const WHOLE: Playlist<'_> = Playlist {
    span: Span { start_ms: 0, end_ms: None },
    fragment_ms: 1000,
    offset_ms: None,
    uri: b"f.mp4.ts",
    args: b"",
};

#[test]
fn cuts_playlists_at_key_frames() {
    let text = playlist(&moov(&[VIDEO, AUDIO]), WHOLE).unwrap();
    let want = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXT-X-PLAYLIST-TYPE:VOD\n\n\
                #EXTINF:1.600,\nf.mp4.ts?start=0.000&end=1.600\n\
                #EXTINF:1.600,\nf.mp4.ts?start=1.600&end=3.200\n\
                #EXTINF:0.800,\nf.mp4.ts?start=3.200&end=4.000\n\n#EXT-X-ENDLIST\n";
    assert_eq!(text, want);
    let span = Span { start_ms: 900, end_ms: Some(3000) };
    let part = Playlist { span, offset_ms: Some(-9000), args: b"a=1", ..WHOLE };
    let text = playlist(&moov(&[VIDEO, AUDIO]), part).unwrap();
    let want = "#EXT-X-START:TIME-OFFSET=-2.200\n\n#EXTINF:1.600,\n\
                f.mp4.ts?start=0.800&end=2.400&a=1\n\
                #EXTINF:0.600,\nf.mp4.ts?start=2.400&end=3.000&a=1\n\n#EXT-X-ENDLIST\n";
    assert!(text.ends_with(want), "{text}");
    // Sound alone can be cut anywhere.
    let text = playlist(&moov(&[AUDIO]), Playlist { fragment_ms: 1990, ..WHOLE }).unwrap();
    assert!(text.contains("start=0.000&end=2.000\n"), "{text}");
    for (start_ms, end_ms) in [(4000, None), (9000, None), (2000, Some(2000)), (2000, Some(1))] {
        let span = Span { start_ms, end_ms };
        let refused = playlist(&moov(&[VIDEO, AUDIO]), Playlist { span, ..WHOLE });
        assert_eq!(refused, Err(Refused::Empty), "{start_ms} {end_ms:?}");
    }
}

#[test]
fn fragments_have_all_frames_once() {
    let film = moov(&[VIDEO, AUDIO]);
    let cuts = [Some(1600), Some(3200), None];
    let (mut video, mut audio, mut start) = (Vec::new(), Vec::new(), 0);
    for end in cuts {
        let seen = fragment(&film, start, end).unwrap();
        assert!(seen[0].data.starts_with(&[0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x67, 66, 0, 0]));
        let (more_video, more_audio) = frames(&seen);
        video.extend(more_video);
        audio.extend(more_audio);
        start = end.unwrap_or(0);
    }
    assert_eq!(video, (0..100).collect::<Vec<u8>>());
    assert_eq!(audio, (0..200).collect::<Vec<u8>>());
}

#[test]
fn fragments_begin_with_the_key_frame_before() {
    let (video, audio) = frames(&fragment(&moov(&[VIDEO, AUDIO]), 1000, Some(1100)).unwrap());
    assert_eq!(video, (20..28).collect::<Vec<u8>>());
    assert_eq!(audio, (40..55).collect::<Vec<u8>>());
    for (start, end) in [(4000, None), (u64::MAX, None), (100, Some(100)), (100, Some(0))] {
        let refused = fragment(&moov(&[VIDEO, AUDIO]), start, end);
        assert_eq!(refused, Err(Refused::Empty), "{start} {end:?}");
    }
}

#[test]
fn edit_lists_keep_tracks_in_step() {
    let times = |edit| {
        let seen = fragment(&moov(&[Plan { edit, ..VIDEO }, AUDIO]), 0, None).unwrap();
        let first = |pid| seen.iter().find(|pes| pes.pid == pid).unwrap().clone();
        (first(0x100).dts, first(0x100).pts, first(0x101).pts)
    };
    // The clock begins at 1.4 s. The first frame is shown 80 ms after it is decoded.
    assert_eq!(times(None), (1400, 1480, 1400));
    assert_eq!(times(Some(80)), (1400, 1480, 1480));
    // Two days are no edit.
    assert_eq!(times(Some(u32::MAX >> 1)).0, 1400);
}

#[test]
fn refuses_other_codecs_and_malformed_files() {
    let said = |plans: &[Plan<'_>]| match Film::read(&moov(plans)) {
        Err(fault) => fault.named("F").to_string(),
        Ok(_) => panic!("was read"),
    };
    let hevc: &dyn Fn(&mut Vec<u8>) = &|out| put(out, b"hev1", &[0; 20]);
    let what = "\"F\" has the codec hev1, which hls does not support";
    assert_eq!(said(&[Plan { entry: hevc, ..VIDEO }, AUDIO]), what);
    let what = "\"F\" has audio of type 0xa5, which hls does not support";
    assert_eq!(said(&[VIDEO, Plan { entry: &|out| mp4a(out, 0xa5), ..AUDIO }]), what);
    let none = "no samples of video or audio were found in \"F\"";
    assert_eq!(said(&[Plan { handler: b"text", ..VIDEO }]), none);
    let empty: &dyn Fn(&mut Vec<u8>) = &|out| put(out, b"stts", &[0, 0]);
    assert_eq!(said(&[Plan { tables: empty, ..VIDEO }]), none);
    let whole = moov(&[VIDEO, AUDIO]);
    for len in 0..whole.len() {
        // None of them panics; where it is read, the rest is consistent.
        let _ = fragment(&whole[..len], 0, None);
    }
}

#[test]
fn limits_hold() {
    let film = moov(&[VIDEO, AUDIO]);
    let film = Film::read(&film).unwrap();
    let span = WHOLE.span;
    let small = Limits { bytes_max: 1000, ..LIMITS };
    let text = |refused: Refused| match refused {
        Refused::Fault(fault) => fault.named("F").to_string(),
        Refused::Empty => String::new(),
    };
    let what = "is larger than 1000 bytes, you may want to increase hls_buffers";
    let said = text(film.fragment(span, &small).unwrap_err());
    assert_eq!(said, format!("\"F\" hls fragment {what}"));
    let each = Playlist { fragment_ms: 1, ..WHOLE };
    let tiny = Limits { bytes_max: 100, ..LIMITS };
    assert!(text(film.playlist(&each, &tiny).unwrap_err()).contains("hls playlist is larger"));
    let short = Limits { file_len: 5100, ..LIMITS };
    assert_eq!(text(film.fragment(span, &short).unwrap_err()), "\"F\" mp4 file truncated");
}
