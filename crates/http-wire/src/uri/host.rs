//! Hosts: the rules for a Host field and for the authority of a request target.

/// A valid host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Length of the name: without port, without one trailing dot, with the brackets of `[::1]`.
    pub name_len: usize,
    /// The port; 0 when there is none.
    pub port: u16,
    /// The name has capital letters.
    pub has_upper: bool,
}

const PLAIN: u8 = 0;
const UPPER: u8 = 1;
const DOT: u8 = 2;
const COLON: u8 = 3;
const CLOSE: u8 = 4;
const PERCENT: u8 = 5;
const BAD: u8 = 6;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut class = [BAD; 256];
    let mut i = 0;
    while i < 256 {
        class[i] = match i as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => PLAIN,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => PLAIN,
            b'A'..=b'Z' => UPPER,
            b'.' => DOT,
            b':' => COLON,
            b']' => CLOSE,
            b'%' => PERCENT,
            _ => BAD,
        };
        i += 1;
    }
    class
}

/// Checks a host as nginx does: the characters of RFC 3986's reg-name, or an IP literal in
/// brackets, then an optional port up to 65535 (which may be empty). Refused are an empty name,
/// two dots in a row and anything else.
pub fn validate_host(host: &[u8]) -> Option<Host> {
    let literal = host.first() == Some(&b'[');
    let mut at = usize::from(literal);
    let mut has_upper = false;
    let mut closed = false;
    let mut after_dot = false;
    while let Some(&byte) = host.get(at) {
        match CLASS[byte as usize] {
            PLAIN => {}
            UPPER => has_upper = true,
            DOT if after_dot => return None,
            COLON if literal => {}
            COLON => break,
            CLOSE if literal => {
                closed = true;
                at += 1;
                break;
            }
            DOT => {}
            PERCENT if !literal => {}
            _ => return None,
        }
        after_dot = byte == b'.';
        at += 1;
    }
    if literal && !(closed && host.get(1..at - 1).is_some_and(is_literal)) {
        return None;
    }
    let port = match host.get(at..) {
        None | Some([]) => 0,
        Some([b':', digits @ ..]) => parse_port(digits)?,
        Some(_) => return None,
    };
    let name_len = at - usize::from(after_dot && !literal);
    if name_len == 0 { None } else { Some(Host { name_len, port, has_upper }) }
}

/// Whether the text between brackets is an address of IPv6, or has the form that later versions of
/// IP are to have: `v1.x` (RFC 3986 section 3.2.2).
fn is_literal(text: &[u8]) -> bool {
    if let [b'v' | b'V', future @ ..] = text {
        let digits = future.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        return digits > 0 && matches!(&future[digits..], [b'.', _, ..]);
    }
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// A port of any number of digits, none included.
fn parse_port(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |port, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { port.checked_mul(10)?.checked_add(u16::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use super::validate_host;

    #[test]
    fn hosts() {
        for (host, want) in [
            ("localhost", Some((9, 0, false))),
            ("Example.COM:8080", Some((11, 8080, true))),
            ("example.com.", Some((11, 0, false))),
            ("example.com.:80", Some((11, 80, false))),
            ("example.com:", Some((11, 0, false))),
            ("127.0.0.1:65535", Some((9, 65535, false))),
            ("[::1]", Some((5, 0, false))),
            ("[::1]:443", Some((5, 443, false))),
            ("[FE80::1]:1", Some((9, 1, true))),
            ("a_b~c!$&'()*+,;=", Some((16, 0, false))),
            ("a%20b", Some((5, 0, false))),
            ("x:00000080", Some((1, 80, false))),
            ("[v1.x:y]", Some((8, 0, false))),
            ("[::ffff:192.0.2.1]", Some((18, 0, false))),
            ("[]", None),
            ("[]:80", None),
            ("[12345]", None),
            ("[::1::]", None),
            ("[192.0.2.1]", None),
            ("[v.x]", None),
            ("[v1]", None),
            ("[v1.]", None),
            ("", None),
            (".", None),
            ("..", None),
            (":80", None),
            ("a..b", None),
            ("a:65536", None),
            ("a:99999999999", None),
            ("a:8a", None),
            ("a:80:80", None),
            ("a b", None),
            ("a/b", None),
            ("a\tb", None),
            ("a@b", None),
            ("a\\b", None),
            ("\u{e9}", None),
            ("[::1", None),
            ("[::1]x", None),
            ("[::1%25eth0]", None),
            ("[a..b]", None),
            ("a[b]", None),
        ] {
            let got = validate_host(host.as_bytes()).map(|h| (h.name_len, h.port, h.has_upper));
            assert_eq!(got, want, "{host:?}");
        }
    }
}
