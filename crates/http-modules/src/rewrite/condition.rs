//! The conditions of `if`.

use std::task::Poll;

use base::log::Level;
use bytes::Bytes;
use conf::template::{VarId, VarNames};
use conf::{ConfError, Node, Word};
use engine::regex::{MatchFailed, Regex};
use http::cx::Cx;
use http::files::{self, OpenError};
use http::request::Request;
use os::file::FileMeta;

use super::value::Value;
use crate::static_file::{ENAMETOOLONG, ENOENT, ENOTDIR};

/// A condition.
pub(super) struct Test {
    kind: Kind,
    /// Holds where what it asks for does not.
    negated: bool,
}

enum Kind {
    /// Neither empty nor `0`.
    True(VarId),
    Equal(VarId, Value),
    Matches(VarId, Regex),
    File(Value, FileTest),
}

/// The test of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileTest {
    File,
    Folder,
    Exists,
    /// Its owner may execute it.
    Executable,
}

pub(super) enum Answer {
    Known(bool),
    /// The file system has to be waited for: ask it of this path, then go on with
    /// [`Test::of_file`].
    Wait(Bytes),
}

/// A word with some of its text.
fn part(w: &Word, from: usize, to: usize) -> Word {
    Word { text: w.text.slice(from..to), ..w.clone() }
}

impl Test {
    /// Reads `($x = y)`, `($x ~* y)`, `(!-f y)`, `($x)`, with or without spaces at the brackets.
    pub fn parse(cx: &mut Cx, n: &Node) -> Result<Test, ConfError> {
        let invalid = |w: &Word| ConfError::at(w, format!("invalid condition \"{}\"", w.lossy()));
        let mut words: Vec<Word> = n.args.clone();
        let first = &words[0];
        if first.bytes().first() != Some(&b'(') {
            return Err(invalid(first));
        }
        words[0] = part(first, 1, first.text.len());
        let end = words.len() - 1;
        let last = &words[end];
        if last.bytes().last() != Some(&b')') {
            return Err(invalid(last));
        }
        words[end] = part(last, 0, last.text.len() - 1);
        // Brackets that stood alone leave nothing.
        if words[end].text.is_empty() && !words[end].quoted {
            words.pop();
        }
        if words.first().is_some_and(|w| w.text.is_empty()) {
            words.remove(0);
        }
        match &words[..] {
            [var, rest @ ..] if var.text.len() > 1 && var.text.starts_with(b"$") => {
                let id = cx.vars.var_id(&var.text[1..], var)?;
                match rest {
                    [] => Ok(Test { kind: Kind::True(id), negated: false }),
                    [operator, operand] => Test::compare(cx, id, operator, operand),
                    _ => Err(invalid(var)),
                }
            }
            [operator, path] => match Test::file(operator.bytes()) {
                Some((what, negated)) => {
                    let path = Value::parse(cx, path)?;
                    Ok(Test { kind: Kind::File(path, what), negated })
                }
                None => Err(invalid(operator)),
            },
            [one, ..] => Err(invalid(one)),
            [] => Err(invalid(&n.args[0])),
        }
    }

    fn compare(
        cx: &mut Cx,
        var: VarId,
        operator: &Word,
        operand: &Word,
    ) -> Result<Test, ConfError> {
        let text = operator.bytes();
        let kind = match text {
            b"=" | b"!=" => Kind::Equal(var, Value::parse(cx, operand)?),
            b"~" | b"~*" | b"!~" | b"!~*" => {
                let caseless = text.ends_with(b"*");
                let regex = Regex::compile(operand, operand.bytes(), caseless, &mut cx.vars)?;
                Kind::Matches(var, regex)
            }
            _ => {
                let m = format!("unexpected \"{}\" in condition", operator.lossy());
                return Err(ConfError::at(operator, m));
            }
        };
        Ok(Test { kind, negated: text.starts_with(b"!") })
    }

    fn file(operator: &[u8]) -> Option<(FileTest, bool)> {
        let (letter, negated) = match operator {
            [b'-', letter] => (letter, false),
            [b'!', b'-', letter] => (letter, true),
            _ => return None,
        };
        let what = match letter {
            b'f' => FileTest::File,
            b'd' => FileTest::Folder,
            b'e' => FileTest::Exists,
            b'x' => FileTest::Executable,
            _ => return None,
        };
        Some((what, negated))
    }

    /// Whether both conditions never hold for one request, as far as can be told: they ask the same
    /// variable for different values.
    pub fn excludes(&self, other: &Test) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Equal(a, with), Kind::Equal(b, other_with)) if a == b => {
                match (self.negated, other.negated, with.as_const(), other_with.as_const()) {
                    (false, false, Some(x), Some(y)) => x != y,
                    (true, false, Some(x), Some(y)) | (false, true, Some(x), Some(y)) => x == y,
                    _ => false,
                }
            }
            (Kind::True(a), Kind::Equal(b, with)) | (Kind::Equal(b, with), Kind::True(a)) => {
                let empty = with.as_const().is_some_and(|v| v.is_empty() || v == &b"0"[..]);
                a == b && empty && !self.negated && !other.negated
            }
            _ => false,
        }
    }

    /// Whether the condition holds. `escape`: groups in its texts are escaped.
    pub fn ask(&self, r: &mut Request, escape: bool, log: bool) -> Result<Answer, MatchFailed> {
        let holds = match &self.kind {
            Kind::True(var) => {
                let value = r.var(*var);
                value.is_some_and(|v| !v.is_empty() && v != b"0"[..])
            }
            Kind::Equal(var, with) => {
                let value = r.var(*var).unwrap_or_default();
                value == with.eval(r, escape)
            }
            Kind::Matches(var, regex) => {
                let value = r.var(*var).unwrap_or_default();
                let found = regex.exec(r, &value)?;
                if !found {
                    r.state.captures.clear();
                }
                if log {
                    log_match(r, regex, &value, found);
                }
                found
            }
            Kind::File(path, _) => {
                let path = path.eval(r, escape);
                return Ok(match files::try_stat(r, &path) {
                    Poll::Ready(found) => Answer::Known(self.of_file(r, &path, found)),
                    Poll::Pending => Answer::Wait(path),
                });
            }
        };
        Ok(Answer::Known(holds != self.negated))
    }

    /// The condition's answer from what the file system said of its path.
    pub fn of_file(&self, r: &Request, path: &[u8], found: Result<FileMeta, OpenError>) -> bool {
        let Kind::File(_, what) = &self.kind else { return false };
        crate::file_notes::note(r, "if", path, found.as_ref());
        let holds = match found {
            Ok(meta) => match what {
                FileTest::File => meta.is_file(),
                FileTest::Folder => meta.is_dir(),
                FileTest::Exists => meta.is_file() || meta.is_dir(),
                FileTest::Executable => meta.mode & 0o100 != 0,
            },
            Err(e) => {
                if !matches!(e.errno(), Some(ENOENT | ENOTDIR | ENAMETOOLONG)) {
                    let path = base::log::lossy(path);
                    r.log_os(Level::Crit, format_args!("{} \"{path}\"", e.what), &e.error);
                }
                false
            }
        };
        holds != self.negated
    }
}

/// `rewrite_log` of a regular expression.
#[cold]
pub(super) fn log_match(r: &Request, regex: &Regex, subject: &[u8], found: bool) {
    let (text, subject) = (base::log::lossy(regex.text()), base::log::lossy(subject));
    let what = if found { "matches" } else { "does not match" };
    r.log(Level::Notice, format_args!("\"{text}\" {what} \"{subject}\""));
}
