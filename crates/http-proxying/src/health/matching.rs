//! `match`: the conditions on a healthy server's answer.

use bytes::Bytes;
use conf::pattern::Pattern;
use conf::{ConfError, Node, Word};
use http_wire::h1::ResponseHead;

/// A comparison of a text.
enum Is {
    Equal(Bytes),
    Like(Pattern),
    /// Any value.
    There,
}

impl Is {
    fn holds(&self, text: &[u8]) -> bool {
        match self {
            Is::Equal(t) => t == text,
            // A match that was given up is none: the server is not known to be well.
            Is::Like(p) => p.is_match(text).unwrap_or(false),
            Is::There => true,
        }
    }
}

struct OfHeader {
    name: Bytes,
    not: bool,
    is: Is,
}

/// A `match` block; without one, a status of 2xx or 3xx passes.
#[derive(Default)]
pub(super) struct Matching {
    statuses: Option<(bool, Vec<(u16, u16)>)>,
    headers: Vec<OfHeader>,
    body: Option<(bool, Pattern)>,
}

fn invalid(w: &Word) -> ConfError {
    ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
}

impl Matching {
    /// Reads the directives inside the block.
    pub fn parse(nodes: &[Node]) -> Result<Matching, ConfError> {
        let mut m = Matching::default();
        for n in nodes {
            match n.name.bytes() {
                b"status" => m.set_status(n)?,
                b"header" => m.headers.push(of_header(n)?),
                b"body" => {
                    if m.body.is_some() {
                        return Err(ConfError::directive(n, "is duplicate"));
                    }
                    let (not, pattern) = match (n.arg(0)?.bytes(), n.args.len()) {
                        (b"~", 2) => (false, n.arg(1)?),
                        (b"!~", 2) => (true, n.arg(1)?),
                        _ => return Err(invalid(n.arg(0)?)),
                    };
                    m.body = Some((not, Pattern::compile(pattern, pattern.bytes(), false)?));
                }
                _ => {
                    let m = format!("unknown directive \"{}\" in match", n.name.lossy());
                    return Err(ConfError::at(&n.name, m));
                }
            }
        }
        Ok(m)
    }

    fn set_status(&mut self, n: &Node) -> Result<(), ConfError> {
        if self.statuses.is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        let (not, words) = match n.args.split_first() {
            Some((first, rest)) if first.bytes() == b"!" => (true, rest),
            _ => (false, &n.args[..]),
        };
        let code = |text: &[u8]| {
            base::ascii::parse_u64(text).filter(|c| (100..=599).contains(c)).map(|c| c as u16)
        };
        let range = |w: &Word| {
            let text = w.bytes();
            let range = match memchr::memchr(b'-', text) {
                Some(i) => code(&text[..i]).zip(code(&text[i + 1..])),
                None => code(text).map(|c| (c, c)),
            };
            range.ok_or_else(|| invalid(w))
        };
        let ranges = words.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        if ranges.is_empty() {
            return Err(ConfError::directive(n, "needs a status"));
        }
        self.statuses = Some((not, ranges));
        Ok(())
    }

    /// Whether the body has to be read.
    pub(crate) fn wants_body(&self) -> bool {
        self.body.is_some()
    }

    /// Checks that an answer is that of a healthy server; the error says which condition it fails.
    pub fn check(&self, head: &ResponseHead, text: &[u8], body: &[u8]) -> Result<(), &'static str> {
        let status = head.status;
        let well = match &self.statuses {
            None => (200..400).contains(&status),
            Some((not, ranges)) => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&status)) != *not
            }
        };
        if !well {
            return Err("the status does not match");
        }
        for h in &self.headers {
            let mut values =
                head.fields.iter().filter(|f| f.name.of(text).eq_ignore_ascii_case(&h.name));
            if values.any(|f| h.is.holds(f.value.of(text))) == h.not {
                return Err("a header does not match");
            }
        }
        match &self.body {
            Some((not, p)) if p.is_match(body).unwrap_or(*not) == *not => {
                Err("the body does not match")
            }
            _ => Ok(()),
        }
    }
}

fn of_header(n: &Node) -> Result<OfHeader, ConfError> {
    let words: Vec<&[u8]> = n.args.iter().map(|w| w.bytes()).collect();
    let name = |i: usize| n.args[i].text.clone();
    let pattern = |w: &Word| Pattern::compile(w, w.bytes(), false).map(Is::Like);
    Ok(match words[..] {
        [b"!", _] => OfHeader { name: name(1), not: true, is: Is::There },
        [_] => OfHeader { name: name(0), not: false, is: Is::There },
        [_, b"=", _] => OfHeader { name: name(0), not: false, is: Is::Equal(name(2)) },
        [_, b"!=", _] => OfHeader { name: name(0), not: true, is: Is::Equal(name(2)) },
        [_, b"~", _] => OfHeader { name: name(0), not: false, is: pattern(&n.args[2])? },
        [_, b"!~", _] => OfHeader { name: name(0), not: true, is: pattern(&n.args[2])? },
        _ => return Err(ConfError::directive(n, "has invalid parameters")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_wire::h1::{ResponseParser, ResponseStep};

    fn matching(text: &str) -> Result<Matching, String> {
        let text = Bytes::from(text.to_owned());
        let options = conf::parse::Options::default();
        let tree = conf::parse::parse_bytes(std::path::Path::new("t"), text, &options);
        Matching::parse(&tree.unwrap().nodes).map_err(|e| e.message)
    }

    fn well(of: &str, head: &str, body: &str) -> bool {
        let text = format!("HTTP/1.1 {head}\r\n\r\n");
        let mut parsed = ResponseHead::new();
        let step = ResponseParser::new().parse(text.as_bytes(), &mut parsed);
        assert!(matches!(step, ResponseStep::Done { .. }), "{text}");
        matching(of).unwrap().check(&parsed, text.as_bytes(), body.as_bytes()).is_ok()
    }

    #[test]
    fn answers() {
        for (of, head, body, is) in [
            ("", "200 OK", "", true),
            ("", "302 Found", "", true),
            ("", "404 No", "", false),
            ("status 200 204;", "204 No", "", true),
            ("status 200-399;", "400 No", "", false),
            ("status ! 500-599;", "404 No", "", true),
            ("status ! 500-599 404;", "404 No", "", false),
            ("header X-A;", "200 OK\r\nx-a: 1", "", true),
            ("header X-A;", "200 OK", "", false),
            ("header ! X-A;", "200 OK\r\nx-a: 1", "", false),
            ("header X-A = 1;", "200 OK\r\nX-A: 1", "", true),
            ("header X-A = 1;", "200 OK\r\nX-A: 12", "", false),
            ("header X-A != 1;", "200 OK\r\nX-A: 2", "", true),
            ("header X-A ~ ^1;", "200 OK\r\nX-A: 12", "", true),
            ("header X-A !~ ^1;", "200 OK\r\nX-A: 12", "", false),
            ("body ~ 'wel+';", "200 OK", "all is well", true),
            ("body ~ 'wel+';", "200 OK", "broken", false),
            ("body !~ broken;", "200 OK", "broken", false),
            ("body !~ broken;", "200 OK", "all is well", true),
        ] {
            assert_eq!(well(of, head, body), is, "{of} {head} {body}");
        }
    }

    #[test]
    fn what_is_refused() {
        for text in ["status 99;", "status !;", "status 200-x;", "header a b c;", "body x;", "x y;"]
        {
            assert!(matching(text).is_err(), "{text}");
        }
    }
}
