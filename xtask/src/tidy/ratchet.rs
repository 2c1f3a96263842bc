//! The list of files and functions over tidy's limits. It may only shrink.

use std::collections::BTreeMap;

use crate::run;
use crate::workspace::Workspace;

const PATH: &str = "xtask/ratchet.txt";
const HEADER: &str = "\
# Files and functions over tidy's limits: path (or path::function), lines, reason.
# This list may only shrink: no new entry, no higher figure. `cargo xtask tidy --fix` lowers
# the figures to the truth and drops what is within the limits.
";

/// A file or function that is over its limit.
pub struct Measured {
    /// `path` or `path::function`.
    pub what: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// Its lines.
    pub lines: usize,
    /// The lines it should keep to.
    pub limit: usize,
}

/// The entries of the list.
#[derive(Debug, Default, PartialEq)]
pub struct Ratchet {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, PartialEq)]
struct Entry {
    lines: usize,
    reason: String,
}

impl Ratchet {
    /// Reads the list; a missing file is an empty one.
    pub fn read(ws: &Workspace) -> Result<Self, String> {
        if !ws.root().join(PATH).exists() {
            return Ok(Self::default());
        }
        Self::parse(&ws.read(PATH)?)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut entries = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let mut fields = line.splitn(3, char::is_whitespace);
            let (what, lines, reason) = (fields.next(), fields.next(), fields.next());
            let (Some(what), Some(Ok(lines)), Some(reason)) =
                (what, lines.map(str::parse::<usize>), reason)
            else {
                return Err(format!("{PATH}:{}: not \"path lines reason\"", index + 1));
            };
            let entry = Entry { lines, reason: reason.trim().to_string() };
            entries.insert(what.to_string(), entry);
        }
        Ok(Self { entries })
    }

    /// Writes the list back.
    pub fn write(&self, ws: &Workspace) -> Result<(), String> {
        let mut text = HEADER.to_string();
        for (what, entry) in &self.entries {
            text.push_str(&format!("{what} {} {}\n", entry.lines, entry.reason));
        }
        ws.write(PATH, &text)
    }

    /// Lowers every figure to the truth and drops unnecessary entries.
    pub fn lower(&mut self, sizes: &[Measured]) {
        self.entries.retain(|what, entry| match largest(sizes, what) {
            Some(lines) => {
                entry.lines = entry.lines.min(lines);
                true
            }
            None => false,
        });
    }

    /// Sizes over the limit without an entry or beyond it, and entries higher than the truth.
    pub fn check(&self, sizes: &[Measured]) -> Vec<String> {
        let mut findings = Vec::new();
        for m in sizes {
            let allowed = self.entries.get(&m.what).map_or(m.limit, |e| e.lines);
            if m.lines > allowed {
                let (what, line, lines) = (&m.what, m.line, m.lines);
                findings.push(format!("{what} (line {line}): {lines} lines, allowed {allowed}"));
            }
        }
        for (what, entry) in &self.entries {
            let truth = largest(sizes, what).unwrap_or(0);
            if truth < entry.lines {
                let hint = "cargo xtask tidy --fix";
                findings.push(format!("{PATH}: {what} is down to {truth} lines: {hint}"));
            }
        }
        findings
    }

    /// Compares the list with the one committed before it: nothing new, nothing higher. Outside a
    /// checkout there is no history to hold it to.
    pub fn check_history(&self, ws: &Workspace) -> Vec<String> {
        let log = ["log", "-2", "--format=%H", "--", PATH];
        if !run::succeeds(ws, "git", &["rev-parse", "--verify", "HEAD"]) {
            return Vec::new();
        }
        let Ok(commits) = run::output(ws, "git", &log) else { return Vec::new() };
        let mut findings = Vec::new();
        for commit in commits.lines() {
            let Ok(text) = run::output(ws, "git", &["show", &format!("{commit}:{PATH}")]) else {
                continue;
            };
            // The very first list is a start, not growth.
            if let Ok(before) = Self::parse(&text)
                && !before.entries.is_empty()
            {
                findings.extend(self.grown_since(&before));
            }
        }
        findings.sort();
        findings.dedup();
        findings
    }

    fn grown_since(&self, before: &Self) -> Vec<String> {
        let mut findings = Vec::new();
        for (what, entry) in &self.entries {
            let allowed = before.entries.get(what).map_or(0, |e| e.lines);
            if entry.lines > allowed {
                findings.push(format!("{PATH}: {what} rose to {} lines: split it", entry.lines));
            }
        }
        findings
    }
}

fn largest(sizes: &[Measured], what: &str) -> Option<usize> {
    sizes.iter().filter(|m| m.what == what).map(|m| m.lines).max()
}

#[cfg(test)]
mod tests {
    use super::{Measured, Ratchet};

    fn measured(what: &str, lines: usize) -> Vec<Measured> {
        vec![Measured { what: what.to_string(), line: 1, lines, limit: 70 }]
    }

    #[test]
    fn the_list_allows_what_it_names_and_no_more() {
        let ratchet = Ratchet::parse("# x\na.rs::f 90 one switch over all opcodes\n").unwrap();
        assert!(ratchet.check(&measured("a.rs::f", 90)).is_empty());
        assert_eq!(ratchet.check(&measured("a.rs::f", 91)).len(), 1);
        assert_eq!(ratchet.check(&measured("a.rs::f", 80)).len(), 1);
        assert_eq!(ratchet.check(&measured("a.rs::g", 71)).len(), 2);
    }

    #[test]
    fn lowering_follows_the_truth_down_and_never_up() {
        let mut ratchet = Ratchet::parse("f 90 r\ng 80 r\n").unwrap();
        ratchet.lower(&measured("f", 85));
        assert_eq!(ratchet, Ratchet::parse("f 85 r").unwrap());
        ratchet.lower(&measured("f", 95));
        assert_eq!(ratchet, Ratchet::parse("f 85 r").unwrap());
    }

    #[test]
    fn growth_is_seen() {
        let before = Ratchet::parse("f 90 r\n").unwrap();
        assert_eq!(Ratchet::parse("f 91 r").unwrap().grown_since(&before).len(), 1);
        assert_eq!(Ratchet::parse("f 90 r\ng 75 r").unwrap().grown_since(&before).len(), 1);
        assert!(Ratchet::parse("f 80 r").unwrap().grown_since(&before).is_empty());
    }

    #[test]
    fn an_entry_needs_a_reason() {
        assert!(Ratchet::parse("f 90\n").is_err());
    }
}
