//! Locations: what configuration holds for a URI, and how the one for a request is found.
//!
//! Order, as in nginx: exact match, then the longest prefix (descending into nested locations), which
//! wins at once if it is `^~`; else regular expressions in order of appearance, innermost prefix
//! first; else that prefix.

use std::rc::Rc;

use bytes::Bytes;

use crate::core_conf::CoreLoc;
use crate::module::{ConfSet, Pipeline};
use crate::regex::Regex;
use crate::request::Request;

/// What a location's modifier makes of its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocKind {
    /// The server's own level, for requests that no location takes.
    Server,
    /// `location = /x`
    Exact,
    /// `location /x`
    Prefix,
    /// `location ^~ /x`
    PrefixNoRegex,
    /// `location ~ x`, `location ~* x`
    Regex,
    /// `location @x`
    Named,
    /// An `if` block.
    If,
    /// A `limit_except` block.
    LimitExcept,
}

/// What modules may know of the location they install into.
#[derive(Clone)]
pub struct LocationInfo {
    /// Its kind.
    pub kind: LocKind,
    /// The name as written, without the modifier; the enclosing location's inside `if`.
    pub name: Bytes,
    /// Redirect to the name with a slash added, when a request lacks just that (set by modules that
    /// pass requests on).
    pub auto_redirect: bool,
}

/// A location, compiled.
pub struct Location {
    /// Its kind and name.
    pub info: LocationInfo,
    /// The core's settings here, plain values.
    pub core: Rc<CoreLoc>,
    /// Handlers and filters that are on here.
    pub pipeline: Pipeline,
    /// Modules' merged configuration, by type.
    pub confs: ConfSet,
    pub(crate) regex: Option<Rc<Regex>>,
    pub(crate) tree: Tree,
    pub(crate) ifs: Vec<Rc<Location>>,
    pub(crate) limit_except: Option<(Vec<Bytes>, Rc<Location>)>,
}

/// The locations inside a server or a location, sorted for look-up.
#[derive(Default)]
pub(crate) struct Tree {
    /// Exact names, sorted.
    exact: Vec<Rc<Location>>,
    /// Prefixes, sorted by name; the longest match is found by walking down shared prefixes.
    prefixes: Vec<Prefix>,
    regexes: Vec<Rc<Location>>,
}

struct Prefix {
    location: Rc<Location>,
    /// The index of the longest other prefix that this one starts with.
    parent: Option<u32>,
}

/// What the search found.
pub(crate) enum Found {
    None,
    Location(Rc<Location>),
    /// The URI is a location's name but for the slash at its end.
    AddSlash(Rc<Location>),
}

impl Tree {
    pub fn new(locations: Vec<Rc<Location>>) -> Tree {
        let mut tree = Tree::default();
        let mut prefixes: Vec<Rc<Location>> = Vec::new();
        for l in locations {
            match l.info.kind {
                LocKind::Exact => tree.exact.push(l),
                LocKind::Prefix | LocKind::PrefixNoRegex => prefixes.push(l),
                LocKind::Regex => tree.regexes.push(l),
                _ => {}
            }
        }
        tree.exact.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        prefixes.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        let mut stack: Vec<u32> = Vec::new();
        for (i, l) in prefixes.iter().enumerate() {
            while let Some(&top) = stack.last() {
                if l.info.name.starts_with(&prefixes[top as usize].info.name) {
                    break;
                }
                stack.pop();
            }
            let parent = stack.last().copied();
            tree.prefixes.push(Prefix { location: l.clone(), parent });
            stack.push(i as u32);
        }
        tree
    }

    fn exact(&self, uri: &[u8]) -> Option<&Rc<Location>> {
        let i = self.exact.binary_search_by(|l| l.info.name.as_ref().cmp(uri)).ok()?;
        Some(&self.exact[i])
    }

    fn longest_prefix(&self, uri: &[u8]) -> Option<&Rc<Location>> {
        let after = self.prefixes.partition_point(|p| p.location.info.name.as_ref() <= uri);
        let mut at = after.checked_sub(1).map(|i| i as u32);
        while let Some(i) = at {
            let p = &self.prefixes[i as usize];
            if uri.starts_with(&p.location.info.name) {
                return Some(&p.location);
            }
            at = p.parent;
        }
        None
    }

    /// A location that redirects `uri` to itself with a slash added.
    fn with_slash(&self, uri: &[u8]) -> Option<&Rc<Location>> {
        let takes = |l: &&Rc<Location>| {
            l.info.auto_redirect
                && l.info.name.len() == uri.len() + 1
                && l.info.name.last() == Some(&b'/')
                && l.info.name.starts_with(uri)
        };
        let from = self.prefixes.partition_point(|p| p.location.info.name.as_ref() < uri);
        let prefixes = self.prefixes[from..].iter().map(|p| &p.location);
        let near = prefixes.take_while(|l| l.info.name.starts_with(uri));
        near.chain(&self.exact).find(takes)
    }
}

/// Finds the location of `r.uri` below `from`.
pub(crate) fn find(r: &mut Request, from: &Rc<Location>) -> Found {
    let uri = std::mem::take(&mut r.uri);
    let found = find_in(r, from, &uri);
    r.uri = uri;
    found.unwrap_or(Found::None)
}

fn find_in(r: &mut Request, at: &Rc<Location>, uri: &[u8]) -> Option<Found> {
    let tree = &at.tree;
    if let Some(l) = tree.exact(uri) {
        return Some(Found::Location(l.clone()));
    }
    let prefix = tree.longest_prefix(uri);
    let slash = tree.with_slash(uri);
    let mut best = None;
    if let Some(l) = prefix {
        // A prefix whose name is the URI itself wins over adding a slash.
        let exact_name = l.info.name.len() == uri.len();
        if let (Some(s), false) = (slash, exact_name) {
            return Some(Found::AddSlash(s.clone()));
        }
        best = Some(Found::Location(l.clone()));
        match find_in(r, l, uri) {
            Some(Found::Location(inner)) => {
                if matches!(inner.info.kind, LocKind::Exact | LocKind::Regex) {
                    return Some(Found::Location(inner));
                }
                best = Some(Found::Location(inner));
            }
            Some(other) => return Some(other),
            None => {}
        }
        if l.info.kind == LocKind::PrefixNoRegex {
            return best;
        }
    } else if let Some(s) = slash {
        return Some(Found::AddSlash(s.clone()));
    }
    for l in &tree.regexes {
        let hit = match &l.regex {
            Some(re) => re.exec(r, uri),
            None => false,
        };
        if hit {
            return Some(match find_in(r, l, uri) {
                Some(inner) => inner,
                None => Found::Location(l.clone()),
            });
        }
    }
    best
}
