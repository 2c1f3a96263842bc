//! The fields of a response that decide about keeping it, as nginx reads them.
//!
//! The fields are taken in the order in which they came, since nginx does so: `X-Accel-Expires`
//! stands against a later `Cache-Control`, but not against an earlier one that forbade.

use std::cell::Cell;
use std::ops::Range;

use base::ascii::parse_i63;
use base::time::parse_http_date;
use bytes::Bytes;
use http_wire::h1::{FieldId, ResponseHead};

use crate::ignore;

/// Longest `Vary` that is heeded; a response with a longer one is not kept.
pub(crate) const VARY_MAX: usize = 128;

/// The verdict of a response's fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// They forbid to keep it.
    pub forbidden: bool,
    /// Until when it is fresh, seconds since 1970; 0 is not said.
    pub valid: i64,
    /// The time after that for which it may be served while it is fetched anew.
    pub updating: i64,
    /// The same when fetching it anew fails.
    pub error: i64,
    /// `Vary`, all of it.
    pub vary: Bytes,
}

/// The state while fields are read.
struct Reader {
    rules: Rules,
    /// Said by `Cache-Control`; taken back by `X-Accel-Expires`.
    no_cache: bool,
    /// `Expires` is past, or no date; taken back by those two.
    expired: bool,
    /// `X-Accel-Expires` came.
    accel: bool,
    now: i64,
}

impl Rules {
    /// Reads the fields of a head, but for those that `ignored` (bits of [`ignore`]) names. `valid`
    /// is the end of its freshness as known before.
    pub fn read(head: &ResponseHead, text: &[u8], ignored: u64, valid: i64, now: i64) -> Rules {
        let rules = Rules { valid, ..Rules::default() };
        let mut reader = Reader { rules, no_cache: false, expired: false, accel: false, now };
        let heeded = |bit| ignored & bit == 0;
        let mut vary = Vec::new();
        for field in head.fields.iter().filter(|f| !f.ignored) {
            let value = field.value.of(text);
            match field.id {
                FieldId::CacheControl if heeded(ignore::CACHE_CONTROL) => reader.control(value),
                FieldId::Expires if heeded(ignore::EXPIRES) => reader.expires(value),
                FieldId::XAccelExpires => {
                    if heeded(ignore::XA_EXPIRES) {
                        reader.accel(value);
                    }
                    reader.accel = true;
                }
                FieldId::SetCookie if heeded(ignore::SET_COOKIE) => reader.rules.forbidden = true,
                FieldId::Vary if heeded(ignore::VARY) => {
                    if !vary.is_empty() {
                        vary.extend_from_slice(b", ");
                    }
                    vary.extend_from_slice(value);
                    if value == b"*" || vary.len() > VARY_MAX {
                        reader.rules.forbidden = true;
                    }
                }
                _ => {}
            }
        }
        reader.rules.vary = Bytes::from(vary);
        reader.rules.forbidden |= reader.no_cache || reader.expired;
        reader.rules
    }
}

/// Whether the fields of a response that is kept forbid that, found out once for many requests: a
/// location that ignores less than the one that kept it may ask.
#[derive(Debug, Default)]
pub struct Forbids(Cell<Option<(u64, bool)>>);

impl Forbids {
    /// The verdict of [`Rules::read`].
    pub fn ask(
        &self,
        head: &ResponseHead,
        text: &[u8],
        ignored: u64,
        valid: i64,
        now: i64,
    ) -> bool {
        match self.0.get() {
            Some((of, forbidden)) if of == ignored && valid != 0 => return forbidden,
            _ => {}
        }
        let forbidden = Rules::read(head, text, ignored, valid, now).forbidden;
        // `Expires` counts where nothing else says how long it is fresh: it depends on the time.
        if valid != 0 && !head.fields.has(FieldId::XAccelExpires) {
            self.0.set(Some((ignored, forbidden)));
        }
        forbidden
    }
}

impl Reader {
    fn control(&mut self, value: &[u8]) {
        let value = value.to_ascii_lowercase();
        let find = |word: &str| memchr::memmem::find(&value, word.as_bytes());
        let seconds = |word: &str| find(word).map(|at| delta_seconds(&value[at + word.len()..]));
        let decided = self.rules.valid != 0 && self.accel;
        if !decided {
            if ["no-cache", "no-store", "private"].iter().any(|word| find(word).is_some()) {
                self.no_cache = true;
                return;
            }
            match seconds("s-maxage=").or_else(|| seconds("max-age=")) {
                None => {}
                Some(None) => {
                    self.rules.forbidden = true;
                    return;
                }
                Some(Some(0)) => {
                    self.no_cache = true;
                    return;
                }
                Some(Some(n)) => {
                    self.rules.valid = self.now.saturating_add(n);
                    self.expired = false;
                }
            }
        }
        match seconds("stale-while-revalidate=") {
            None => {}
            Some(None) => {
                self.rules.forbidden = true;
                return;
            }
            Some(Some(n)) => {
                self.rules.updating = n;
                self.rules.error = n;
            }
        }
        match seconds("stale-if-error=") {
            None => {}
            Some(None) => self.rules.forbidden = true,
            Some(Some(n)) => self.rules.error = n,
        }
    }

    fn expires(&mut self, value: &[u8]) {
        if self.rules.valid != 0 {
            return;
        }
        match parse_http_date(value).filter(|t| *t >= self.now) {
            Some(t) => self.rules.valid = t,
            None => self.expired = true,
        }
    }

    fn accel(&mut self, value: &[u8]) {
        let valid = match value.strip_prefix(b"@") {
            Some(at) => parse_i63(at),
            None => match parse_i63(value) {
                Some(0) => {
                    self.rules.forbidden = true;
                    return;
                }
                n => n.map(|n| self.now.saturating_add(n)),
            },
        };
        if let Some(valid) = valid {
            self.rules.valid = valid;
            self.no_cache = false;
            self.expired = false;
        }
    }
}

/// The number at the start of a text, up to a separator; `None` if it is not a number.
fn delta_seconds(text: &[u8]) -> Option<i64> {
    let end = text.iter().position(|b| matches!(b, b',' | b';' | b' ')).unwrap_or(text.len());
    text[..end].iter().try_fold(0_i64, |n, b| {
        b.is_ascii_digit().then(|| n.saturating_mul(10).saturating_add(i64::from(b - b'0')))
    })
}

/// The range of a request that begins so far into the response that the whole is not worth being
/// fetched for it (`*_cache_max_range_offset`).
pub fn range_begins_beyond(range: &[u8], max: u64) -> bool {
    if max == 0 {
        return true;
    }
    const UNIT: Range<usize> = 0..6;
    if range.len() < 7 || !range[UNIT].eq_ignore_ascii_case(b"bytes=") {
        return false;
    }
    let from = range[UNIT.end..].trim_ascii_start();
    if from.first() == Some(&b'-') {
        return true;
    }
    let digits = from.iter().take_while(|b| b.is_ascii_digit()).count();
    base::ascii::parse_u64(&from[..digits]).is_some_and(|offset| offset >= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_wire::h1::{ResponseParser, ResponseStep};

    const NOW: i64 = 1_000_000_000;

    fn read(fields: &str, ignored: u64, valid: i64) -> Rules {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let mut head = ResponseHead::new();
        let step = ResponseParser::new().parse(text.as_bytes(), &mut head);
        assert!(matches!(step, ResponseStep::Done { .. }), "{fields}");
        Rules::read(&head, text.as_bytes(), ignored, valid, NOW)
    }

    #[test]
    fn what_is_remembered_is_what_would_be_read() {
        let ask = |forbids: &Forbids, fields: &str, ignored, valid, now| {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            let mut head = ResponseHead::new();
            ResponseParser::new().parse(text.as_bytes(), &mut head);
            let asked = forbids.ask(&head, text.as_bytes(), ignored, valid, now);
            let read = Rules::read(&head, text.as_bytes(), ignored, valid, now).forbidden;
            assert_eq!(asked, read, "{fields} {ignored} {valid} {now}");
        };
        for fields in [
            "Cache-Control: max-age=60\r\n",
            "Cache-Control: no-store\r\n",
            "Set-Cookie: a=b\r\n",
            "Expires: Sun, 09 Sep 2001 01:46:45 GMT\r\n",
            "X-Accel-Expires: @0\r\nExpires: Sun, 09 Sep 2001 01:46:45 GMT\r\n",
        ] {
            let forbids = Forbids::default();
            for ignored in [0, ignore::CACHE_CONTROL, ignore::SET_COOKIE, 0] {
                for (valid, now) in [(NOW + 9, NOW), (0, NOW), (0, NOW + 99), (NOW + 9, NOW + 99)] {
                    ask(&forbids, fields, ignored, valid, now);
                }
            }
        }
    }

    fn valid(fields: &str) -> Option<i64> {
        let rules = read(fields, 0, 0);
        (!rules.forbidden).then_some(if rules.valid == 0 { 0 } else { rules.valid - NOW })
    }

    #[test]
    fn how_long() {
        for (fields, expected) in [
            ("", Some(0)),
            ("Cache-Control: max-age=60\r\n", Some(60)),
            ("Cache-Control: public, MAX-AGE=60, s-maxage=5\r\n", Some(5)),
            ("Cache-Control: max-age=60\r\nCache-Control: s-maxage=7\r\n", Some(7)),
            ("Cache-Control: max-age=0\r\n", None),
            ("Cache-Control: max-age=1x\r\n", None),
            ("Cache-Control: no-store\r\n", None),
            ("Cache-Control: private, max-age=9\r\n", None),
            ("Cache-Control: no-cache=\"Set-Cookie\"\r\n", None),
            ("Expires: Sun, 09 Sep 2001 01:46:45 GMT\r\n", Some(5)),
            ("Expires: Sun, 09 Sep 2001 01:46:39 GMT\r\n", None),
            ("Expires: 0\r\n", None),
            ("Expires: 0\r\nCache-Control: max-age=60\r\n", Some(60)),
            ("Cache-Control: max-age=60\r\nExpires: 0\r\n", Some(60)),
            ("X-Accel-Expires: 10\r\nCache-Control: no-cache\r\n", Some(10)),
            ("Cache-Control: no-cache\r\nX-Accel-Expires: 10\r\n", Some(10)),
            ("Expires: 0\r\nX-Accel-Expires: @1000000008\r\n", Some(8)),
            ("X-Accel-Expires: 0\r\nCache-Control: max-age=60\r\n", None),
            ("X-Accel-Expires: x\r\nCache-Control: max-age=60\r\n", Some(60)),
            ("Set-Cookie: a=b\r\nCache-Control: max-age=60\r\n", None),
            ("Vary: *\r\n", None),
            ("Vary: X\r\n", Some(0)),
        ] {
            assert_eq!(valid(fields), expected, "{fields}");
        }
        assert!(read(&format!("Vary: {}\r\n", "x".repeat(129)), 0, 0).forbidden);
        assert_eq!(&read("Vary: A\r\nVary: B, C\r\n", 0, 0).vary[..], b"A, B, C");
        // A known end stands against Expires, and gives way to max-age.
        assert_eq!(read("Expires: 0\r\n", 0, NOW + 3).valid, NOW + 3);
        assert_eq!(read("Cache-Control: max-age=9\r\n", 0, NOW + 3).valid, NOW + 9);
    }

    #[test]
    fn how_long_when_stale() {
        let stale = |fields: &str| {
            let rules = read(fields, 0, 0);
            (rules.updating, rules.error)
        };
        assert_eq!(stale("Cache-Control: max-age=1, stale-while-revalidate=5\r\n"), (5, 5));
        assert_eq!(stale("Cache-Control: stale-if-error=7, stale-while-revalidate=5\r\n"), (5, 7));
        assert_eq!(stale("X-Accel-Expires: 1\r\nCache-Control: stale-if-error=7\r\n"), (0, 7));
        assert_eq!(valid("Cache-Control: stale-if-error=x\r\n"), None);
        assert_eq!(delta_seconds(b"99999999999999999999,"), Some(i64::MAX));
    }

    #[test]
    fn ignored_fields() {
        let all = "Cache-Control: no-store\r\nExpires: 0\r\nSet-Cookie: a=b\r\nVary: *\r\n\
                   X-Accel-Expires: 0\r\n";
        let bits = ignore::CACHE_CONTROL
            | ignore::EXPIRES
            | ignore::SET_COOKIE
            | ignore::VARY
            | ignore::XA_EXPIRES;
        assert_eq!(read(all, bits, 0), Rules::default());
        for bit in 0..12 {
            let without = bits & !(1 << bit);
            assert!(without == bits || read(all, without, 0).forbidden, "{bit}");
        }
    }

    #[test]
    fn ranges_far_into_a_response() {
        for (range, max, expected) in [
            ("bytes=10-", 10, true),
            ("bytes=9-", 10, false),
            ("BYTES= 10-20", 10, true),
            ("bytes=-5", 10, true),
            ("bytes=x", 10, false),
            ("chars=99-", 10, false),
            ("bytes=0-", 0, true),
            ("bytes=", 10, false),
        ] {
            assert_eq!(range_begins_beyond(range.as_bytes(), max), expected, "{range}");
        }
    }
}
