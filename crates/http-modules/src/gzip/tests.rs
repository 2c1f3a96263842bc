use std::io::Read;

use super::deflate::{Compressor, Settings};
use crate::compress::coder::tests::{self, bytes, chain, noise};
use crate::compress::coder::{Coder, Until};
use mem::Chain;

const SETTINGS: Settings = Settings { level: 1, window_bits: 15, mem_level: 8 };

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

/// The text of an unfinished stream so far.
pub fn unzip_so_far(bytes: &[u8]) -> Vec<u8> {
    let mut z = zlib_rs::Inflate::new(true, 15 + 16);
    let mut out = vec![0; 1 << 20];
    z.decompress(bytes, &mut out, zlib_rs::InflateFlush::NoFlush).unwrap();
    out.truncate(z.total_out() as usize);
    out
}

#[test]
fn all_settings_make_streams_that_can_be_read() {
    let text = [noise(5000), vec![b'x'; 100_000], b"the end".to_vec()].concat();
    for level in [1, 5, 9] {
        for window_bits in [9, 12, 15] {
            for mem_level in [1, 8, 9] {
                let mut z = Compressor::take(Settings { level, window_bits, mem_level });
                let mut out = Chain::new();
                let mut input = chain(&[&text]);
                assert_eq!(
                    tests::run(&mut z, &mut input, (Until::Ended, usize::MAX), &mut out),
                    Ok(true)
                );
                assert!(z.ended() && input.is_empty());
                assert_eq!(unzip(&bytes(&out)), text, "{level} {window_bits} {mem_level}");
                assert_eq!(z.totals(), (text.len() as u64, out.len()));
            }
        }
    }
}

#[test]
fn pieces_and_empty_ones() {
    let mut z = Compressor::take(SETTINGS);
    let mut out = Chain::new();
    for pieces in [&[&b""[..]][..], &[], &[b"one ", b"", b"two "], &[b"three"]] {
        assert_eq!(
            tests::run(&mut z, &mut chain(pieces), (Until::Free, 1 << 16), &mut out),
            Ok(true)
        );
    }
    assert_eq!(tests::run(&mut z, &mut Chain::new(), (Until::Ended, 1 << 16), &mut out), Ok(true));
    assert_eq!(unzip(&bytes(&out)), b"one two three");
    let mut z = Compressor::take(SETTINGS);
    let mut out = Chain::new();
    assert_eq!(tests::run(&mut z, &mut Chain::new(), (Until::Ended, 1 << 16), &mut out), Ok(true));
    assert_eq!(unzip(&bytes(&out)), b"");
}

#[test]
fn what_is_flushed_can_be_read() {
    for text in [b"DA".to_vec(), noise(70_000)] {
        let mut z = Compressor::take(SETTINGS);
        let mut out = Chain::new();
        assert_eq!(
            tests::run(&mut z, &mut chain(&[&text]), (Until::Flushed, usize::MAX), &mut out),
            Ok(true)
        );
        assert_eq!(unzip_so_far(&bytes(&out)), text);
        // Nothing new: nothing comes out, and nothing goes wrong.
        let len = out.len();
        assert_eq!(
            tests::run(&mut z, &mut Chain::new(), (Until::Flushed, 1 << 16), &mut out),
            Ok(true)
        );
        assert_eq!(
            tests::run(&mut z, &mut chain(&[b""]), (Until::Flushed, 1 << 16), &mut out),
            Ok(true)
        );
        assert_eq!(out.len(), len);
        assert_eq!(
            tests::run(&mut z, &mut chain(&[b"TA"]), (Until::Ended, 1 << 16), &mut out),
            Ok(true)
        );
        assert_eq!(unzip(&bytes(&out)), [&text[..], b"TA"].concat());
    }
}

#[test]
fn output_is_bounded() {
    for until in [Until::Flushed, Until::Ended] {
        let text = noise(200_000);
        let mut z = Compressor::take(SETTINGS);
        let mut input = chain(&[&text[..50_000], &text[50_000..]]);
        let mut all = Vec::new();
        let mut rounds = 0;
        loop {
            let mut out = Chain::new();
            let done = tests::run(&mut z, &mut input, (until, 4096), &mut out).unwrap();
            assert!(out.len() <= 4096 + mem::PAGE_SIZE as u64, "{}", out.len());
            all.extend(bytes(&out));
            rounds += 1;
            if done {
                break;
            }
        }
        assert!(rounds > 10 && input.is_empty());
        if until == Until::Flushed {
            assert_eq!(unzip_so_far(&all), text);
        } else {
            assert_eq!(unzip(&all), text);
        }
    }
}

#[test]
fn a_compressor_that_was_used_leaves_nothing_in_the_next_stream() {
    for level in 1..=9 {
        let settings = Settings { level, ..SETTINGS };
        for before in [Until::Free, Until::Flushed, Until::Ended] {
            for text in [&b"hello"[..], &noise(30_000)] {
                let mut z = Compressor::take(settings);
                let mut out = Chain::new();
                tests::run(&mut z, &mut chain(&[text]), (before, 1 << 20), &mut out).unwrap();
                drop(z);
                let mut z = Compressor::take(settings);
                let mut out = Chain::new();
                tests::run(
                    &mut z,
                    &mut chain(&[b"hello, hello"]),
                    (Until::Ended, 1 << 16),
                    &mut out,
                )
                .unwrap();
                assert_eq!(unzip(&bytes(&out)), b"hello, hello", "{level} {before:?}");
            }
        }
    }
}

#[test]
fn streams_can_be_read() {
    for level in [1, 6, 9] {
        let settings = Settings { level, ..SETTINGS };
        let make = |len| Box::new(Compressor::take(settings.fitted(len))) as Box<dyn Coder>;
        tests::streams_can_be_read(make, unzip_so_far);
    }
}

#[test]
fn small_responses_have_small_windows() {
    let fitted = |len| {
        let Settings { window_bits, mem_level, .. } = SETTINGS.fitted(len);
        (window_bits, mem_level)
    };
    assert_eq!(fitted(None), (15, 8));
    assert_eq!(fitted(Some(0)), (15, 8));
    assert_eq!(fitted(Some(1 << 20)), (15, 8));
    assert_eq!(fitted(Some(16384 - 262)), (15, 8));
    assert_eq!(fitted(Some(16384 - 263)), (14, 7));
    assert_eq!(fitted(Some(1024)), (11, 4));
    assert_eq!(fitted(Some(1)), (9, 2));
    let low = Settings { mem_level: 1, ..SETTINGS }.fitted(Some(1));
    assert_eq!((low.window_bits, low.mem_level), (9, 1));
}
