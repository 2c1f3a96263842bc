//! `application/x-www-form-urlencoded`: arguments of URLs, and bodies of requests.

use crate::Error;

/// Parameters of a request; more are refused.
const COUNT_MAX: usize = 64;

/// Bytes of all parameters.
const BYTES_MAX: usize = 64 << 10;

/// Parameters in their order.
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads parameters.
    pub(crate) fn parse(text: &[u8]) -> Result<Form, Error> {
        if text.len() > BYTES_MAX {
            return Err(Error::Request("the parameters are too long"));
        }
        let mut all = Vec::new();
        for pair in text.split(|b| *b == b'&').filter(|pair| !pair.is_empty()) {
            if all.len() == COUNT_MAX {
                return Err(Error::Request("there are too many parameters"));
            }
            let (name, value) = match pair.iter().position(|b| *b == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &b""[..]),
            };
            let malformed = Error::Request("a parameter is malformed");
            let (Some(name), Some(value)) = (decode(name), decode(value)) else {
                return Err(malformed);
            };
            all.push((name, value));
        }
        Ok(Form(all))
    }

    /// The value of a parameter. An empty one is the same as none (RFC 6749 section 3.1).
    ///
    /// # Errors
    /// It stands twice, and two readers could take different ones.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, Error> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Error::Request("a parameter stands twice")),
            (value, None) => Ok(value.filter(|value| !value.is_empty())),
        }
    }
}

fn decode(text: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = rest.get(..2)?;
                out.extend(base::ascii::parse_hex(digits)?);
                rest = &rest[2..];
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// Appends a value, percent-encoded.
pub(crate) fn encode(out: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Appends `name=value` behind the parameters that are there.
pub(crate) fn push(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() && !out.ends_with(['?', '&']) {
        out.push('&');
    }
    out.push_str(name);
    out.push('=');
    encode(out, value);
}

/// A URL up to where parameters can be appended.
pub(crate) fn with_query(url: &str) -> String {
    let mut url = url.to_owned();
    url.push(if url.contains('?') { '&' } else { '?' });
    url
}
