//! Keys: their hashes, the variants of a key that `Vary` makes, and the names of files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::ascii::eq_ignore_case;
use md5::{Digest, Md5};

/// The MD5 of a key: its name in shared memory and, in hexadecimal, its file's.
pub type Hash = [u8; 16];

/// Bytes of a file's name.
const NAME: usize = 32;

/// A temporary file's name is that of the file it is to be, with a dot and ten digits behind it.
const TEMP_SUFFIX: usize = 11;

/// The hash of a key.
pub fn hash(key: &[u8]) -> Hash {
    Md5::digest(key).into()
}

/// The hash of the variant of a key that a request asks for: `vary` is the field of the response,
/// `fields` are those of the request. `normal`: values that mean the same are the same, as far as
/// these fields' grammars are known here (RFC 9111 section 4.1).
pub fn variant<'a, I>(main: &Hash, vary: &[u8], normal: bool, fields: impl Fn() -> I) -> Hash
where
    I: Iterator<Item = (&'a [u8], &'a [u8])>,
{
    let mut md5 = Md5::new();
    md5.update(main);
    let vary = vary.to_ascii_lowercase();
    for name in vary.split(is_separator).filter(|n| !n.is_empty()) {
        md5.update(name);
        md5.update(b":");
        // Lists whose spaces mean nothing.
        let list = matches!(name, b"accept-charset" | b"accept-encoding" | b"accept-language");
        let normal = normal && (list || matches!(name, b"accept" | b"cache-control" | b"te"));
        let mut several = false;
        let mut add = |part: &[u8]| {
            if std::mem::replace(&mut several, true) {
                md5.update(b",");
            }
            md5.update(part);
        };
        for (_, value) in fields().filter(|(n, _)| eq_ignore_case(n, name)) {
            match list {
                _ if normal => normalized(value).iter().for_each(|part| add(part)),
                true => value.split(is_separator).filter(|p| !p.is_empty()).for_each(&mut add),
                false => add(value),
            }
        }
        md5.update(b"\r\n");
    }
    md5.finalize().into()
}

/// The members of a list in lower case, without the blanks that mean nothing.
fn normalized(value: &[u8]) -> Vec<Vec<u8>> {
    // Blanks and commas in quotes mean something: such a value is taken as it is.
    if value.contains(&b'"') {
        return vec![value.to_vec()];
    }
    let kept = |part: &[u8]| -> Vec<u8> {
        let bytes = part.iter().filter(|b| !matches!(b, b' ' | b'\t'));
        bytes.map(u8::to_ascii_lowercase).collect()
    };
    value.split(|b| *b == b',').map(kept).filter(|part| !part.is_empty()).collect()
}

fn is_separator(b: &u8) -> bool {
    matches!(b, b' ' | b',')
}

/// The kinds of files in a cache's folder, by their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileName {
    /// The file of that hash.
    Entry(Hash),
    /// One that was being written.
    Temporary,
    /// None of the cache's.
    Foreign,
}

/// Where the files of a cache lie: `FOLDER/c/29/b7f54b2df7773722d382f4809d65029c` for `levels=1:2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The folder, absolute.
    pub folder: PathBuf,
    /// The number of digits in a folder's name, level by level; 0 ends the list.
    pub levels: [u8; 3],
}

impl Layout {
    /// The path of a hash's file.
    pub fn path(&self, hash: &Hash) -> Vec<u8> {
        let mut name = [0; NAME];
        for (digits, byte) in name.chunks_exact_mut(2).zip(hash) {
            digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        let folder = self.folder.as_os_str().as_bytes();
        let mut path = Vec::with_capacity(folder.len() + 10 + NAME + TEMP_SUFFIX);
        path.extend_from_slice(folder);
        path.push(b'/');
        let mut end = NAME;
        for width in self.levels.iter().map(|w| usize::from(*w)).take_while(|w| *w > 0) {
            path.extend_from_slice(&name[end - width..end]);
            path.push(b'/');
            end -= width;
        }
        path.extend_from_slice(&name);
        path
    }

    /// The folder of a hash's file as a number: files that lie in one folder have the same, and
    /// those of a folder's folders follow each other.
    pub fn folder_of(&self, hash: &Hash) -> u32 {
        let mut digits = u128::from_be_bytes(*hash);
        let mut folder = 0;
        for bits in self.levels.iter().map(|width| 4 * u32::from(*width)) {
            folder = folder << bits | (digits as u32 & ((1 << bits) - 1));
            digits >>= bits;
        }
        folder
    }

    /// The kind of a file by its name.
    pub fn named(name: &[u8]) -> FileName {
        let entry = |name: &[u8]| {
            let mut hash = Hash::default();
            for (byte, digits) in hash.iter_mut().zip(name.chunks_exact(2)) {
                *byte = digit(digits[0])? << 4 | digit(digits[1])?;
            }
            (name.len() == NAME).then_some(hash)
        };
        if let Some(hash) = entry(name) {
            return FileName::Entry(hash);
        }
        // Names of temporary files below `proxy_temp_path` have no hash: they are not here.
        match name.split_at_checked(NAME) {
            Some((of, suffix))
                if suffix.len() == TEMP_SUFFIX
                    && suffix[0] == b'.'
                    && suffix[1..].iter().all(u8::is_ascii_digit)
                    && entry(of).is_some() =>
            {
                FileName::Temporary
            }
            _ => FileName::Foreign,
        }
    }

    /// Whether a file lies where its name says.
    pub(crate) fn is_at_home(&self, path: &Path, hash: &Hash) -> bool {
        path.as_os_str().as_bytes() == self.path(hash)
    }
}

fn digit(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_nginx_puts_them() {
        let layout = |levels| Layout { folder: PathBuf::from("/data"), levels };
        let hash = hash(b"http://127.0.0.1:8081/");
        let path = |levels| String::from_utf8(layout(levels).path(&hash)).unwrap();
        let flat = path([0; 3]);
        let hex = flat.strip_prefix("/data/").unwrap();
        assert_eq!(hex.len(), 32);
        let (one, two) = (&hex[31..], &hex[29..31]);
        assert_eq!(path([1, 2, 0]), format!("/data/{one}/{two}/{hex}"));
        assert_eq!(
            path([2, 2, 2]),
            format!("/data/{}/{}/{}/{hex}", &hex[30..], &hex[28..30], &hex[26..28])
        );
        let folder = |levels| layout(levels).folder_of(&hash);
        let number = |digits: &[&str]| u32::from_str_radix(&digits.concat(), 16).unwrap();
        assert_eq!(folder([0; 3]), 0);
        assert_eq!(folder([1, 2, 0]), number(&[one, two]));
        assert_eq!(folder([2; 3]), number(&[&hex[30..], &hex[28..30], &hex[26..28]]));
        assert_eq!(Layout::named(hex.as_bytes()), FileName::Entry(hash));
        assert_eq!(
            super::hash(b""),
            [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0, 0xb2, 4, 0xe9, 0x80, 9, 0x98, 0xec, 0xf8, 0x42, 0x7e]
        );
    }

    #[test]
    fn names_of_what_lies_around() {
        let name = "0123456789abcdef0123456789abcdef";
        let named = |n: &str| Layout::named(n.as_bytes());
        assert!(matches!(named(name), FileName::Entry(_)));
        assert_eq!(named(&format!("{name}.0000000042")), FileName::Temporary);
        for other in [
            "",
            "x",
            "0123456789ABCDEF0123456789ABCDEF",
            "0123456789abcdef0123456789abcde",
            "0123456789abcdef0123456789abcdef.00000000x2",
            "0123456789abcdef0123456789abcdef0",
        ] {
            assert_eq!(named(other), FileName::Foreign, "{other}");
        }
    }

    #[test]
    fn variants() {
        let of = |vary: &str, fields: &[(&'static str, &'static str)]| {
            let fields: Vec<_> = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            variant(&[7; 16], vary.as_bytes(), false, || fields.iter().copied())
        };
        let gzip = of("Accept-Encoding", &[("accept-encoding", "gzip, br")]);
        assert_eq!(gzip, of("accept-encoding", &[("Accept-Encoding", "gzip,br")]));
        assert_eq!(gzip, of(" Accept-Encoding,", &[("Accept-Encoding", " gzip ,  br ")]));
        assert_eq!(
            gzip,
            of("Accept-Encoding", &[("Accept-Encoding", "gzip"), ("accept-encoding", "br")])
        );
        assert_ne!(gzip, of("Accept-Encoding", &[("Accept-Encoding", "br, gzip")]));
        assert_ne!(gzip, of("Accept-Encoding", &[]));
        assert_ne!(gzip, of("Accept-Encoding, X", &[("Accept-Encoding", "gzip, br")]));
        // Other fields are taken as they are.
        assert_ne!(of("X", &[("X", "a, b")]), of("X", &[("X", "a,b")]));
        assert_eq!(of("X", &[("X", "a"), ("x", "b")]), of("X", &[("X", "a,b")]));
    }
    #[test]
    fn variants_that_mean_the_same() {
        let of = |normal: bool, name: &str, value: &str| {
            let fields = [(name.as_bytes(), value.as_bytes())];
            variant(&[7; 16], name.as_bytes(), normal, || fields.iter().copied())
        };
        for (name, one, other, same) in [
            ("accept-encoding", "gzip;q=1, br", "GZIP; q=1 ,,BR", true),
            ("accept", "text/html, */*", "Text/HTML,*/*", true),
            ("accept", "a;x=\"A, b\"", "a;x=\"a, b\"", false),
            ("accept-language", "de, en", "en, de", false),
            ("x-own", "a, b", "a,b", false),
        ] {
            assert_eq!(of(true, name, one) == of(true, name, other), same, "{name}");
            assert_eq!(of(false, name, one), of(false, name, one));
        }
        assert_ne!(of(false, "accept", "a, b"), of(false, "accept", "a,b"));
    }
}
