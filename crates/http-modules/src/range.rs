//! `range`: parts of a response (RFC 9110 section 14), cut from its body before all body filters.

use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;

use base::ascii::write_u64;
use bytes::Bytes;
use http::core_conf::CoreLocDraft;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::output::{Body, BodyFilter, FilterStep, Piece};
use http::request::Request;
use http_wire::h1::{FieldId, Version};
use http_wire::range::RangeSelection;
use mem::{Buf, Chain};

/// The module's table.
pub static MODULE: Module = Module { name: "range", install: Some(install), ..Module::EMPTY };

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), conf::ConfError> {
    if l.conf::<CoreLocDraft>().max_ranges != Some(0) {
        p.header_filters.push(Box::new(filter));
    }
    Ok(())
}

fn filter(r: &mut Request) -> Verdict {
    if !r.out.allow_ranges || r.status() != 200 || r.version() < Version::HTTP_10 {
        return Verdict::Next;
    }
    let Some(len) = r.out.content_length else { return Verdict::Next };
    let mut ranges = Vec::new();
    let outcome = match r.header(FieldId::Range) {
        Some(value) if still_current(r) => {
            http_wire::range::parse(value, len, max_ranges(r), &mut ranges)
        }
        _ => RangeSelection::Whole,
    };
    match (outcome, &ranges[..]) {
        (RangeSelection::Whole, _) => r.out.add("Accept-Ranges", Bytes::from_static(b"bytes")),
        (RangeSelection::Unsatisfiable, _) => {
            content_range(r, format!("bytes */{len}"));
            return Verdict::Status(416);
        }
        (RangeSelection::Partial, [one]) => single(r, len, one.clone()),
        (RangeSelection::Partial, _) => multipart(r, len, &ranges),
    }
    Verdict::Next
}

/// `If-Range`: the parts that the client has are of what the response is now.
fn still_current(r: &Request) -> bool {
    let Some(value) = r.header(FieldId::IfRange) else { return true };
    if value.len() >= 2 && value.ends_with(b"\"") {
        return r.out.etag.as_ref().is_some_and(|tag| tag == value);
    }
    let date = base::time::parse_http_date(value);
    r.out.last_modified.is_some() && date == r.out.last_modified
}

/// The most ranges that may be taken; of a body that comes piece by piece one, since others may
/// lie before it.
fn max_ranges(r: &Request) -> Option<u32> {
    match (&r.out.body, r.loc.core.max_ranges) {
        _ if r.out.part_from.is_some() => Some(1),
        (Body::Stream(_), _) => Some(1),
        (_, usize::MAX) => None,
        (_, n) => Some(u32::try_from(n).unwrap_or(u32::MAX)),
    }
}

fn content_range(r: &mut Request, value: String) {
    r.out.remove(b"Content-Range");
    r.out.add("Content-Range", Bytes::from(value));
}

fn single(r: &mut Request, len: u64, range: Range<u64>) {
    r.set_status(206);
    content_range(r, format!("bytes {}-{}/{len}", range.start, range.end - 1));
    let part = range.end - range.start;
    r.out.content_length = Some(part);
    let skip = range.start.saturating_sub(r.out.part_from.unwrap_or(0));
    r.out.part = Some(range);
    match &mut r.out.body {
        Body::Empty | Body::Upgraded(_) => {}
        Body::Chain(chain) => {
            chain.advance(skip);
            let part = chain.split_to(part);
            *chain = part;
        }
        Body::Stream(_) => {
            r.out.filters.insert(0, Box::new(Cut { skip, left: part }));
        }
    }
}

fn multipart(r: &mut Request, len: u64, ranges: &[Range<u64>]) {
    let boundary = boundary();
    let mut head = Vec::with_capacity(160);
    // Writing to a Vec cannot fail.
    let _ = write!(head, "\r\n--{boundary}\r\n");
    if let Some(t) = &r.out.content_type {
        head.extend_from_slice(b"Content-Type: ");
        r.out.write_content_type(t, &mut head);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"Content-Range: bytes ");
    r.set_status(206);
    r.out.content_type = Some(Bytes::from(format!("multipart/byteranges; boundary={boundary}")));
    r.out.charset = None;
    r.out.content_type_written = None;
    r.out.remove(b"Content-Range");
    let body = std::mem::take(&mut r.out.body);
    let header_only = !matches!(body, Body::Chain(_));
    let pieces = match body {
        Body::Chain(chain) => pieces(chain),
        _ => Vec::new(),
    };
    let mut out = Chain::new();
    let mut total = 0;
    for range in ranges {
        let mut text = head.clone();
        write_u64(&mut text, range.start);
        text.push(b'-');
        write_u64(&mut text, range.end - 1);
        text.push(b'/');
        write_u64(&mut text, len);
        text.extend_from_slice(b"\r\n\r\n");
        total += text.len() as u64 + (range.end - range.start);
        out.push_bytes(Bytes::from(text));
        copy_range(&pieces, range.clone(), &mut out);
    }
    let end = format!("\r\n--{boundary}--\r\n");
    r.out.content_length = Some(total + end.len() as u64);
    out.push_bytes(Bytes::from(end));
    r.out.body = if header_only { Body::Empty } else { Body::Chain(out) };
}

/// The pieces of a chain in a form that can be shared: ranges may overlap and come in any order.
pub fn pieces(mut chain: Chain) -> Vec<Buf> {
    let mut pieces = Vec::new();
    while let Some(buf) = chain.pop_front() {
        pieces.push(match buf {
            Buf::Page(page) => Buf::Mem(page.freeze()),
            b => b,
        });
    }
    pieces
}

/// Appends a range of what lies in the pieces.
pub fn copy_range(pieces: &[Buf], range: Range<u64>, out: &mut Chain) {
    let mut at = 0;
    for piece in pieces {
        let len = piece.len();
        let from = range.start.saturating_sub(at).min(len);
        let to = range.end.saturating_sub(at).min(len);
        if from < to {
            match piece {
                Buf::Mem(bytes) => out.push_bytes(bytes.slice(from as usize..to as usize)),
                Buf::File { file, pos, .. } => out.push_file(file.clone(), pos + from, pos + to),
                Buf::Page(_) => {}
            }
        }
        at += len;
    }
}

/// Twenty digits that no response of late had.
fn boundary() -> String {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    let n = match NEXT.get() {
        0 => base::time::unix_ms() << 22 ^ u64::from(std::process::id()),
        n => n,
    };
    NEXT.set(n + 1);
    format!("{n:020}")
}

/// One range of a body that comes piece by piece.
pub(crate) struct Cut {
    /// The length of the part before it.
    pub skip: u64,
    /// Its length.
    pub left: u64,
}

impl BodyFilter for Cut {
    fn filter(&mut self, _: &mut Request, Piece { input, out, .. }: Piece<'_>) -> FilterStep {
        let skipped = self.skip.min(input.len());
        input.advance(skipped);
        self.skip -= skipped;
        let mut part = input.split_to(self.left);
        self.left -= part.len();
        out.append(&mut part);
        input.clear();
        FilterStep::Go
    }

    fn takes_files(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chain: &Chain) -> Vec<u8> {
        chain.iter().flat_map(|b| b.memory().unwrap_or(b"<file>").to_vec()).collect()
    }

    #[test]
    fn ranges_of_pieces() {
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from_static(b"abcd"));
        chain.write(b"efgh");
        chain.push_bytes(Bytes::from_static(b"ij"));
        let pieces = pieces(chain);
        for (range, want) in
            [(0..10, "abcdefghij"), (2..5, "cde"), (4..8, "efgh"), (9..10, "j"), (3..9, "defghi")]
        {
            let mut out = Chain::new();
            copy_range(&pieces, range, &mut out);
            assert_eq!(text(&out), want.as_bytes());
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let file = Buf::File { file: std::os::fd::OwnedFd::from(file).into(), pos: 100, end: 200 };
        let mut out = Chain::new();
        copy_range(&[Buf::Mem(Bytes::from_static(b"abc")), file], 1..13, &mut out);
        assert_eq!(out.iter().next().and_then(Buf::memory), Some(&b"bc"[..]));
        assert!(matches!(out.iter().nth(1), Some(Buf::File { pos: 100, end: 110, .. })));
    }

    #[test]
    fn boundaries_differ() {
        let (a, b) = (boundary(), boundary());
        assert!(a != b && a.len() == 20 && a.bytes().all(|d| d.is_ascii_digit()));
    }
}
