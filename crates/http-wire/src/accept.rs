//! `Accept`: the weight that a client gives to a media type (RFC 9110 section 12.5.1), and how
//! weights are written in all fields of its kind.

/// The weight without a parameter `q`, in thousandths.
pub const FULL: u16 = 1000;

/// The weight of a media type in thousandths: the greatest of the elements that name it exactly. An
/// element with one of the `parameters` counts if its value is the same. Wildcards are not looked
/// at.
///
/// ```
/// use weir_http_wire::accept::weight;
///
/// let accept = b"text/plain;version=2;q=0.5, text/html";
/// assert_eq!(weight(accept, b"text/plain", &[("version", "2")]), 500);
/// assert_eq!(weight(accept, b"text/plain", &[("version", "1")]), 0);
/// assert_eq!(weight(accept, b"text/html", &[("version", "1")]), 1000);
/// ```
pub fn weight(accept: &[u8], kind: &[u8], parameters: &[(&str, &str)]) -> u16 {
    let weights = accept.split(|b| *b == b',').filter_map(|element| {
        let mut parts = element.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let mut weight = parts.next()?.eq_ignore_ascii_case(kind).then_some(FULL)?;
        for (name, value) in parts.map(parameter) {
            if name.eq_ignore_ascii_case(b"q") {
                weight = thousandths(value);
            }
            let is_it = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            if parameters.iter().any(|(wanted, of)| is_it(wanted) && value != of.as_bytes()) {
                return None;
            }
        }
        Some(weight)
    });
    weights.max().unwrap_or(0)
}

/// A parameter's name and value, without quotes.
fn parameter(text: &[u8]) -> (&[u8], &[u8]) {
    let at = text.iter().position(|b| *b == b'=').unwrap_or(text.len());
    let value = text.get(at + 1..).unwrap_or_default();
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    (&text[..at], bare.unwrap_or(value))
}

/// The weight that `text` is, in thousandths (RFC 9110 section 12.4.2): up to three digits behind
/// the point, one at most. What is none counts as 0.
pub fn thousandths(text: &[u8]) -> u16 {
    let (whole, digits) = match text {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] => (*whole, digits),
        _ => return 0,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let place = |n: usize| u16::from(digits.get(n).map_or(0, |d| d - b'0'));
    let sum = u16::from(whole - b'0') * FULL + place(0) * 100 + place(1) * 10 + place(2);
    if sum <= FULL { sum } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_type() {
        for (accept, want) in [
            ("a/b", 1000),
            ("A/B;Q=0.25", 250),
            ("x/y, a/b ; q=1.000 ;z", 1000),
            ("a/b;q=0.1,a/b;q=0.123", 123),
            ("a/b;version=\"1\";q=0", 0),
            ("a/b;version=2", 0),
            ("a/b;q=1.001", 0),
            ("a/b;q=", 0),
            ("a/bc", 0),
            ("*/*", 0),
            (";,=,\u{e9}", 0),
            ("", 0),
        ] {
            assert_eq!(weight(accept.as_bytes(), b"a/b", &[("version", "1")]), want, "{accept}");
        }
    }
}
