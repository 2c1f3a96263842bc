//! The characters of a document (XML 1.0, sections 2.8, 2.11, 4.3.3 and appendix F).

use std::borrow::Cow;

use encoding_rs::{Encoding, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

use super::lines::count;
use crate::error::{Error, Result};

/// The characters of a document or external entity behind its declaration.
#[derive(Debug)]
pub(super) struct Decoded<'b> {
    /// All characters; line ends are `\n`.
    text: Cow<'b, str>,
    /// Where the declaration ends.
    from: usize,
    /// Whether the declaration says `standalone="yes"`.
    pub(super) standalone: bool,
}

impl Decoded<'_> {
    /// The text behind the declaration.
    pub(super) fn text(&self) -> &str {
        self.text.get(self.from..).unwrap_or_default()
    }

    /// The line on which [`text`](Self::text) begins.
    pub(super) fn line(&self) -> u32 {
        1 + count(self.text.get(..self.from).unwrap_or_default())
    }
}

/// What an XML or text declaration says.
#[derive(Default, PartialEq, Debug)]
struct Declaration<'t> {
    /// Its length in bytes.
    len: usize,
    has_version: bool,
    encoding: Option<&'t str>,
    standalone: bool,
}

/// The declaration at the beginning; `None` where there is none.
fn declaration(text: &str) -> Result<Option<Declaration<'_>>> {
    let Some(rest) = text.strip_prefix("<?xml") else { return Ok(None) };
    if !rest.starts_with([' ', '\t', '\n', '\r']) {
        return Ok(None);
    }
    let Some(end) = rest.find("?>") else {
        return Err(Error::new("the XML declaration has no end").or_at("", 1));
    };
    let mut found = Declaration { len: text.len() - rest.len() + end + 2, ..Default::default() };
    let text = &text[..found.len];
    let mut rest = rest[..end].trim_start();
    while !rest.is_empty() {
        let before = &text["<?xml".len()..text.len() - "?>".len() - rest.len()];
        let malformed =
            || Error::new("the XML declaration is malformed").or_at("", 1 + count(before));
        let (name, behind) = rest.split_once('=').ok_or_else(malformed)?;
        let behind = behind.trim_start();
        let quote =
            behind.chars().next().filter(|c| matches!(c, '"' | '\'')).ok_or_else(malformed)?;
        let (value, behind) = behind[1..].split_once(quote).ok_or_else(malformed)?;
        match name.trim_end() {
            "version" if value.starts_with("1.") => found.has_version = true,
            "encoding" if !value.is_empty() => found.encoding = Some(value),
            "standalone" if matches!(value, "yes" | "no") => found.standalone = value == "yes",
            _ => return Err(malformed()),
        }
        rest = behind.trim_start();
    }
    Ok(Some(found))
}

/// The encoding that the first bytes tell, and the bytes behind its mark.
fn marked(bytes: &[u8]) -> Result<Option<(&'static Encoding, &[u8])>> {
    Ok(match bytes {
        [0, 0, 0xfe, 0xff, ..]
        | [0xff, 0xfe, 0, 0, ..]
        | [0, 0, 0, b'<', ..]
        | [b'<', 0, 0, 0, ..] => return Err(unsupported("UTF-32")),
        [0x4c, 0x6f, 0xa7, 0x94, ..] => return Err(unsupported("EBCDIC")),
        [0xef, 0xbb, 0xbf, rest @ ..] => Some((UTF_8, rest)),
        [0xff, 0xfe, rest @ ..] => Some((UTF_16LE, rest)),
        [0xfe, 0xff, rest @ ..] => Some((UTF_16BE, rest)),
        [b'<', 0, b'?', 0, ..] => Some((UTF_16LE, bytes)),
        [0, b'<', 0, b'?', ..] => Some((UTF_16BE, bytes)),
        _ => None,
    })
}

fn unsupported(label: &str) -> Error {
    Error::new(format!("the encoding \"{}\" is not supported", label.escape_debug()))
}

/// The encoding that a declaration names, of bytes that begin like ASCII.
fn declared(bytes: &[u8]) -> Result<Option<(&'static Encoding, &str)>> {
    // No declaration is longer.
    let head = &bytes[..bytes.len().min(1024)];
    let is_ascii = head.iter().position(|b| !b.is_ascii()).unwrap_or(head.len());
    let Ok(head) = std::str::from_utf8(&head[..is_ascii]) else { return Ok(None) };
    // One that is wrong is found when all is decoded.
    let Ok(Some(Declaration { encoding: Some(label), .. })) = declaration(head) else {
        return Ok(None);
    };
    let found = Encoding::for_label(label.as_bytes()).filter(|found| *found != REPLACEMENT);
    let found = found.ok_or_else(|| unsupported(label))?;
    if found == UTF_16LE || found == UTF_16BE {
        return Err(Error::new(format!("the document is labelled {label}, but it is not")));
    }
    Ok(Some((found, label)))
}

/// The characters of bytes in an encoding.
fn characters<'b>(
    bytes: &'b [u8],
    encoding: &'static Encoding,
    label: &str,
) -> Result<Cow<'b, str>> {
    let malformed = || Error::new(format!("the document is not valid {}", label.escape_debug()));
    if encoding == UTF_8 {
        return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|e| {
            let line = 1 + count(&String::from_utf8_lossy(&bytes[..e.valid_up_to()]));
            let byte = bytes.get(e.valid_up_to()).copied().unwrap_or_default();
            let error = Error::new(format!("the document is not valid UTF-8 (byte 0x{byte:02x})"));
            error.or_at("", line)
        });
    }
    let decode = |bytes| {
        encoding.decode_without_bom_handling_and_without_replacement(bytes).ok_or_else(malformed)
    };
    let lower = label.to_ascii_lowercase();
    if matches!(lower.as_str(), "us-ascii" | "ascii" | "ansi_x3.4-1968") && !bytes.is_ascii() {
        return Err(malformed());
    }
    // The labels of ISO 8859-1, -9 and -11 mean the encodings of Windows to encoding_rs, which have
    // other characters in place of the controls.
    let is_windows = ["1252", "1254", "874"].iter().any(|page| encoding.name().ends_with(page));
    if !is_windows || ["1252", "1254", "874"].iter().any(|page| lower.ends_with(page)) {
        return decode(bytes);
    }
    let mut text = String::with_capacity(bytes.len());
    for run in bytes.chunk_by(|a, b| is_control(*a) == is_control(*b)) {
        if is_control(run[0]) {
            text.extend(run.iter().map(|byte| char::from(*byte)));
        } else {
            text.push_str(&decode(run)?);
        }
    }
    Ok(text.into())
}

/// Whether a byte is one of the controls that ISO 8859 has behind ASCII.
fn is_control(byte: u8) -> bool {
    matches!(byte, 0x80..=0x9f)
}

/// The text of a document or an external entity; only an entity's declaration may lack the version.
/// Errors name no file, at most a line.
pub(super) fn decode(bytes: &[u8], is_entity: bool) -> Result<Decoded<'_>> {
    let text = match marked(bytes)? {
        Some((encoding, rest)) => characters(rest, encoding, encoding.name())?,
        None => {
            let (encoding, label) = declared(bytes)?.unwrap_or((UTF_8, "UTF-8"));
            characters(bytes, encoding, label)?
        }
    };
    let text = if text.contains('\r') { line_ends(&text).into() } else { text };
    let found =
        declaration(&text)?.unwrap_or(Declaration { has_version: true, ..Default::default() });
    if !found.has_version && !is_entity {
        return Err(Error::new("the XML declaration has no version").or_at("", 1));
    }
    let (from, standalone) = (found.len, found.standalone);
    Ok(Decoded { text, from, standalone })
}

/// The text with line ends as `\n` (section 2.11).
fn line_ends(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut parts = text.split('\r');
    all.push_str(parts.next().unwrap_or_default());
    for part in parts {
        all.push('\n');
        all.push_str(part.strip_prefix('\n').unwrap_or(part));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }

    #[test]
    fn encodings_are_found() {
        let labelled = |label: &str, bytes: &[u8]| {
            [format!("<?xml version='1.0' encoding=\"{label}\" ?>").as_bytes(), bytes].concat()
        };
        let cases: &[(Vec<u8>, &str)] = &[
            (b"ab".to_vec(), "ab"),
            (b"\xef\xbb\xbf\xc3\xa4".to_vec(), "ä"),
            (b"\xef\xbb\xbf<?xml version='1.0' encoding='iso-8859-1'?>\xc3\xa4".to_vec(), "ä"),
            (labelled("UTF-8", b"\xc3\xa4"), "ä"),
            (labelled("ISO-8859-1", b"\x80\xe4\x9f\xff"), "\u{80}ä\u{9f}ÿ"),
            (labelled("latin1", b"\x80"), "\u{80}"),
            (labelled("us-ascii", b"a"), "a"),
            (labelled("windows-1252", b"\x80"), "€"),
            (labelled("iso-8859-9", b"\x80\xfd"), "\u{80}ı"),
            (labelled("iso-8859-2", b"\xb1"), "ą"),
            (labelled("iso-8859-15", b"\xa4"), "€"),
            (labelled("windows-1251", b"\xcf\xf0"), "Пр"),
            (labelled("koi8-r", b"\xf0\xd2"), "Пр"),
            (labelled("gbk", b"\xc4\xe3"), "你"),
            (labelled("Shift_JIS", b"\x82\xa0"), "あ"),
            (utf16("\u{feff}<?xml version='1.0' encoding='UTF-16'?>ä", u16::to_le_bytes), "ä"),
            (utf16("\u{feff}ä", u16::to_be_bytes), "ä"),
            (utf16("<?xml version='1.0'?>ä", u16::to_le_bytes), "ä"),
            (utf16("<?xml version='1.0'?>ä", u16::to_be_bytes), "ä"),
            (b"<?xml version='1.1'\nstandalone='yes'?>\r\na\rb\r".to_vec(), "\na\nb\n"),
            (b"<?xml-stylesheet a?>".to_vec(), "<?xml-stylesheet a?>"),
        ];
        for (bytes, text) in cases {
            let found = decode(bytes, false);
            assert_eq!(found.as_ref().map(Decoded::text), Ok(*text), "{bytes:?}");
        }
        let found = decode(b"<?xml version='1.1'\nstandalone='yes'?>\n", false).unwrap();
        assert_eq!((found.line(), found.standalone), (2, true));
        assert_eq!(decode(b"<?xml encoding='utf-8'?>a", true).unwrap().text(), "a");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases: &[(&[u8], &str, u32)] = &[
            (b"<?xml version='1.0' encoding='foo-8'?>", "encoding \"foo-8\" is not supported", 0),
            (b"<?xml version='1.0' encoding='hz-gb-2312'?>", "is not supported", 0),
            (b"<?xml version='1.0' encoding='utf-16'?>", "labelled utf-16, but it is not", 0),
            (b"<?xml version='1.0' encoding='us-ascii'?>\xe4", "not valid us-ascii", 0),
            (b"<?xml version='1.0' encoding='gbk'?>\xff", "not valid gbk", 0),
            (b"<?xml encoding='utf-8'?>", "has no version", 1),
            (b"<?xml version='1.0'\nfoo='1'?>", "declaration is malformed", 2),
            (b"<?xml version='1.0' ", "declaration has no end", 1),
            (b"a\n\xe4", "not valid UTF-8 (byte 0xe4)", 2),
            (b"\xff\xfea", "not valid UTF-16LE", 0),
            (b"\xff\xfe\x00\xd8a\x00", "not valid UTF-16LE", 0),
            (b"\x00\x00\xfe\xff", "\"UTF-32\" is not supported", 0),
            (b"\x4c\x6f\xa7\x94", "\"EBCDIC\" is not supported", 0),
        ];
        for (bytes, message, line) in cases {
            let error = decode(bytes, false).unwrap_err();
            assert!(error.message.contains(message), "{error}");
            assert_eq!(error.place.map_or(0, |(_, line)| line), *line, "{message}");
        }
    }
}
