//! Server names: exact, with a leading or trailing wildcard, or a regular expression.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Word};

use crate::regex::Regex;
use crate::request::Request;
use crate::server::Server;
use crate::vars::Registry;

/// One argument of `server_name`.
#[derive(Clone)]
pub(crate) struct ServerName {
    /// As written, but in lower case; what `$server_name` and redirects use.
    pub text: Bytes,
    pub kind: NameKind,
    pub at: Word,
}

#[derive(Clone)]
pub(crate) enum NameKind {
    Exact,
    /// `.example.com`: the name itself and all below it.
    Dot,
    /// `*.example.com`
    Leading,
    /// `www.example.*`
    Trailing,
    Regex(Rc<Regex>),
}

impl ServerName {
    /// The name of a server that has none.
    pub fn empty(at: &Word) -> ServerName {
        ServerName { text: Bytes::new(), kind: NameKind::Exact, at: at.clone() }
    }

    pub fn parse(w: &Word, vars: &mut Registry) -> Result<Self, ConfError> {
        let raw = w.bytes();
        if let Some(pattern) = raw.strip_prefix(b"~") {
            if pattern.is_empty() {
                let m = format!("empty regex in server name \"{}\"", w.lossy());
                return Err(ConfError::at(w, m));
            }
            // Host names are compared in lower case; a pattern with capitals means any case.
            let caseless = pattern.iter().any(u8::is_ascii_uppercase);
            let re = Regex::compile(w, pattern, caseless, vars)?;
            let kind = NameKind::Regex(Rc::new(re));
            return Ok(ServerName { text: w.text.clone(), kind, at: w.clone() });
        }
        if raw.contains(&b'/') {
            conf::warn(w, format!("server name \"{}\" has suspicious symbols", w.lossy()));
        }
        let text =
            if raw == b"$hostname" { os::process::hostname().into_bytes() } else { raw.to_vec() };
        let text = Bytes::from(text.to_ascii_lowercase());
        let stars = text.iter().filter(|b| **b == b'*').count();
        let kind = match text.as_ref() {
            [b'*', b'.', _, ..] if stars == 1 => NameKind::Leading,
            [_, .., b'.', b'*'] if stars == 1 => NameKind::Trailing,
            [b'.', ..] if stars == 0 && text.len() > 1 => NameKind::Dot,
            _ if stars == 0 => NameKind::Exact,
            _ => {
                let m = format!("invalid server name or wildcard \"{}\"", w.lossy());
                return Err(ConfError::at(w, m));
            }
        };
        Ok(ServerName { text, kind, at: w.clone() })
    }
}

/// The servers of one address, by name.
pub(crate) struct Names {
    exact: HashMap<Bytes, Rc<Server>>,
    /// Keys without the star: `.example.com`.
    leading: HashMap<Bytes, Rc<Server>>,
    /// Keys without the star: `www.example.`.
    trailing: HashMap<Bytes, Rc<Server>>,
    regexes: Vec<(Rc<Regex>, Rc<Server>)>,
    /// Whether a look-up can give anything but the default server.
    pub any: bool,
}

impl Names {
    /// Collects the names of an address's servers; what conflicts is warned of and the first wins.
    pub fn new(servers: &[(Rc<Server>, Vec<ServerName>)], address: &str) -> Names {
        let mut names = Names {
            exact: HashMap::new(),
            leading: HashMap::new(),
            trailing: HashMap::new(),
            regexes: Vec::new(),
            any: servers.len() > 1,
        };
        for (server, list) in servers {
            for n in list {
                names.any |= matches!(n.kind, NameKind::Regex(_));
                if !names.add(server, n) {
                    let text = String::from_utf8_lossy(&n.text);
                    let m = format!("conflicting server name \"{text}\" on {address}, ignored");
                    conf::warn(&n.at, m);
                }
            }
        }
        names
    }

    fn add(&mut self, server: &Rc<Server>, n: &ServerName) -> bool {
        let put = |map: &mut HashMap<Bytes, Rc<Server>>, key: Bytes| {
            let fresh = !map.contains_key(&key);
            map.entry(key).or_insert_with(|| server.clone());
            fresh
        };
        match &n.kind {
            NameKind::Exact => put(&mut self.exact, n.text.clone()),
            NameKind::Dot => {
                let exact = put(&mut self.exact, n.text.slice(1..));
                put(&mut self.leading, n.text.clone()) && exact
            }
            NameKind::Leading => put(&mut self.leading, n.text.slice(1..)),
            NameKind::Trailing => put(&mut self.trailing, n.text.slice(..n.text.len() - 1)),
            NameKind::Regex(re) => {
                self.regexes.push((re.clone(), server.clone()));
                true
            }
        }
    }

    /// The server for `host` (lower case, without port): exact, longest leading wildcard, longest
    /// trailing wildcard, first matching regular expression.
    pub fn find(&self, host: &[u8], r: &mut Request) -> Option<Rc<Server>> {
        if let Some(s) = self.exact.get(host) {
            return Some(s.clone());
        }
        if !self.leading.is_empty() {
            for i in memchr::memchr_iter(b'.', host) {
                if i > 0
                    && let Some(s) = self.leading.get(&host[i..])
                {
                    return Some(s.clone());
                }
            }
        }
        if !self.trailing.is_empty() {
            for i in memchr::memrchr_iter(b'.', host) {
                if i + 1 < host.len()
                    && let Some(s) = self.trailing.get(&host[..=i])
                {
                    return Some(s.clone());
                }
            }
        }
        self.regexes.iter().find(|(re, _)| re.exec(r, host)).map(|(_, s)| s.clone())
    }
}
