//! Tables of directives: their contexts, their arguments, their setters.
//!
//! A module declares its directives in a static list; an engine joins the lists of its modules to a
//! [`Table`] and applies blocks of the tree through it. Checks come in nginx's order and use its
//! words.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::BitOr;

use crate::foreign::{self, Foreign};
use crate::{ConfError, Node, collect, known, semicolon, value};

/// A set of places that a directive may stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contexts(u32);

macro_rules! contexts {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Contexts {
            $($(#[$doc])* pub const $name: Contexts = Contexts(1 << $bit);)*
            /// Anywhere at all.
            pub const ANY: Contexts = Contexts($(1 << $bit |)* 0);

            const NAMES: &[(Contexts, &str)] = &[$((Contexts::$name, $text)),*];
        }
    };
}

contexts! {
    /// Outside of every block.
    MAIN = 0, "main";
    /// Inside `events`.
    EVENTS = 1, "events";
    /// Inside `http`.
    HTTP = 2, "http";
    /// `server` in `http`.
    SERVER = 3, "server";
    /// Inside `location`.
    LOCATION = 4, "location";
    /// `if` in a server.
    IF_SERVER = 5, "if in server";
    /// `if` in a location.
    IF_LOCATION = 6, "if in location";
    /// Inside `limit_except`.
    LIMIT_EXCEPT = 7, "limit_except";
    /// `upstream` in `http`.
    UPSTREAM = 8, "upstream";
    /// Inside `stream`.
    STREAM = 9, "stream";
    /// In `server` of `stream`.
    STREAM_SERVER = 10, "server in stream";
    /// In `upstream` of `stream`.
    STREAM_UPSTREAM = 11, "upstream in stream";
    /// Inside `mail`.
    MAIL = 12, "mail";
    /// In `server` of `mail`.
    MAIL_SERVER = 13, "server in mail";
    /// Inside `acme_issuer`.
    ACME_ISSUER = 14, "acme_issuer";
    /// Inside `otel_exporter`.
    OTEL_EXPORTER = 15, "otel_exporter";
    /// Inside `oidc_provider`.
    OIDC_PROVIDER = 16, "oidc_provider";
    /// Inside `ldap_server`.
    LDAP_SERVER = 17, "ldap_server";
}

impl Contexts {
    /// Nowhere.
    pub const EMPTY: Contexts = Contexts(0);
    /// `http`, `server` and `location`: most directives of HTTP.
    pub const HTTP_SERVER_LOCATION: Contexts =
        Contexts::HTTP.or(Contexts::SERVER).or(Contexts::LOCATION);
    /// The same with `if` in a location.
    pub const HTTP_SERVER_LOCATION_IF: Contexts =
        Contexts::HTTP_SERVER_LOCATION.or(Contexts::IF_LOCATION);

    /// Both sets together; usable in statics.
    pub const fn or(self, other: Contexts) -> Contexts {
        Contexts(self.0 | other.0)
    }

    /// Whether the sets have a context in common.
    pub const fn intersects(self, other: Contexts) -> bool {
        self.0 & other.0 != 0
    }

    /// The places of a word in tables of directives.
    pub fn of_word(word: &str) -> Option<Contexts> {
        Some(match word {
            "any" => Contexts::ANY,
            "main" => Contexts::MAIN,
            "events" => Contexts::EVENTS,
            "http" => Contexts::HTTP,
            "server" => Contexts::SERVER,
            "location" => Contexts::LOCATION,
            "if-in-server" => Contexts::IF_SERVER,
            "if-in-location" => Contexts::IF_LOCATION,
            "limit_except" => Contexts::LIMIT_EXCEPT,
            "upstream" => Contexts::UPSTREAM,
            "stream" => Contexts::STREAM,
            "stream-server" => Contexts::STREAM_SERVER,
            "stream-upstream" => Contexts::STREAM_UPSTREAM,
            "mail" => Contexts::MAIL,
            "mail-server" => Contexts::MAIL_SERVER,
            "acme_issuer" => Contexts::ACME_ISSUER,
            "otel_exporter" => Contexts::OTEL_EXPORTER,
            "oidc_provider" => Contexts::OIDC_PROVIDER,
            "ldap_server" => Contexts::LDAP_SERVER,
            _ => return None,
        })
    }

    /// The place inside a block of these places; `None` where its lines are data. Anywhere is taken
    /// for `http`, which most parts of configurations are of.
    pub fn inside(self, block: &str) -> Option<Contexts> {
        let of = |stream, mail, http| {
            let is = |contexts: Contexts| self != Contexts::ANY && self.intersects(contexts);
            Some(if is(Contexts::STREAM.or(Contexts::STREAM_SERVER)) {
                stream
            } else if is(Contexts::MAIL) {
                mail
            } else {
                http
            })
        };
        match block {
            "events" => Some(Contexts::EVENTS),
            "http" => Some(Contexts::HTTP),
            "stream" => Some(Contexts::STREAM),
            "mail" => Some(Contexts::MAIL),
            "server" => of(Contexts::STREAM_SERVER, Contexts::MAIL_SERVER, Contexts::SERVER),
            "upstream" => of(Contexts::STREAM_UPSTREAM, Contexts::EMPTY, Contexts::UPSTREAM),
            "location" => Some(Contexts::LOCATION),
            "if" if self.intersects(Contexts::LOCATION) => Some(Contexts::IF_LOCATION),
            "if" => Some(Contexts::IF_SERVER),
            "limit_except" => Some(Contexts::LIMIT_EXCEPT),
            "acme_issuer" => Some(Contexts::ACME_ISSUER),
            "otel_exporter" => Some(Contexts::OTEL_EXPORTER),
            "oidc_provider" => Some(Contexts::OIDC_PROVIDER),
            "ldap_server" => Some(Contexts::LDAP_SERVER),
            _ => None,
        }
    }

    /// The names of the places, in the order of this list.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = Contexts::NAMES.iter();
        all.filter(move |(context, _)| self.intersects(*context)).map(|(_, name)| *name)
    }
}

impl BitOr for Contexts {
    type Output = Contexts;

    fn bitor(self, other: Contexts) -> Contexts {
        self.or(other)
    }
}

/// The number of a directive's arguments, and whether a block follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args(u32);

impl Args {
    /// No argument.
    pub const NONE: Args = Args(1 << 0);
    /// Exactly one.
    pub const T1: Args = Args(1 << 1);
    /// Exactly two.
    pub const T2: Args = Args(1 << 2);
    /// Exactly three.
    pub const T3: Args = Args(1 << 3);
    /// Exactly four.
    pub const T4: Args = Args(1 << 4);
    /// Exactly five.
    pub const T5: Args = Args(1 << 5);
    /// Exactly six.
    pub const T6: Args = Args(1 << 6);
    /// Exactly seven.
    pub const T7: Args = Args(1 << 7);
    /// One or two.
    pub const T12: Args = Args::T1.or(Args::T2);
    /// One or three.
    pub const T13: Args = Args::T1.or(Args::T3);
    /// Two or three.
    pub const T23: Args = Args::T2.or(Args::T3);
    /// One to three.
    pub const T123: Args = Args::T12.or(Args::T3);
    /// One to four.
    pub const T1234: Args = Args::T123.or(Args::T4);
    /// A block in braces ends the directive, not a semicolon.
    pub const BLOCK: Args = Args(1 << 8);
    /// One, `on` or `off`.
    pub const FLAG: Args = Args(1 << 9);
    /// Any number.
    pub const ANY: Args = Args(1 << 10);
    /// One at least.
    pub const ONE_MORE: Args = Args(1 << 11);
    /// Two at least.
    pub const TWO_MORE: Args = Args(1 << 12);

    /// Both together; usable in statics.
    pub const fn or(self, other: Args) -> Args {
        Args(self.0 | other.0)
    }

    const fn has(self, other: Args) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a directive may have `count` arguments.
    pub const fn allows(self, count: usize) -> bool {
        if self.has(Args::ANY) {
            true
        } else if self.has(Args::FLAG) {
            count == 1
        } else if self.has(Args::ONE_MORE) {
            count >= 1
        } else if self.has(Args::TWO_MORE) {
            count >= 2
        } else {
            count <= 7 && self.0 & (1 << count) != 0
        }
    }

    /// Whether a block follows.
    pub const fn is_block(self) -> bool {
        self.has(Args::BLOCK)
    }
}

impl BitOr for Args {
    type Output = Args;

    fn bitor(self, other: Args) -> Args {
        self.or(other)
    }
}

/// A directive, declared once: help, reference and checks all come from here.
pub struct Directive<C: 'static> {
    /// The name, as configurations have it.
    pub name: &'static str,
    /// The blocks in which it may stand.
    pub contexts: Contexts,
    /// Its arguments.
    pub args: Args,
    /// The default in configuration syntax; empty when there is none.
    pub default: &'static str,
    /// Its effect, in one line.
    pub doc: &'static str,
    /// Puts its arguments into the configuration; place and count have been checked.
    pub set: fn(&mut C, &Node) -> Result<(), ConfError>,
}

/// Builds a directive's entry; see [`Directive`].
pub const fn directive<C>(
    name: &'static str,
    contexts: Contexts,
    args: Args,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut C, &Node) -> Result<(), ConfError>,
) -> Directive<C> {
    Directive { name, contexts, args, default, doc, set }
}

/// The entry of a directive for a table of nginx's that is not needed here: its value is checked.
pub const fn no_table<C>(name: &'static str, contexts: Contexts) -> Directive<C> {
    let doc = "Accepted without effect: hash tables grow as needed.";
    directive(name, contexts, Args::T1, "", doc, |_, n| value::number(n, 0).map(drop))
}

// Not derived: `C` need not be cloneable.
impl<C> Clone for Directive<C> {
    fn clone(&self) -> Directive<C> {
        *self
    }
}

impl<C> Copy for Directive<C> {}

/// Joins lists of directives, or of others; `N` is the sum of their lengths.
///
/// # Panics
/// At compile time, where it is not.
pub const fn join<T: Copy, const N: usize>(lists: &[&[T]]) -> [T; N] {
    let mut all = [lists[0][0]; N];
    let (mut filled, mut list) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[filled] = lists[list][i];
            filled += 1;
            i += 1;
        }
        list += 1;
    }
    assert!(filled == N, "the lists have another length");
    all
}

/// Joins constant lists of directives to one.
#[macro_export]
macro_rules! join_directives {
    ($($list:expr),+ $(,)?) => {
        &$crate::table::join::<_, { 0 $(+ $list.len())+ }>(&[$($list),+])
    };
}

/// The directives of some groups under the full names that a module gives, in order. The names
/// stand in the module so that they can be searched for.
///
/// # Panics
/// At compile time, where a name does not end as its directive's, or the number differs.
pub const fn named<C, const N: usize>(
    names: &[&'static str; N],
    groups: &[&[Directive<C>]],
) -> [Directive<C>; N] {
    let mut all: [Directive<C>; N] = join(groups);
    let mut i = 0;
    while i < N {
        assert!(ends_with(names[i], all[i].name), "not the name of the directive in this place");
        all[i].name = names[i];
        i += 1;
    }
    all
}

const fn ends_with(name: &str, end: &str) -> bool {
    let (name, end) = (name.as_bytes(), end.as_bytes());
    let mut i = 0;
    while i < end.len() {
        if name.len() < end.len() || name[name.len() - end.len() + i] != end[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// FNV-1a: names are short and the table's own, so nothing stronger is needed.
#[derive(Clone, Copy)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The directives of several modules, found by name.
pub struct Table<C: 'static> {
    /// Sorted by name; directives of one name in the order given.
    directives: Vec<&'static Directive<C>>,
    by_name: HashMap<&'static [u8], (usize, usize), BuildHasherDefault<Fnv>>,
    elsewhere: Vec<(&'static str, Contexts)>,
}

impl<C> Table<C> {
    /// Joins lists of directives. A name may come more than once, for different places.
    pub fn new(directives: impl Iterator<Item = &'static Directive<C>>) -> Table<C> {
        let mut directives: Vec<_> = directives.collect();
        directives.sort_by_key(|directive| directive.name);
        let mut by_name: HashMap<_, (usize, usize), _> = HashMap::default();
        for (index, directive) in directives.iter().enumerate() {
            by_name.entry(directive.name.as_bytes()).or_insert((index, index)).1 = index + 1;
        }
        Table { directives, by_name, elsewhere: Vec::new() }
    }

    /// Tells of directives that other tables apply, so that one that strayed into this table's
    /// blocks is called misplaced and not unknown.
    pub fn with_elsewhere(
        mut self,
        directives: impl Iterator<Item = (&'static str, Contexts)>,
    ) -> Table<C> {
        self.elsewhere.extend(directives);
        self
    }

    /// All directives, sorted by name.
    pub fn directives(&self) -> &[&'static Directive<C>] {
        &self.directives
    }

    /// The directives of one name.
    pub fn find(&self, name: &[u8]) -> &[&'static Directive<C>] {
        match self.by_name.get(name) {
            Some(&(start, end)) => &self.directives[start..end],
            None => &[],
        }
    }

    /// Applies the directives of a block in the context `here`, in order.
    ///
    /// # Errors
    ///
    /// The first directive that is unknown, misplaced or malformed, or the error of its `set`.
    pub fn apply(&self, cx: &mut C, nodes: &[Node], here: Contexts) -> Result<(), ConfError> {
        nodes.iter().try_for_each(|node| self.apply_one(cx, node, here))
    }

    /// Applies one directive; see [`apply`](Table::apply). Within [`collect::all`] an error is
    /// kept, and the directive is treated as absent.
    ///
    /// # Errors
    ///
    /// As for [`apply`](Table::apply).
    pub fn apply_one(&self, cx: &mut C, node: &Node, here: Contexts) -> Result<(), ConfError> {
        let before = collect::count();
        self.try_one(cx, node, here).or_else(|error| {
            let error = self.explain(error, node, here);
            collect::keep(node, error, before)
        })
    }

    /// Adds the place of a missing `;`, if one explains the error.
    #[cold]
    fn explain(&self, error: ConfError, node: &Node, here: Contexts) -> ConfError {
        let is_directive = |name: &[u8]| {
            self.find(name).iter().any(|one| one.contexts.intersects(here))
                || known::find(name).iter().any(|one| one.contexts.intersects(here))
        };
        match semicolon::swallowed(&node.name, &node.args, is_directive) {
            Some(at) if error.cause.is_none() && node.broken.is_none() => {
                semicolon::add(error, &node.name, &node.args, at)
            }
            _ => error,
        }
    }

    fn try_one(&self, cx: &mut C, node: &Node, here: Contexts) -> Result<(), ConfError> {
        if let Some(error) = &node.broken {
            return Err((**error).clone());
        }
        let named = self.find(node.name.bytes());
        let Some(directive) = named.iter().find(|one| one.contexts.intersects(here)) else {
            return Err(self.not_found(node, named, here));
        };
        if directive.args.is_block() != node.block.is_some() {
            let name = directive.name;
            return Err(ConfError::at(
                &node.name,
                if directive.args.is_block() {
                    format!("directive \"{name}\" has no opening \"{{\"")
                } else {
                    format!("directive \"{name}\" is not terminated by \";\"")
                },
            ));
        }
        if !directive.args.allows(node.args.len()) {
            return Err(node.wrong_count());
        }
        (directive.set)(cx, node)
    }

    #[cold]
    fn not_found(&self, node: &Node, named: &[&'static Directive<C>], here: Contexts) -> ConfError {
        let name = node.name.lossy();
        let built_in = named.iter().map(|one| one.contexts).chain(
            self.elsewhere
                .iter()
                .filter(|(other, _)| *other == name)
                .map(|(_, contexts)| *contexts),
        );
        let places = built_in.fold(Contexts::EMPTY, Contexts::or);
        let known = known::find(node.name.bytes());
        if places == Contexts::EMPTY
            && let Some(directive) = known.iter().find(|one| one.contexts.intersects(here))
        {
            let module = directive.module;
            return ConfError::at(
                &node.name,
                format!(
                    "directive \"{name}\" of nginx's {module} \
                     is not supported by this version of weir{}",
                    foreign::of_directive(&name).map(advice).unwrap_or_default()
                ),
            );
        }
        let places = known.iter().map(|one| one.contexts).fold(places, Contexts::or);
        if places != Contexts::EMPTY {
            let names: Vec<_> = places.names().collect();
            return ConfError::directive(node, "is not allowed here")
                .with_help(format!("it may stand in: {}", names.join(", ")));
        }
        if let Some(foreign) = foreign::of_directive(&name) {
            let (of, advice) = (foreign.name, advice(foreign));
            let message = format!("directive \"{name}\" of {of} is not built in{advice}");
            return ConfError::at(&node.name, message);
        }
        let error = ConfError::at(&node.name, format!("unknown directive \"{name}\""));
        match self.suggest(node.name.bytes(), here) {
            Some(name) => error.with_help(format!("did you mean \"{name}\"?")),
            None => error,
        }
    }

    /// The name most like `wrong` among the directives of the context `here`.
    fn suggest(&self, wrong: &[u8], here: Contexts) -> Option<&'static str> {
        let fitting = self.directives.iter().filter(|one| one.contexts.intersects(here));
        crate::spelling::closest(wrong, fitting.map(|one| one.name).chain(["include"]))
    }
}

fn advice(foreign: Foreign) -> String {
    format!(": {}", foreign.advice)
}
