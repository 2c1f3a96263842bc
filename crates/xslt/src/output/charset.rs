//! The encodings of results.

use encoding_rs::{Encoding, UTF_8};

use super::sink::too_large;
use crate::error::{Error, Result};

/// An encoding. Characters that it has not are written as `&#N;`.
pub(crate) enum Charset {
    Utf8,
    Ascii,
    /// One byte a character: ASCII, the control characters, and these from byte 0xA0 on.
    Table(Box<[char]>),
    /// UTF-16, which `encoding_rs` does not write: whether the high byte comes first, and whether
    /// there is a byte order mark.
    Utf16 {
        is_big: bool,
        has_mark: bool,
    },
    Other(&'static Encoding),
}

impl Charset {
    /// The encoding of a name, in any case; an error where nobody knows it.
    pub(super) fn of(name: &str) -> Result<Charset> {
        let label = name.trim().to_ascii_lowercase();
        let unknown = || Error::new(format!("unknown encoding \"{name}\" of xsl:output"));
        Ok(match &*label {
            "utf-8" | "utf8" => Charset::Utf8,
            "us-ascii" | "ascii" | "ansi_x3.4-1968" => Charset::Ascii,
            "utf-16" => Charset::Utf16 { is_big: false, has_mark: true },
            "utf-16le" => Charset::Utf16 { is_big: false, has_mark: false },
            "utf-16be" => Charset::Utf16 { is_big: true, has_mark: false },
            _ => {
                let encoding = Encoding::for_label_no_replacement(label.as_bytes());
                let encoding = encoding.ok_or_else(unknown)?;
                // In WHATWG's tables, names of ISO encodings stand for those of Windows, which
                // have characters from 0x80 to 0x9F that readers of ISO ones do not know.
                let is_windows = ["windows", "cp12", "x-cp12", "dos"]
                    .iter()
                    .any(|start| label.starts_with(start));
                let is_iso =
                    matches!(encoding.name(), "windows-1252" | "windows-1254" | "windows-874");
                match encoding {
                    encoding if encoding == UTF_8 => Charset::Utf8,
                    encoding if is_iso && !is_windows => Charset::Table(table(encoding)),
                    encoding if encoding.output_encoding() != encoding => return Err(unknown()),
                    encoding => Charset::Other(encoding),
                }
            }
        })
    }

    /// Whether it has a character.
    pub(super) fn has(&self, c: char) -> bool {
        match self {
            Charset::Utf8 | Charset::Utf16 { .. } => true,
            _ if c.is_ascii() => true,
            Charset::Ascii => false,
            Charset::Table(table) => in_table(table, c).is_some(),
            Charset::Other(encoding) => !encoding.encode(c.encode_utf8(&mut [0; 4])).2,
        }
    }

    /// Encodes text; an error where that has more than so many bytes.
    pub(super) fn encode(&self, text: String, bytes_max: usize) -> Result<Vec<u8>> {
        let bytes = match self {
            _ if text.is_empty() => Vec::new(),
            Charset::Utf8 => text.into_bytes(),
            Charset::Ascii => in_bytes(&text, |_| None),
            Charset::Table(table) => in_bytes(&text, |c| in_table(table, c)),
            Charset::Utf16 { is_big, has_mark } => {
                let mark = if *has_mark { "\u{feff}" } else { "" };
                let units = mark.encode_utf16().chain(text.encode_utf16());
                let order = if *is_big { u16::to_be_bytes } else { u16::to_le_bytes };
                units.flat_map(order).collect()
            }
            Charset::Other(encoding) => encoding.encode(&text).0.into_owned(),
        };
        if bytes.len() > bytes_max {
            return Err(too_large());
        }
        Ok(bytes)
    }
}

/// The characters of an encoding's bytes from 0xA0 on.
fn table(encoding: &'static Encoding) -> Box<[char]> {
    let of = |byte: u8| {
        let bytes = [byte];
        let (text, _) = encoding.decode_without_bom_handling(&bytes);
        text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    (0xA0..=0xFF).map(of).collect()
}

fn in_table(table: &[char], c: char) -> Option<u8> {
    match c {
        '\u{80}'..='\u{9f}' => u8::try_from(u32::from(c)).ok(),
        char::REPLACEMENT_CHARACTER => None,
        _ => {
            let at = table.iter().position(|of| *of == c)?;
            u8::try_from(0xA0 + at).ok()
        }
    }
}

/// Text with a byte for each character, `None` for one that there is not.
fn in_bytes(text: &str, of: impl Fn(char) -> Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) if byte.is_ascii() => bytes.push(byte),
            _ => match of(c) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend(format!("&#{};", u32::from(c)).into_bytes()),
            },
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes() {
        for (name, text, want) in [
            ("UTF-8", "é", &b"\xc3\xa9"[..]),
            ("Utf8", "é", b"\xc3\xa9"),
            ("unicode-1-1-utf-8", "é", b"\xc3\xa9"),
            ("US-ASCII", "aé😀", b"a&#233;&#128512;"),
            ("ISO-8859-1", "aé\u{80}\u{9f}€\u{fffd}", b"a\xe9\x80\x9f&#8364;&#65533;"),
            ("latin1", "€", b"&#8364;"),
            ("iso-8859-9", "é€ş", b"\xe9&#8364;\xfe"),
            ("iso-8859-15", "é€", b"\xe9\xa4"),
            ("tis-620", "ก€", b"\xa1&#8364;"),
            ("windows-1252", "é€ж", b"\xe9\x80&#1078;"),
            ("x-cp1252", "€", b"\x80"),
            ("koi8-r", "жé", b"\xd6&#233;"),
            ("shift_jis", "あé", b"\x82\xa0&#233;"),
            ("UTF-16", "é", b"\xff\xfe\xe9\0"),
            ("utf-16le", "😀", b"\x3d\xd8\0\xde"),
            ("UTF-16BE", "é", b"\0\xe9"),
            ("utf-16", "", b""),
        ] {
            let charset = Charset::of(name).unwrap();
            assert_eq!(charset.encode(text.to_owned(), 99).unwrap(), want, "{name}: {text}");
            let has_all = text.chars().all(|c| charset.has(c));
            assert_eq!(has_all, !want.contains(&b'#'), "{name}: {text}");
        }
        for name in ["foo", "", "hz-gb-2312", "utf-32"] {
            assert!(Charset::of(name).is_err(), "{name}");
        }
        let ascii = Charset::of("ascii").unwrap();
        assert!(ascii.encode("é".to_owned(), 5).is_err());
        assert!(ascii.encode("é".to_owned(), 6).is_ok());
    }
}
