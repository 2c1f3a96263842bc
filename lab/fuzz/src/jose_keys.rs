//! Keys and sets of keys.

use jose::{KeySet, Limits, verify};

/// A key that was read is the same as a set of it, and error texts are one line of ASCII, without
/// anything of the document.
pub fn run(data: &[u8]) {
    match KeySet::parse(data) {
        Ok(keys) => {
            assert!(!keys.keys().is_empty() && keys.keys().len() <= 256);
            let token = b"eyJhbGciOiJFZERTQSJ9.e30.AAAA";
            assert!(verify(token, &keys, Limits::default()).is_err());
            if keys.keys().len() == 1 && !data.windows(6).any(|name| name == b"\"keys\"") {
                let set = [b"{\"keys\":[", data, b"]}"].concat();
                let of_set = KeySet::parse(&set).expect("the same key");
                assert_eq!(of_set.keys()[0].kid(), keys.keys()[0].kid());
            }
        }
        Err(e) => {
            let text = e.to_string();
            assert!(text.len() < 120 && text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
    }
}
