//! Names with a wildcard at one end: `example.com`, `.example.com`, `*.example.com`,
//! `www.example.*`.
//!
//! The look-up of `server_name`, `map` with `hostnames` and `valid_referers`: the exact name wins,
//! then the longest wildcard at the front, then the longest at the end.

use base::hash::Table;

use crate::{ConfError, Word};

/// Values by name.
#[derive(Debug)]
pub struct HostTable<T> {
    values: Vec<T>,
    exact: Table<Box<[u8]>, u32>,
    /// The text behind the star and its dot.
    head: Table<Box<[u8]>, u32>,
    /// The text before the dot and the star.
    tail: Table<Box<[u8]>, u32>,
}

/// A name that was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The name is no name: two stars, a star elsewhere, two dots in a row.
    Invalid,
    /// The name is there already.
    Conflict,
}

impl Refused {
    /// The error for a name in `word`.
    pub fn at(self, word: &Word, name: &[u8]) -> ConfError {
        let name = String::from_utf8_lossy(name);
        ConfError::at(
            word,
            match self {
                Refused::Invalid => format!("invalid hostname or wildcard \"{name}\""),
                Refused::Conflict => format!("conflicting parameter \"{name}\""),
            },
        )
    }
}

/// The form of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Exact,
    /// `.example.com`
    Dot,
    /// `*.example.com`
    Head,
    /// `www.example.*`
    Tail,
}

fn form(name: &[u8]) -> Option<Form> {
    let stars = memchr::memchr_iter(b'*', name).count();
    if stars > 1 || name.contains(&0) || memchr::memmem::find(name, b"..").is_some() {
        return None;
    }
    match name {
        [b'.', _, ..] if stars == 0 => Some(Form::Dot),
        [b'*', b'.', _, ..] => Some(Form::Head),
        [_, .., b'.', b'*'] => Some(Form::Tail),
        _ if stars == 0 => Some(Form::Exact),
        _ => None,
    }
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        let (exact, head, tail) = Default::default();
        HostTable { values: Vec::new(), exact, head, tail }
    }
}

impl<T> HostTable<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a name literally, stars and all; its case does not matter.
    ///
    /// # Errors
    ///
    /// [`Refused::Conflict`] for a name that is already there.
    pub(crate) fn add_plain(&mut self, name: &[u8], value: T) -> Result<(), Refused> {
        let value = self.value(value);
        put(&mut self.exact, name, value)
    }

    /// Adds a name that may have a wildcard; `.example.com` stands for `example.com` and
    /// `*.example.com`.
    ///
    /// # Errors
    ///
    /// [`Refused::Invalid`] for text that is no name, [`Refused::Conflict`] for a name that is
    /// already there.
    pub fn add(&mut self, name: &[u8], value: T) -> Result<(), Refused> {
        let form = form(name).ok_or(Refused::Invalid)?;
        let value = self.value(value);
        match form {
            Form::Exact => put(&mut self.exact, name, value),
            Form::Dot => {
                // Whichever of the two is free is taken, as both names are meant.
                let exact = put(&mut self.exact, &name[1..], value);
                put(&mut self.head, &name[1..], value).and(exact)
            }
            Form::Head => put(&mut self.head, &name[2..], value),
            Form::Tail => put(&mut self.tail, &name[..name.len() - 2], value),
        }
    }

    fn value(&mut self, value: T) -> u32 {
        self.values.push(value);
        self.values.len() as u32 - 1
    }

    /// The value for `name`, which is in lower case.
    pub fn find(&self, name: &[u8]) -> Option<&T> {
        let mut found = self.exact.get(name);
        if found.is_none() && !self.head.is_empty() {
            let mut dots = memchr::memchr_iter(b'.', name);
            found = dots.find_map(|dot| self.head.get(&name[dot + 1..]));
        }
        if found.is_none() && !self.tail.is_empty() {
            let mut dots = memchr::memrchr_iter(b'.', name);
            found = dots.find_map(|dot| self.tail.get(&name[..dot]));
        }
        self.values.get(*found? as usize)
    }
}

/// The first value of a name stays.
fn put(map: &mut Table<Box<[u8]>, u32>, name: &[u8], value: u32) -> Result<(), Refused> {
    let mut fresh = false;
    map.entry(name.to_ascii_lowercase().into()).or_insert_with(|| {
        fresh = true;
        value
    });
    if fresh { Ok(()) } else { Err(Refused::Conflict) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&'static str]) -> HostTable<&'static str> {
        let mut table = HostTable::new();
        for name in names {
            table.add(name.as_bytes(), *name).unwrap();
        }
        table
    }

    #[test]
    fn the_most_exact_name_wins() {
        let table = table(&[
            "example.com",
            "*.example.com",
            "*.sub.example.com",
            "example.*",
            "example.org.*",
            ".dot.com",
            "",
            "*.com",
        ]);
        for (name, want) in [
            ("", Some("")),
            ("example.com", Some("example.com")),
            ("a.example.com", Some("*.example.com")),
            (".example.com", Some("*.example.com")),
            ("a.b.example.com", Some("*.example.com")),
            ("sub.example.com", Some("*.example.com")),
            ("a.sub.example.com", Some("*.sub.example.com")),
            ("dot.com", Some(".dot.com")),
            ("a.dot.com", Some(".dot.com")),
            ("adot.com", Some("*.com")),
            ("example.net", Some("example.*")),
            ("example.net.de", Some("example.*")),
            ("example.org.uk", Some("example.org.*")),
            ("example.", Some("example.*")),
            ("example", None),
            ("com", None),
            ("xexample.net", None),
        ] {
            assert_eq!(table.find(name.as_bytes()).copied(), want, "{name}");
        }
    }

    #[test]
    fn names_that_are_none() {
        let mut table = HostTable::new();
        for bad in ["*", "*.", "a*b", "a.*.b", "*.*.a", "a..b", "*a", "a*", "a\0", "..", "*.a.*"] {
            assert_eq!(table.add(bad.as_bytes(), ()), Err(Refused::Invalid), "{bad}");
        }
        assert!(table.is_empty());
        for good in [".", "a.", "_", "*.a", "a.*", ".a.b"] {
            assert_eq!(table.add(good.as_bytes(), ()), Ok(()), "{good}");
        }
    }

    #[test]
    fn conflicts() {
        for (first, second) in [
            ("a.b", "A.b"),
            ("a.b", ".a.b"),
            (".a.b", "a.b"),
            (".a.b", "*.a.b"),
            ("*.a.b", ".a.b"),
            ("a.*", "a.*"),
        ] {
            let mut table = HostTable::new();
            table.add(first.as_bytes(), 1).unwrap();
            assert_eq!(table.add(second.as_bytes(), 2), Err(Refused::Conflict), "{first} {second}");
        }
        assert!(!table(&["a.b", "*.a.b", "a.b.*"]).is_empty());
    }

    #[test]
    fn a_star_is_a_letter_where_wildcards_are_not_asked_for() {
        let mut table = HostTable::new();
        table.add_plain(b"*.A", 1).unwrap();
        assert_eq!(table.find(b"*.a"), Some(&1));
        assert_eq!(table.find(b"x.a"), None);
    }
}
