//! The subjects of a certificate: names and addresses.

use std::fmt;
use std::net::IpAddr;

/// A name or an address in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identifier {
    /// A name in lower case; it may begin with `*.`.
    Dns(String),
    /// An address (RFC 8738).
    Ip(IpAddr),
}

/// Why a text is no identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadIdentifier {
    /// A byte that no name has, with its position.
    Invalid(u8, usize),
    /// A character that a name does not have there, with its position.
    Unexpected(char, usize),
    /// It does not end with a label.
    NotALabel,
}

impl fmt::Display for BadIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadIdentifier::Invalid(byte, at) => {
                write!(f, "invalid character {byte:x} at position {at}")
            }
            BadIdentifier::Unexpected(c, at) => {
                write!(f, "unexpected character '{c}' at position {at}")
            }
            BadIdentifier::NotALabel => f.write_str("does not end with a label"),
        }
    }
}

impl Identifier {
    /// Reads a name, an address, or a name with a leading dot, which stands for itself with `www.`
    /// and without it.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &[u8]) -> Result<Vec<Identifier>, BadIdentifier> {
        let address = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        if let Some(address) = address {
            return Ok(vec![Identifier::Ip(address)]);
        }
        let name = checked(text)?;
        Ok(match name.strip_prefix('.') {
            // An address has no `www.`, and is no name: authorities would refuse the order.
            Some(host) if host.parse::<IpAddr>().is_ok() => {
                return Err(BadIdentifier::Unexpected('.', 0));
            }
            Some(host) => {
                vec![Identifier::Dns(format!("www.{host}")), Identifier::Dns(host.to_owned())]
            }
            None => vec![Identifier::Dns(name)],
        })
    }

    /// The type, in the protocol's word.
    pub fn kind(&self) -> &'static str {
        match self {
            Identifier::Dns(_) => "dns",
            Identifier::Ip(_) => "ip",
        }
    }

    /// The name or the address as text.
    pub fn value(&self) -> String {
        match self {
            Identifier::Dns(name) => name.clone(),
            Identifier::Ip(address) => address.to_string(),
        }
    }

    /// Whether it stands for all names below one.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Identifier::Dns(name) if name.starts_with("*."))
    }

    /// The server name by which a validator connects (RFC 8738 section 6 for addresses).
    pub fn server_name(&self) -> String {
        match self {
            Identifier::Dns(name) => name.clone(),
            Identifier::Ip(IpAddr::V4(v4)) => {
                let [a, b, c, d] = v4.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Identifier::Ip(IpAddr::V6(v6)) => {
                let mut name = String::new();
                for byte in v6.octets().iter().rev() {
                    name.push_str(&format!("{:x}.{:x}.", byte & 15, byte >> 4));
                }
                name + "ip6.arpa"
            }
        }
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value())
    }
}

/// A name in lower case: characters of RFC 3986's reg-name, an asterisk only as the whole first
/// label, and no dot at the end.
fn checked(text: &[u8]) -> Result<String, BadIdentifier> {
    #[derive(PartialEq)]
    enum At {
        Start,
        Label,
        Dot,
        Asterisk,
    }
    let mut at = At::Start;
    let mut name = String::with_capacity(text.len());
    for (i, &byte) in text.iter().enumerate() {
        at = match byte {
            0..=0x20 | 0x7f.. => return Err(BadIdentifier::Invalid(byte, i)),
            b'*' if at == At::Start => At::Asterisk,
            b'.' if at != At::Dot => At::Dot,
            _ if at == At::Asterisk => return Err(BadIdentifier::Unexpected(byte.into(), i)),
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => At::Label,
            _ if b"-_~%!$&'()+,;=".contains(&byte) => At::Label,
            _ => return Err(BadIdentifier::Unexpected(byte.into(), i)),
        };
        name.push(char::from(byte.to_ascii_lowercase()));
    }
    if at == At::Label { Ok(name) } else { Err(BadIdentifier::NotALabel) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        let dns = |name: &str| Identifier::Dns(name.to_owned());
        for (text, want) in [
            ("a.test", vec![dns("a.test")]),
            ("A_b.Test", vec![dns("a_b.test")]),
            (".a.test", vec![dns("www.a.test"), dns("a.test")]),
            ("*.a.test", vec![dns("*.a.test")]),
            ("192.0.2.1", vec![Identifier::Ip([192, 0, 2, 1].into())]),
            ("2001:DB8::0:1", vec![Identifier::Ip("2001:db8::1".parse().unwrap())]),
        ] {
            assert_eq!(Identifier::parse(text.as_bytes()), Ok(want), "{text}");
        }
        for (text, why) in [
            ("", BadIdentifier::NotALabel),
            ("*", BadIdentifier::NotALabel),
            ("*.", BadIdentifier::NotALabel),
            ("a.test.", BadIdentifier::NotALabel),
            ("a..test", BadIdentifier::Unexpected('.', 2)),
            ("*a.test", BadIdentifier::Unexpected('a', 1)),
            ("a*.test", BadIdentifier::Unexpected('*', 1)),
            ("a.*", BadIdentifier::Unexpected('*', 2)),
            ("a b", BadIdentifier::Invalid(b' ', 1)),
            (".192.0.2.1", BadIdentifier::Unexpected('.', 0)),
            ("\u{e4}", BadIdentifier::Invalid(0xc3, 0)),
        ] {
            assert_eq!(Identifier::parse(text.as_bytes()), Err(why), "{text}");
        }
    }

    #[test]
    fn addresses_have_names_for_validators() {
        let name = |text: &str| Identifier::parse(text.as_bytes()).unwrap()[0].server_name();
        assert_eq!(name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let v6 = "1.".to_owned() + &"0.".repeat(23) + "8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(name("2001:db8::1"), v6);
        assert_eq!(name("a.test"), "a.test");
    }
}
