//! `Cache-Control` (RFC 9111 section 5.2, RFC 5861, RFC 8246), and its targeted forms for some
//! caches only (RFC 9213).
//!
//! The first is read leniently, towards storing less: a malformed value counts as zero, a quote
//! without its end ends with its directive. The others are dictionaries of structured fields (RFC
//! 8941): a malformed one is ignored as a whole.

use base::ascii::Decimal;

/// The largest number of seconds (RFC 9111 section 1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;

/// A directive that may name fields: `private`, `no-cache`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Listed {
    /// It is not there.
    #[default]
    No,
    /// It concerns the whole response.
    All,
    /// It concerns these fields; lower case.
    Fields(Vec<Vec<u8>>),
}

impl Listed {
    /// Whether it applies to the whole response.
    pub fn is_all(&self) -> bool {
        *self == Listed::All
    }

    /// Whether it names a field.
    pub fn names(&self, field: &[u8]) -> bool {
        match self {
            Listed::Fields(names) => names.iter().any(|n| n.eq_ignore_ascii_case(field)),
            _ => false,
        }
    }

    fn add(&mut self, value: Option<&[u8]>) {
        let name = |n: &[u8]| n.trim_ascii().to_ascii_lowercase();
        let names = value.unwrap_or_default().split(|b| *b == b',').map(name);
        let names: Vec<_> = names.filter(|n| !n.is_empty()).collect();
        match self {
            _ if names.is_empty() => *self = Listed::All,
            Listed::All => {}
            Listed::Fields(list) => list.extend(names),
            Listed::No => *self = Listed::Fields(names),
        }
    }
}

/// The directives of a `Cache-Control`, of a request or of a response. Seconds are at most
/// [`SECONDS_MAX`]; of a repeated directive the first counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheControl {
    /// `no-cache`: a stored response must be validated before it is used.
    pub no_cache: Listed,
    /// `private`: only the client's own cache may keep the response.
    pub private: Listed,
    /// `no-store`: nothing of it may be kept.
    pub no_store: bool,
    /// `public`: it may be kept even where that is otherwise forbidden.
    pub public: bool,
    /// `must-revalidate`: it must not be used when it is stale.
    pub must_revalidate: bool,
    /// `proxy-revalidate`: the same for shared caches.
    pub proxy_revalidate: bool,
    /// `must-understand`: it may be kept only by caches that know its status.
    pub must_understand: bool,
    /// `only-if-cached`: the client wants a stored response or none.
    pub only_if_cached: bool,
    /// `max-age`: the seconds for which it is fresh.
    pub max_age: Option<u64>,
    /// `s-maxage`: the seconds for which it is fresh in a shared cache.
    pub s_maxage: Option<u64>,
    /// `min-fresh`: the seconds for which it has to stay fresh.
    pub min_fresh: Option<u64>,
    /// `max-stale`; without a number, [`SECONDS_MAX`].
    pub max_stale: Option<u64>,
    /// `stale-while-revalidate`: the seconds for which it may be used while a new one is fetched.
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error`: the seconds for which it may be used if the server fails.
    pub stale_if_error: Option<u64>,
}

impl CacheControl {
    /// Reads one more field line.
    pub fn read(&mut self, line: &[u8]) {
        let mut rest = line;
        while let Some((name, value, left)) = directive(rest) {
            rest = left;
            self.set(&name.to_ascii_lowercase(), value.as_deref());
        }
    }

    fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        let secs = value.and_then(delta_seconds);
        // A freshness that makes no sense is none (RFC 9111 section 4.2.1).
        let fresh = Some(secs.unwrap_or(0));
        match name {
            b"no-cache" => self.no_cache.add(value),
            b"private" => self.private.add(value),
            b"no-store" => self.no_store = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = self.max_age.or(fresh),
            b"s-maxage" => self.s_maxage = self.s_maxage.or(fresh),
            b"min-fresh" => self.min_fresh = self.min_fresh.or(secs),
            b"max-stale" if value.is_none() => {
                self.max_stale = self.max_stale.or(Some(SECONDS_MAX));
            }
            b"max-stale" => self.max_stale = self.max_stale.or(secs),
            b"stale-while-revalidate" => {
                self.stale_while_revalidate = self.stale_while_revalidate.or(secs);
            }
            b"stale-if-error" => self.stale_if_error = self.stale_if_error.or(secs),
            _ => {}
        }
    }

    /// Reads a targeted field (RFC 9213 section 2.1), all of its lines joined by commas. `None`
    /// where it is empty or malformed: then it counts as absent.
    pub fn of_targeted(text: &[u8]) -> Option<CacheControl> {
        let members = dictionary(text)?;
        let mut out = CacheControl::default();
        for (i, (name, item)) in members.iter().enumerate() {
            // Of a key that is there twice the last counts (RFC 8941 section 3.2).
            if members[i + 1..].iter().any(|(later, _)| later == name) {
                continue;
            }
            match item {
                MemberValue::True if *name == b"max-stale" || !takes_seconds(name) => {
                    out.set(name, None)
                }
                MemberValue::Seconds(n) if takes_seconds(name) => out.set_seconds(name, *n),
                MemberValue::Text(text) if matches!(*name, b"no-cache" | b"private") => {
                    out.set(name, Some(text));
                }
                // Of another type than the directive: ignored.
                MemberValue::True
                | MemberValue::Seconds(_)
                | MemberValue::Text(_)
                | MemberValue::Other => {}
            }
        }
        Some(out)
    }

    fn set_seconds(&mut self, name: &[u8], n: u64) {
        self.set(name, Some(Decimal::new(n.min(SECONDS_MAX)).as_bytes()));
    }
}

fn takes_seconds(name: &[u8]) -> bool {
    matches!(
        name,
        b"max-age"
            | b"s-maxage"
            | b"stale-while-revalidate"
            | b"stale-if-error"
            | b"max-stale"
            | b"min-fresh"
    )
}

/// A number of seconds: digits and nothing else.
pub fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        Some((n * 10 + digit).min(SECONDS_MAX))
    })
}

/// A directive of a list: its name, its value without quotes, and the rest of the list.
type Directive<'a> = (&'a [u8], Option<Vec<u8>>, &'a [u8]);

/// The first directive of a list.
fn directive(line: &[u8]) -> Option<Directive<'_>> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t' | b',');
    let start = line.iter().position(|b| !blank(b))?;
    let line = &line[start..];
    let end = line.iter().position(|b| matches!(b, b'=' | b',')).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let name = name.trim_ascii();
    let Some(value) = rest.strip_prefix(b"=") else { return Some((name, None, rest)) };
    let value = value.trim_ascii_start();
    if let Some((text, rest)) = value.strip_prefix(b"\"").and_then(unquote) {
        let comma = memchr::memchr(b',', rest).unwrap_or(rest.len());
        // Text behind the quotes makes the value invalid.
        let text = if rest[..comma].trim_ascii().is_empty() { text } else { Vec::new() };
        return Some((name, Some(text), &rest[comma..]));
    }
    let end = memchr::memchr(b',', value).unwrap_or(value.len());
    let token = value[..end].trim_ascii().strip_prefix(b"\"").unwrap_or(value[..end].trim_ascii());
    Some((name, Some(token.to_vec()), &value[end..]))
}

/// The text before the closing quote, and the text behind it; `None` without a closing quote.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => return Some((out, &text[at + 1..])),
            b'\\' => {
                at += 1;
                out.push(*text.get(at)?);
            }
            b => out.push(b),
        }
        at += 1;
    }
}

/// A member's value, as far as it matters.
enum MemberValue {
    True,
    Seconds(u64),
    Text(Vec<u8>),
    Other,
}

/// The members of a dictionary (RFC 8941 section 4.2.2); `None` where it is empty or malformed.
fn dictionary(text: &[u8]) -> Option<Vec<(&[u8], MemberValue)>> {
    let mut rest = text.trim_ascii();
    let mut out = Vec::new();
    if rest.is_empty() {
        return None;
    }
    loop {
        let name = key(&mut rest)?;
        let item = match rest.strip_prefix(b"=") {
            Some(left) => {
                rest = left;
                member(&mut rest)?
            }
            None => MemberValue::True,
        };
        parameters(&mut rest)?;
        out.push((name, item));
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(out);
        }
        rest = rest.strip_prefix(b",")?.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
    }
}

fn key<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all = *rest;
    all.first().filter(|b| b.is_ascii_lowercase() || **b == b'*')?;
    let good = |b: &u8| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*')
    };
    let end = all.iter().position(|b| !good(b)).unwrap_or(all.len());
    *rest = &all[end..];
    Some(&all[..end])
}

fn parameters(rest: &mut &[u8]) -> Option<()> {
    while let Some(left) = rest.strip_prefix(b";") {
        *rest = left.trim_ascii_start();
        key(rest)?;
        if let Some(left) = rest.strip_prefix(b"=") {
            *rest = left;
            item(rest)?;
        }
    }
    Some(())
}

fn member(rest: &mut &[u8]) -> Option<MemberValue> {
    let Some(left) = rest.strip_prefix(b"(") else { return item(rest) };
    *rest = left;
    loop {
        *rest = rest.trim_ascii_start();
        if let Some(left) = rest.strip_prefix(b")") {
            *rest = left;
            return Some(MemberValue::Other);
        }
        item(rest)?;
        parameters(rest)?;
        rest.first().filter(|b| matches!(b, b' ' | b')'))?;
    }
}

fn item(rest: &mut &[u8]) -> Option<MemberValue> {
    let all = *rest;
    let run = |good: fn(&u8) -> bool| all.iter().position(|b| !good(b)).unwrap_or(all.len());
    match *all.first()? {
        b'0'..=b'9' | b'-' => number(rest),
        b'"' => {
            let (text, left) = unquote(&all[1..])?;
            let quoted = &all[1..all.len() - left.len() - 1];
            let escapes_well =
                quoted.windows(2).all(|w| w[0] != b'\\' || matches!(w[1], b'"' | b'\\'));
            if !escapes_well || !text.iter().all(|b| (0x20..0x7f).contains(b)) {
                return None;
            }
            *rest = left;
            Some(MemberValue::Text(text))
        }
        b'?' => {
            let value = *all.get(1)?;
            *rest = &all[2..];
            match value {
                b'1' => Some(MemberValue::True),
                b'0' => Some(MemberValue::Other),
                _ => None,
            }
        }
        b':' => {
            let end = memchr::memchr(b':', &all[1..])? + 1;
            let base64 = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
            *rest = &all[end + 1..];
            all[1..end].iter().all(base64).then_some(MemberValue::Other)
        }
        b if b.is_ascii_alphabetic() || b == b'*' => {
            let end = run(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(b));
            *rest = &all[end..];
            Some(MemberValue::Other)
        }
        _ => None,
    }
}

/// A number: fifteen digits at most, or twelve and three behind a point.
fn number(rest: &mut &[u8]) -> Option<MemberValue> {
    let (negative, text) = match rest.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, *rest),
    };
    let digits = |t: &[u8]| t.iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(text);
    if let Some(fraction) = text[whole..].strip_prefix(b".") {
        let len = digits(fraction);
        *rest = &fraction[len..];
        return ((1..=12).contains(&whole) && (1..=3).contains(&len)).then_some(MemberValue::Other);
    }
    *rest = &text[whole..];
    if !(1..=15).contains(&whole) {
        return None;
    }
    let n = text[..whole].iter().fold(0_u64, |n, b| n * 10 + u64::from(b - b'0'));
    Some(if negative { MemberValue::Other } else { MemberValue::Seconds(n) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> CacheControl {
        let mut out = CacheControl::default();
        lines.iter().for_each(|line| out.read(line.as_bytes()));
        out
    }

    #[test]
    fn directives_of_all_kinds() {
        let c = read(&["public, MAX-AGE=60 ,s-maxage=\"7\",, must-revalidate", "no-store"]);
        assert!(c.public && c.must_revalidate && c.no_store && !c.proxy_revalidate);
        assert_eq!((c.max_age, c.s_maxage), (Some(60), Some(7)));
        let c = read(&["private=\"Set-Cookie, X-A\", no-cache=X-B, no-cache=\"x-c\""]);
        assert!(c.private.names(b"x-a") && c.private.names(b"SET-COOKIE") && !c.private.is_all());
        assert!(c.no_cache.names(b"X-B") && c.no_cache.names(b"X-C") && !c.no_cache.names(b"X-A"));
        for all in ["private", "private=\"\"", "private=\"x\", private", "private, private=x"] {
            assert!(read(&[all]).private.is_all(), "{all}");
        }
        let c = read(&["max-stale, min-fresh=5, only-if-cached, stale-if-error=9"]);
        assert_eq!(
            (c.max_stale, c.min_fresh, c.stale_if_error),
            (Some(SECONDS_MAX), Some(5), Some(9))
        );
        assert!(c.only_if_cached);
        assert_eq!(read(&["max-stale=5"]).max_stale, Some(5));
        assert_eq!(read(&["max-stale=x, min-fresh=x"]).max_stale, None);
    }

    #[test]
    fn freshness_that_makes_no_sense_is_none() {
        for bad in [
            "max-age=x",
            "max-age=-1",
            "max-age",
            "max-age=",
            "max-age=1.5",
            "max-age=\"1",
            "max-age=\"1\"x",
            "max-age=1 2",
            "max-age=0, max-age=9",
        ] {
            let age = read(&[bad]).max_age;
            assert!(age == Some(0) || bad == "max-age=\"1" && age == Some(1), "{bad}");
        }
        assert_eq!(read(&["max-age=9, max-age=0"]).max_age, Some(9));
        assert_eq!(read(&["max-age=99999999999999999999"]).max_age, Some(SECONDS_MAX));
        assert_eq!(delta_seconds(b""), None);
    }

    #[test]
    fn what_stands_in_quotes_is_no_directive() {
        let c = read(&["x=\"a, no-store, \\\" private\", max-age=5"]);
        assert_eq!((c.no_store, c.private, c.max_age), (false, Listed::No, Some(5)));
        // But a quote that is not closed hides nothing.
        assert!(read(&["x=\"a, no-store"]).no_store);
        assert!(!read(&["xno-store, no-storex, x=no-store"]).no_store);
    }

    #[test]
    fn targeted_fields_are_read_to_the_letter() {
        let c = CacheControl::of_targeted(
            b"max-age=60, no-store=?0, must-revalidate;x=1, private=\"a\"",
        )
        .expect("good");
        assert_eq!(c.max_age, Some(60));
        assert!(!c.no_store && c.must_revalidate && c.private.names(b"A"));
        let c = CacheControl::of_targeted(b"max-age=5, a=(1 \"x\" t;q=1.5), b=:YQ==:, max-age=7");
        assert_eq!(c.expect("good").max_age, Some(7));
        for other_type in
            ["max-age=\"60\"", "max-age", "max-age=1.5", "max-age=a", "no-store=1", "max-age=-1"]
        {
            let c = CacheControl::of_targeted(other_type.as_bytes()).expect(other_type);
            assert_eq!(c, CacheControl::default(), "{other_type}");
        }
        for bad in [
            "",
            " ",
            ",",
            "max-age=",
            "MAX-AGE=5",
            "a=1,",
            "a b",
            "a=\"x",
            "a=\"\\x\"",
            "a=?2",
            "a=(1",
            "a=(1\"x\")",
            "a=1234567890123456",
            "a=1.2345",
            "a=@1",
            "a=\"\u{e9}\"",
        ] {
            assert_eq!(CacheControl::of_targeted(bad.as_bytes()), None, "{bad}");
        }
    }
}
