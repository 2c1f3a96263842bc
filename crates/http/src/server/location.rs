//! Locations: the settings of a part of the URI space, and the search for a request's location.
//!
//! Order, as in nginx: exact match, then the longest prefix (descending into nested locations),
//! which wins at once if it is `^~`; else regular expressions in order of appearance, innermost
//! prefix first; else that prefix.

use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use conf::Pos;
use conf::pattern::PatternList;

use crate::core_conf::CoreLoc;
pub use crate::location_kind::LocKind;
use crate::module::{ConfSet, Pipeline};
use crate::request::Request;
use crate::trace::Tried;
use engine::metrics::status_zone::ZoneName;
use engine::regex::Regex;

/// A module's view of the location it installs into.
#[derive(Clone)]
pub struct LocationInfo {
    /// How its name is compared with URIs.
    pub kind: LocKind,
    /// The name as written, without the modifier; the enclosing location's inside `if`.
    pub name: Bytes,
    /// The place of its block.
    pub at: Pos,
    /// Redirect a request that lacks the trailing slash (set by modules that forward requests).
    pub auto_redirect: bool,
    /// A hash of what leads requests here: the server's addresses and names, and the locations
    /// around. It is the same in another process with the same lines, wherever they stand.
    pub identity: u64,
}

impl LocationInfo {
    /// The URI that is redirected here by adding a slash, if there is one.
    fn name_to_slash(&self) -> Option<&[u8]> {
        if self.auto_redirect { self.name.strip_suffix(b"/") } else { None }
    }
}

impl fmt::Display for LocationInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            LocKind::Exact => "=",
            LocKind::PrefixNoRegex => "^~",
            LocKind::Regex => "~",
            _ => "",
        };
        write!(f, "{sign}{}", base::log::lossy(&self.name))
    }
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
    /// `http2_chunk_size`, bytes: every response over HTTP/2 asks for it.
    pub(crate) http2_chunk: usize,
    /// The zone that requests are counted in which end here.
    pub zone: ZoneName,
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
    /// Which of `regexes` may match.
    list: PatternList,
    /// The locations to which adding a trailing slash may redirect a request, sorted.
    slashed: Vec<Rc<Location>>,
}

struct Prefix {
    location: Rc<Location>,
    /// The index of the longest other prefix that this one starts with.
    parent: Option<u32>,
}

/// The result of the search.
pub(crate) enum Found {
    None,
    Location(Rc<Location>),
    /// The URI is a location's name but for the slash at its end.
    AddSlash(Rc<Location>),
    /// A regular expression's match was given up.
    Failed,
}

/// The result of the search at one level.
enum Hit {
    None,
    /// A prefix: regular expressions of the levels around go before it.
    Prefix(Rc<Location>),
    /// An exact name or a regular expression: the search is over.
    Final(Rc<Location>),
    AddSlash(Rc<Location>),
    Failed,
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
        let patterns = tree.regexes.iter().filter_map(|l| l.regex.as_deref());
        tree.list = PatternList::new(patterns.map(Regex::as_ref));
        tree.exact.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        prefixes.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        // Of a prefix and an exact name, the prefix comes first.
        let slashed = prefixes.iter().chain(&tree.exact);
        tree.slashed = slashed.filter(|l| l.info.name_to_slash().is_some()).cloned().collect();
        tree.slashed.sort_by(|a, b| a.info.name_to_slash().cmp(&b.info.name_to_slash()));
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

    pub fn has_regexes(&self) -> bool {
        !self.regexes.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty() && self.regexes.is_empty()
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

    /// All prefixes of `uri`, the longest first.
    fn prefixes_of(&self, uri: &[u8]) -> impl Iterator<Item = &Rc<Location>> {
        let all = self.prefixes.iter().rev().map(|p| &p.location);
        all.filter(move |l| uri.starts_with(&l.info.name))
    }

    /// A location that redirects `uri` to itself with a slash added.
    fn with_slash(&self, uri: &[u8]) -> Option<&Rc<Location>> {
        let name = |l: &Rc<Location>| l.info.name_to_slash().map(|name| name.cmp(uri));
        let at = self.slashed.partition_point(|l| name(l) == Some(Ordering::Less));
        self.slashed.get(at).filter(|l| name(l) == Some(Ordering::Equal))
    }
}

impl Location {
    /// Calls a function with the location and all that are nested in it.
    pub(crate) fn visit(self: &Rc<Self>, f: &mut impl FnMut(&Rc<Location>)) {
        f(self);
        let prefixes = self.tree.prefixes.iter().map(|prefix| &prefix.location);
        let nested = prefixes.chain(&self.tree.exact).chain(&self.tree.regexes);
        nested.for_each(|nested| nested.visit(f));
    }
}

/// Finds the location of `r.target.uri` below `from`.
pub(crate) fn find(r: &mut Request, from: &Rc<Location>) -> Found {
    let uri = std::mem::take(&mut r.target.uri);
    let found = find_in(r, from, &uri);
    r.target.uri = uri;
    match found {
        Hit::None => Found::None,
        Hit::Prefix(l) | Hit::Final(l) => Found::Location(l),
        Hit::AddSlash(l) => Found::AddSlash(l),
        Hit::Failed => Found::Failed,
    }
}

fn find_in(r: &mut Request, at: &Rc<Location>, uri: &[u8]) -> Hit {
    let tree = &at.tree;
    if tree.is_empty() {
        return Hit::None;
    }
    if r.is_traced() {
        tree.prefixes_of(uri).for_each(|l| r.note_tried(Tried::Prefix, l));
    }
    if let Some(l) = tree.exact(uri) {
        r.note_tried(Tried::Exact, l);
        return Hit::Final(l.clone());
    }
    let prefix = tree.longest_prefix(uri);
    // A prefix equal to the URI wins over adding a slash.
    if prefix.is_none_or(|l| l.info.name.len() < uri.len())
        && let Some(l) = tree.with_slash(uri)
    {
        r.note_tried(Tried::Slash, l);
        return Hit::AddSlash(l.clone());
    }
    let mut best = Hit::None;
    if let Some(l) = prefix {
        best = match find_in(r, l, uri) {
            Hit::None => Hit::Prefix(l.clone()),
            Hit::Prefix(inner) => Hit::Prefix(inner),
            over => return over,
        };
        if l.info.kind == LocKind::PrefixNoRegex {
            return best;
        }
    }
    let found = if r.is_traced() {
        tree.regexes.iter().find_map(|l| by_regex(r, l, uri))
    } else {
        tree.list.first(uri, |index| by_regex(r, &tree.regexes[index], uri))
    };
    found.unwrap_or(best)
}

/// The hit of one regular expression; `None` where it does not match.
fn by_regex(r: &mut Request, l: &Rc<Location>, uri: &[u8]) -> Option<Hit> {
    match l.regex.as_ref().map_or(Ok(false), |re| re.exec(r, uri)) {
        Ok(false) => {
            r.note_tried(Tried::Differs, l);
            None
        }
        Ok(true) => {
            r.note_tried(Tried::Matches, l);
            Some(match find_in(r, l, uri) {
                Hit::None => Hit::Final(l.clone()),
                Hit::Prefix(inner) | Hit::Final(inner) | Hit::AddSlash(inner) => Hit::Final(inner),
                Hit::Failed => Hit::Failed,
            })
        }
        Err(_) => Some(Hit::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_conf::CoreLocDraft;

    fn location(kind: LocKind, name: &'static str, auto_redirect: bool) -> Rc<Location> {
        Rc::new(Location {
            info: LocationInfo {
                kind,
                name: Bytes::from_static(name.as_bytes()),
                auto_redirect,
                identity: 0,
                at: Pos { file: std::path::Path::new("").into(), line: 0, column: 0 },
            },
            core: Rc::new(CoreLoc::from(&CoreLocDraft::default())),
            pipeline: Pipeline::default(),
            confs: ConfSet::default(),
            http2_chunk: crate::http2_conf::chunk(&ConfSet::default()),
            zone: ZoneName::Off,
            regex: None,
            tree: Tree::default(),
            ifs: Vec::new(),
            limit_except: None,
        })
    }

    fn prefixes(names: &[&'static str]) -> Tree {
        Tree::new(names.iter().map(|n| location(LocKind::Prefix, n, false)).collect())
    }

    fn name(l: Option<&Rc<Location>>) -> Option<&str> {
        l.map(|l| std::str::from_utf8(&l.info.name).unwrap())
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let tree = prefixes(&["/a/b/c", "/", "/a", "/a/b/", "/a/bx", "/b", "/a/b/c/d/e"]);
        for (uri, want) in [
            ("/", "/"),
            ("/x", "/"),
            ("/a", "/a"),
            ("/ab", "/a"),
            ("/a/b", "/a"),
            ("/a/b/", "/a/b/"),
            ("/a/b/b", "/a/b/"),
            ("/a/b/c", "/a/b/c"),
            ("/a/b/c/d", "/a/b/c"),
            ("/a/b/d", "/a/b/"),
            ("/a/by", "/a"),
            ("/a/bxy", "/a/bx"),
            ("/c", "/"),
            ("/b/é", "/b"),
        ] {
            assert_eq!(name(tree.longest_prefix(uri.as_bytes())), Some(want), "{uri}");
        }
        assert_eq!(name(tree.longest_prefix(b"x")), None);
        assert_eq!(name(prefixes(&["/a"]).longest_prefix(b"/")), None);
        assert_eq!(name(prefixes(&[""]).longest_prefix(b"x")), Some(""));
    }

    #[test]
    fn exact_names_are_apart() {
        let tree = Tree::new(vec![
            location(LocKind::Exact, "/a", false),
            location(LocKind::Prefix, "/a", false),
            location(LocKind::Exact, "/", false),
        ]);
        assert!(tree.exact(b"/a").is_some_and(|l| l.info.kind == LocKind::Exact));
        assert!(tree.longest_prefix(b"/a").is_some_and(|l| l.info.kind == LocKind::Prefix));
        assert_eq!(name(tree.exact(b"/a/")), None);
        assert_eq!(name(tree.exact(b"/")), Some("/"));
    }

    #[test]
    fn only_marked_locations_add_their_slash() {
        let tree = Tree::new(vec![
            location(LocKind::Prefix, "/a/", true),
            location(LocKind::Prefix, "/a-b", true),
            location(LocKind::Prefix, "/a-c/", false),
            location(LocKind::Exact, "/e/", true),
            location(LocKind::Exact, "/a/", true),
            location(LocKind::Prefix, "/a-d/", true),
        ]);
        assert_eq!(name(tree.with_slash(b"/a")), Some("/a/"));
        assert_eq!(tree.with_slash(b"/a").map(|l| l.info.kind), Some(LocKind::Prefix));
        assert_eq!(name(tree.with_slash(b"/a-d")), Some("/a-d/"));
        assert_eq!(name(tree.with_slash(b"/e")), Some("/e/"));
        for uri in ["/a/", "/a-b", "/a-", "/a-c", "/", "", "/e/", "/f"] {
            assert_eq!(name(tree.with_slash(uri.as_bytes())), None, "{uri}");
        }
    }
}
