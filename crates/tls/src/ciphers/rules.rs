//! The rules of a cipher string, applied to the table of suites.

use super::Reason;
use super::table::{Marks, ROWS, Row, group};

/// The selection of a string.
pub(super) struct Selected {
    /// The suites, best first.
    pub(super) rows: Vec<&'static Row>,
    /// The ones among them that the string names, in its order.
    pub(super) named: Vec<&'static Row>,
    /// The last `@SECLEVEL`.
    pub(super) security_level: Option<u8>,
}

/// The string that `DEFAULT` stands for.
const DEFAULT: &str = "ALL:!COMPLEMENTOFDEFAULT:!eNULL";

/// Applies a cipher string.
pub(super) fn select(text: &str) -> Result<Selected, Reason> {
    let mut list = List::new();
    // Suite B is a text of its own, with nothing else in it.
    let text = match text {
        text if text.starts_with("SUITEB128ONLY") => "ECDHE-ECDSA-AES128-GCM-SHA256",
        text if text.starts_with("SUITEB128C2") => "ECDHE-ECDSA-AES256-GCM-SHA384",
        text if text.starts_with("SUITEB128") => {
            "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"
        }
        text if text.starts_with("SUITEB192") => "ECDHE-ECDSA-AES256-GCM-SHA384",
        text => text,
    };
    // Some distributions' OpenSSL takes the system's choice from elsewhere; it is much the same.
    let default = ["DEFAULT", "PROFILE=SYSTEM"].iter().find_map(|word| text.strip_prefix(word));
    let rest = match default {
        Some(rest) => {
            list.apply(DEFAULT)?;
            rest.strip_prefix(':').unwrap_or(rest)
        }
        None => text,
    };
    list.apply(rest)?;
    Ok(list.selected())
}

/// A suite in the list.
struct Entry {
    row: &'static Row,
    /// Whether it is selected. The others wait to be, in their order of preference.
    is_active: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    /// To the end of the list.
    Move,
    /// Out of the list; it may come back.
    Remove,
    /// Out of the list for good.
    Kill,
}

/// The suites that a rule applies to.
struct Rule {
    marks: Marks,
    /// One suite, where the last part of the rule names it.
    row: Option<&'static Row>,
}

impl Rule {
    fn is_for(&self, row: &'static Row) -> bool {
        let has = |wanted: u32, of: u32| wanted == 0 || wanted & of != 0;
        let (a, b) = (&self.marks, &row.marks);
        self.row.is_none_or(|one| std::ptr::eq(one, row))
            && has(a.exchange, b.exchange)
            && has(a.authentication, b.authentication)
            && has(a.encryption, b.encryption)
            && has(a.mac, b.mac)
            && has(a.version, b.version)
            && has(a.strength, b.strength)
            && has(a.not_default, b.not_default)
    }
}

struct List {
    entries: Vec<Entry>,
    named: Vec<&'static Row>,
    security_level: Option<u8>,
}

impl List {
    fn new() -> List {
        let entries = ROWS.iter().map(|row| Entry { row, is_active: false }).collect();
        List { entries, named: Vec::new(), security_level: None }
    }

    fn selected(self) -> Selected {
        let rows: Vec<_> =
            self.entries.iter().filter(|one| one.is_active).map(|one| one.row).collect();
        let is_left = |row: &&'static Row| rows.iter().any(|other| std::ptr::eq(*other, *row));
        let named = self.named.iter().copied().filter(is_left).collect();
        Selected { named, security_level: self.security_level, rows }
    }

    fn apply(&mut self, text: &str) -> Result<(), Reason> {
        let mut text = Text(text.as_bytes());
        while let Some(first) = text.0.first() {
            let action = match first {
                b':' | b' ' | b';' | b',' => {
                    text.skip(1);
                    continue;
                }
                b'@' => {
                    text.skip(1);
                    self.special(text.word()?)?;
                    text.skip_rule();
                    continue;
                }
                b'-' => Action::Remove,
                b'+' => Action::Move,
                b'!' => Action::Kill,
                _ => Action::Add,
            };
            if action != Action::Add {
                text.skip(1);
            }
            match rule(&mut text)? {
                Some(rule) => self.run(action, &rule),
                None => text.skip_rule(),
            }
        }
        Ok(())
    }

    fn special(&mut self, word: &[u8]) -> Result<(), Reason> {
        if word == b"STRENGTH" {
            let mut active = self.split_off(|entry| entry.is_active);
            active.sort_by_key(|entry| std::cmp::Reverse(entry.row.bits()));
            self.entries.append(&mut active);
            return Ok(());
        }
        match word.strip_prefix(b"SECLEVEL=") {
            Some(&[level @ b'0'..=b'5']) => {
                self.security_level = Some(level - b'0');
                Ok(())
            }
            _ => Err(Reason::InvalidCommand),
        }
    }

    fn run(&mut self, action: Action, rule: &Rule) {
        let is_for = |entry: &Entry| rule.is_for(entry.row);
        match action {
            Action::Add => {
                self.named.extend(
                    rule.row
                        .filter(|row| !self.named.iter().any(|other| std::ptr::eq(*other, *row))),
                );
                let mut added = self.split_off(|entry| !entry.is_active && is_for(entry));
                added.iter_mut().for_each(|entry| entry.is_active = true);
                self.entries.append(&mut added);
            }
            Action::Move => {
                let mut moved = self.split_off(|entry| entry.is_active && is_for(entry));
                self.entries.append(&mut moved);
            }
            Action::Remove => {
                // To the front: what was removed last is the first to come back.
                let mut removed = self.split_off(|entry| entry.is_active && is_for(entry));
                removed.iter_mut().for_each(|entry| entry.is_active = false);
                removed.append(&mut self.entries);
                self.entries = removed;
            }
            Action::Kill => self.entries.retain(|entry| !is_for(entry)),
        }
    }

    /// Takes out entries, in their order.
    fn split_off(&mut self, is_one: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (out, rest) = std::mem::take(&mut self.entries).into_iter().partition(is_one);
        self.entries = rest;
        out
    }
}

/// Reads a rule, `ECDHE+AESGCM`; none where a part is unknown or contradicts another.
fn rule(text: &mut Text<'_>) -> Result<Option<Rule>, Reason> {
    let mut marks = Marks::default();
    loop {
        let name = text.word()?;
        let row = ROWS.iter().find(|row| row.name.as_bytes() == name);
        let part = match row {
            // The version of a suite that is named is no condition.
            Some(row) => Some(Marks { version: 0, ..row.marks }),
            None => group(name),
        };
        let is_more = text.0.first() == Some(&b'+');
        if is_more {
            text.skip(1);
        }
        let Some(both) = part.and_then(|part| intersection(&marks, &part)) else {
            return Ok(None);
        };
        marks = both;
        if !is_more {
            return Ok(Some(Rule { marks, row }));
        }
    }
}

/// The suites that both select; none if there are none.
fn intersection(a: &Marks, b: &Marks) -> Option<Marks> {
    let meet = |a: u32, b: u32| match (a, b) {
        (0, other) | (other, 0) => Some(other),
        (a, b) => Some(a & b).filter(|both| *both != 0),
    };
    Some(Marks {
        exchange: meet(a.exchange, b.exchange)?,
        authentication: meet(a.authentication, b.authentication)?,
        encryption: meet(a.encryption, b.encryption)?,
        mac: meet(a.mac, b.mac)?,
        version: meet(a.version, b.version)?,
        strength: meet(a.strength, b.strength)?,
        not_default: meet(a.not_default, b.not_default)?,
    })
}

/// The rest of a cipher string.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, len: usize) {
        self.0 = self.0.get(len..).unwrap_or_default();
    }

    /// A name, which is not empty.
    fn word(&mut self) -> Result<&'a [u8], Reason> {
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'=');
        let len = self.0.iter().take_while(|byte| is_part(byte)).count();
        let (word, rest) = self.0.split_at_checked(len).ok_or(Reason::InvalidCommand)?;
        if word.is_empty() {
            return Err(Reason::InvalidCommand);
        }
        self.0 = rest;
        Ok(word)
    }

    /// Leaves out what is left of a rule.
    fn skip_rule(&mut self) {
        let len = self.0.iter().take_while(|byte| !b": ;,".contains(byte)).count();
        self.skip(len);
    }
}
