//! `types`: MIME types by file name extension, and lists of types that filters work on.

use std::rc::Rc;

use base::hash::Table;
use bytes::Bytes;
use conf::{ConfError, Node};

/// A table of MIME types.
#[derive(Default, Debug)]
pub struct Types {
    map: Table<Bytes, Bytes>,
}

impl Types {
    /// The table that holds where no `types` block stands: three types, as in nginx.
    pub(crate) fn default_table() -> Rc<Types> {
        let mut t = Types::default();
        t.insert(b"html", Bytes::from_static(b"text/html"));
        t.insert(b"gif", Bytes::from_static(b"image/gif"));
        t.insert(b"jpg", Bytes::from_static(b"image/jpeg"));
        Rc::new(t)
    }

    /// Adds an extension; the old type where there was one.
    pub fn insert(&mut self, extension: &[u8], mime: Bytes) -> Option<Bytes> {
        self.map.insert(Bytes::from(extension.to_ascii_lowercase()), static_type(mime))
    }

    /// The type for an extension (without the dot), whatever its case.
    pub fn get(&self, extension: &[u8]) -> Option<&Bytes> {
        if extension.is_empty() {
            return None;
        }
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

/// Types that most sites serve.
static COMMON: &[&str] = &[
    "application/javascript",
    "application/json",
    "application/octet-stream",
    "application/pdf",
    "application/wasm",
    "application/xhtml+xml",
    "application/xml",
    "application/zip",
    "font/woff",
    "font/woff2",
    "image/avif",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "image/webp",
    "image/x-icon",
    "text/css",
    "text/html",
    "text/javascript",
    "text/plain",
    "text/xml",
    "video/mp4",
    "video/webm",
];

/// The same type, without a counter where it is a common one: each response takes a copy.
pub(crate) fn static_type(mime: Bytes) -> Bytes {
    match COMMON.binary_search_by(|known| known.as_bytes().cmp(&mime)) {
        Ok(i) => Bytes::from_static(COMMON[i].as_bytes()),
        Err(_) => mime,
    }
}

/// The types of the responses that a filter works on (`gzip_types`, `ssi_types` and the like).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeList {
    /// `*`
    Any,
    /// These, in lower case.
    These(Vec<Bytes>),
}

impl TypeList {
    /// The list that holds where none is set.
    pub fn of(types: &'static [&'static str]) -> TypeList {
        TypeList::These(types.iter().map(|t| Bytes::from_static(t.as_bytes())).collect())
    }

    /// A directive's setter: its arguments join the list, which begins with `always` (the types
    /// that the filter works on in any case).
    ///
    /// # Errors
    /// None so far; a type that stands there twice is warned of.
    pub fn set(
        field: &mut Option<TypeList>,
        node: &Node,
        always: Option<&'static str>,
    ) -> Result<(), ConfError> {
        let first = || always.iter().map(|t| Bytes::from_static(t.as_bytes())).collect();
        let list = match field.get_or_insert_with(|| TypeList::These(first())) {
            TypeList::Any => return Ok(()),
            TypeList::These(list) => list,
        };
        for word in &node.args {
            if word.bytes() == b"*" {
                *field = Some(TypeList::Any);
                return Ok(());
            }
            let name = Bytes::from(word.bytes().to_ascii_lowercase());
            if list.contains(&name) {
                conf::warn(word, format!("duplicate MIME type \"{}\"", word.lossy()));
            } else {
                list.push(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Response;

    fn directive(text: &'static str) -> Node {
        let options = conf::parse::Options::default();
        let name = std::path::Path::new("test.conf");
        let bytes = Bytes::from_static(text.as_bytes());
        conf::parse::parse_bytes(name, bytes, &options).unwrap().nodes.remove(0)
    }

    #[test]
    fn lists_of_types() {
        let of = |t: Option<&'static str>| Response {
            content_type: t.map(|t| Bytes::from_static(t.as_bytes())),
            ..Response::default()
        };
        let mut list = None;
        TypeList::set(&mut list, &directive("x text/Foo;"), Some("text/html")).unwrap();
        TypeList::set(&mut list, &directive("x text/bar;"), Some("text/html")).unwrap();
        let has = |t| list.as_ref().unwrap().has(&of(t));
        assert!(has(Some("text/foo")) && has(Some("Text/Bar")) && has(Some("text/html")));
        assert!(!has(Some("text/plain")) && !has(None));
        TypeList::set(&mut list, &directive("x a/b * c/d;"), None).unwrap();
        assert_eq!(list, Some(TypeList::Any));
        assert!(list.unwrap().has(&of(None)));
    }

    #[test]
    fn common_types_stay_what_they_are() {
        assert!(COMMON.is_sorted());
        for text in ["text/plain", "text/plain2", "a", "", "video/webm", "video/x"] {
            assert_eq!(static_type(Bytes::from(text.to_owned())), text);
        }
    }

    #[test]
    fn types_are_found_in_any_case() {
        let t = Types::default_table();
        assert_eq!(t.get(b"HTML").map(|b| &b[..]), Some(&b"text/html"[..]));
        assert_eq!(t.get(b"png"), None);
    }
}
