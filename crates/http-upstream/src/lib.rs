//! Forwarding requests to other servers, whatever the protocol.
//!
//! A module that does so (`proxy`, gateways) supplies a [`Protocol`]: a sans-IO value that writes
//! one exchange's request, reads the response's header section and body, and says whether the
//! connection can be used again. Wire formats are in the crates `http-wire` and `proto` and are
//! fuzzed. An exchange leases a server and takes or makes a connection (crate `upstream`), carries
//! one request, tries the next server where that is safe, and yields the response's body as a
//! source that reads ahead of the client.
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
//! **Settings.** The directives that all such modules have (timeouts, buffers, next servers,
//! headers) are one table. A module adds it to its own table under its prefix, for example `proxy_`
//! or `fastcgi_` ([`directives`]).
//!
//! **Apart from `http`.** Nothing in `http` depends on exchanges. A request has a place for the
//! results of an exchange (`http::exchanges`), which its log lines and counters read. Everything
//! else is called from here: the functions of `http` that any content handler may use, and a few of
//! the request's channel.
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
mod caller;
pub mod conditions;
pub mod conf;
pub mod directives;
pub mod early_hints;
mod exchange;
mod explained;
mod failure;
mod first;
mod headers;
mod kept;
mod link;
pub mod modules;
mod moved;
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
use http_wire::h1::{FieldId, ResponseHead};
use mem::{Buf, Chain};

pub use exchange::{Job, run, websocket_accept};

/// The result of parsing response headers.
pub enum HeadStep {
    /// More bytes are needed.
    More,
    /// An interim response of this many bytes; more headers follow.
    Interim(usize),
    /// The headers, of this many bytes.
    Done(usize),
    /// Malformed; the text is logged at level error unless empty.
    Bad(String),
    /// No headers: everything is body (HTTP/0.9). The text is logged at level error.
    NoHead(&'static str),
}

/// The progress of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// The body is complete.
    Done,
}

/// The output of a protocol's body parser.
#[derive(Default)]
pub struct Sink {
    /// The body, without framing.
    pub out: Chain,
    /// A message to log at level warn.
    pub warning: Option<&'static str>,
}

/// An error in a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It violates the protocol.
    Malformed(Cow<'static, str>),
    /// Truncated; the bytes received are valid.
    CutShort(&'static str),
}

/// The wire format of a kind of upstream, without I/O; one value per exchange.
pub trait Protocol {
    /// The scheme of URLs in logs, such as `http://`.
    fn scheme(&self) -> &'static str;

    /// Appends the request headers, and a body that is not the client's, to `out`. Called for each
    /// attempt; must store the upstream's URI in the state ([`Request::upstream_mut`]).
    ///
    /// # Errors
    /// The status to respond with; the reason was logged.
    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16>;

    /// Whether the client's body is needed; otherwise it is not read before contacting the server.
    fn reads_body(&self) -> bool {
        true
    }

    /// Whether the client's body follows the headers written by [`Protocol::request`].
    fn sends_body(&self) -> bool;

    /// Whether a body of unknown length can be sent with chunked transfer encoding.
    fn chunked_requests(&self) -> bool;

    /// Whether the upstream is an HTTP server, whose Server and Date are then forwarded, or left
    /// out if absent. Otherwise ours are added.
    fn is_http(&self) -> bool {
        false
    }

    /// Whether the exchange only opens a connection: nothing is sent, no headers are read, and the
    /// client gets its response once connected.
    fn only_connects(&self) -> bool {
        false
    }

    /// Frames a piece of the client's body. Called a last time with `last`, possibly without data,
    /// also if there is no body. `chunked` is the value recorded in the request's state.
    fn frame(&mut self, data: &mut Chain, last: bool, chunked: bool, out: &mut Chain) {
        match chunked {
            true => request_body::chunk(data, last, out),
            false => out.append(data),
        }
    }

    /// Parses the response headers at the start of `buf`, which grows from call to call; bytes of
    /// [`HeadStep::Interim`] are removed in between.
    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep;

    /// The text to which the spans in `head` refer, if it is not the start of the buffer, for
    /// example headers inside of records.
    fn text(&mut self) -> Option<Bytes> {
        None
    }

    /// Starts the body after accepted headers. `Done`: there is no body.
    fn begin_body(&mut self, head: &ResponseHead) -> Progress;

    /// Parses bytes of the body.
    ///
    /// # Errors
    /// An error in the body, to be logged at level error.
    fn body(&mut self, input: Buf, sink: &mut Sink) -> Result<Progress, Fault>;

    /// Whether the end of the connection is the regular end of the body at this point.
    fn ends_with_connection(&self) -> bool;

    /// Whether the exchange is an HTTP/2 stream on a shared connection. Then [`Protocol::request`]
    /// writes a field list ([`http_wire::fields`]), followed by its own body as another piece;
    /// [`Protocol::head`] is not called, and bodies have no framing.
    fn is_stream(&self) -> bool {
        false
    }

    /// For a stream: the fields of an extended CONNECT (RFC 8441), if the request switches
    /// protocols. `list` is what [`Protocol::request`] wrote; it is sent instead if the server does
    /// not support extended CONNECT.
    fn connect(&mut self, _list: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The protocols in `Upgrade` that were offered to the server.
    fn asked_upgrade(&self, r: &mut Request) -> Option<Bytes> {
        let bytes = r.head_bytes();
        r.head.value(FieldId::Upgrade, bytes).map(Bytes::copy_from_slice)
    }

    /// The server accepted the CONNECT: converts its response into an HTTP/1 upgrade. Returns the
    /// text of the fields.
    fn connected(&mut self, _: &Request, _head: &mut ResponseHead, text: Bytes) -> Bytes {
        text
    }

    /// The deadline of the whole exchange, such as a gRPC timeout.
    fn until(&self) -> Deadline {
        Deadline::NEVER
    }

    /// The deadline has passed before the end of the body. Returns false if the body is truncated;
    /// true if it ends here, with [`Protocol::trailers`] that report the timeout.
    fn run_out(&mut self) -> bool {
        false
    }

    /// Handles the end of a stream, and its trailers.
    ///
    /// # Errors
    /// The body is shorter than its declared length.
    fn end_stream(&mut self, _trailers: Vec<(Bytes, Bytes)>) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether the finished body has its declared length; otherwise it is not cached.
    fn is_whole(&self) -> bool {
        true
    }

    /// Whether the connection can be reused after the body.
    fn reusable(&self) -> bool;

    /// A log message about the upstream's data. Called after each of the functions above until it
    /// returns `None`.
    fn complaint(&mut self) -> Option<(Level, String)> {
        None
    }

    /// Appends the default cache key.
    fn cache_key(&self, _: &mut Request, _: &mut Vec<u8>) {}

    /// The trailers of the response.
    fn trailers(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    /// Rewrites a response field for the client (`Location`, `Refresh`, `Set-Cookie`); `None`
    /// leaves it unchanged.
    fn rewrite(&self, _: &mut Request, _: FieldId, _: &Bytes) -> Option<Bytes> {
        None
    }
}
