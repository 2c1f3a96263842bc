//! Request targets in origin form, before normalisation: the end of the path, and whether it can be
//! used unchanged.

/// Classes of the characters of a target.
pub(crate) mod class {
    /// Nothing to look at.
    pub const USUAL: u8 = 0;
    /// `/`
    pub(crate) const SLASH: u8 = 1;
    /// `.`
    pub(crate) const DOT: u8 = 2;
    /// `?`
    pub(crate) const QUESTION: u8 = 3;
    /// `%`
    pub(crate) const PERCENT: u8 = 4;
    /// `#`
    pub const HASH: u8 = 5;
    /// `+`
    pub(crate) const PLUS: u8 = 6;
    /// Space and line ends.
    pub const END: u8 = 7;
    /// Control characters: refused.
    pub const CONTROL: u8 = 8;

    /// The class of each byte.
    pub static CLASS: [u8; 256] = classes();

    const fn classes() -> [u8; 256] {
        let mut class = [USUAL; 256];
        let mut i = 0;
        while i < 0x20 {
            class[i] = CONTROL;
            i += 1;
        }
        class[0x7f] = CONTROL;
        class[b'/' as usize] = SLASH;
        class[b'.' as usize] = DOT;
        class[b'?' as usize] = QUESTION;
        class[b'%' as usize] = PERCENT;
        class[b'#' as usize] = HASH;
        class[b'+' as usize] = PLUS;
        class[b' ' as usize] = END;
        class[b'\r' as usize] = END;
        class[b'\n' as usize] = END;
        class
    }
}

/// The state of a scan of a target; can stop and continue at any byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Offset behind the first `?`; 0 as long as there is none.
    pub args: u32,
    /// The byte before was a `/` of the path.
    after_slash: bool,
    /// Normalisation is needed: slashes and dots are not examined any more.
    pub complex: bool,
    /// A `%` was seen in the path.
    pub quoted: bool,
    /// A `+` was seen in the path.
    pub plus: bool,
}

impl Scan {
    /// Reads on at `at`; returns the offset of the byte that ends the target or is refused, or the
    /// buffer's length.
    #[inline]
    pub(crate) fn run(&mut self, buf: &[u8], mut at: usize) -> usize {
        while let Some(&byte) = buf.get(at) {
            let class = class::CLASS[byte as usize];
            if class == class::USUAL {
                self.after_slash = false;
                at += 1;
                continue;
            }
            if class >= class::END {
                break;
            }
            at += 1;
            if class == class::HASH {
                self.complex = true;
            }
            if self.complex || self.args != 0 {
                continue;
            }
            match class {
                class::SLASH => {
                    self.complex = self.after_slash;
                    self.after_slash = true;
                    continue;
                }
                class::DOT => self.complex = self.after_slash,
                class::QUESTION => self.args = at as u32,
                class::PERCENT => (self.complex, self.quoted) = (true, true),
                _ => self.plus = true,
            }
            self.after_slash = false;
        }
        at
    }
}

/// A target that was checked: HTTP/2 and HTTP/3 give theirs in `:path`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The path can be used unchanged; otherwise pass the whole target to [`super::normalize`].
    pub plain: bool,
    /// The length of the path, if `plain`.
    pub path_len: usize,
    /// With `plain`, where the arguments begin; the target's length when there are none.
    pub args_start: usize,
    /// A `%` was seen in the path.
    pub quoted: bool,
    /// A `+` was seen in the path.
    pub plus: bool,
}

/// Examines a target: it begins with `/` and has no space or control character, or is refused.
pub fn inspect(target: &[u8]) -> Option<Target> {
    let mut scan = Scan::default();
    if target.first() != Some(&b'/') || scan.run(target, 0) != target.len() {
        return None;
    }
    let plain = !scan.complex;
    let (path_len, args_start) = match scan.args as usize {
        args if plain && args != 0 => (args - 1, args),
        _ => (target.len(), target.len()),
    };
    Some(Target { plain, path_len, args_start, quoted: scan.quoted, plus: scan.plus })
}

#[cfg(test)]
mod tests {
    use super::inspect;

    #[test]
    fn plain_and_complex_targets() {
        for (target, want) in [
            ("/", Some((true, 1, 1))),
            ("/a/b.c?x=/../%00#", Some((false, 17, 17))),
            ("/a/b.c?x=/../%00", Some((true, 6, 7))),
            ("/a?", Some((true, 2, 3))),
            ("/a??b", Some((true, 2, 3))),
            ("/a+b.c/d-e_f~g:h", Some((true, 16, 16))),
            ("/\u{e9}", Some((true, 3, 3))),
            ("/.a", Some((false, 3, 3))),
            ("/a/./b", Some((false, 6, 6))),
            ("/a//b", Some((false, 5, 5))),
            ("/a%20b", Some((false, 6, 6))),
            ("/a#b", Some((false, 4, 4))),
            ("a", None),
            ("", None),
            ("?a", None),
            ("/a b", None),
            ("/a\nb", None),
            ("/a?\x7f", None),
            ("/a?\x01", None),
        ] {
            let got = inspect(target.as_bytes()).map(|t| (t.plain, t.path_len, t.args_start));
            assert_eq!(got, want, "{target:?}");
        }
    }
}
