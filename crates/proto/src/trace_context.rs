//! W3C Trace Context: the fields `traceparent` and `tracestate` of a request.

/// The field with the trace and the span that a request belongs to.
pub const TRACEPARENT: &str = "traceparent";

/// The field with what other tracing systems note about the trace.
pub const TRACESTATE: &str = "tracestate";

/// The length of a `traceparent` of version 00, bytes.
pub const TRACEPARENT_LEN: usize = 55;

/// The bit of the flags that says that the trace is recorded (section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// A trace, a span in it, and whether it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    /// Of the whole trace; not zero.
    pub trace_id: [u8; 16],
    /// Of the span; not zero.
    pub span_id: [u8; 8],
    /// The span is recorded by its server.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the value of a `traceparent` field (section 3.2.2). A later version is read as far as
    /// this one goes (section 4.3). `None`: it is malformed, and the trace begins here.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let (known, later) = value.split_at_checked(TRACEPARENT_LEN)?;
        let dashes = [2, 35, 52];
        if dashes.iter().any(|at| known[*at] != b'-') {
            return None;
        }
        let [version] = hex(&known[..2])?;
        let fits = match version {
            0 => later.is_empty(),
            0xff => false,
            _ => later.first().is_none_or(|b| *b == b'-'),
        };
        let (trace_id, span_id): ([u8; 16], [u8; 8]) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_valid = fits && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(TraceParent { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }

    /// The value of the field, in version 00.
    pub fn write(&self) -> [u8; TRACEPARENT_LEN] {
        let mut out = [b'-'; TRACEPARENT_LEN];
        write_hex(&mut out[..2], &[0]);
        write_hex(&mut out[3..35], &self.trace_id);
        write_hex(&mut out[36..52], &self.span_id);
        write_hex(&mut out[53..], &[u8::from(self.sampled)]);
        out
    }
}

/// Whether the value of a `tracestate` field may be passed on: other values than visible ASCII with
/// spaces between are dropped whole (section 3.3.1.1). It is not read any further.
pub fn is_state(value: &[u8]) -> bool {
    value.iter().all(|b| (0x20..0x7f).contains(b) || *b == b'\t')
}

/// Lower-case digits (section 3.2.2.2): others make the field malformed.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

fn write_hex(out: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";

    #[test]
    fn values_are_read_and_written() {
        let parent = TraceParent::parse(GOOD.as_bytes()).unwrap();
        assert_eq!((parent.trace_id[0], parent.trace_id[15]), (0x0a, 0x9c));
        assert_eq!((parent.span_id[0], parent.span_id[7]), (0xb9, 0xe1));
        assert!(parent.sampled);
        assert_eq!(parent.write(), GOOD.as_bytes());
        let unsampled = TraceParent { sampled: false, ..parent };
        assert!(unsampled.write().ends_with(b"-00"));
        assert_eq!(TraceParent::parse(&unsampled.write()), Some(unsampled));
    }

    #[test]
    fn other_flags_and_later_versions_are_read() {
        let with = |from: &str, to: &str| TraceParent::parse(GOOD.replace(from, to).as_bytes());
        assert!(with("1-01", "1-03").unwrap().sampled);
        assert!(!with("1-01", "1-fe").unwrap().sampled);
        let later = GOOD.replacen("00", "cc", 1);
        for value in [later.clone(), format!("{later}-"), format!("{later}-what is to come")] {
            assert!(TraceParent::parse(value.as_bytes()).unwrap().sampled, "{value}");
        }
        assert_eq!(TraceParent::parse(format!("{later}x").as_bytes()), None);
    }

    #[test]
    fn malformed_values_are_none() {
        let with = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        for value in [
            String::new(),
            "00".to_owned(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-"),
            format!("{GOOD}0"),
            with("00-", "ff-"),
            with("00-", "0x-"),
            with("00-", "00_"),
            with("0af", "0Af"),
            with("0af", "0gf"),
            with("b9c", "B9c"),
            with("-01", "-0g"),
            with("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            with("b9c7c989f97918e1", "0000000000000000"),
        ] {
            assert_eq!(TraceParent::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn states_are_visible_text() {
        assert!(is_state(b"congo=ucfJifl5GOE,rojo=00f067aa0ba902b7") && is_state(b""));
        for bad in [&b"a=\0"[..], b"a=\xff", b"a=\x7f"] {
            assert!(!is_state(bad), "{bad:?}");
        }
    }
}
