use std::io::Read;

use super::deflate::{Compressor, Settings, Until};
use super::*;

const SETTINGS: Settings = Settings { level: 1, window_bits: 15, mem_level: 8 };

fn chain(pieces: &[&[u8]]) -> Chain {
    let mut chain = Chain::new();
    pieces.iter().for_each(|piece| chain.push(mem::Buf::Mem(Bytes::copy_from_slice(piece))));
    chain
}

fn bytes(chain: &Chain) -> Vec<u8> {
    chain.iter().flat_map(|buf| buf.memory().unwrap().to_vec()).collect()
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

/// What an unfinished stream gives so far.
fn unzip_so_far(bytes: &[u8]) -> Vec<u8> {
    let mut z = zlib_rs::Inflate::new(true, 15 + 16);
    let mut out = vec![0; 1 << 20];
    z.decompress(bytes, &mut out, zlib_rs::InflateFlush::NoFlush).unwrap();
    out.truncate(z.total_out() as usize);
    out
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut n = 88172645463325252u64;
    let next = || {
        n ^= n << 13;
        n ^= n >> 7;
        n ^= n << 17;
        n as u8
    };
    std::iter::repeat_with(next).take(len).collect()
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
                assert_eq!(z.run(&mut input, Until::Ended, &mut out, usize::MAX), Ok(true));
                assert!(z.ended() && input.is_empty());
                assert_eq!(unzip(&bytes(&out)), text, "{level} {window_bits} {mem_level}");
                assert_eq!((z.total_in(), z.total_out()), (text.len() as u64, out.len()));
            }
        }
    }
}

#[test]
fn pieces_and_empty_ones() {
    let mut z = Compressor::take(SETTINGS);
    let mut out = Chain::new();
    for pieces in [&[&b""[..]][..], &[], &[b"one ", b"", b"two "], &[b"three"]] {
        assert_eq!(z.run(&mut chain(pieces), Until::Free, &mut out, 1 << 16), Ok(true));
    }
    assert_eq!(z.run(&mut Chain::new(), Until::Ended, &mut out, 1 << 16), Ok(true));
    assert_eq!(unzip(&bytes(&out)), b"one two three");
    let mut z = Compressor::take(SETTINGS);
    let mut out = Chain::new();
    assert_eq!(z.run(&mut Chain::new(), Until::Ended, &mut out, 1 << 16), Ok(true));
    assert_eq!(unzip(&bytes(&out)), b"");
}

#[test]
fn what_is_flushed_can_be_read() {
    for text in [b"DA".to_vec(), noise(70_000)] {
        let mut z = Compressor::take(SETTINGS);
        let mut out = Chain::new();
        assert_eq!(z.run(&mut chain(&[&text]), Until::Flushed, &mut out, usize::MAX), Ok(true));
        assert_eq!(unzip_so_far(&bytes(&out)), text);
        // Nothing new: nothing comes out, and nothing goes wrong.
        let len = out.len();
        assert_eq!(z.run(&mut Chain::new(), Until::Flushed, &mut out, 1 << 16), Ok(true));
        assert_eq!(z.run(&mut chain(&[b""]), Until::Flushed, &mut out, 1 << 16), Ok(true));
        assert_eq!(out.len(), len);
        assert_eq!(z.run(&mut chain(&[b"TA"]), Until::Ended, &mut out, 1 << 16), Ok(true));
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
            let done = z.run(&mut input, until, &mut out, 4096).unwrap();
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
                z.run(&mut chain(&[text]), before, &mut out, 1 << 20).unwrap();
                drop(z);
                let mut z = Compressor::take(settings);
                let mut out = Chain::new();
                z.run(&mut chain(&[b"hello, hello"]), Until::Ended, &mut out, 1 << 16).unwrap();
                assert_eq!(unzip(&bytes(&out)), b"hello, hello", "{level} {before:?}");
            }
        }
    }
}

#[test]
fn ratios_are_rounded() {
    for (before, after, want) in [
        (2125, 1000, "2.13"),
        (2124, 1000, "2.12"),
        (999, 500, "2.00"),
        (1, 3, "0.33"),
        (64, 25, "2.56"),
    ] {
        let mut out = Vec::new();
        write_ratio(before, after, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}
