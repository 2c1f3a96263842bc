//! Targets, escaping, hosts and ranges.

use http_wire::uri::{Escape, Unescape, escape, inspect, normalize, parse_unsafe, unescape};

/// A slow normaliser agrees; escaping and unescaping are inverse; nothing unsafe passes for safe.
pub fn run(data: &[u8]) {
    if data.first() == Some(&b'/') {
        for merge in [false, true] {
            let mut out = b"x/".to_vec();
            let fast = normalize(data, merge, &mut out).ok();
            let fast = fast.map(|parts| (out[2..].to_vec(), data[parts.args].to_vec()));
            assert_eq!(fast, slow(data, merge));
            if let Some((path, _)) = fast {
                assert!(path.len() <= data.len());
                assert!(!segments(&path).any(|segment| matches!(segment, b"." | b"..")));
            }
        }
        if let Some(target) = inspect(data).filter(|target| target.plain) {
            let (path, args) = slow(data, true).expect("a plain path is sound");
            assert_eq!(path, data[..target.path_len]);
            assert_eq!(args, data[target.args_start..]);
        }
    }
    for kind in [Escape::Uri, Escape::Args, Escape::UriComponent, Escape::Html] {
        let (mut escaped, mut back) = (Vec::new(), Vec::new());
        escape(data, kind, &mut escaped);
        assert_eq!(escaped.len(), data.len() + 2 * kind.count(data));
        assert_eq!(unescape(&escaped, Unescape::All, &mut back), escaped.len());
        assert_eq!(back, data);
    }
    for mode in [Unescape::All, Unescape::Uri, Unescape::Redirect] {
        let mut out = Vec::new();
        let taken = unescape(data, mode, &mut out);
        assert!(taken <= data.len() && out.len() <= taken);
        assert!(taken == data.len() || out.last() == Some(&b'?'));
    }
    let mut out = Vec::new();
    if let Ok(args) = parse_unsafe(data, &mut out) {
        assert!(args.end <= data.len() && !out.is_empty() && !out.contains(&0));
        assert!(!segments(&out).any(|segment| segment == b".."));
    }
    if let Some(host) = http_wire::uri::validate_host(data) {
        assert!(host.name_len > 0 && host.name_len <= data.len());
        assert!(!data.iter().any(|byte| *byte <= b' ' || matches!(byte, b'/' | b'@' | b'#')));
    }
    ranges(data);
}

fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

/// Decodes first, then splits, then resolves: a step at a time.
fn slow(raw: &[u8], merge: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut decoded, mut rest) = (Vec::new(), raw);
    let mut args = Vec::new();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'#' => break,
            b'?' => {
                args = rest.split(|byte| *byte == b'#').next()?.to_vec();
                break;
            }
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                decoded.push(u8::from_str_radix(digits, 16).ok().filter(|byte| *byte != 0)?);
                rest = &rest[2..];
            }
            _ => decoded.push(byte),
        }
    }
    let mut out: Vec<&[u8]> = Vec::new();
    let all: Vec<&[u8]> = segments(&decoded).skip(1).collect();
    for (i, segment) in all.iter().enumerate() {
        let last = i + 1 == all.len();
        match *segment {
            b"." => {}
            b".." => drop(out.pop()?),
            b"" if merge && !last => continue,
            _ => out.push(segment),
        }
        if last && matches!(*segment, b"." | b"..") {
            out.push(b"");
        }
    }
    let path = out.iter().flat_map(|segment| [b"/", *segment].concat()).collect();
    Some((path, args))
}

fn ranges(data: &[u8]) {
    let mut ranges = Vec::new();
    for (len, max) in [(0, None), (1000, None), (1000, Some(2_u32)), (i64::MAX as u64, None)] {
        let outcome = http_wire::range::parse(data, len, max, &mut ranges);
        if outcome == http_wire::range::RangeSelection::Partial {
            assert!(!ranges.is_empty() && max.is_none_or(|max: u32| ranges.len() <= max as usize));
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= len));
        }
    }
}
