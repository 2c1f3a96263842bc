//! Regular expressions with PCRE's syntax as configurations use it: the linear-time engine where the
//! pattern allows it, the backtracking one (bounded) only for look-around and back-references.

use bytes::Bytes;
use conf::template::VarId;
use conf::{ConfError, Word};

use crate::request::Request;
use crate::vars::Registry;

/// How many steps the backtracking engine may take before it gives up, so that no pattern and input
/// together can hold the loop.
const BACKTRACK_LIMIT: usize = 100_000;

enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

/// A compiled pattern with the variables that its named groups set.
pub struct Regex {
    engine: Engine,
    /// The pattern as it was written.
    pub pattern: Bytes,
    names: Vec<(usize, VarId)>,
    groups: usize,
}

/// The groups of the last match of a request: spans in a copy of the subject.
#[derive(Default)]
pub struct Captures {
    subject: Vec<u8>,
    spans: Vec<Option<(u32, u32)>>,
}

impl Captures {
    /// The n-th group; 0 is the whole match.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let (a, b) = (*self.spans.get(n)?)?;
        self.subject.get(a as usize..b as usize)
    }

    /// Forgets the last match, keeping the memory.
    pub fn clear(&mut self) {
        self.subject.clear();
        self.spans.clear();
    }
}

impl Regex {
    /// Compiles `word`'s text; named groups become variables. `caseless` is `~*`.
    pub fn compile(
        word: &Word,
        pattern: &[u8],
        caseless: bool,
        vars: &mut Registry,
    ) -> Result<Regex, ConfError> {
        let fail = |e: String| {
            let p = String::from_utf8_lossy(pattern).into_owned();
            let short = e.lines().last().unwrap_or("").trim_start_matches("error: ").to_owned();
            ConfError::at(word, format!("regular expression \"{p}\" does not compile: {short}"))
        };
        let text = std::str::from_utf8(pattern).map_err(|e| fail(e.to_string()))?;
        let linear = regex::bytes::RegexBuilder::new(text)
            .case_insensitive(caseless)
            .unicode(false)
            .size_limit(16 << 20)
            .build();
        let (engine, names): (_, Vec<Option<String>>) = match linear {
            Ok(re) => {
                let names = re.capture_names().map(|n| n.map(str::to_owned)).collect();
                (Engine::Linear(re), names)
            }
            Err(first) => {
                let source = if caseless { format!("(?i){text}") } else { text.to_owned() };
                let re = fancy_regex::RegexBuilder::new(&source)
                    .backtrack_limit(BACKTRACK_LIMIT)
                    .build()
                    .map_err(|_| fail(first.to_string()))?;
                let names = re.capture_names().map(|n| n.map(str::to_owned)).collect();
                (Engine::Backtracking(Box::new(re)), names)
            }
        };
        let groups = names.len();
        let names = names
            .iter()
            .enumerate()
            .filter_map(|(i, n)| n.as_ref().map(|n| (i, vars.named_capture(n))))
            .collect();
        Ok(Regex { engine, pattern: Bytes::copy_from_slice(pattern), names, groups })
    }

    /// Whether the pattern has groups, so that matching must record them.
    pub fn has_captures(&self) -> bool {
        self.groups > 1
    }

    /// Whether the pattern matches, without recording groups.
    pub fn is_match(&self, subject: &[u8]) -> bool {
        match &self.engine {
            Engine::Linear(re) => re.is_match(subject),
            Engine::Backtracking(re) => match std::str::from_utf8(subject) {
                Ok(s) => re.is_match(s).unwrap_or(false),
                Err(_) => false,
            },
        }
    }

    /// Matches and, on success, records the groups and sets the named ones' variables in `r`.
    pub fn exec(&self, r: &mut Request, subject: &[u8]) -> bool {
        if !self.has_captures() {
            if self.is_match(subject) {
                r.captures.clear();
                return true;
            }
            return false;
        }
        let mut spans = std::mem::take(&mut r.captures.spans);
        if !self.spans(subject, &mut spans) {
            r.captures.spans = spans;
            return false;
        }
        r.captures.subject.clear();
        r.captures.subject.extend_from_slice(subject);
        r.captures.spans = spans;
        for &(group, var) in &self.names {
            let value = r.captures.get(group).map(Bytes::copy_from_slice);
            r.set_var(var, Some(value.unwrap_or_default()));
        }
        true
    }

    fn spans(&self, subject: &[u8], spans: &mut Vec<Option<(u32, u32)>>) -> bool {
        let pair = |a: usize, b: usize| Some((a as u32, b as u32));
        match &self.engine {
            Engine::Linear(re) => match re.captures(subject) {
                Some(c) => {
                    spans.clear();
                    spans.extend(c.iter().map(|m| m.and_then(|m| pair(m.start(), m.end()))));
                    true
                }
                None => false,
            },
            Engine::Backtracking(re) => {
                let found = std::str::from_utf8(subject).ok().and_then(|s| re.captures(s).ok()?);
                match found {
                    Some(c) => {
                        spans.clear();
                        spans.extend(c.iter().map(|m| m.and_then(|m| pair(m.start(), m.end()))));
                        true
                    }
                    None => false,
                }
            }
        }
    }
}
