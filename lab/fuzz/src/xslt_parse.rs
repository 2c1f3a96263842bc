//! XML documents that stylesheets transform.

use xslt::fuzzing::canonical;

/// The memory that a document may take, and more for what is made of it: bytes.
const BYTES_MAX: usize = 1 << 20;

/// Entities, a zero byte, and a document: what is read is written and read the same, whatever the
/// encoding, and is not larger than it may be.
pub fn run(data: &[u8]) {
    let (entities, document) = match data.iter().position(|byte| *byte == 0) {
        Some(at) if data[..at].contains(&b'!') => (&data[..at], &data[at + 1..]),
        _ => (&b""[..], data),
    };
    let read = canonical(document, entities, BYTES_MAX);
    if let Ok(text) = std::str::from_utf8(document)
        && !text.contains("encoding")
        && !text.contains('\0')
    {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        let wide: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
        assert_eq!(canonical(&wide, entities, BYTES_MAX), read);
    }
    match read {
        Ok(written) => {
            // A character may become six.
            assert!(written.len() <= 8 * BYTES_MAX);
            let again = canonical(written.as_bytes(), b"", 64 * BYTES_MAX);
            assert_eq!(again.as_deref(), Ok(&*written));
        }
        Err(error) => {
            let (file, line) = error.place.expect("errors have places");
            assert!(file == "document" || file == "entities");
            assert!(line as usize <= data.len() + 1);
            assert!(!error.message.chars().any(char::is_control), "{}", error.message);
        }
    }
}
