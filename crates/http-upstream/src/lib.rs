//! Forwarding requests to other servers, whatever the protocol.
//!
//! A module that does so (`proxy`, gateways) supplies a [`Protocol`]: a sans-IO value that writes
//! one exchange's request, reads the response's header section and body, and says whether the
//! connection can be used again. Wire formats are in the crate `proto` and are fuzzed. An exchange
//! leases a server and takes or makes a connection (crate `upstream`), carries one request, tries
//! the next server where that is safe, and yields the response's body as a source that reads ahead
//! of the client.
//!
//! ```text
//!   body read ─▶ choose ─▶ connect ─▶ send, read head ─▶ head accepted ─▶ body ─▶ done
//!                  ▲          │              │                │             │       │
//!                  └──────────┴── failed ────┴── status ──────┘          broken   kept or closed
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `exchange` | one request's attempts at the servers of a group |
//! | `link`, `failure` | the connection of an exchange; the end of an attempt without a response |
//! | `request_body` | the client's body on its way to the server |
//! | `headers` | the response's header section on its way to the client |
//! | `source`, `first`, `spill` | the response's body: read ahead, whole at once, in a file |
//! | `store`, `tunnel` | `*_store`; connections that become another protocol's |
//! | `caching` | the cache as requests see it |
//! | `conf`, `directives`, `ssl_directives` | the settings that all protocols share |
//! | `modules`, `variables` | the modules `upstream` and `resolver`; `$upstream_…` |
//! | `explained` | an exchange that is explained (`weir explain`), and not made |
//!
//! **Settings.** Those that all such modules have (times, buffers, next servers, fields) are one
//! table of directives, which a module joins to its own under its prefix ([`directives`]).
//!
//! **Apart from `http`.** Nothing in `http` needs exchanges. A request keeps the state that an
//! exchange leaves (`http::exchanges`) for its logs and counters; all else goes the other way,
//! through what any content handler may use and a few calls of the request's channel.
//!
//! **Carriers.** An exchange runs over an [`upstream::wire::Wire`]: a connection of its own, or a
//! stream of a shared one. Connections are a `net::Transport`, a plain socket or TLS over one. Code
//! above never sees a descriptor, and asks the transport where the kinds differ: whether files may
//! be sent as they are, whether bytes are unsent, whether the connection can be handed to another
//! process.
//!
//! docs/PASSING_ON.md has the cost of a proxied request.
#![forbid(unsafe_code)]

pub mod balancing;
pub mod caching;
pub mod conf;
pub mod directives;
mod exchange;
mod explained;
mod failure;
mod first;
mod headers;
mod link;
pub mod modules;
mod request_body;
mod source;
mod spill;
mod ssl_directives;
mod store;
mod tunnel;
mod variables;

use std::borrow::Cow;

use base::log::Level;
use bytes::Bytes;
use event::Deadline;
use http::request::Request;
use mem::{Buf, Chain};
use proto::h1::{FieldId, ResponseHead};

pub use exchange::{Job, run, websocket_accept};

/// The result of a look at the beginning of a response.
pub enum HeadStep {
    /// More bytes are needed.
    More,
    /// An interim response took so many bytes; another head follows.
    Interim(usize),
    /// The head took so many bytes.
    Done(usize),
    /// Not a response; the text is logged at level error, unless it is empty.
    Bad(String),
    /// No head at all: everything is body. The text is logged at level error.
    NoHead(&'static str),
}

/// The progress of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More must come.
    More,
    /// The body is complete.
    Done,
}

/// The output of a protocol.
#[derive(Default)]
pub struct Sink {
    /// The body, without framing.
    pub out: Chain,
    /// Something to log at level warn.
    pub warning: Option<&'static str>,
}

/// A defect of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It violates the protocol.
    Malformed(Cow<'static, str>),
    /// It ends too early; the bytes received are good.
    CutShort(&'static str),
}

/// The wire format of exchanges with a kind of upstream; one value an exchange, no input or output.
pub trait Protocol {
    /// The beginning of addresses in logs: `http://`.
    fn scheme(&self) -> &'static str;

    /// Appends the request's head, and a body that is not the client's, to `out`. Called for each
    /// attempt; must put the upstream's URI into the state ([`Request::upstream_mut`]).
    ///
    /// # Errors
    /// The status to answer with; the reason was logged.
    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16>;

    /// Whether the client's body matters at all; else it is not read before the server is asked.
    fn reads_body(&self) -> bool {
        true
    }

    /// Whether the client's body follows the head that [`Protocol::request`] wrote.
    fn sends_body(&self) -> bool;

    /// Whether a body of unknown length can be sent in the chunked coding.
    fn chunked_requests(&self) -> bool;

    /// Says whether the upstream is an HTTP server, which decides about Server and Date itself: a
    /// head without them is passed on without them. Else ours are added.
    fn is_http(&self) -> bool {
        false
    }

    /// Says whether a connection is all that is needed: nothing is sent, no head comes, and the
    /// client is answered when the connection is made.
    fn only_connects(&self) -> bool {
        false
    }

    /// Frames a piece of the client's body; called once more, with `last` and maybe without data,
    /// behind it, and where there is none. `chunked` was noted in the request's state.
    fn frame(&mut self, data: &mut Chain, last: bool, chunked: bool, out: &mut Chain) {
        match chunked {
            true => request_body::chunk(data, last, out),
            false => out.append(data),
        }
    }

    /// Reads the response's head at the start of `buf`, which grows from call to call, without the
    /// bytes that a step of [`HeadStep::Interim`] took.
    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep;

    /// The bytes that the spans of the head point into, where they are not the start of the buffer:
    /// a head that came in an envelope.
    fn text(&mut self) -> Option<Bytes> {
        None
    }

    /// Begins the body of an accepted head. `Done`: there is none.
    fn begin_body(&mut self, head: &ResponseHead) -> Progress;

    /// Takes bytes that followed the head.
    ///
    /// # Errors
    /// The defect of the body, to be logged at level error.
    fn body(&mut self, input: Buf, sink: &mut Sink) -> Result<Progress, Fault>;

    /// Whether the end of the connection is the end of the body here.
    fn ends_with_connection(&self) -> bool;

    /// Whether the exchange is a stream of a connection that others share, over HTTP/2. Then
    /// [`Protocol::request`] writes a list of fields ([`proto::fields`]), with a body of its
    /// own as a piece behind it; there is no [`Protocol::head`], and bodies have no framing.
    fn is_stream(&self) -> bool {
        false
    }

    /// Of a stream: the fields with which the client's connection becomes another protocol's, where
    /// the request asks for that. `list` is what [`Protocol::request`] wrote; it is sent instead
    /// where the server does not take requests of that kind (RFC 8441).
    fn connect(&mut self, _list: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The protocols that the server was asked to switch to, as `Upgrade` names them.
    fn asked_upgrade(&self, r: &mut Request) -> Option<Bytes> {
        let bytes = r.head_bytes();
        r.head.value(FieldId::Upgrade, bytes).map(Bytes::copy_from_slice)
    }

    /// The server agreed to those fields: makes its answer the one to an upgrade of HTTP/1. Gives
    /// the text of the fields.
    fn connected(&mut self, _: &Request, _head: &mut ResponseHead, text: Bytes) -> Bytes {
        text
    }

    /// The moment at which the exchange's own time is over, whatever it waits for.
    fn until(&self) -> Deadline {
        Deadline::NEVER
    }

    /// That time is over before the body is. False: the body is cut short; else it ends here, with
    /// [`Protocol::trailers`] that tell the client.
    fn run_out(&mut self) -> bool {
        false
    }

    /// Takes the end of a stream, and the fields behind its body.
    ///
    /// # Errors
    /// The body is shorter than its head said.
    fn end_stream(&mut self, _trailers: Vec<(Bytes, Bytes)>) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether the body that ended is as long as its head said; else it is not kept in a cache.
    fn is_whole(&self) -> bool {
        true
    }

    /// Whether the connection can carry another exchange, once the body is read.
    fn reusable(&self) -> bool;

    /// A message for the log about the upstream's bytes. Called after each of the functions above,
    /// until there is none.
    fn complaint(&mut self) -> Option<(Level, String)> {
        None
    }

    /// Appends the default key of a response in a cache.
    fn cache_key(&self, _: &mut Request, _: &mut Vec<u8>) {}

    /// Trailers that followed the body.
    fn trailers(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    /// A field of the response on its way to the client: `Location`, `Refresh`, `Set-Cookie`. Gives
    /// its new value where it changes.
    fn rewrite(&self, _: &mut Request, _: FieldId, _: &Bytes) -> Option<Bytes> {
        None
    }
}
