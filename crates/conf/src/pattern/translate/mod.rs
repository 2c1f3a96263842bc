//! The translation of PCRE's syntax to that of the engines.
//!
//! One pass over the pattern. Syntax that both sides read alike passes unchanged; the rest is
//! rewritten. Named groups become plain ones, whose names are recorded, and the flags `m` and `x`
//! are resolved here, since `$`, space and `#` have the translation's meaning.

mod escape;

use super::PatternError;
use super::class::Class;

/// The engine that runs the translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The linear one, on bytes.
    Bytes,
    /// The backtracking one, on text.
    Chars,
}

/// A translated pattern.
pub(super) struct Translated {
    pub pattern: String,
    /// The number of capturing groups.
    pub groups: usize,
    /// Named groups.
    pub names: Vec<(usize, String)>,
    /// Subjects are UTF-8, and are matched by character.
    pub utf: bool,
    /// Only the backtracking engine can run it.
    pub backtracks: bool,
}

/// The depth of nested groups: the engines' own limits are higher.
const DEPTH_MAX: usize = 200;

/// The flags that are resolved here.
#[derive(Clone, Copy, Default)]
struct Flags {
    multi_line: bool,
    extended: bool,
    no_auto_capture: bool,
}

/// The state outside an open group.
struct Open {
    flags: Flags,
    captures: bool,
    scopes: Vec<String>,
}

pub(super) struct Translator<'a> {
    src: &'a [u8],
    at: usize,
    pub(super) out: String,
    pub(super) target: Target,
    pub(super) utf: bool,
    pub(super) ucp: bool,
    flags: Flags,
    open: Vec<Open>,
    /// Groups such as `(?i:` that were opened for flags of the group that is read. The backtracking
    /// engine keeps a plain `(?i)` beyond the group's end.
    scopes: Vec<String>,
    groups: usize,
    names: Vec<(usize, String)>,
    backtracks: bool,
}

pub(super) fn translate(pattern: &[u8], target: Target) -> Result<Translated, PatternError> {
    let mut t = Translator {
        src: pattern,
        at: 0,
        out: String::with_capacity(pattern.len() + 16),
        target,
        utf: false,
        ucp: false,
        flags: Flags::default(),
        open: Vec::new(),
        scopes: Vec::new(),
        groups: 0,
        names: Vec::new(),
        backtracks: false,
    };
    t.verbs()?;
    if t.utf && std::str::from_utf8(pattern).is_err() {
        return Err("the pattern is not UTF-8".into());
    }
    while !t.at_end() {
        t.piece()?;
    }
    if !t.open.is_empty() {
        return Err("missing closing parenthesis".into());
    }
    t.close_scopes();
    let Translator { out, groups, names, utf, backtracks, .. } = t;
    Ok(Translated { pattern: out, groups, names, utf, backtracks })
}

impl Translator<'_> {
    pub(super) fn at_end(&self) -> bool {
        self.at >= self.src.len()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.src.get(self.at + ahead).copied()
    }

    pub(super) fn skip(&mut self, n: usize) {
        self.at += n;
    }

    pub(super) fn eat(&mut self, text: &[u8]) -> bool {
        let there = self.src.get(self.at..).is_some_and(|rest| rest.starts_with(text));
        if there {
            self.at += text.len();
        }
        there
    }

    /// Takes the text before `end`, and `end` itself.
    fn until(&mut self, end: u8) -> Option<&[u8]> {
        let rest = self.src.get(self.at..)?;
        let len = memchr::memchr(end, rest)?;
        self.at += len + 1;
        rest.get(..len)
    }

    /// The highest character that there is.
    pub(super) fn last_char(&self) -> u32 {
        if self.utf { 0x10_ffff } else { 0xff }
    }

    /// Takes one character of the pattern: a byte without UTF mode.
    pub(super) fn next_char(&mut self) -> Result<u32, PatternError> {
        let byte = self.peek().ok_or("the pattern ends too early")?;
        if !self.utf || byte < 0x80 {
            self.at += 1;
            return Ok(byte.into());
        }
        let rest = self.src.get(self.at..).unwrap_or_default();
        let len = rest[1..].iter().take_while(|b| **b & 0xc0 == 0x80).count() + 1;
        self.at += len;
        let text = std::str::from_utf8(&rest[..len]).ok();
        text.and_then(|t| t.chars().next()).map(u32::from).ok_or("the pattern is not UTF-8".into())
    }

    /// Verbs that a pattern may begin with.
    fn verbs(&mut self) -> Result<(), PatternError> {
        while self.eat(b"(*") {
            let verb = self.until(b')').ok_or("missing closing parenthesis")?;
            match verb {
                b"UTF" | b"UTF8" => self.utf = true,
                b"UCP" => (self.utf, self.ucp) = (true, true),
                // Hints to PCRE's matcher, and the line ends that are usual anyway.
                b"NO_JIT" | b"NO_START_OPT" | b"NO_AUTO_POSSESS" | b"NO_DOTSTAR_ANCHOR" | b"LF"
                | b"BSR_UNICODE" => {}
                _ if verb.starts_with(b"LIMIT_") => {}
                _ => {
                    let verb = String::from_utf8_lossy(verb);
                    return Err(format!("(*{verb}) is not supported").into());
                }
            }
        }
        Ok(())
    }

    /// One step: a literal, an escape, a class, a quantifier, a bracket.
    fn piece(&mut self) -> Result<(), PatternError> {
        let Some(byte) = self.peek() else { return Ok(()) };
        if self.flags.extended && self.blank(byte) {
            return Ok(());
        }
        match byte {
            b'\\' => {
                self.skip(1);
                self.escape()
            }
            b'[' => {
                self.skip(1);
                Class::read(self)?.write(self);
                Ok(())
            }
            b'(' => {
                self.skip(1);
                self.group()
            }
            b')' => {
                self.skip(1);
                let open = self.open.pop().ok_or("unmatched closing parenthesis")?;
                self.close_scopes();
                (self.flags, self.scopes) = (open.flags, open.scopes);
                self.out.push(')');
                Ok(())
            }
            b'*' | b'+' | b'?' => {
                self.skip(1);
                self.out.push(char::from(byte));
                self.after_quantifier();
                Ok(())
            }
            b'{' => self.brace(),
            b'^' if self.flags.multi_line => self.raw("(?m:^)"),
            b'$' => self.dollar(),
            b'|' => {
                self.skip(1);
                self.close_scopes();
                self.out.push('|');
                self.out.push_str(&self.scopes.concat());
                Ok(())
            }
            b'^' | b'.' => {
                self.skip(1);
                self.out.push(char::from(byte));
                Ok(())
            }
            _ => {
                let c = self.next_char()?;
                self.literal(c);
                Ok(())
            }
        }
    }

    fn close_scopes(&mut self) {
        self.scopes.iter().for_each(|_| self.out.push(')'));
    }

    fn raw(&mut self, text: &str) -> Result<(), PatternError> {
        self.skip(1);
        self.out.push_str(text);
        Ok(())
    }

    /// Skips white space and comments of the extended syntax.
    fn blank(&mut self, byte: u8) -> bool {
        match byte {
            b' ' | b'\t'..=b'\r' => self.skip(1),
            b'#' => {
                if self.until(b'\n').is_none() {
                    self.at = self.src.len();
                }
            }
            _ => return false,
        }
        true
    }

    fn dollar(&mut self) -> Result<(), PatternError> {
        self.skip(1);
        let end = if self.flags.multi_line { "(?m:$)" } else { self.before_last_line_feed() };
        self.out.push_str(end);
        Ok(())
    }

    /// The end, or before a line feed that ends the subject. The linear engine cannot look ahead
    /// and takes the line feed, which shows only within a group.
    fn before_last_line_feed(&self) -> &'static str {
        match self.target {
            Target::Chars => r"(?=\n?\z)",
            Target::Bytes if self.open.iter().any(|open| open.captures) => r"\z",
            Target::Bytes => r"(?:\n?\z)",
        }
    }

    /// Writes a character that stands for itself.
    fn literal(&mut self, c: u32) {
        let text = match (u8::try_from(c), char::from_u32(c)) {
            (Ok(b), _) if b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'%' | b'=') => {
                self.out.push(char::from(b));
                return;
            }
            (Ok(b), _) if self.target == Target::Bytes && !self.utf => format!("\\x{b:02x}"),
            (_, Some(c)) => format!("\\x{{{:x}}}", u32::from(c)),
            _ => return,
        };
        self.out.push_str(&text);
    }

    fn after_quantifier(&mut self) {
        if self.eat(b"?") {
            self.out.push('?');
        } else if self.eat(b"+") {
            self.backtracks = true;
            self.out.push('+');
        }
    }

    /// `{2}`, `{2,}`, `{2,3}` and `{,3}` are quantifiers; any other brace stands for itself.
    fn brace(&mut self) -> Result<(), PatternError> {
        let rest = self.src.get(self.at + 1..).unwrap_or_default();
        let inside = memchr::memchr(b'}', rest).and_then(|end| rest.get(..end));
        let bounds = inside.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| {
            let (low, high) = text.split_once(',').unwrap_or((text, text));
            let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
            let any = !low.is_empty() || !high.is_empty();
            (any && digits(low) && digits(high)).then_some((low, high, text))
        });
        let Some((low, high, text)) = bounds else {
            self.skip(1);
            self.literal(u32::from(b'{'));
            return Ok(());
        };
        let low = if low.is_empty() { "0" } else { low };
        let quantifier =
            if text.contains(',') { format!("{{{low},{high}}}") } else { format!("{{{low}}}") };
        self.skip(text.len() + 2);
        self.out.push_str(&quantifier);
        self.after_quantifier();
        Ok(())
    }

    fn enter(&mut self, captures: bool, text: &str) -> Result<(), PatternError> {
        if self.open.len() >= DEPTH_MAX {
            return Err("groups nest too deep".into());
        }
        let scopes = std::mem::take(&mut self.scopes);
        self.open.push(Open { flags: self.flags, captures, scopes });
        self.groups += usize::from(captures);
        self.out.push_str(text);
        Ok(())
    }

    /// Translates a group, from behind its opening parenthesis.
    fn group(&mut self) -> Result<(), PatternError> {
        if self.peek() == Some(b'*') {
            return Err("verbs inside a pattern are not supported".into());
        }
        if !self.eat(b"?") {
            let captures = !self.flags.no_auto_capture;
            return self.enter(captures, if captures { "(" } else { "(?:" });
        }
        for around in ["=", "!", "<=", "<!", ">"] {
            if self.eat(around.as_bytes()) {
                self.backtracks = true;
                return self.enter(false, &format!("(?{around}"));
            }
        }
        match self.peek().ok_or("the pattern ends behind (?")? {
            b'#' => self.until(b')').map(drop).ok_or("missing ) after (?# comment".into()),
            b'P' => {
                self.skip(1);
                match self.peek() {
                    Some(b'<') => self.named(b'>'),
                    Some(b'=') => {
                        self.skip(1);
                        let name = self.until(b')').ok_or("missing closing parenthesis")?.to_vec();
                        self.reference(&name)
                    }
                    _ => Err("recursion is not supported".into()),
                }
            }
            b'<' => self.named(b'>'),
            b'\'' => self.named(b'\''),
            b'(' => self.conditional(),
            b'|' => Err("(?| is not supported".into()),
            b'R' | b'&' | b'0'..=b'9' | b'+' => Err("recursion is not supported".into()),
            b'-' if self.peek_at(1).is_some_and(|b| b.is_ascii_digit()) => {
                Err("recursion is not supported".into())
            }
            _ => self.option_flags(),
        }
    }

    /// A named group; at the character before the name.
    fn named(&mut self, end: u8) -> Result<(), PatternError> {
        self.skip(1);
        let name = self.until(end).ok_or("missing terminator in subpattern name")?.to_vec();
        let starts = name.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
        if !starts || !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            return Err("invalid subpattern name".into());
        }
        self.enter(true, "(")?;
        self.names.push((self.groups, String::from_utf8_lossy(&name).into_owned()));
        Ok(())
    }

    /// `(?(1)yes|no)`, `(?(<name>)yes|no)`.
    fn conditional(&mut self) -> Result<(), PatternError> {
        self.skip(1);
        let inside = self.until(b')').ok_or("missing closing parenthesis")?.to_vec();
        let name = match inside.as_slice() {
            [b'<', name @ .., b'>'] | [b'\'', name @ .., b'\''] => name,
            name => name,
        };
        let group = self.group_number(name)?;
        self.backtracks = true;
        self.enter(false, &format!("(?({group})"))
    }

    /// `(?i)`, `(?s-m:`, …: `m`, `x` and `n` become state of the translation, the others pass.
    fn option_flags(&mut self) -> Result<(), PatternError> {
        let outside = self.flags;
        let (mut on, mut passed) = (true, [String::new(), String::new()]);
        loop {
            let byte = self.peek().ok_or("missing closing parenthesis")?;
            self.skip(1);
            match byte {
                b'-' => on = false,
                b'^' => {
                    self.flags = Flags::default();
                    passed[1].push_str("is");
                }
                b'm' => self.flags.multi_line = on,
                b'x' => self.flags.extended = on,
                b'n' => self.flags.no_auto_capture = on,
                b'J' => {}
                b'i' | b's' | b'U' => passed[usize::from(!on)].push(char::from(byte)),
                b':' | b')' => {
                    let [set, clear] = passed;
                    let dash = if clear.is_empty() { "" } else { "-" };
                    let text = format!("(?{set}{dash}{clear}");
                    if byte == b')' {
                        self.set_flags(text);
                        return Ok(());
                    }
                    let inside = std::mem::replace(&mut self.flags, outside);
                    self.enter(false, &format!("{text}:"))?;
                    self.flags = inside;
                    return Ok(());
                }
                _ => return Err("unrecognized character after (? or (?-".into()),
            }
        }
    }

    /// Writes flags, such as `(?i`, for the rest of the group.
    fn set_flags(&mut self, mut text: String) {
        if text.len() == "(?".len() {
            return;
        }
        let scoped = self.target == Target::Chars;
        text.push(if scoped { ':' } else { ')' });
        self.out.push_str(&text);
        if scoped {
            self.scopes.push(text);
        }
    }

    /// The number of the group that `1`, `-1` or a name stands for.
    fn group_number(&self, name: &[u8]) -> Result<usize, PatternError> {
        let text = String::from_utf8_lossy(name);
        let relative = text.strip_prefix('-').and_then(|n| n.parse::<usize>().ok());
        let number = match (relative, text.parse::<usize>()) {
            (Some(back), _) if back > 0 => (self.groups + 1).checked_sub(back),
            (_, Ok(number)) => Some(number),
            _ => self.names.iter().find(|(_, n)| *n == text).map(|(group, _)| *group),
        };
        match number {
            Some(number) if (1..=self.groups).contains(&number) => Ok(number),
            _ => Err(format!("reference to non-existent subpattern \"{text}\"").into()),
        }
    }

    fn reference(&mut self, name: &[u8]) -> Result<(), PatternError> {
        let group = self.group_number(name)?;
        self.backtracks = true;
        self.out.push_str(&format!("(?:\\{group})"));
        Ok(())
    }
}
