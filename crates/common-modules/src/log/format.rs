//! `log_format`: a line's texts and variables, and how values are escaped in it.

use bytes::Bytes;
use conf::template::{VarId, VarNames};
use conf::{ConfError, Node, Word};
use engine::Session;
use engine::vars::{self, Registry};

use super::json::{self, Several};

/// The text of `combined`.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                        $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// Values that hold nothing to escape, whatever the client sends.
const SAFE: [&[u8]; 13] = [
    b"pipe",
    b"time_local",
    b"time_iso8601",
    b"time_rfc3339",
    b"msec",
    b"request_time",
    b"status",
    b"bytes_sent",
    b"body_bytes_sent",
    b"request_length",
    b"remote_addr",
    b"remote_port",
    b"connection",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Escape {
    /// Quotes, backslashes and all but printable ASCII as `\xXX`; `-` for no value.
    Default,
    /// As in JSON's strings.
    Json,
    None,
}

#[derive(Debug)]
pub(super) enum Part {
    Text(Bytes),
    Var {
        id: VarId,
        safe: bool,
    },
    /// A member of a JSON object that is a number.
    Number {
        id: VarId,
        several: Several,
    },
}

/// A compiled `log_format`.
#[derive(Debug)]
pub struct Format {
    /// The name that `access_log` refers to it by.
    pub name: Bytes,
    pub(super) parts: Vec<Part>,
    pub(super) escape: Escape,
}

impl Format {
    /// The predefined format of HTTP that nginx has, too.
    ///
    /// # Errors
    /// The engine has no variable of a name in it.
    pub fn combined<S: Session>(
        registry: &mut Registry<S>,
        at: &Word,
    ) -> Result<Format, ConfError> {
        Format::predefined(registry, at, "combined", COMBINED, Escape::Default)
    }

    fn predefined<S: Session>(
        registry: &mut Registry<S>,
        at: &Word,
        name: &'static str,
        text: &'static str,
        escape: Escape,
    ) -> Result<Format, ConfError> {
        let word = Word { text: Bytes::from_static(text.as_bytes()), ..at.clone() };
        let mut parts = Vec::new();
        append(&mut parts, &word, registry)?;
        Ok(Format { name: Bytes::from_static(name.as_bytes()), parts, escape })
    }

    /// Reads `log_format NAME [escape=…] TEXT…`.
    ///
    /// # Errors
    /// The way of escaping is unknown, or a variable is malformed.
    pub fn parse<S: Session>(registry: &mut Registry<S>, n: &Node) -> Result<Format, ConfError> {
        let mut texts = &n.args[1..];
        let mut escape = Escape::Default;
        if let [first, rest @ ..] = texts
            && let Some(how) = first.bytes().strip_prefix(b"escape=")
        {
            escape = match how {
                b"default" => Escape::Default,
                b"json" => Escape::Json,
                b"none" => Escape::None,
                _ => {
                    let how = String::from_utf8_lossy(how);
                    let m = format!("unknown log format escaping \"{how}\"");
                    return Err(ConfError::at(first, m));
                }
            };
            texts = rest;
        }
        let mut parts = Vec::new();
        for word in texts {
            append(&mut parts, word, registry)?;
        }
        Ok(Format { name: n.args[0].text.clone(), parts, escape })
    }

    /// Appends the line for a session, without the line feed.
    pub fn write<S: Session>(&self, s: &mut S, out: &mut Vec<u8>) {
        self.write_parts(s, out, |_, _| false);
    }

    /// The same without the values of one variable; appends their places to `holes`.
    pub fn write_without<S: Session>(
        &self,
        s: &mut S,
        without: VarId,
        out: &mut Vec<u8>,
        holes: &mut Vec<usize>,
    ) {
        self.write_parts(s, out, |id, at| {
            let is_it = id == without;
            if is_it {
                holes.push(at);
            }
            is_it
        });
    }

    /// Appends the parts but for the variables that `leaves_out` says, by their place.
    #[inline]
    fn write_parts<S: Session>(
        &self,
        s: &mut S,
        out: &mut Vec<u8>,
        mut leaves_out: impl FnMut(VarId, usize) -> bool,
    ) {
        for part in &self.parts {
            match part {
                Part::Var { id, .. } | Part::Number { id, .. } if leaves_out(*id, out.len()) => {}
                Part::Text(t) => out.extend_from_slice(t),
                Part::Number { id, several } => json::write_number(s, *id, *several, out),
                Part::Var { id, safe } => {
                    let from = out.len();
                    if !vars::write(s, *id, out) {
                        out.truncate(from);
                        if self.escape == Escape::Default {
                            out.push(b'-');
                        }
                    } else if !safe {
                        escape_from(self.escape, out, from);
                    }
                }
            }
        }
    }
}

/// Compiles a text behind the parts that are there. Texts follow one another without a space.
pub(super) fn append<S: Session>(
    parts: &mut Vec<Part>,
    word: &Word,
    registry: &mut Registry<S>,
) -> Result<(), ConfError> {
    let text = &word.text;
    let mut at = 0;
    while at < text.len() {
        let Some(dollar) = memchr::memchr(b'$', &text[at..]).map(|i| at + i) else {
            parts.push(Part::Text(text.slice(at..)));
            break;
        };
        if dollar > at {
            parts.push(Part::Text(text.slice(at..dollar)));
        }
        let (name, end) = name_at(word, dollar)?;
        let id = registry.var_id(name, word)?;
        parts.push(Part::Var { id, safe: SAFE.contains(&name) });
        at = end;
    }
    Ok(())
}

/// The name behind the dollar, and the place where the text goes on.
pub(super) fn name_at(word: &Word, dollar: usize) -> Result<(&[u8], usize), ConfError> {
    let text = word.bytes();
    let bracket = text.get(dollar + 1) == Some(&b'{');
    let from = dollar + 1 + usize::from(bracket);
    let rest = &text[from.min(text.len())..];
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let len = rest.iter().take_while(|b| is_name(b)).count();
    let name = &rest[..len];
    if bracket && !rest.is_empty() && rest.get(len) != Some(&b'}') {
        let name = String::from_utf8_lossy(name);
        let m = format!("the closing bracket in \"{name}\" variable is missing");
        return Err(ConfError::within(word, dollar, from + len - dollar, m));
    }
    if name.is_empty() {
        let text = String::from_utf8_lossy(&text[dollar..]);
        let m = format!("invalid parameter \"{text}\"");
        return Err(ConfError::within(word, dollar, 1, m));
    }
    Ok((name, from + len + usize::from(bracket)))
}

/// Whether a byte is escaped, or has to be looked at with those behind it.
fn is_special(escape: Escape, b: u8) -> bool {
    match escape {
        Escape::Default => b == b'"' || b == b'\\' || !(0x20..0x7f).contains(&b),
        Escape::Json => b == b'"' || b == b'\\' || !(0x20..0x80).contains(&b),
        Escape::None => false,
    }
}

/// The place of the first special byte, if there is one.
fn first_special(escape: Escape, bytes: &[u8]) -> Option<usize> {
    // Few values have one, so eight bytes are tested together: one by one took 9 instructions a
    // byte, 440 for the request line and the user agent.
    if let Some(last) = bytes.last_chunk::<8>()
        && !has_special(escape, last)
        && !bytes.as_chunks::<8>().0.iter().any(|eight| has_special(escape, eight))
    {
        return None;
    }
    bytes.iter().position(|b| is_special(escape, *b))
}

/// Whether any of eight bytes is special.
#[inline]
fn has_special(escape: Escape, bytes: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let x = u64::from_ne_bytes(*bytes);
    // The high bit of the lowest byte below `limit` is set; bits above it may be wrong.
    let below = |x: u64, limit: u64| x.wrapping_sub(ONES * limit) & !x;
    let is = |b: u8| below(x ^ (ONES * u64::from(b)), 1);
    let both = x | below(x, 0x20) | is(b'"') | is(b'\\');
    let special = match escape {
        Escape::Default => both | is(0x7f),
        Escape::Json => both,
        Escape::None => 0,
    };
    special & HIGH != 0
}

/// Escapes the bytes of `out` from `from` on.
fn escape_from(escape: Escape, out: &mut Vec<u8>, from: usize) {
    if let Some(first) = first_special(escape, &out[from..]) {
        escape_tail(escape, out, from + first);
    }
}

#[cold]
fn escape_tail(escape: Escape, out: &mut Vec<u8>, from: usize) {
    let tail = out.split_off(from);
    match escape {
        Escape::Default => tail.iter().for_each(|b| match is_special(escape, *b) {
            true => {
                out.extend_from_slice(b"\\x");
                base::ascii::push_upper_hex(out, *b);
            }
            false => out.push(*b),
        }),
        Escape::Json => base::json::escape(&tail, out),
        Escape::None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(how: Escape, value: &[u8]) -> Vec<u8> {
        let mut out = b"kept \" ".to_vec();
        escape_from(how, &mut out, 7);
        out.extend_from_slice(value);
        escape_from(how, &mut out, 7);
        assert_eq!(&out[..7], b"kept \" ");
        out.split_off(7)
    }

    #[test]
    fn values_are_escaped() {
        let all = b"a\"b\\c\n\x1b\x7f\xc3\xa4/ ";
        assert_eq!(
            escaped(Escape::Default, all),
            b"a\\x22b\\x5Cc\\x0A\\x1B\\x7F\\xC3\\xA4/ ".to_vec()
        );
        assert_eq!(
            escaped(Escape::Json, b"a\"b\\c\n\r\t\x08\x0c\x1b\x7f\xc3\xa4/"),
            b"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u001B\x7f\xc3\xa4/".to_vec()
        );
        assert_eq!(escaped(Escape::None, all), all.to_vec());
        assert_eq!(escaped(Escape::Default, b""), b"");
    }

    #[test]
    fn a_special_byte_is_found_at_any_place() {
        for escape in [Escape::Default, Escape::Json, Escape::None] {
            for len in 0..26 {
                for at in 0..len {
                    for b in 0..=255 {
                        let mut bytes = vec![b'a'; len];
                        bytes[at] = b;
                        let found = is_special(escape, b).then_some(at);
                        assert_eq!(first_special(escape, &bytes), found, "{b} at {at} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_behind_dollars() {
        let file = std::path::Path::new("f").into();
        let pos = conf::Pos { file, line: 1, column: 1 };
        let of = |text: &'static str| {
            let text = Bytes::from_static(text.as_bytes());
            let word = Word { text, pos: pos.clone(), quoted: true };
            name_at(&word, 0).map(|(n, e)| (n.to_vec(), e)).map_err(|e| e.to_string())
        };
        assert_eq!(of("$uri:"), Ok((b"uri".to_vec(), 4)));
        assert_eq!(of("${uri}x"), Ok((b"uri".to_vec(), 6)));
        assert!(of("$").unwrap_err().starts_with("invalid parameter \"$\""));
        assert!(of("$-x").unwrap_err().starts_with("invalid parameter \"$-x\""));
        assert!(of("${").unwrap_err().starts_with("invalid parameter \"${\""));
        let missing = "the closing bracket in \"uri\" variable is missing";
        assert!(of("${uri-x").unwrap_err().starts_with(missing));
    }
}
