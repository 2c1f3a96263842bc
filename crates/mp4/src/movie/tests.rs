use super::super::cut;
use super::*;
use crate::atom::{copy, write};

/// A film of two tracks: 100 frames of 40 ms, a key frame each 10, 4 in a chunk; and sound, 50
/// samples of 80 ms, all of 16 bytes, 2 in a chunk. Frame n has `n` bytes more than 10.
struct Film {
    wide: bool,
    mdat_at: u64,
}

const FRAMES: u32 = 100;
const SOUNDS: u32 = 50;

fn numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
}

/// The chunks in the order of the file: whether it is of frames, its samples' numbers, its size.
fn chunks() -> Vec<(bool, Range<u32>, u64)> {
    let frames = |n: u32| (n..n + 4).map(|n| u64::from(n) + 10).sum();
    (0..25)
        .flat_map(|n| {
            let (frame, sound) = (n * 4, n * 2);
            [(true, frame..frame + 4, frames(frame)), (false, sound..sound + 2, 32)]
        })
        .collect()
}

impl Film {
    fn offsets(&self, of_frames: bool) -> Vec<u64> {
        let mut at = self.mdat_at;
        let place = |(frames, _, size): (bool, _, u64)| {
            let here = at;
            at += size;
            (frames == of_frames).then_some(here)
        };
        chunks().into_iter().filter_map(place).collect()
    }

    fn mdat(&self) -> Vec<u8> {
        let sample = |frames: bool, n: u32| match frames {
            true => vec![n as u8; n as usize + 10],
            false => vec![0x80 | n as u8; 16],
        };
        let of_chunk = |(frames, samples, _): (bool, Range<u32>, u64)| {
            samples.flat_map(move |n| sample(frames, n)).collect::<Vec<_>>()
        };
        chunks().into_iter().flat_map(of_chunk).collect()
    }

    fn track(&self, out: &mut Vec<u8>, frames: bool) {
        let (count, scale, each, per_chunk) =
            if frames { (FRAMES, 1000, 40, 4) } else { (SOUNDS, 8000, 640, 2) };
        write(out, b"trak", |out| {
            write(out, b"tkhd", |out| {
                numbers(out, &[0, 0, 0, 1, 0, 4000]);
                out.extend_from_slice(&[0; 60]);
            });
            write(out, b"edts", |out| out.extend_from_slice(&[7; 9]));
            write(out, b"mdia", |out| {
                write(out, b"mdhd", |out| numbers(out, &[0, 0, 0, scale, count * each, 0]));
                copy(out, b"hdlr", Some(b"handler"));
                write(out, b"minf", |out| {
                    copy(out, if frames { b"vmhd" } else { b"smhd" }, Some(b"header"));
                    copy(out, b"dinf", Some(b"where"));
                    write(out, b"stbl", |out| self.tables(out, frames, (count, each, per_chunk)));
                });
            });
        });
    }

    fn tables(&self, out: &mut Vec<u8>, frames: bool, (count, each, per_chunk): (u32, u32, u32)) {
        copy(out, b"stsd", Some(b"description-----"));
        write(out, b"stts", |out| numbers(out, &[0, 1, count, each]));
        if frames {
            let keys: Vec<u32> = (0..10).map(|n| n * 10 + 1).collect();
            write(out, b"stss", |out| numbers(out, &[&[0, 10], &keys[..]].concat()));
            write(out, b"ctts", |out| numbers(out, &[0, 2, 50, 1, 50, 2]));
        }
        write(out, b"stsc", |out| numbers(out, &[0, 1, 1, per_chunk, 1]));
        if frames {
            let sizes: Vec<u32> = (0..FRAMES).map(|n| n + 10).collect();
            write(out, b"stsz", |out| numbers(out, &[&[0, 0, count], &sizes[..]].concat()));
        } else {
            write(out, b"stsz", |out| numbers(out, &[0, 16, count]));
        }
        let offsets = self.offsets(frames);
        write(out, if self.wide { b"co64" } else { b"stco" }, |out| {
            numbers(out, &[0, offsets.len() as u32]);
            for offset in offsets {
                match self.wide {
                    true => out.extend_from_slice(&offset.to_be_bytes()),
                    false => out.extend_from_slice(&(offset as u32).to_be_bytes()),
                }
            }
        });
    }

    fn moov(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, b"mvhd", |out| {
            numbers(out, &[0, 0, 0, 1000, 4000]);
            out.extend_from_slice(&[0; 80]);
        });
        self.track(&mut out, true);
        self.track(&mut out, false);
        copy(&mut out, b"udta", Some(b"dropped"));
        out
    }

    fn layout(&self) -> Layout {
        let end = self.mdat_at + self.mdat().len() as u64;
        Layout { ftyp_len: 24, mdat: self.mdat_at..end, file_len: end + 100 }
    }

    fn cut(&self, start_ms: u64, length_ms: u64, key_frame: bool) -> Result<Vec<u8>, Fault> {
        let window = Window { start_ms, length_ms, key_frame };
        let cut = cut(&self.moov(), &self.layout(), &window)?;
        let mut file = vec![0xff; 24];
        file.extend_from_slice(&cut.head);
        let mdat = self.mdat();
        let within = |at: u64| (at - self.mdat_at) as usize;
        file.extend_from_slice(&mdat[within(cut.data.start)..within(cut.data.end)]);
        Ok(file)
    }
}

fn find<'a>(data: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    let (name, rest) = path.split_first()?;
    let atom = atoms(data).map(Result::unwrap).find(|atom| atom.name == **name)?;
    if rest.is_empty() { Some(atom.data) } else { find(atom.data, rest) }
}

fn table(data: &[u8], path: &[&[u8; 4]]) -> Option<Vec<u32>> {
    let data = find(data, path)?;
    Some(data.chunks_exact(4).map(|n| u32::from_be_bytes(n.try_into().unwrap())).collect())
}

/// The samples of a track as a player reads them: by the tables.
fn played(file: &[u8], track: &[u8], wide: bool) -> Vec<Vec<u8>> {
    let stbl = |name: &'static [u8; 4]| table(track, &[b"mdia", b"minf", b"stbl", name]).unwrap();
    let (stsc, stsz) = (stbl(b"stsc"), stbl(b"stsz"));
    let offsets: Vec<usize> = match wide {
        false => stbl(b"stco")[2..].iter().map(|n| *n as usize).collect(),
        true => {
            let pairs = stbl(b"co64");
            pairs[2..].chunks(2).map(|n| (n[0] as usize) << 32 | n[1] as usize).collect()
        }
    };
    let mut all = Vec::new();
    for (chunk, offset) in offsets.iter().enumerate() {
        let row = stsc[2..].chunks(3).rfind(|row| row[0] as usize <= chunk + 1).unwrap();
        let mut at = *offset;
        for _ in 0..row[1] {
            let size = if stsz[1] > 0 { stsz[1] } else { stsz[3 + all.len()] } as usize;
            all.push(file[at..at + size].to_vec());
            at += size;
        }
    }
    assert_eq!(all.len(), stsz[2] as usize);
    all
}

fn tracks(file: &[u8]) -> Vec<&[u8]> {
    let moov = find(&file[24..], &[b"moov"]).unwrap();
    let tracks = atoms(moov).map(Result::unwrap).filter(|atom| atom.name == *b"trak");
    tracks.map(|atom| atom.data).collect()
}

fn frames(range: Range<u32>) -> Vec<Vec<u8>> {
    range.map(|n| vec![n as u8; n as usize + 10]).collect()
}

fn sounds(range: Range<u32>) -> Vec<Vec<u8>> {
    range.map(|n| vec![0x80 | n as u8; 16]).collect()
}

#[test]
fn players_find_the_samples_of_the_window() {
    for film in [Film { wide: false, mdat_at: 5000 }, Film { wide: true, mdat_at: 6 << 30 }] {
        for start in (0..3900).step_by(130) {
            for length in [0, 100, 160, 1234, 99_999] {
                let file = film.cut(start, length, false).unwrap();
                let end = if length == 0 { 4000 } else { (start + length).min(4000) } as u32;
                let start = start as u32;
                let tracks = tracks(&file);
                // The end is counted from where the first sample begins.
                let count = |each: u32, all: u32| match length {
                    0 => all,
                    _ => (start / each + (length as u32 / each)).min(all),
                };
                let got = played(&file, tracks[0], film.wide);
                assert_eq!(got, frames(start / 40..count(40, FRAMES)), "{start} {end}");
                let got = played(&file, tracks[1], film.wide);
                assert_eq!(got, sounds(start / 80..count(80, SOUNDS)), "{start} {end}");
                let mdat = atoms(&file[24..]).map(Result::unwrap).last().unwrap();
                assert_eq!(mdat.name, *b"mdat", "and it has the rest of the file");
            }
        }
    }
}

#[test]
fn tables_and_times_of_a_cut() {
    let film = Film { wide: false, mdat_at: 5000 };
    let file = film.cut(1010, 1000, false).unwrap();
    let moov = find(&file[24..], &[b"moov"]).unwrap();
    assert_eq!(table(moov, &[b"mvhd"]).unwrap()[4], 1000);
    assert_eq!(find(moov, &[b"udta"]), None);
    let tracks = tracks(&file);
    let stbl = |name| table(tracks[0], &[b"mdia", b"minf", b"stbl", name]);
    assert_eq!(stbl(b"stts").unwrap(), [0, 1, 25, 40]);
    assert_eq!(stbl(b"stss").unwrap(), [0, 2, 6, 16]);
    assert_eq!(stbl(b"ctts").unwrap(), [0, 1, 25, 1]);
    assert_eq!(stbl(b"stsc").unwrap()[..5], [0, 3, 1, 3, 1]);
    assert_eq!(table(tracks[0], &[b"tkhd"]).unwrap()[5], 1000);
    assert_eq!(table(tracks[0], &[b"mdia", b"mdhd"]).unwrap()[4], 1000);
    assert_eq!(table(tracks[1], &[b"mdia", b"mdhd"]).unwrap()[4], 8000);
    assert_eq!(find(tracks[0], &[b"edts"]), None);
    assert_eq!(find(tracks[0], &[b"mdia", b"hdlr"]), Some(&b"handler"[..]));
}

#[test]
fn key_frames_are_there_and_not_shown_for_long() {
    let film = Film { wide: false, mdat_at: 5000 };
    let file = film.cut(1010, 1000, true).unwrap();
    let tracks = tracks(&file);
    assert_eq!(played(&file, tracks[0], false), frames(20..50));
    assert_eq!(played(&file, tracks[1], false), sounds(12..24));
    // Five frames before the requested one.
    let edits = table(tracks[0], &[b"edts", b"elst"]).unwrap();
    assert_eq!(edits, [1 << 24, 1, 0, 1000, 0, 200, 1 << 16]);
    assert_eq!(table(tracks[0], &[b"mdia", b"mdhd"]).unwrap()[4], 1200);
    assert_eq!(find(tracks[1], &[b"edts"]), None);
    let stss = table(tracks[0], &[b"mdia", b"minf", b"stbl", b"stss"]);
    assert_eq!(stss.unwrap(), [0, 3, 1, 11, 21]);
}

#[test]
fn windows_outside_of_the_film() {
    let film = Film { wide: false, mdat_at: 5000 };
    assert_eq!(
        film.cut(4001, 0, false),
        Err(Fault::of_file("mp4 start time exceeds file duration"))
    );
    assert_eq!(film.cut(4000, 0, false), Err(Fault::in_file("no mp4 trak atoms were found")));
    let nothing = Fault::in_file("no data between start time and end time");
    assert_eq!(film.cut(1000, 20, false), Err(nothing));
    assert!(film.cut(u64::MAX, u64::MAX, true).is_err());
    assert!(film.cut(3999, u64::MAX, true).is_ok());
}

#[test]
fn whatever_is_wrong_is_said_and_no_more() {
    let film = Film { wide: false, mdat_at: 5000 };
    let (moov, layout) = (film.moov(), film.layout());
    let window = Window { start_ms: 1010, length_ms: 1000, key_frame: true };
    for len in 0..moov.len() {
        let _ = cut(&moov[..len], &layout, &window);
    }
    let mut n = 12_345u32;
    let mut next = |max: usize| {
        n = n.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (n >> 8) as usize % max
    };
    let mut good = 0;
    for _ in 0..20_000 {
        let mut lies = moov.clone();
        for _ in 0..=next(3) {
            let at = next(lies.len());
            lies[at] = [0, 1, 0xff, 0x7f, next(256) as u8][next(5)];
        }
        if let Ok(cut) = cut(&lies, &layout, &window) {
            good += 1;
            assert!(cut.data.end <= layout.file_len && cut.data.start < cut.data.end);
            assert!(cut.head.len() <= moov.len() + 100, "{}", cut.head.len());
        }
    }
    assert!(good > 1000, "{good}");
}
