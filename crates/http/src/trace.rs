//! The record of one request's way through the phases, for `weir explain`; see [`crate::explain`].

use std::cell::{Cell, RefCell};

use base::log::Level;
use conf::Pos;
use os::SockAddr;

use crate::location_kind::LocKind;

/// The fate of a phase handler in an explanation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dry {
    /// It runs before the content is made. In the content phase the explanation ends with it.
    Usual,
    /// It runs in the content phase, too: it only looks.
    Looks,
    /// It is left out.
    Skipped,
}

/// A location, or another block that requests enter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// How the location's name was compared with the URI.
    pub kind: LocKind,
    /// Its expression is one without case (`~*`).
    pub caseless: bool,
    /// Its name, without the modifier.
    pub name: String,
    /// The place of its block.
    pub at: Pos,
}

/// The way in which a location was looked at in the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// Its name is the URI.
    Exact,
    /// Its name begins the URI.
    Prefix,
    /// Its name is the URI with a slash added.
    Slash,
    /// Its regular expression matches.
    Matches,
    /// Its regular expression does not match.
    Differs,
}

/// The request to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The group, or the address.
    pub to: String,
    /// It is a group of servers, which an `upstream` block or a host's name made.
    pub is_group: bool,
    /// `http://`, `fastcgi://` …
    pub scheme: String,
    /// The method of the subrequest.
    pub method: String,
    /// The URI, where the protocol has one.
    pub uri: String,
    /// The head, if it is text.
    pub head: Option<String>,
    /// The cache and the key, if it is looked up in one.
    pub cache: Option<(String, String)>,
}

/// A step of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The server was chosen.
    Server {
        /// Its own level.
        at: Pos,
        /// Its first name.
        name: String,
        /// The host of the request, if it has one.
        host: Option<String>,
        /// One of its names is the host's.
        named: bool,
    },
    /// The URI that the phases go on with.
    Uri(String),
    /// The search for a location looked at this one.
    Tried(Tried, Place),
    /// The request entered this location or block.
    Entered(Place),
    /// A phase ended with this status.
    Status(u16),
    /// A line for the error log.
    Log(Level, String),
    /// A directive would have a function of a script called.
    Called(&'static str, String),
    /// A directive looked for a file: its name, the path, and what came of it.
    File(&'static str, String, String),
    /// A server would be asked.
    Passed(Box<Passed>),
    /// The content would be made by a handler of the location.
    Content,
}

/// A step, and whether a subrequest took it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Noted {
    /// What happened.
    pub step: Step,
    /// Whether the step belongs to a subrequest (`auth_request`).
    pub inside: bool,
}

/// The record.
pub struct Trace {
    /// The address that the client connected to.
    pub(crate) local: SockAddr,
    steps: RefCell<Vec<Noted>>,
    pub(crate) begun: Cell<bool>,
}

impl Trace {
    /// An empty record of a connection to this address.
    pub(crate) fn new(local: SockAddr) -> Trace {
        Trace { local, steps: RefCell::default(), begun: Cell::new(false) }
    }

    /// Whether the connection has begun; it ends when the engine is idle.
    pub fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Adds a step; `inside`: a subrequest took it.
    pub(crate) fn note(&self, inside: bool, step: Step) {
        self.steps.borrow_mut().push(Noted { step, inside });
    }

    /// The steps so far.
    pub fn steps(&self) -> Vec<Noted> {
        self.steps.borrow().clone()
    }
}
