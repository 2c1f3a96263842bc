//! Regular expressions with PCRE's syntax, as configurations use it.
//!
//! Two engines match. One takes time linear in the length of the subject, and runs all patterns
//! that it can express. The other one backtracks, for look-around, back-references, atomic groups
//! and possessive quantifiers. It gives up after a number of steps ([`GaveUp`]). Patterns are
//! [`translate`]d from PCRE's syntax to that of the engines.
//!
//! As in PCRE, a subject is bytes: `.` matches any byte, and `\w` only ASCII. A pattern that begins
//! with `(*UTF)` treats the subject as UTF-8 text.
//!
//! A configuration may have thousands of patterns, so a pattern of a [`PatternList`] is compiled
//! when it is first needed. Until then only its syntax is checked.

mod class;
mod list;
mod required;
mod translate;

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::fmt;

use bytes::Bytes;

use crate::{ConfError, Word};
pub use list::PatternList;
use translate::{Target, Translated, translate};

/// Steps after which the backtracking engine gives up, so that no combination of pattern and input
/// can hold up the loop.
const BACKTRACK_LIMIT: usize = 100_000;

/// The largest size of a compiled pattern, in bytes. A pattern that exceeds it is refused.
const SIZE_LIMIT: usize = 16 << 20;

enum Engine {
    /// The regex with memory for the positions of groups, so that a match allocates nothing.
    Linear(Box<regex::bytes::Regex>, RefCell<regex::bytes::CaptureLocations>),
    /// Works on text only. Without `utf`, each byte above ASCII is converted to the character with
    /// the same number.
    Backtracking { re: Box<fancy_regex::Regex>, utf: bool },
}

/// Patterns above this weight are compiled when they are read: they may exceed [`SIZE_LIMIT`], and
/// that error has to be reported at load.
const WEIGHT_MAX: u64 = 2_000;

/// A pattern. It is compiled when it is read or when it is first needed.
pub struct Pattern {
    /// Empty until it is compiled. `Some(None)`: it did not compile, which is not expected, because
    /// its syntax has been checked.
    engine: OnceCell<Option<Engine>>,
    plain: Translated,
    caseless: bool,
    text: Bytes,
    required: Vec<Vec<u8>>,
}

/// Where a group matched: start and end in the subject, in bytes.
pub type Span = Option<(u32, u32)>;

/// The match was given up: the backtracking limit was reached, or the subject is not the UTF-8 that
/// the pattern asks for. It is not known whether the pattern matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GaveUp;

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the regular expression's match was given up")
    }
}

impl std::error::Error for GaveUp {}

impl Pattern {
    /// Compiles `text`, which stands in `word`.
    ///
    /// # Errors
    ///
    /// `regular expression "X" does not compile: WHY`.
    pub fn compile(word: &Word, text: &[u8], caseless: bool) -> Result<Pattern, ConfError> {
        Pattern::new(text, caseless).map_err(|why| does_not_compile(word, text, &why))
    }

    /// Reads `text`, which stands in `word`, for a [`PatternList`]: its syntax is checked, and what
    /// the list needs is compiled by it.
    ///
    /// # Errors
    ///
    /// Those of [`Pattern::compile`].
    pub fn for_list(word: &Word, text: &[u8], caseless: bool) -> Result<Pattern, ConfError> {
        Pattern::read(text, caseless).map_err(|why| does_not_compile(word, text, &why))
    }

    /// Compiles a pattern from outside the configuration.
    ///
    /// # Errors
    ///
    /// The pattern is malformed, too large, or has a construct that is not supported.
    pub fn new(text: &[u8], caseless: bool) -> Result<Pattern, PatternError> {
        let pattern = Pattern::read(text, caseless)?;
        if pattern.engine.get().is_none() {
            let _ = pattern.engine.set(Some(compile(&pattern.plain, caseless)?));
        }
        Ok(pattern)
    }

    /// Checks the syntax. Two kinds of patterns are compiled at once, because only compiling them
    /// shows whether they are valid: those that may be too large ([`WEIGHT_MAX`]), and those for
    /// the backtracking engine.
    fn read(text: &[u8], caseless: bool) -> Result<Pattern, PatternError> {
        let mut plain = translate(text, Target::Bytes)?;
        let (engine, mut texts) = (OnceCell::new(), Vec::new());
        if plain.backtracks {
            plain = translate(text, Target::Chars)?;
            let _ = engine.set(Some(compile(&plain, caseless)?));
        } else {
            let hir = regex_syntax::ParserBuilder::new()
                .unicode(plain.utf)
                .utf8(false)
                .case_insensitive(caseless)
                .build()
                .parse(&plain.pattern)
                .map_err(|error| short(&error.to_string()))?;
            if required::weight(&hir) > WEIGHT_MAX {
                let _ = engine.set(Some(compile(&plain, caseless)?));
            }
            texts = required::required(&hir);
        }
        let text = Bytes::copy_from_slice(text);
        Ok(Pattern { engine, plain, caseless, text, required: texts })
    }

    /// Compiles it, unless it is compiled already.
    pub fn prepare(&self) {
        let _ = self.engine();
    }

    fn engine(&self) -> Result<&Engine, GaveUp> {
        let compiled = || compile(&self.plain, self.caseless).ok();
        self.engine.get_or_init(compiled).as_ref().ok_or(GaveUp)
    }

    /// Texts in lower case. Each match contains at least one of them, in upper or lower case. Empty
    /// if the pattern has no such texts.
    pub(crate) fn required(&self) -> &[Vec<u8>] {
        &self.required
    }

    /// The pattern's source text.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The number of capturing groups, the whole match not counted.
    pub fn groups(&self) -> usize {
        self.plain.groups
    }

    /// Its named groups with their numbers.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.plain.names.iter().map(|(group, name)| (*group, name.as_str()))
    }

    /// Whether the pattern matches somewhere in `subject`.
    ///
    /// # Errors
    ///
    /// [`GaveUp`], which only patterns with look-around and the like can.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, GaveUp> {
        match self.engine()? {
            Engine::Linear(re, _) => Ok(re.is_match(subject)),
            Engine::Backtracking { re, utf } => {
                with_text(subject, *utf, |text, _| re.is_match(text).map_err(|_| GaveUp))
            }
        }
    }

    /// Finds the first match: `spans` then holds the whole match and one span for each group.
    /// `spans` is unchanged where nothing matches.
    ///
    /// # Errors
    ///
    /// [`GaveUp`], from patterns with look-around and the like alone.
    pub fn find(&self, subject: &[u8], spans: &mut Vec<Span>) -> Result<bool, GaveUp> {
        match self.engine()? {
            Engine::Linear(re, locations) => {
                let mut locations = locations.borrow_mut();
                if re.captures_read(&mut locations, subject).is_none() {
                    return Ok(false);
                }
                spans.clear();
                let group = |i| locations.get(i).map(|(start, end)| (start as u32, end as u32));
                spans.extend((0..locations.len()).map(group));
                Ok(true)
            }
            Engine::Backtracking { re, utf } => with_text(subject, *utf, |text, wide| {
                let Some(found) = re.captures(text).map_err(|_| GaveUp)? else {
                    return Ok(false);
                };
                // One character of the text is one byte of the subject.
                let back = |at: usize| if wide { text[..at].chars().count() } else { at };
                spans.clear();
                spans.extend(
                    found.iter().map(|m| m.map(|m| (back(m.start()) as u32, back(m.end()) as u32))),
                );
                Ok(true)
            }),
        }
    }
}

/// Lends the subject as text, and whether it had to be widened.
fn with_text<T>(
    subject: &[u8],
    utf: bool,
    f: impl FnOnce(&str, bool) -> Result<T, GaveUp>,
) -> Result<T, GaveUp> {
    if utf || subject.is_ascii() {
        return f(std::str::from_utf8(subject).map_err(|_| GaveUp)?, false);
    }
    let wide: String = subject.iter().map(|byte| char::from(*byte)).collect();
    f(&wide, true)
}

fn does_not_compile(word: &Word, text: &[u8], why: &PatternError) -> ConfError {
    let text = String::from_utf8_lossy(text);
    ConfError::at(word, format!("regular expression \"{text}\" does not compile: {why}"))
}

fn compile(plain: &Translated, caseless: bool) -> Result<Engine, PatternError> {
    if plain.backtracks { backtracking(plain, caseless) } else { linear(plain, caseless) }
}

fn linear(plain: &Translated, caseless: bool) -> Result<Engine, PatternError> {
    let re = regex::bytes::RegexBuilder::new(&plain.pattern)
        .case_insensitive(caseless)
        .unicode(plain.utf)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| short(&error.to_string()))?;
    let locations = RefCell::new(re.capture_locations());
    Ok(Engine::Linear(Box::new(re), locations))
}

fn backtracking(plain: &Translated, caseless: bool) -> Result<Engine, PatternError> {
    let source = if caseless { format!("(?i){}", plain.pattern) } else { plain.pattern.clone() };
    let re = fancy_regex::RegexBuilder::new(&source)
        .backtrack_limit(BACKTRACK_LIMIT)
        .delegate_size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| short(&error.to_string()))?;
    Ok(Engine::Backtracking { re: Box::new(re), utf: plain.utf })
}

/// The engines draw the place under the translated pattern, over several lines; the reason is last.
fn short(error: &str) -> String {
    let reason = error.lines().last().unwrap_or_default();
    reason.trim().trim_start_matches("error: ").to_owned()
}

/// The reason for which a pattern is refused, in the words of an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(Cow<'static, str>);

impl From<&'static str> for PatternError {
    fn from(reason: &'static str) -> PatternError {
        PatternError(reason.into())
    }
}

impl From<String> for PatternError {
    fn from(reason: String) -> PatternError {
        PatternError(reason.into())
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

impl AsRef<Pattern> for Pattern {
    fn as_ref(&self) -> &Pattern {
        self
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Pattern {
        Pattern::new(text.as_bytes(), false).unwrap_or_else(|e| unreachable!("{text}: {e}"))
    }

    /// The groups of the first match; `None` where nothing matches.
    fn groups(pattern: &str, subject: &[u8]) -> Option<Vec<Option<Vec<u8>>>> {
        let mut spans = Vec::new();
        let pattern = compile(pattern);
        let found = pattern.find(subject, &mut spans).unwrap();
        assert_eq!(found, pattern.is_match(subject).unwrap());
        let text = |s: &Span| s.map(|(a, b)| subject[a as usize..b as usize].to_vec());
        found.then(|| spans.iter().map(text).collect())
    }

    fn matches(pattern: &str, subject: &[u8]) -> bool {
        groups(pattern, subject).is_some()
    }

    #[track_caller]
    fn first(pattern: &str, subject: &[u8]) -> Vec<u8> {
        groups(pattern, subject).unwrap()[1].clone().unwrap()
    }

    #[test]
    fn what_configurations_use() {
        assert!(matches(r"\.(gif|jpg|jpeg)$", b"/a.jpeg"));
        assert!(!matches(r"\.(gif|jpg|jpeg)$", b"/a.jpeg/x"));
        assert!(matches("", b"anything"));
        assert_eq!(first(r"^/u/([^/]+)/", b"/u/anna/x"), b"anna");
        assert_eq!(first(r"^(?P<name>[a-z]+)\Q.example.com\E$", b"blah.example.com"), b"blah");
        assert!(!matches(r"^[a-z]+\Q.example.com\E$", b"blah-example.com"));
        assert_eq!(first(r"^(?P<name>www\p{N}+)\.example\.com$", b"www01.example.com"), b"www01");
        assert_eq!(groups("(a)|(b)", b"b").unwrap()[1..], [None, Some(b"b".to_vec())]);
    }

    #[test]
    fn names_have_numbers() {
        let pattern = compile("(x)(?<first>a)(?P<second>b)(?'third'c)(?:d)");
        assert_eq!(
            pattern.names().collect::<Vec<_>>(),
            [(2, "first"), (3, "second"), (4, "third")]
        );
        assert_eq!(pattern.groups(), 4);
        assert_eq!(compile("(?n)(a)(?<b>c)").groups(), 1);
    }

    #[test]
    fn case() {
        let any = Pattern::new(b"^/Foo[a-c]$", true).unwrap();
        assert!(any.is_match(b"/fOOB").unwrap());
        let any = Pattern::new(b"^/Foo(?!x)", true).unwrap();
        assert!(any.is_match(b"/fOO").unwrap() && !any.is_match(b"/fOOx").unwrap());
        // The case of bytes above ASCII is not known without UTF mode.
        assert!(!Pattern::new("é".as_bytes(), true).unwrap().is_match("É".as_bytes()).unwrap());
        assert!(matches("(?-i)a", b"a"));
        assert!(matches("^(?:(?i)a|b)c$", b"Bc"));
        assert!(!matches("^(?:(?i)a|b)c$", b"BC"));
    }

    #[test]
    fn the_end_may_be_before_a_line_feed() {
        assert!(matches(r"\.php$", b"/a.php\n"));
        assert!(!matches(r"\.php$", b"/a.php\n\n"));
        assert!(matches(r"\.php\Z", b"/a.php\n"));
        assert!(!matches(r"\.php\z", b"/a.php\n"));
        assert!(matches(r"(?!x)\.php$", b"/a.php\n"));
        assert!(matches("(?m)^b$", b"a\nb\nc"));
        assert_eq!(first("^(.*)$", b"ab\n"), b"ab");
    }

    #[test]
    fn subjects_are_bytes() {
        assert!(matches("^a.b$", b"a\xffb"));
        assert!(matches("^a.b$", b"a\xffb"));
        assert!(!matches("^a.b$", "aéb".as_bytes()));
        assert!(matches("^a..b$", "aéb".as_bytes()));
        assert!(matches("é", "né".as_bytes()));
        assert!(matches("[é]$", b"\xc3"));
        assert!(matches(r"\xe9", b"\xe9"));
        assert!(matches(r"^[^a]$", b"\xe9"));
        assert!(!matches(r"\w", b"\xe9"));
        assert!(matches(r"\W", b"\xe9"));
        assert!(matches("(*UTF8)^a.b$", "aéb".as_bytes()));
        assert!(!matches(r"(*UTF8)\w", "é".as_bytes()));
        assert!(matches(r"(*UTF8)(*UCP)\w", "é".as_bytes()));
        assert!(matches(r"(*UTF8)[é-ü]", "ö".as_bytes()));
    }

    #[test]
    fn word_boundaries_are_those_of_ascii() {
        for start in ["", "(?!x)", "(*UTF)", "(*UTF)(?!x)"] {
            let boundary = |text: &str| format!("{start}{text}");
            assert!(!matches(&boundary(r"\bé"), "é".as_bytes()), "{start}");
            assert!(matches(&boundary(r"é\Bé"), "éé".as_bytes()), "{start}");
            assert!(matches(&boundary(r"a\bé"), "aé".as_bytes()), "{start}");
            assert!(matches(&boundary(r"^a\Bb\b-\B-"), b"ab--"), "{start}");
        }
        assert!(matches(r"(*UCP)\bé", "é".as_bytes()));
        assert!(matches(r"(*UCP)(?!x)\bé", "é".as_bytes()));
    }

    #[test]
    fn a_flag_ends_with_its_group() {
        assert!(!matches("(foo|b(?i))A", b"ba"));
        assert!(!matches("(?!x)(foo|b(?i))A", b"ba"));
        assert!(!matches("(?!x)(?:(f)(?i)oo|b)A", b"Ba"));
        assert!(matches("(?!x)(f(?i)oo|b)(?-i)", b"B"));
        assert!(matches("(?!x)f(?i)o(?-i)o|b", b"fOo"));
        assert!(!matches("(?!x)f(?i)o(?-i)o|b", b"B"));
    }

    #[test]
    fn look_around_and_the_like() {
        assert_eq!(first("^/(?!public)(.*)", b"/secret\xff\xe9x"), b"secret\xff\xe9x");
        assert_eq!(first(r"(?<=\xe9)(.)", b"\xe9x"), b"x");
        assert_eq!(first("(?<=é)(.)", "éx".as_bytes()), b"x");
        assert!(!matches("^/(?!public)", b"/public"));
        assert_eq!(first(r"(.)\1", b"abccd"), b"c");
        assert_eq!(first(r"(?<x>.)\k<x>", b"abccd"), b"c");
        assert_eq!(first(r"(?<x>.)(?P=x)", b"abccd"), b"c");
        assert_eq!(first(r"(.)\g{-1}", b"abccd"), b"c");
        assert_eq!(first(r"(.)\g1", b"abccd"), b"c");
        assert!(!matches(r"(?>a+)ab", b"aaab"));
        assert!(!matches(r"a++ab", b"aaab"));
        assert!(matches(r"a+ab", b"aaab"));
        assert!(matches(r"^(a)?(?(1)b|c)$", b"ab") && !matches(r"^(a)?(?(1)b|c)$", b"b"));
    }

    #[test]
    fn a_hopeless_match_is_given_up() {
        let pattern = compile(r"^(?=(a+)+$)b?(a|aa)+$(?!x)");
        let subject = [&[b'a'; 64][..], b"!"].concat();
        assert_eq!(pattern.is_match(&subject), Err(GaveUp));
        let utf = compile("(*UTF)(?=a)a");
        assert_eq!(utf.is_match(b"a\xff"), Err(GaveUp));
        assert_eq!(utf.is_match(b"a"), Ok(true));
    }

    #[test]
    fn escapes() {
        for (pattern, subject) in [
            (r"^\<\>\/\-\_\@\ $", "<>/-_@ "),
            (r"^\x41\x{42}\103\o{104}\0$", "ABCD\0"),
            (r"^\t\n\r\f\a\e\cA$", "\t\n\r\x0c\x07\x1b\x01"),
            (r"^\h\v\H\V\N\R$", " \nab\u{63}\r\n"),
            (r"^\d\D\s\S\w\W$", "1a b_-"),
            (r"\Aa\b \Bb?\z", "a "),
            (r"^a{2}b{,}c{1,x}{$", "aab{,}c{1,x}{"),
            (r"^a{,2}$", "aa"),
            (r"^[]a]+[^]a]$", "]a]b"),
            (r"^[[:alpha:]_[:^digit:]]$", "x"),
            (r"^[a\-z]+[a-]+[\d-x]+$", "a-z-a1-x"),
            (r"^[[a&&b~~d+--]+$", "[a&b~d+,-"),
            (r"^[\Q]^-\E]+$", "]^-"),
            (r"^[\x41-\x43\n\]]+$", "ABC\n]"),
            (r"^[\p{L}\d]+[\pL][\P{L}]\p{^L}$", "aZ9b11"),
            (r"^(?#a comment)a$", "a"),
            ("^(?x) a [ #] b # the rest \n c $", "a bc"),
            ("^(?x: a  + ) b$", "aa b"),
            (r"^}]$", "}]"),
            (r"^a\Qb", "ab"),
            (r"^(?i:A)(?s:.)(?U)a*$", "a\n"),
        ] {
            assert!(matches(pattern, subject.as_bytes()), "{pattern}");
            // The other engine translates the pattern the same way.
            let other = format!("(?!never){pattern}");
            if !pattern.contains("(?U)") {
                assert!(matches(&other, subject.as_bytes()), "{other}");
            }
        }
    }

    #[test]
    fn lazy_quantifiers() {
        assert_eq!(first("(a+?)", b"aaa"), b"a");
        assert_eq!(first("(a{2,}?)", b"aaa"), b"aa");
        assert_eq!(first("(?U)(a+)", b"aaa"), b"a");
    }

    #[test]
    fn what_does_not_compile_says_why() {
        let long = "(".repeat(100_000);
        for bad in [
            "(",
            ")",
            "[",
            "*",
            "a**b(",
            r"\",
            r"\y",
            "(?<1a>x)",
            "(?<a",
            "(?P>x)",
            "(?R)",
            "(?1)",
            "(?|a|b)",
            r"\X",
            "[z-a]",
            "[[:nope:]]",
            r"\p{Nope}",
            r"(a)\2",
            r"\k<x>",
            "(?<x>a",
            "(?q)",
            "a{2,1}",
            "(?",
            "(*NOPE)a",
            "(*",
            r"\x{110000}",
            r"\g{",
            r"\c",
            "(?(",
            "(?P",
            &long,
        ] {
            assert!(Pattern::new(bad.as_bytes(), false).is_err(), "{}", &bad[..bad.len().min(20)]);
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        // Every sequence of up to three of these is tried: together they cover the grammar.
        let parts: [&[u8]; 16] = [
            b"(", b")", b"[", b"]", b"\\", b"?", b"<", b"a", b"{", b"1", b",", b"^", b"-", b"\xff",
            b"Q", b":",
        ];
        let mut stack = vec![(0, Vec::new())];
        let mut compiled = 0;
        while let Some((depth, text)) = stack.pop() {
            if let Ok(pattern) = Pattern::new(&text, false) {
                compiled += 1;
                let _ = pattern.is_match(b"a1\xff-");
            }
            if depth < 3 {
                stack.extend(parts.iter().map(|part| (depth + 1, [&text, *part].concat())));
            }
        }
        assert!(compiled > 500, "{compiled}");
    }
}
