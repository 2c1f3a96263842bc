//! Regular expressions in sessions: the groups of the last match, and variables for named ones.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::pattern::{Pattern, Span};
use conf::template::VarId;
use conf::{ConfError, Word};

use crate::session::Session;
use crate::vars::{self, Registry};

/// A compiled pattern with the variables that its named groups set.
#[derive(Debug)]
pub struct Regex {
    pattern: Rc<Pattern>,
    names: Vec<(usize, VarId)>,
    caseless: bool,
}

/// The match was given up, which is logged already; an HTTP request fails with status 500.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MatchFailed;

/// The groups of the last match of a session: spans in a copy of the subject.
#[derive(Clone, Default)]
pub struct Captures {
    subject: Vec<u8>,
    spans: Vec<Span>,
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
    ///
    /// # Errors
    /// The fault in the pattern, and `the duplicate "NAME" variable` for a group that has the name
    /// of a variable that cannot be set.
    pub fn compile<S: Session>(
        word: &Word,
        pattern: &[u8],
        caseless: bool,
        vars: &mut Registry<S>,
    ) -> Result<Regex, ConfError> {
        let regex = Regex::for_list(word, pattern, caseless, vars)?;
        regex.pattern.prepare();
        Ok(regex)
    }

    /// Reads `word`'s text for a [`conf::pattern::PatternList`], which compiles what it needs.
    ///
    /// # Errors
    /// Those of [`Regex::compile`].
    pub fn for_list<S: Session>(
        word: &Word,
        pattern: &[u8],
        caseless: bool,
        vars: &mut Registry<S>,
    ) -> Result<Regex, ConfError> {
        let pattern = vars.pattern(word, pattern, caseless)?;
        let mut names = Vec::new();
        for (group, name) in pattern.names() {
            names.push((group, vars.named_capture(name, word)?));
        }
        Ok(Regex { pattern, names, caseless })
    }

    /// Whether letters match in both cases.
    pub fn is_caseless(&self) -> bool {
        self.caseless
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &Bytes {
        self.pattern.text()
    }

    /// Says whether the pattern matches, without recording groups.
    ///
    /// # Errors
    /// The match was given up.
    pub fn is_match<S: Session>(&self, s: &S, subject: &[u8]) -> Result<bool, MatchFailed> {
        self.pattern.is_match(subject).map_err(|_| self.gave_up(s, subject))
    }

    /// Says whether the pattern matches; one whose match is given up does not.
    pub fn matches(&self, subject: &[u8]) -> bool {
        self.pattern.is_match(subject).unwrap_or(false)
    }

    /// Matches and, on success, records the groups and sets the named ones' variables in `s`.
    ///
    /// # Errors
    /// The match was given up: whether it would have succeeded is not known, so the session must
    /// not go on as if it had not.
    pub fn exec<S: Session>(&self, s: &mut S, subject: &[u8]) -> Result<bool, MatchFailed> {
        if self.pattern.groups() == 0 {
            let found = self.is_match(s, subject)?;
            if found {
                s.captures_mut().clear();
            }
            return Ok(found);
        }
        let captures = s.captures_mut();
        match self.pattern.find(subject, &mut captures.spans) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(_) => return Err(self.gave_up(s, subject)),
        }
        captures.subject.clear();
        captures.subject.extend_from_slice(subject);
        for &(group, var) in &self.names {
            let value = s.captures().get(group).map(Bytes::copy_from_slice);
            vars::store(s, var, Some(value.unwrap_or_default()));
        }
        Ok(true)
    }

    #[cold]
    fn gave_up<S: Session>(&self, s: &S, subject: &[u8]) -> MatchFailed {
        let (subject, text) = (base::log::lossy(subject), base::log::lossy(self.text()));
        let m = "regular expression match was given up";
        s.log(Level::Alert, format_args!("{m} on \"{subject}\" using \"{text}\""));
        MatchFailed
    }
}

impl AsRef<Pattern> for Regex {
    fn as_ref(&self) -> &Pattern {
        &self.pattern
    }
}
