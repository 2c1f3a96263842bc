//! Failures of an attempt: their log messages, and the [`Stop`] that each results in.

use std::io;

use base::log::Level;
use cache::CacheStatus;
use http::module::Verdict;
use http::request::Request;
use upstream::failure::{self, NotReached};
use upstream::h2::StreamEnd;

use crate::conf::next;

/// Why an attempt ended without a response to forward.
pub(crate) enum Stop {
    /// Another server may be tried; a bit of [`next`].
    Next(u64),
    /// The server has not processed the request and will not, so any method can be repeated safely
    /// (RFC 9113 section 8.7).
    Refused,
    /// Answer with this status.
    Status(u16),
    /// The client has disconnected.
    ClientGone,
    /// The client's body cannot be read: end with this verdict.
    Verdict(Verdict),
    /// Serve a stored response instead, with this cache status.
    Stored(CacheStatus),
}

/// Logs that no connection, or no TLS session, could be established.
pub(crate) fn not_reached(reached: NotReached) -> Stop {
    match reached {
        NotReached::Late => Stop::Next(next::TIMEOUT),
        NotReached::Failed => Stop::Next(next::ERROR),
        NotReached::Ours => Stop::Status(500),
    }
}

#[cold]
pub(crate) fn log_io(r: &Request, call: &str, e: &io::Error, doing: &str) {
    let os = base::log::os_error(e);
    let level = if failure::by_network(e) { Level::Error } else { Level::Alert };
    r.log(level, format_args!("{call} failed {os} while {doing}"));
}

#[cold]
pub(crate) fn timed_out(r: &Request, doing: &str) -> Stop {
    failure::timed_out(r, doing);
    Stop::Next(next::TIMEOUT)
}

#[cold]
pub(crate) fn too_big(r: &Request) -> Stop {
    let m = "upstream sent too big header while reading response header from upstream";
    r.log(Level::Error, format_args!("{m}"));
    Stop::Next(next::INVALID_HEADER)
}

/// Logs that a stream ended before its response was complete.
#[cold]
pub(crate) fn log_stream(r: &Request, end: &StreamEnd, doing: &str) {
    let m = match end {
        StreamEnd::Refused(code) | StreamEnd::Reset(code) => {
            format!("upstream rejected request with error {}", code.0)
        }
        StreamEnd::Malformed(m) | StreamEnd::Fault(m) => m.clone(),
        StreamEnd::Unsent => "upstream closed keepalive connection".to_owned(),
        StreamEnd::Closed => "upstream prematurely closed connection".to_owned(),
        StreamEnd::Late => "the time that the client gave to the call is over".to_owned(),
        StreamEnd::Broken(errno) => {
            return log_io(r, "recv()", &io::Error::from_raw_os_error(*errno), doing);
        }
    };
    r.log(Level::Error, format_args!("{m} while {doing}"));
}

/// Logs that the stream ended before there was a response.
#[cold]
pub(crate) fn stream_failed(r: &Request, end: &StreamEnd) -> Stop {
    log_stream(r, end, "reading response header from upstream");
    match end {
        StreamEnd::Refused(_) | StreamEnd::Unsent => Stop::Refused,
        StreamEnd::Reset(_) | StreamEnd::Malformed(_) | StreamEnd::Fault(_) => {
            Stop::Next(next::INVALID_HEADER)
        }
        StreamEnd::Closed | StreamEnd::Broken(_) => Stop::Next(next::ERROR),
        StreamEnd::Late => Stop::Next(next::TIMEOUT),
    }
}

/// Logs that the connection ended or failed before there was a response.
#[cold]
pub(crate) fn no_answer(r: &Request, sending: Option<io::Error>, receiving: Option<io::Error>) {
    match (sending, receiving) {
        (Some(e), _) => log_io(r, "writev()", &e, "sending request to upstream"),
        (None, Some(e)) => log_io(r, "recv()", &e, "reading response header from upstream"),
        (None, None) => {
            let m = "upstream prematurely closed connection while";
            r.log(Level::Error, format_args!("{m} reading response header from upstream"));
        }
    }
}

#[cold]
pub(crate) fn client_gone(r: &Request, doing: &str) -> Stop {
    if !r.tells_of_client_end()
        || r.c().is_displaced(|m| r.log(Level::Info, format_args!("{m} while {doing}")))
    {
        return Stop::ClientGone;
    }
    let m = "epoll_wait() reported that client prematurely closed connection, so upstream \
             connection is closed too";
    r.log(Level::Info, format_args!("{m} while {doing}"));
    Stop::ClientGone
}
