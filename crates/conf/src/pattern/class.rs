//! Bracketed classes: read as in PCRE, written as sets of ranges that mean the same in each engine.

use super::PatternError;
use super::translate::{Target, Translator};

/// Members of a class.
#[derive(Default)]
pub(super) struct Class {
    negated: bool,
    /// First and last character, or byte, in the order they were read.
    ranges: Vec<(u32, u32)>,
    /// The members that pass unchanged: properties, POSIX classes.
    named: String,
    /// Some of `named` needs the engine's Unicode mode.
    unicode: bool,
}

/// One member of a class.
enum Item {
    Char(u32),
    Set,
}

/// The ASCII sets behind `\d`, `\w`, `\s`, `\h` and `\v`.
pub(super) fn shorthand(letter: u8) -> Option<&'static [(u32, u32)]> {
    Some(match letter {
        b'd' => &[(0x30, 0x39)],
        b'w' => &[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)],
        b's' => &[(0x09, 0x0d), (0x20, 0x20)],
        b'h' => &[(0x09, 0x09), (0x20, 0x20), (0xa0, 0xa0)],
        b'v' => &[(0x0a, 0x0d), (0x85, 0x85)],
        _ => return None,
    })
}

/// All characters outside `ranges`, which are sorted and do not touch.
fn complement(ranges: &[(u32, u32)], last: u32) -> Vec<(u32, u32)> {
    let mut out = Vec::with_capacity(ranges.len() + 1);
    let mut from = 0;
    for &(start, end) in ranges {
        if start > from {
            out.push((from, start - 1));
        }
        from = end + 1;
    }
    if from <= last {
        out.push((from, last));
    }
    out
}

impl Class {
    /// The class of a shorthand such as `\d` or `\D`, outside of brackets.
    pub(crate) fn of_shorthand(letter: u8) -> Option<Class> {
        let ranges = shorthand(letter.to_ascii_lowercase())?.to_vec();
        Some(Class { negated: letter.is_ascii_uppercase(), ranges, ..Class::default() })
    }

    /// Reads a class; the translator stands behind its `[`.
    pub fn read(t: &mut Translator<'_>) -> Result<Class, PatternError> {
        let mut class = Class { negated: t.eat(b"^"), ..Class::default() };
        let mut first = true;
        loop {
            if t.eat(b"\\E") {
                continue;
            }
            if t.eat(b"\\Q") {
                while !t.at_end() && !t.eat(b"\\E") {
                    let c = t.next_char()?;
                    class.ranges.push((c, c));
                    first = false;
                }
                continue;
            }
            let Some(byte) = t.peek() else { return Err("unclosed character class".into()) };
            if byte == b']' && !first {
                t.skip(1);
                return Ok(class);
            }
            first = false;
            let low = match class.item(t)? {
                Item::Char(c) => c,
                Item::Set => continue,
            };
            let range = t.peek() == Some(b'-') && !matches!(t.peek_at(1), None | Some(b']'));
            if !range {
                class.ranges.push((low, low));
                continue;
            }
            t.skip(1);
            match class.item(t)? {
                Item::Char(high) if high >= low => class.ranges.push((low, high)),
                Item::Char(_) => return Err("range out of order in character class".into()),
                // `[a-\d]`: the hyphen is one of the members.
                Item::Set => class.ranges.extend([(low, low), (0x2d, 0x2d)]),
            }
        }
    }

    /// Reads a member. A set is taken in here; a character may turn out to begin a range.
    fn item(&mut self, t: &mut Translator<'_>) -> Result<Item, PatternError> {
        if let Some(name) = t.posix_class()? {
            self.named.push_str(&name);
            return Ok(Item::Set);
        }
        if t.peek() != Some(b'\\') {
            return t.next_char().map(Item::Char);
        }
        t.skip(1);
        let letter = t.peek().ok_or("\\ at the end of the pattern")?;
        if let Some(set) = shorthand(letter.to_ascii_lowercase()) {
            t.skip(1);
            let ucp = t.ucp && matches!(letter | 0x20, b'd' | b'w' | b's');
            if ucp {
                self.unicode = true;
                self.named.extend(['\\', char::from(letter)]);
            } else if letter.is_ascii_uppercase() {
                self.ranges.extend(complement(set, t.last_char()));
            } else {
                self.ranges.extend(set);
            }
            return Ok(Item::Set);
        }
        if letter | 0x20 == b'p' {
            t.skip(1);
            self.unicode = true;
            let property = t.property(letter == b'P')?;
            self.named.push_str(&property);
            return Ok(Item::Set);
        }
        if letter == b'b' {
            t.skip(1);
            return Ok(Item::Char(0x08));
        }
        t.escaped_char(true).map(Item::Char)
    }

    /// Writes the class.
    pub fn write(mut self, t: &mut Translator<'_>) {
        self.ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(self.ranges.len());
        for (start, end) in self.ranges {
            match merged.last_mut() {
                Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let unicode = self.unicode && t.target == Target::Bytes && !t.utf;
        let wide = unicode || t.target == Target::Chars || t.utf;
        if unicode {
            t.out.push_str("(?u:");
        }
        t.out.push_str(if self.negated { "[^" } else { "[" });
        let mut alone = Vec::new();
        for (start, end) in merged {
            write_range(&mut t.out, start, end, wide, &mut alone);
        }
        for c in alone {
            t.out.push_str(&format!("[\\x{{{c:x}}}]"));
        }
        t.out.push_str(&self.named);
        t.out.push(']');
        if unicode {
            t.out.push(')');
        }
    }
}

/// `-`, `&` and `~` can be read as operators of the engines' own, so they are left out of the
/// ranges and given to `alone`.
fn write_range(out: &mut String, start: u32, end: u32, wide: bool, alone: &mut Vec<u32>) {
    let mut from = start;
    for special in [0x26, 0x2d, 0x7e] {
        if (from..=end).contains(&special) {
            alone.push(special);
            if from < special {
                write_plain(out, from, special - 1, wide);
            }
            from = special + 1;
        }
    }
    if from <= end {
        write_plain(out, from, end, wide);
    }
}

fn write_plain(out: &mut String, start: u32, end: u32, wide: bool) {
    let one = |out: &mut String, c: u32| match u8::try_from(c) {
        Ok(b) if b.is_ascii_alphanumeric() => out.push(char::from(b)),
        _ if wide => out.push_str(&format!("\\x{{{c:x}}}")),
        _ => out.push_str(&format!("\\x{c:02x}")),
    };
    // Surrogates are no characters; a range over them is two.
    if start < 0xd800 && end > 0xdfff {
        write_plain(out, start, 0xd7ff, wide);
        write_plain(out, 0xe000, end, wide);
        return;
    }
    one(out, start);
    if end > start {
        out.push('-');
        one(out, end);
    }
}
