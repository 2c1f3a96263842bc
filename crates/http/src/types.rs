//! `types`: MIME types by file name extension.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

/// A table of MIME types.
#[derive(Default, Debug)]
pub struct Types {
    map: HashMap<Bytes, Bytes>,
}

impl Types {
    /// The table that holds where no `types` block stands: three types, as in nginx.
    pub fn default_table() -> Rc<Types> {
        let mut t = Types::default();
        t.insert(b"html", Bytes::from_static(b"text/html"));
        t.insert(b"gif", Bytes::from_static(b"image/gif"));
        t.insert(b"jpg", Bytes::from_static(b"image/jpeg"));
        Rc::new(t)
    }

    /// Adds an extension; the old type where there was one.
    pub fn insert(&mut self, extension: &[u8], mime: Bytes) -> Option<Bytes> {
        self.map.insert(Bytes::from(extension.to_ascii_lowercase()), mime)
    }

    /// The type for an extension (without the dot), whatever its case.
    pub fn get(&self, extension: &[u8]) -> Option<&Bytes> {
        if let Some(t) = self.map.get(extension) {
            return Some(t);
        }
        if extension.len() > 64 || !extension.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let mut low = [0u8; 64];
        let low = &mut low[..extension.len()];
        low.copy_from_slice(extension);
        low.make_ascii_lowercase();
        self.map.get(&*low)
    }
}

/// The extension of a URI or path: what follows the last dot of its last segment, unless the
/// segment begins with that dot.
pub fn extension(path: &[u8]) -> &[u8] {
    proto::uri::extension(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_paths() {
        assert_eq!(extension(b"/a/b.tar.gz"), b"gz");
        assert_eq!(extension(b"/a.b/c"), b"");
        assert_eq!(extension(b"/a/.profile"), b"");
        assert_eq!(extension(b""), b"");
    }

    #[test]
    fn types_are_found_in_any_case() {
        let t = Types::default_table();
        assert_eq!(t.get(b"HTML").map(|b| &b[..]), Some(&b"text/html"[..]));
        assert_eq!(t.get(b"png"), None);
    }
}
