//! `match`: what a health check sends, and the expected response.

use bytes::Bytes;
use conf::pattern::Pattern;
use conf::{ConfError, Node, Word};

/// The condition on a response.
enum Expect {
    /// Contains this text.
    Text(Bytes),
    /// Matches this pattern.
    Like(Pattern),
}

/// A `match` block; without one, nothing is sent or expected.
#[derive(Default)]
pub(super) struct Matching {
    pub send: Option<Bytes>,
    expect: Option<Expect>,
}

impl Matching {
    /// Parses the directives of the block.
    ///
    /// # Errors
    /// An unknown or duplicate directive, or a malformed text or pattern.
    pub fn parse(nodes: &[Node]) -> Result<Matching, ConfError> {
        let mut m = Matching::default();
        for n in nodes {
            let is_second = match n.name.bytes() {
                b"send" => m.send.is_some(),
                b"expect" => m.expect.is_some(),
                _ => {
                    let m = format!("unknown directive \"{}\" in match", n.name.lossy());
                    return Err(ConfError::at(&n.name, m));
                }
            };
            if is_second {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            match (n.name.bytes(), &n.args[..]) {
                (b"send", [text]) => m.send = Some(unescape(text)?),
                (b"expect", [text]) if !text.bytes().is_empty() => {
                    m.expect = Some(Expect::Text(unescape(text)?));
                }
                (b"expect", [how, text]) if matches!(how.bytes(), b"~" | b"~*") => {
                    let any_case = how.bytes() == b"~*";
                    let pattern = Pattern::compile(text, text.bytes(), any_case)?;
                    m.expect = Some(Expect::Like(pattern));
                }
                _ => return Err(ConfError::directive(n, "has invalid parameters")),
            }
        }
        Ok(m)
    }

    /// Whether a response is expected.
    pub fn expects(&self) -> bool {
        self.expect.is_some()
    }

    /// Whether the bytes so far satisfy the condition.
    pub fn is_met(&self, said: &[u8]) -> bool {
        match &self.expect {
            None => true,
            Some(Expect::Text(text)) => memchr::memmem::find(said, text).is_some(),
            // An aborted match counts as failed, because it does not prove that the server is
            // healthy.
            Some(Expect::Like(pattern)) => pattern.is_match(said).unwrap_or(false),
        }
    }
}

/// Decodes `\x80`-style escapes.
fn unescape(w: &Word) -> Result<Bytes, ConfError> {
    let text = w.bytes();
    if memchr::memmem::find(text, b"\\x").is_none() {
        return Ok(w.text.clone());
    }
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        if !text[at..].starts_with(b"\\x") {
            out.push(text[at]);
            at += 1;
            continue;
        }
        let (Some(high), Some(low)) = (digit(text.get(at + 2)), digit(text.get(at + 3))) else {
            return Err(ConfError::at(w, format!("invalid \"\\x\" in \"{}\"", w.lossy())));
        };
        out.push((high * 16 + low) as u8);
        at += 4;
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(text: &'static str) -> Result<Matching, String> {
        let options = conf::parse::Options::default();
        let text = Bytes::from_static(text.as_bytes());
        let tree = conf::parse::parse_bytes(std::path::Path::new("t"), text, &options);
        Matching::parse(&tree.unwrap().nodes).map_err(|e| e.message)
    }

    #[test]
    fn answers_are_compared() {
        for (of, said, is) in [
            ("", &b""[..], true),
            ("expect PONG;", b"+PONG\r\n", true),
            ("expect PONG;", b"+PON", false),
            ("expect '\\x00\\xfFa';", b"-\x00\xffa-", true),
            ("expect ~ ^220;", b"220 ready", true),
            ("expect ~ ^220;", b"-220", false),
            ("expect ~ OK;", b"ok", false),
            ("expect ~* OK;", b"ok", true),
        ] {
            assert_eq!(matching(of).unwrap().is_met(said), is, "{of}");
        }
        let m = matching("send '\\x01PING\r\n'; expect x;").unwrap();
        assert_eq!(m.send.as_deref(), Some(&b"\x01PING\r\n"[..]));
        assert!(m.expects() && !matching("send x;").unwrap().expects());
    }

    #[test]
    fn what_is_refused() {
        for (text, message) in [
            ("send a; send b;", "\"send\" directive is duplicate"),
            ("expect a; expect ~ b;", "\"expect\" directive is duplicate"),
            ("send a b;", "\"send\" directive has invalid parameters"),
            ("expect ! a;", "\"expect\" directive has invalid parameters"),
            ("expect '';", "\"expect\" directive has invalid parameters"),
            ("send '\\x1';", "invalid \"\\x\" in \"\\x1\""),
            ("status 200;", "unknown directive \"status\" in match"),
        ] {
            assert_eq!(matching(text).err().as_deref(), Some(message), "{text}");
        }
        assert!(matching("expect ~ '(';").is_err());
    }
}
