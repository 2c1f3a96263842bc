//! Server names: exact, with a leading or trailing wildcard, or a regular expression.

use std::rc::Rc;

use bytes::Bytes;
use conf::hostnames::{HostTable, Refused};
use conf::{ConfError, Word};

use crate::regex::{MatchFailed, Regex};
use crate::request::Request;
use crate::server::Server;
use crate::vars::Registry;

/// One argument of `server_name`.
#[derive(Clone)]
pub(crate) struct ServerName {
    /// As written, but in lower case unless it is a regular expression.
    pub text: Bytes,
    pub regex: Option<Rc<Regex>>,
    pub at: Word,
}

impl ServerName {
    /// The name of a server that has none.
    pub fn empty(at: &Word) -> ServerName {
        ServerName { text: Bytes::new(), regex: None, at: at.clone() }
    }

    pub fn parse(w: &Word, vars: &mut Registry) -> Result<Self, ConfError> {
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
            let re = Regex::compile(w, pattern, caseless, vars)?;
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
        // Tried out here, where the place is known, and not once for each address.
        if HostTable::new().add(&text, ()) == Err(Refused::Invalid) {
            let m = format!("invalid server name or wildcard \"{}\"", w.lossy());
            return Err(ConfError::at(w, m));
        }
        Ok(ServerName { text, regex: None, at: w.clone() })
    }

    /// What `$server_name` and redirects say: `.example.com` without its dot.
    pub fn shown(&self) -> Bytes {
        match &self.regex {
            None if self.text.starts_with(b".") => self.text.slice(1..),
            _ => self.text.clone(),
        }
    }
}

/// What belongs to a name, by name: the servers of one address.
pub(crate) struct Names<T> {
    table: HostTable<T>,
    regexes: Vec<(Rc<Regex>, T)>,
}

impl<T: Clone> Names<T> {
    /// An empty table.
    pub fn new() -> Self {
        Names { table: HostTable::new(), regexes: Vec::new() }
    }

    /// Adds a name; false where it is there already, and stays what it was.
    pub fn add(&mut self, name: &ServerName, value: &T) -> bool {
        match &name.regex {
            Some(re) => {
                self.regexes.push((re.clone(), value.clone()));
                true
            }
            None => self.table.add(&name.text, value.clone()).is_ok(),
        }
    }

    /// Whether a name is a regular expression: then even a single server has to be looked for,
    /// since its groups are variables.
    pub fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    /// What belongs to `host` (lower case, without port): the exact name, the longest leading
    /// wildcard, the longest trailing wildcard, the first regular expression that matches.
    pub fn find(&self, host: &[u8], r: &mut Request) -> Result<Option<T>, MatchFailed> {
        if let Some(found) = self.table.find(host) {
            return Ok(Some(found.clone()));
        }
        if host.is_empty() {
            return Ok(None);
        }
        for (re, value) in &self.regexes {
            if re.exec(r, host)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }
}

impl<T> Names<T> {
    /// What belongs to `host` by its text alone: for before there is a request that a regular
    /// expression's groups could be stored in.
    pub fn find_text(&self, host: &[u8]) -> Option<&T> {
        self.table.find(host)
    }

    /// Whether something belongs to `host`; groups of regular expressions are not recorded.
    pub fn has(&self, host: &[u8], r: &Request) -> Result<bool, MatchFailed> {
        if self.table.find(host).is_some() {
            return Ok(true);
        }
        for (re, _) in &self.regexes {
            if re.is_match(r, host)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The servers of one address; a name that two of them have is warned of, and the first keeps it.
pub(crate) fn of_address(
    servers: &[(Rc<Server>, &[ServerName])],
    address: &str,
) -> Option<Names<Rc<Server>>> {
    let mut names = Names::new();
    for (server, list) in servers {
        for name in *list {
            if !names.add(name, server) {
                let text = String::from_utf8_lossy(&name.text);
                let m = format!("conflicting server name \"{text}\" on {address}, ignored");
                conf::warn(&name.at, m);
            }
        }
    }
    (servers.len() > 1 || names.has_regexes()).then_some(names)
}
