//! Columns of nginx's lists.

use std::io::Write as _;

use http_wire::uri::escape_html;

/// The width of names in HTML lists, in characters.
const NAME_WIDTH: usize = 50;

/// A name in its column: cut and marked where it is too long, filled with spaces behind the link.
pub fn name_column(out: &mut Vec<u8>, name: &[u8], dir: bool, utf8: bool) {
    let text = if utf8 { std::str::from_utf8(name).ok() } else { None };
    let len = text.map_or(name.len(), |t| t.chars().count());
    if len > NAME_WIDTH {
        let kept = NAME_WIDTH - 3;
        let end = text.and_then(|t| t.char_indices().nth(kept)).map_or(kept, |(i, _)| i);
        escape_html(&name[..end], out);
        out.extend_from_slice(b"..&gt;</a>");
        return;
    }
    escape_html(name, out);
    let mut width = len;
    if dir && width < NAME_WIDTH {
        out.push(b'/');
        width += 1;
    }
    out.extend_from_slice(b"</a>");
    out.resize(out.len() + NAME_WIDTH - width, b' ');
}

/// A size to the unit that it is told in, rounded to the nearest.
pub fn rounded_size(out: &mut Vec<u8>, size: u64) {
    let (unit, letter) = match size {
        0..=9_999 => {
            // Writing to a Vec cannot fail.
            let _ = write!(out, " {size:>6}");
            return;
        }
        10_000..0x10_0000 => (1 << 10, 'K'),
        0x10_0000..0x4000_0000 => (1 << 20, 'M'),
        _ => (1 << 30, 'G'),
    };
    let rounded = size / unit + u64::from(size % unit > unit / 2 - 1);
    let _ = write!(out, "{rounded:>6}{letter}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, dir: bool, utf8: bool) -> String {
        let mut out = Vec::new();
        name_column(&mut out, text.as_bytes(), dir, utf8);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_fill_their_column() {
        assert_eq!(name("a", false, false), format!("a</a>{}", " ".repeat(49)));
        assert_eq!(name("a", true, false), format!("a/</a>{}", " ".repeat(48)));
        let fifty = "0".repeat(50);
        assert_eq!(name(&fifty, true, false), format!("{fifty}</a>"));
        let longer = "0".repeat(51);
        assert_eq!(name(&longer, true, false), format!("{}..&gt;</a>", "0".repeat(47)));
        assert_eq!(name("<&>", false, false), format!("&lt;&amp;&gt;</a>{}", " ".repeat(47)));
        assert_eq!(name("фф", false, true), format!("фф</a>{}", " ".repeat(48)));
        assert_eq!(name("фф", false, false), format!("фф</a>{}", " ".repeat(46)));
        assert_eq!(name(&"ф".repeat(51), false, true), format!("{}..&gt;</a>", "ф".repeat(47)));
    }

    #[test]
    fn sizes_are_rounded() {
        for (size, want) in [
            (0, "      0"),
            (9_999, "   9999"),
            (10_000, "    10K"),
            (10_751, "    10K"),
            (10_752, "    11K"),
            ((1 << 20) - 1, "  1024K"),
            (1 << 20, "     1M"),
            ((1 << 20) + (1 << 19), "     2M"),
            (1 << 30, "     1G"),
            (5 << 40, "  5120G"),
        ] {
            let mut out = Vec::new();
            rounded_size(&mut out, size);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{size}");
        }
    }
}
