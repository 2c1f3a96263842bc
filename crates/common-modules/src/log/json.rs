//! `log_json`, and the predefined format `json`: a line is one JSON object.

use bytes::Bytes;
use conf::template::{VarId, VarNames};
use conf::{ConfError, Node, Word};
use engine::Session;
use engine::vars::{self, Registry};

use super::format::{Escape, Format, Part, append, name_at};

/// The members of the predefined format `json`.
const MEMBERS: &[(&str, &str)] = &[
    ("time", "$time_rfc3339"),
    ("remote_addr", "$remote_addr"),
    ("remote_user", "$remote_user"),
    ("request_id", "$request_id"),
    ("host", "$host"),
    ("server_name", "$server_name"),
    ("request_method", "$request_method"),
    ("request_uri", "$request_uri"),
    ("server_protocol", "$server_protocol"),
    ("status", "$status"),
    ("bytes_sent", "$bytes_sent"),
    ("body_bytes_sent", "$body_bytes_sent"),
    ("request_length", "$request_length"),
    ("request_time", "$request_time"),
    ("http_referer", "$http_referer"),
    ("http_user_agent", "$http_user_agent"),
    ("upstream_addr", "$upstream_addr"),
    ("upstream_status", "$upstream_status"),
    ("upstream_connect_time", "$upstream_connect_time"),
    ("upstream_header_time", "$upstream_header_time"),
    ("upstream_response_time", "$upstream_response_time"),
    ("upstream_cache_status", "$upstream_cache_status"),
    ("ssl_protocol", "$ssl_protocol"),
];

/// Variables whose values are numbers in JSON, beside those whose names end in [`SUMS`].
const NUMBERS: &[&[u8]] = &[
    b"body_bytes_sent",
    b"bytes_received",
    b"bytes_sent",
    b"connection",
    b"connection_requests",
    b"connection_time",
    b"content_length",
    b"gzip_ratio",
    b"msec",
    b"pid",
    b"proxy_port",
    b"remote_port",
    b"request_length",
    b"request_time",
    b"server_port",
    b"session_time",
    b"status",
    b"tcpinfo_rcv_space",
    b"tcpinfo_rtt",
    b"tcpinfo_rttvar",
    b"tcpinfo_snd_cwnd",
    b"upstream_status",
];

/// Ends of the names of variables with a value for each try of an upstream that can be added up.
const SUMS: &[&[u8]] = &[
    b"_bytes_received",
    b"_bytes_sent",
    b"_connect_time",
    b"_header_time",
    b"_queue_time",
    b"_response_length",
    b"_response_time",
    b"_session_time",
    b"_first_byte_time",
];

/// The number of a value that lists several, as `$upstream_response_time` does after several tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Several {
    /// Their sum.
    Sum,
    /// The last one.
    Last,
}

/// The kind of number that a variable holds; `None` for a text.
fn number(name: &[u8]) -> Option<Several> {
    if name.starts_with(b"upstream_") && SUMS.iter().any(|end| name.ends_with(end)) {
        return Some(Several::Sum);
    }
    NUMBERS.contains(&name).then_some(Several::Last)
}

/// The predefined format.
///
/// # Errors
/// The engine has no variable of a name in it.
pub fn predefined<S: Session>(registry: &mut Registry<S>, at: &Word) -> Result<Format, ConfError> {
    let word =
        |text: &'static str| Word { text: Bytes::from_static(text.as_bytes()), ..at.clone() };
    let mut members = Members::default();
    for (name, value) in MEMBERS {
        members.add(&word(name), &word(value), None, registry)?;
    }
    Ok(members.format(Bytes::from_static(b"json")))
}

/// Reads `log_json NAME { member value [number | string]; … }`.
///
/// # Errors
/// A line is malformed, a member stands twice, there is none, or a variable is malformed.
pub fn parse<S: Session>(registry: &mut Registry<S>, n: &Node) -> Result<Format, ConfError> {
    let mut members = Members::default();
    for line in n.entries() {
        let line = line?;
        let (value, kind) = match &line.args[..] {
            [value] => (value, None),
            [value, kind] => (value, Some(kind)),
            _ => return Err(ConfError::at(&line.name, "invalid number of parameters")),
        };
        members.add(&line.name, value, kind, registry)?;
    }
    if members.parts.is_empty() {
        return Err(ConfError::directive(n, "has no members"));
    }
    Ok(members.format(n.args[0].text.clone()))
}

/// The members so far.
#[derive(Default)]
struct Members {
    names: Vec<Bytes>,
    parts: Vec<Part>,
}

impl Members {
    fn add<S: Session>(
        &mut self,
        name: &Word,
        value: &Word,
        kind: Option<&Word>,
        registry: &mut Registry<S>,
    ) -> Result<(), ConfError> {
        if self.names.contains(&name.text) {
            let m = format!("duplicate member \"{}\"", name.lossy());
            return Err(ConfError::at(name, m));
        }
        let only = only_variable(value)?;
        let several = match (kind.map(Word::bytes), only) {
            (Some(b"string"), _) | (None, None) => None,
            (None, Some(variable)) => number(variable),
            (Some(b"number"), Some(variable)) => Some(number(variable).unwrap_or(Several::Last)),
            (Some(b"number"), None) => {
                let m = format!("a number is a single variable, not \"{}\"", value.lossy());
                return Err(ConfError::at(value, m));
            }
            (Some(other), _) => {
                let m = format!("invalid type \"{}\"", String::from_utf8_lossy(other));
                return Err(ConfError::at(kind.unwrap_or(value), m));
            }
        };
        let mut before = if self.names.is_empty() { b"{\"".to_vec() } else { b",\"".to_vec() };
        base::json::escape(name.bytes(), &mut before);
        before.extend_from_slice(b"\":");
        match (several, only) {
            (Some(several), Some(variable)) => {
                let id = registry.var_id(variable, value)?;
                self.parts.push(Part::Text(before.into()));
                self.parts.push(Part::Number { id, several });
            }
            _ => {
                before.push(b'"');
                self.parts.push(Part::Text(before.into()));
                let first = self.parts.len();
                append(&mut self.parts, value, registry)?;
                self.parts[first..].iter_mut().for_each(escape_text);
                self.parts.push(Part::Text(Bytes::from_static(b"\"")));
            }
        }
        self.names.push(name.text.clone());
        Ok(())
    }

    fn format(mut self, name: Bytes) -> Format {
        self.parts.push(Part::Text(Bytes::from_static(b"}")));
        Format { name, parts: self.parts, escape: Escape::Json }
    }
}

fn escape_text(part: &mut Part) {
    if let Part::Text(text) = part {
        let mut escaped = Vec::with_capacity(text.len());
        base::json::escape(text, &mut escaped);
        *text = escaped.into();
    }
}

/// The variable that a value consists of.
fn only_variable(value: &Word) -> Result<Option<&[u8]>, ConfError> {
    if value.bytes().first() != Some(&b'$') {
        return Ok(None);
    }
    let (name, end) = name_at(value, 0)?;
    Ok((end == value.bytes().len()).then_some(name))
}

/// Appends a number; `null` where the variable has no value, or one that is no number.
pub(super) fn write_number<S: Session>(s: &mut S, id: VarId, several: Several, out: &mut Vec<u8>) {
    let from = out.len();
    let has_value = vars::write(s, id, out);
    if has_value && is_number(&out[from..]) {
        return;
    }
    let value = out.split_off(from);
    match has_value.then(|| number_of(&value, several)).flatten() {
        Some(number) => out.extend_from_slice(number.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

/// The number of a list, whose values are parted by commas, and by colons between groups of
/// servers. A try without a value is `-`.
fn number_of(list: &[u8], several: Several) -> Option<String> {
    let list = std::str::from_utf8(list).ok()?;
    let values = list.split([',', ':']).map(str::trim);
    let mut values = values.filter(|value| is_number(value.as_bytes()));
    match several {
        Several::Last => values.next_back().map(str::to_owned),
        Several::Sum => {
            let (mut sum, mut decimals) = (None, 0);
            for value in values {
                decimals = decimals.max(value.split_once('.').map_or(0, |(_, rest)| rest.len()));
                sum = Some(sum.unwrap_or(0.0) + value.parse::<f64>().ok()?);
            }
            sum.map(|sum: f64| format!("{sum:.decimals$}"))
        }
    }
}

/// Whether a text is a number in JSON (RFC 8259 section 6); exponents do not occur in variables.
fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, rest) = match memchr::memchr(b'.', digits) {
        Some(dot) => (&digits[..dot], Some(&digits[dot + 1..])),
        None => (digits, None),
    };
    let are_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let has_zero = whole.len() > 1 && whole[0] == b'0';
    are_digits(whole) && !has_zero && rest.is_none_or(are_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lists() {
        let sum = |list: &[u8]| number_of(list, Several::Sum);
        let last = |list: &[u8]| number_of(list, Several::Last);
        assert_eq!(sum(b"0.010, 0.025 : 0.001").as_deref(), Some("0.036"));
        assert_eq!(sum(b"-, 120").as_deref(), Some("120"));
        assert_eq!(sum(b"18446744073709551615").as_deref(), Some("18446744073709551616"));
        assert_eq!((sum(b"-"), sum(b""), sum(b"\xff")), (None, None, None));
        assert_eq!(last(b"502, 504 : 200").as_deref(), Some("200"));
        assert_eq!(last(b"502, -").as_deref(), Some("502"));
    }

    #[test]
    fn numbers_are_those_of_json() {
        for good in ["0", "-1", "200", "0.001", "10.50", "1764300000.123"] {
            assert!(is_number(good.as_bytes()), "{good}");
        }
        for bad in ["", "-", "007", "1.", ".5", "1,2", "1e5", "NaN", " 1", "0x1", "--1", "1.2.3"] {
            assert!(!is_number(bad.as_bytes()), "{bad}");
        }
    }
}
