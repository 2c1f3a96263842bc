//! JSON's strings, for the output of commands.

use std::fmt::Write as _;

/// A text as a string of JSON (RFC 8259 section 7).
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn strings() {
        assert_eq!(quoted("a\"b\\c\n\u{1}ü"), "\"a\\\"b\\\\c\\n\\u0001ü\"");
    }
}
