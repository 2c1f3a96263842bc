//! Partial content: `Content-Range`, the start of a slice, and the parts of a body.

use std::ops::Range;

use bytes::Bytes;
use http_modules::range::{copy_range, pieces};
use http_wire::range::{ContentRange, RangeSelection, parse, start_of_one};
use mem::{Buf, Chain};

/// An accepted field, written and read again, is the same; both readers of a single range agree on
/// its start; parts that are cut from a body in pieces are those of the body.
pub fn run(data: &[u8]) {
    if let Some(range) = ContentRange::parse(data) {
        assert!(range.end > 0);
        let length = range.length.map_or("*".to_owned(), |length| length.to_string());
        let text = format!("bytes {}-{}/{length}", range.start, range.end - 1);
        assert_eq!(ContentRange::parse(text.as_bytes()), Some(range));
    }
    let mut ranges = Vec::new();
    if let Some(start) = start_of_one(data)
        && parse(data, i64::MAX as u64, None, &mut ranges) == RangeSelection::Partial
    {
        assert_eq!(ranges.iter().map(|range| range.start).collect::<Vec<_>>(), [start]);
    }
    let (step, field) = match data.split_first() {
        Some((step, field)) => (usize::from(*step).max(1), field),
        None => return,
    };
    let body: Vec<u8> = (0..1000).map(|n| (n % 251) as u8).collect();
    if parse(field, body.len() as u64, None, &mut ranges) == RangeSelection::Partial {
        let mut chain = Chain::new();
        for (n, piece) in body.chunks(step).enumerate() {
            match n % 2 {
                0 => chain.push(Buf::Mem(Bytes::copy_from_slice(piece))),
                _ => chain.write(piece),
            }
        }
        let pieces = pieces(chain);
        for Range { start, end } in ranges {
            let mut out = Chain::new();
            copy_range(&pieces, start..end, &mut out);
            let got: Vec<u8> = out.iter().filter_map(Buf::memory).flatten().copied().collect();
            assert_eq!(got, body[start as usize..end as usize]);
        }
    }
}
