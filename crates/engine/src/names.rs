//! Server names: exact, with a leading or trailing wildcard, or a regular expression.

use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;
use conf::hostnames::{HostTable, Refused};
use conf::pattern::PatternList;
use conf::{ConfError, Word};

use crate::regex::{MatchFailed, Regex};
use crate::session::Session;
use crate::vars::Registry;

/// One argument of `server_name`.
#[derive(Clone)]
pub struct ServerName {
    /// As written, but in lower case unless it is a regular expression.
    pub text: Bytes,
    /// The expression, where it is one.
    pub regex: Option<Rc<Regex>>,
    /// Its place in the configuration.
    pub at: Word,
}

impl ServerName {
    /// The name of a server that has none.
    pub fn empty(at: &Word) -> ServerName {
        ServerName { text: Bytes::new(), regex: None, at: at.clone() }
    }

    /// Reads one.
    ///
    /// # Errors
    /// The name is none, or its regular expression is malformed.
    pub fn parse<S: Session>(w: &Word, vars: &mut Registry<S>) -> Result<Self, ConfError> {
        let raw = w.bytes();
        if raw == b"." || raw.first() == Some(&b'*') && !matches!(raw, [_, b'.', _, ..]) {
            let m = format!("server name \"{}\" is invalid", w.lossy());
            return Err(ConfError::at(w, m));
        }
        if raw.contains(&b'/') {
            conf::warn(w, format!("server name \"{}\" has suspicious symbols", w.lossy()));
        }
        if let Some(pattern) = raw.strip_prefix(b"~") {
            if pattern.is_empty() {
                let m = format!("empty regex in server name \"{}\"", w.lossy());
                return Err(ConfError::at(w, m));
            }
            // Hosts are compared in lower case, so a pattern with capitals can only mean any case.
            let caseless = pattern.iter().any(u8::is_ascii_uppercase);
            let re = Regex::for_list(w, pattern, caseless, vars)?;
            return Ok(ServerName {
                text: w.text.clone(),
                regex: Some(Rc::new(re)),
                at: w.clone(),
            });
        }
        let text = if base::ascii::eq_ignore_case(raw, b"$hostname") {
            os::process::hostname().into_bytes()
        } else {
            raw.to_vec()
        };
        let text = Bytes::from(text.to_ascii_lowercase());
        if is_invalid(&text) {
            conf::warn(w, format!("no host has the server name \"{}\"", w.lossy()));
        }
        Ok(ServerName { text, regex: None, at: w.clone() })
    }

    /// The name in `$server_name` and redirects: `.example.com` without its dot.
    pub fn shown(&self) -> Bytes {
        match &self.regex {
            None if self.text.starts_with(b".") => self.text.slice(1..),
            _ => self.text.clone(),
        }
    }
}

/// A table by server name: the servers of one address, for instance.
pub struct ServerNames<T> {
    table: HostTable<T>,
    regexes: Vec<(Rc<Regex>, T)>,
    /// Which of `regexes` may match; made anew behind each addition.
    list: OnceCell<PatternList>,
}

impl<T: Clone> Default for ServerNames<T> {
    fn default() -> Self {
        ServerNames::new()
    }
}

impl<T: Clone> ServerNames<T> {
    /// An empty table.
    pub fn new() -> Self {
        ServerNames { table: HostTable::new(), regexes: Vec::new(), list: OnceCell::new() }
    }

    /// Adds a name; false where the table has it already, whose entry stays.
    pub fn add(&mut self, name: &ServerName, value: &T) -> bool {
        match &name.regex {
            Some(re) => {
                self.regexes.push((re.clone(), value.clone()));
                self.list = OnceCell::new();
                true
            }
            None => self.table.add(&name.text, value.clone()).is_ok(),
        }
    }

    /// Says whether a name is a regular expression: then even a single server has to be looked for,
    /// since the expression's groups are variables.
    pub fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    /// The entry of `host` (lower case, without port): the exact name's, else that of the longest
    /// leading wildcard, of the longest trailing wildcard, of the first regular expression that
    /// matches.
    ///
    /// # Errors
    /// A match was given up.
    pub fn find<S: Session>(&self, host: &[u8], s: &mut S) -> Result<Option<T>, MatchFailed> {
        if let Some(found) = self.table.find(host) {
            return Ok(Some(found.clone()));
        }
        if host.is_empty() {
            return Ok(None);
        }
        let found = self.list().first(host, |index| {
            let (re, value) = &self.regexes[index];
            re.exec(s, host).map(|found| found.then(|| value.clone())).transpose()
        });
        found.transpose()
    }
}

impl<T> ServerNames<T> {
    /// Makes what a search needs: where that is done before processes are forked, they share it.
    pub fn prepare(&self) {
        let _ = self.list();
    }

    fn list(&self) -> &PatternList {
        let patterns = || self.regexes.iter().map(|(re, _)| (**re).as_ref());
        self.list.get_or_init(|| PatternList::new(patterns()))
    }

    /// The entry of `host` among the names that are text: for use before there is a session that a
    /// regular expression's groups could be stored in.
    pub fn find_text(&self, host: &[u8]) -> Option<&T> {
        self.table.find(host)
    }

    /// The entry of `host`, before there is a session: groups of regular expressions are not
    /// recorded, and one whose match is given up matches nothing.
    pub fn find_early(&self, host: &[u8]) -> Option<&T> {
        let matching = |index: usize| {
            let (re, value) = &self.regexes[index];
            re.matches(host).then_some(value)
        };
        let by_regex = || {
            if host.is_empty() { None } else { self.list().first(host, matching) }
        };
        self.table.find(host).or_else(by_regex)
    }

    /// Says whether there is an entry of `host`; groups of regular expressions are not recorded.
    ///
    /// # Errors
    /// A match was given up.
    pub fn has<S: Session>(&self, host: &[u8], s: &S) -> Result<bool, MatchFailed> {
        if self.table.find(host).is_some() {
            return Ok(true);
        }
        let found =
            self.list().first(host, |index| match self.regexes[index].0.is_match(s, host) {
                Ok(false) => None,
                found => Some(found),
            });
        found.unwrap_or(Ok(false))
    }
}

/// Whether a name in lower case is neither a name nor a wildcard.
fn is_invalid(text: &[u8]) -> bool {
    HostTable::new().add(text, ()) == Err(Refused::Invalid)
}

/// The servers of one address by name; a name that two of them have is warned of, and the first
/// keeps it. `None` where no name can lead to another server than the only one.
///
/// # Errors
/// A name is malformed, and names decide: as in nginx, it does no harm to a server that is alone.
pub(crate) fn of_address<T>(
    servers: &[(Rc<T>, &[ServerName])],
    address: &str,
) -> Result<Option<ServerNames<Rc<T>>>, ConfError> {
    let mut names = ServerNames::new();
    let has_regex = |(_, list): &(_, &[ServerName])| list.iter().any(|name| name.regex.is_some());
    let decides = servers.len() > 1 || servers.iter().any(has_regex);
    for (server, list) in servers {
        for name in *list {
            if name.regex.is_none() && is_invalid(&name.text) {
                if decides {
                    let text = String::from_utf8_lossy(&name.text);
                    let m = format!("invalid server name or wildcard \"{text}\" on {address}");
                    return Err(ConfError::at(&name.at, m));
                }
                continue;
            }
            if !names.add(name, server) {
                let text = String::from_utf8_lossy(&name.text);
                let m = format!("conflicting server name \"{text}\" on {address}, ignored");
                conf::warn(&name.at, m);
            }
        }
    }
    names.prepare();
    Ok((servers.len() > 1 || names.has_regexes()).then_some(names))
}
