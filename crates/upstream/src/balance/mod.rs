//! Balancing: the interface for methods that choose servers, and the methods, one file each with
//! its table of directives, its `Balancer` and its `Picker`. An engine's list names them (HTTP's:
//! `http-upstream/src/balancing/methods.rs`).
//!
//! A picker begins with a [`Round`]: the servers tried so far, and weighted round robin as the
//! fallback. [`crate::lease::Lease`] binds the choice to a session: it releases the server in every
//! case, and asks the affinity before and after the choice (`sticky`; it and `ip_hash` belong to
//! HTTP).

pub mod drawn;
pub mod hash;
pub mod least_conn;
pub mod least_time;
pub mod random;
mod ring;
mod round;
mod round_robin;

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use conf::table::{Args, Directive, directive};
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use crate::peer::Peer;

pub use round::Round;
pub use round_robin::RoundRobin;

/// The directive of a method.
const fn method<S: Session>(
    name: &'static str,
    args: Args,
    doc: &'static str,
    set: fn(&mut Cx<S>, &Node) -> Result<(), ConfError>,
) -> Directive<Cx<S>> {
    directive(name, S::UPSTREAM, args, "", doc, set)
}

/// The table of a method's module.
const fn table<S: Session>(
    name: &'static str,
    directives: &'static [Directive<Cx<S>>],
) -> Module<S> {
    Module { name, directives, ..Module::EMPTY }
}

/// The end of an exchange with a server, as balancing sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerOutcome {
    /// The server answered.
    Ok,
    /// The server answered with something that another one may answer better; no failure of its
    /// own.
    Next,
    /// The server failed.
    Failed,
}

/// Duration of an exchange, milliseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct ExchangeTimes {
    /// Until the head of the response, if it came.
    pub header_ms: Option<u64>,
    /// Until the end.
    pub response_ms: u64,
}

/// A balancing method, with its state in this worker.
pub trait Balancer {
    /// Begins choosing for a client's session.
    fn picker(&self, client: &mut dyn Client) -> Box<dyn Picker>;

    /// The same for a method that needs nothing beyond a [`Round`], and no box for it.
    fn round(&self) -> Option<Round> {
        None
    }
}

/// Chooses servers for one session: each at most once.
pub trait Picker {
    /// The number of servers that may be asked in all.
    fn tries(&self) -> u32;
    /// The next server; `None` when no server is live. The server with the sid `bound` is taken if
    /// it can be. Each server given must be given back by [`Picker::done`].
    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>>;
    /// The head of the response came after so many milliseconds.
    fn header(&mut self, _: &Peer, _: u64) {}
    /// Whether [`Picker::header`] is to get the time until the connection stood, in the place of
    /// that until the first bytes of an answer.
    fn counts_connecting(&self) -> bool {
        false
    }
    /// The exchange with a server is over. True: the server was taken out for a while.
    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, times: ExchangeTimes) -> bool;
    /// Whether a single server stands for all: then a failure ends the tries.
    fn is_single(&self) -> bool {
        false
    }
}

/// The picker of any method. Round robin, the usual one, needs no box.
pub enum AnyPicker {
    /// Weighted round robin.
    Round(Round),
    /// Another method's picker.
    Boxed(Box<dyn Picker>),
}

impl AnyPicker {
    /// Begins choosing by a method.
    pub fn begin(balancer: &dyn Balancer, client: &mut dyn Client) -> AnyPicker {
        match balancer.round() {
            Some(round) => AnyPicker::Round(round),
            None => AnyPicker::Boxed(balancer.picker(client)),
        }
    }
}

impl Deref for AnyPicker {
    type Target = dyn Picker;

    fn deref(&self) -> &Self::Target {
        match self {
            AnyPicker::Round(round) => round,
            AnyPicker::Boxed(picker) => picker.as_ref(),
        }
    }
}

impl DerefMut for AnyPicker {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            AnyPicker::Round(round) => round,
            AnyPicker::Boxed(picker) => picker.as_mut(),
        }
    }
}
