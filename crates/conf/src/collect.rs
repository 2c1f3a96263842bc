//! All errors of a configuration instead of the first one.
//!
//! Within [`all`], a table of directives keeps the error of a directive and treats the directive as
//! absent, so that the rest is still checked. An error that may be a consequence of an earlier one
//! is not kept: that of a block whose content had errors, and one that quotes a word of another
//! directive that failed (`unknown log format "main"` after a wrong `log_format main`).

use std::cell::RefCell;

use bytes::Bytes;

use crate::{ConfError, Node, Word};

/// Errors that are kept. Later ones are counted.
const ERRORS_MAX: usize = 20;

/// The errors of a configuration, in the order of the text.
#[derive(Debug, Default)]
pub struct Errors {
    /// The first ones; at least one.
    pub list: Vec<ConfError>,
    /// The number of those that were not kept.
    pub more: usize,
}

#[derive(Default)]
struct Open {
    /// Errors with their sections.
    kept: Vec<(usize, ConfError)>,
    /// The section that is being read.
    section: usize,
    more: usize,
    /// The names and arguments of directives that failed.
    failed: Vec<(Bytes, Vec<Bytes>)>,
}

thread_local! {
    /// Not an argument, because setters of all modules stand between the tables of two levels.
    static OPEN: RefCell<Option<Open>> = const { RefCell::new(None) };
}

/// Calls `load` and returns all errors that tables met in it, or the one that it returns.
///
/// # Errors
///
/// At least one error.
pub fn all<T>(load: impl FnOnce() -> Result<T, ConfError>) -> Result<T, Errors> {
    OPEN.replace(Some(Open::default()));
    let outcome = load();
    let Open { mut kept, more, .. } = OPEN.take().unwrap_or_default();
    // Stable: the order within a section is that of the text.
    kept.sort_by_key(|(section, _)| *section);
    let list: Vec<ConfError> = kept.into_iter().map(|(_, error)| error).collect();
    match outcome {
        Ok(value) if list.is_empty() => Ok(value),
        // An error at the end of a load with errors is a consequence, or the first of them.
        Err(error) if list.is_empty() => Err(Errors { list: vec![error], more }),
        _ => Err(Errors { list, more }),
    }
}

/// The number of errors so far; 0 outside of [`all`].
pub fn count() -> usize {
    OPEN.with_borrow(|open| open.as_ref().map_or(0, |open| open.kept.len() + open.more))
}

/// Names the section of the errors that follow. Sections are read in any order, and reported in
/// the order of their numbers.
pub fn section(number: usize) {
    OPEN.with_borrow_mut(|open| {
        if let Some(open) = open {
            open.section = number;
        }
    });
}

/// Ends a block whose content had errors since there were `before` of them: what follows checks
/// the whole, and would report consequences.
///
/// # Errors
///
/// The first of those errors.
pub fn settle(before: usize) -> Result<(), ConfError> {
    OPEN.with_borrow(|open| match open {
        Some(open) if open.kept.len() + open.more > before => {
            let (_, first) = open.kept.get(before).or(open.kept.last()).ok_or_else(unknown)?;
            Err(first.clone())
        }
        _ => Ok(()),
    })
}

fn unknown() -> ConfError {
    ConfError::new("the configuration has errors")
}

/// Keeps the error at the end of a block that was read as a whole, unless there are others.
///
/// # Errors
///
/// The error itself, outside of [`all`].
pub fn keep_end(error: ConfError) -> Result<(), ConfError> {
    OPEN.with_borrow_mut(|open| {
        let Some(open) = open else { return Err(error) };
        let section = open.section;
        if open.kept.iter().all(|(of, _)| *of > section) {
            open.kept.push((section, error));
        }
        Ok(())
    })
}

/// Keeps the error of a directive, before which there were `before` errors.
///
/// # Errors
///
/// The error itself, outside of [`all`].
pub(crate) fn keep(node: &Node, error: ConfError, before: usize) -> Result<(), ConfError> {
    OPEN.with_borrow_mut(|open| {
        let Some(open) = open else { return Err(error) };
        let had_errors = open.kept.len() + open.more > before;
        if had_errors || open.is_consequence(node, &error) {
            return Ok(());
        }
        let args = node.args.iter().map(|word| word.text.clone()).collect();
        open.failed.push((node.name.text.clone(), args));
        match open.kept.len() < ERRORS_MAX {
            true => open.kept.push((open.section, error)),
            false => open.more += 1,
        }
        Ok(())
    })
}

impl Open {
    fn is_consequence(&self, node: &Node, error: &ConfError) -> bool {
        // Of the words that the message quotes, those that the directive has itself: others are
        // names of directives and values that it might have ("on").
        let own = |word: &&str| {
            let word = word.as_bytes();
            let has = |arg: &Word| memchr::memmem::find(arg.bytes(), word).is_some();
            !word.is_empty() && !matches!(word, b"on" | b"off") && node.args.iter().any(has)
        };
        let quoted = error.message.split('"').skip(1).step_by(2).filter(own);
        let quoted: Vec<&str> = quoted.collect();
        let others = self.failed.iter().filter(|(name, _)| *name != node.name.text);
        others.flat_map(|(_, args)| args).any(|arg| {
            quoted.iter().any(|word| word.trim_start_matches('$').as_bytes() == trimmed(arg))
        })
    }
}

/// The word without the dollar of a variable.
fn trimmed(arg: &[u8]) -> &[u8] {
    arg.strip_prefix(b"$").unwrap_or(arg)
}
