//! Escape sequences and POSIX classes.

use super::super::PatternError;
use super::super::class::Class;
use super::{Target, Translator};

impl Translator<'_> {
    /// Translates an escape, from behind its backslash, outside of classes.
    pub(super) fn escape(&mut self) -> Result<(), PatternError> {
        let byte = self.peek().ok_or("\\ at the end of the pattern")?;
        if byte.is_ascii_digit() && byte != b'0' && self.numbered_reference()? {
            return Ok(());
        }
        let text = match byte {
            b'Q' => return self.quoted(),
            b'E' => "",
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' if self.ucp => {
                self.skip(1);
                self.out.extend(['\\', char::from(byte)]);
                return Ok(());
            }
            b'b' | b'B' => self.word_boundary(byte == b'b'),
            b'A' | b'G' => r"\A",
            b'z' => r"\z",
            b'Z' => self.before_last_line_feed(),
            b'N' => r"[^\n]",
            b'R' => match self.target {
                Target::Chars => r"(?:\r\n|[\x{a}-\x{d}\x{85}])",
                Target::Bytes => r"(?:\r\n|[\x0a-\x0d\x85])",
            },
            b'C' if self.target == Target::Bytes && !self.utf => "(?s:.)",
            b'K' => {
                self.backtracks = true;
                r"\K"
            }
            b'k' | b'g' => return self.named_reference(),
            b'p' | b'P' => return self.lone_property(byte == b'P'),
            _ => {
                if let Some(class) = Class::of_shorthand(byte) {
                    self.skip(1);
                    class.write(self);
                    return Ok(());
                }
                let c = self.escaped_char(false)?;
                self.literal(c);
                return Ok(());
            }
        };
        self.skip(1);
        self.out.push_str(text);
        Ok(())
    }

    /// Only ASCII has word characters, but for patterns that begin with `(*UCP)`: the engines' own
    /// boundaries know other letters, too.
    fn word_boundary(&self, there: bool) -> &'static str {
        match (self.target, there) {
            _ if self.ucp => [r"\B", r"\b"][usize::from(there)],
            (Target::Bytes, true) => r"(?-u:\b)",
            (Target::Bytes, false) => r"(?-u:\B)",
            (Target::Chars, true) => {
                r"(?:(?<![0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?![0-9A-Za-z_]))"
            }
            (Target::Chars, false) => {
                r"(?:(?<![0-9A-Za-z_])(?![0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_]))"
            }
        }
    }

    fn quoted(&mut self) -> Result<(), PatternError> {
        self.skip(1);
        while !self.at_end() && !self.eat(b"\\E") {
            let c = self.next_char()?;
            self.literal(c);
        }
        Ok(())
    }

    /// `\1` to `\9`, and higher numbers if there are that many groups; others are octal.
    fn numbered_reference(&mut self) -> Result<bool, PatternError> {
        let rest = self.src.get(self.at..).unwrap_or_default();
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count().min(6);
        let digits = rest[..len].to_vec();
        let number = base::ascii::parse_u64(&digits).unwrap_or(0) as usize;
        if number >= 10 && number > self.groups {
            return Ok(false);
        }
        self.skip(len);
        self.reference(&digits).map(|()| true)
    }

    /// `\k<name>`, `\k'name'`, `\k{name}`, `\g1`, `\g{-1}`.
    fn named_reference(&mut self) -> Result<(), PatternError> {
        let letter = self.peek();
        self.skip(1);
        let end = match self.peek() {
            Some(b'{') => b'}',
            Some(b'<') if letter == Some(b'k') => b'>',
            Some(b'\'') if letter == Some(b'k') => b'\'',
            Some(b'<' | b'\'') => return Err("recursion is not supported".into()),
            _ if letter == Some(b'k') => return Err("\\k is not followed by a name".into()),
            _ => {
                let rest = self.src.get(self.at..).unwrap_or_default();
                let sign = usize::from(rest.first() == Some(&b'-'));
                let digits = rest[sign..].iter().take_while(|b| b.is_ascii_digit()).count();
                let name = rest[..sign + digits].to_vec();
                self.skip(name.len());
                return self.reference(&name);
            }
        };
        self.skip(1);
        let name = self.until(end).ok_or("missing terminator of a reference")?.to_vec();
        self.reference(&name)
    }

    /// `\p{L}` outside of classes.
    fn lone_property(&mut self, negated: bool) -> Result<(), PatternError> {
        self.skip(1);
        let property = self.property(negated)?;
        if self.target == Target::Bytes && !self.utf {
            self.out.push_str(&format!("(?u:{property})"));
        } else {
            self.out.push_str(&property);
        }
        Ok(())
    }

    /// Reads a property's name, behind its `\p`, and returns it in the engines' form.
    pub(in crate::pattern) fn property(&mut self, negated: bool) -> Result<String, PatternError> {
        let mut negated = negated;
        let name = if self.eat(b"{") {
            negated ^= self.eat(b"^");
            self.until(b'}').ok_or("malformed \\P or \\p sequence")?.to_vec()
        } else {
            let letter = self.peek().ok_or("malformed \\P or \\p sequence")?;
            self.skip(1);
            vec![letter]
        };
        let name = match name.as_slice() {
            b"L&" | b"LC" => "LC",
            b"Xan" => return Ok(if negated { r"[^\p{L}\p{N}]" } else { r"[\p{L}\p{N}]" }.into()),
            b"Xwd" => {
                return Ok(if negated { r"[^\p{L}\p{N}_]" } else { r"[\p{L}\p{N}_]" }.into());
            }
            b"Xsp" | b"Xps" => return Ok(if negated { r"\S" } else { r"\s" }.into()),
            name => match std::str::from_utf8(name) {
                Ok(n) if n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => n,
                _ => return Err("unknown property name after \\P or \\p".into()),
            },
        };
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// `[:alpha:]` and its like, at the cursor inside a class.
    pub(in crate::pattern) fn posix_class(&mut self) -> Result<Option<String>, PatternError> {
        const NAMES: [&str; 14] = [
            "alpha", "lower", "upper", "alnum", "ascii", "blank", "cntrl", "digit", "graph",
            "print", "punct", "space", "word", "xdigit",
        ];
        let rest = self.src.get(self.at..).and_then(|rest| rest.strip_prefix(b"[:"));
        let name = rest.and_then(|rest| rest.get(..memchr::memmem::find(rest, b":]")?));
        let bare = name.map(|name| name.strip_prefix(b"^").unwrap_or(name));
        let (Some(name), Some(bare)) = (name, bare) else { return Ok(None) };
        if !bare.iter().all(u8::is_ascii_lowercase) {
            return Ok(None);
        }
        if !NAMES.iter().any(|known| known.as_bytes() == bare) {
            return Err("unknown POSIX class name".into());
        }
        let text = format!("[:{}:]", String::from_utf8_lossy(name));
        self.skip(text.len());
        Ok(Some(text))
    }

    /// The character that an escape stands for; at the byte behind the backslash. Inside a class
    /// the digits are octal.
    pub(in crate::pattern) fn escaped_char(&mut self, in_class: bool) -> Result<u32, PatternError> {
        let byte = self.peek().ok_or("\\ at the end of the pattern")?;
        if byte.is_ascii_digit() {
            let max = if byte == b'0' || in_class { 3 } else { 3.min(self.octal_len()) };
            let c = self.digits(8, max);
            return c.filter(|c| *c <= self.last_char()).ok_or("octal value is too large".into());
        }
        if !byte.is_ascii_alphabetic() {
            return self.next_char();
        }
        self.skip(1);
        let c = match byte {
            b'a' => 0x07,
            b'e' => 0x1b,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'c' => {
                let c = self.peek().filter(|b| (0x20..0x7f).contains(b));
                self.skip(1);
                u32::from(
                    c.ok_or("\\c is not followed by a character")?.to_ascii_uppercase() ^ 0x40,
                )
            }
            b'x' | b'o' if self.peek() == Some(b'{') => {
                self.skip(1);
                let radix = if byte == b'x' { 16 } else { 8 };
                let c = self.digits(radix, 12).ok_or("a number is missing in \\x{} or \\o{}")?;
                if !self.eat(b"}") {
                    return Err("a number is missing in \\x{} or \\o{}".into());
                }
                if c > self.last_char() || self.utf && char::from_u32(c).is_none() {
                    return Err("character code point value in \\x{} or \\o{} is too large".into());
                }
                c
            }
            b'x' => self.digits(16, 2).unwrap_or(0),
            _ => return Err("unrecognized character follows \\".into()),
        };
        Ok(c)
    }

    fn octal_len(&self) -> usize {
        let rest = self.src.get(self.at..).unwrap_or_default();
        rest.iter().take_while(|b| matches!(b, b'0'..=b'7')).count()
    }

    /// Takes up to `max` digits of that radix; `None` where there is none, or too much.
    fn digits(&mut self, radix: u32, max: usize) -> Option<u32> {
        let mut value: Option<u32> = None;
        for _ in 0..max {
            let Some(digit) = self.peek().and_then(|b| char::from(b).to_digit(radix)) else {
                break;
            };
            self.skip(1);
            value = Some(value.unwrap_or(0).checked_mul(radix)?.checked_add(digit)?);
        }
        value
    }
}
