//! The arguments of a URI, as `r.args` has them.

/// Names and values in order. As in njs, the text is decoded before it is split: `%26` separates.
/// A part without a name is left out.
pub fn pairs(args: &[u8]) -> Vec<(String, String)> {
    let text = decode(args);
    let mut pairs = Vec::new();
    for part in text.split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if !name.is_empty() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
    }
    pairs
}

/// Percent-decoded, with spaces for `+`, and U+FFFD for what is no UTF-8.
pub fn decode(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    rest = after;
                }
                _ => out.push(b'%'),
            },
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::{decode, pairs};

    #[test]
    fn arguments_are_decoded_and_split() {
        let all = pairs(b"a=1&b=%32&A=3&b=4&B=two%20words&c&=x&&d=%D0%90+e");
        let all: Vec<_> = all.iter().map(|(k, v)| format!("{k}:{v}")).collect();
        assert_eq!(all, ["a:1", "b:2", "A:3", "b:4", "B:two words", "c:", "d:А e"]);
    }

    #[test]
    fn wrong_escapes_stay() {
        assert_eq!(decode(b"%zz%4"), "%zz%4");
        assert_eq!(decode(b"%FF"), "\u{fffd}");
    }
}
