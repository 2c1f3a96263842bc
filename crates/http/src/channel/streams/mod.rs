//! The parts that HTTP/2 and HTTP/3 share: their connections carry many requests, each on a stream
//! of its own.
//!
//! | file | concern |
//! | --- | --- |
//! | [`exchange`] | a request over a stream and its response |
//! | [`request`] | requests from decoded header sections |
//! | [`incoming`] | request bodies |
//! | [`head`] | response header sections as compressed fields |
//! | [`outgoing`] | response bodies |
//!
//! [`engine::turns`] has the order in which they run.

pub(crate) mod exchange;
pub(crate) mod head;
pub(crate) mod incoming;
pub(crate) mod outgoing;
pub(crate) mod request;

use std::future::Future;
use std::io;
use std::pin::pin;

use base::log::Level;
use engine::{flooders, told};
use event::{Deadline, Either};

use super::conn::Conn;
use super::{Answer, SendFailed, give_up};
use crate::request::Request;
use crate::server::HttpMain;
use exchange::Exchange;

/// A stream of some protocol.
pub(crate) trait Multiplexed {
    fn of(r: &mut Request) -> &mut Self;

    /// Its request and response.
    fn exchange(&mut self) -> &mut Exchange;

    /// The client has let the stream time out. Says whether a line tells of it.
    fn timed_out(&self) -> bool;

    /// Whether a line tells that the client has broken the request off.
    fn tells_of_end(&self) -> bool;
}

/// Notes that the client was too slow. Says whether a line tells of it.
fn timed_out<S: Multiplexed>(r: &mut Request) -> bool {
    let s = S::of(r);
    s.exchange().timed_out = true;
    s.timed_out()
}

/// The reason why a stream is over before its response is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// The client ended it, or we did for a fault of the client's.
    Reset,
    Connection,
    /// The body is not what it was declared to be.
    Malformed,
}

impl From<Gone> for io::Error {
    fn from(_: Gone) -> io::Error {
        io::ErrorKind::ConnectionReset.into()
    }
}

/// Answers a request: with the page of status `refused`, where it is malformed, and not at all
/// where its stream `is_over`. `None` where the worker ends first.
pub(crate) async fn answer<A: Answer>(
    main: &HttpMain,
    r: &mut Request,
    refused: Option<u16>,
    is_over: bool,
) -> Option<Result<(), SendFailed>> {
    let done = {
        let run = pin!(async {
            match refused {
                None if is_over => {
                    A::given_up(r).await;
                    Err(SendFailed)
                }
                None => A::answer(r).await,
                Some(status) => {
                    let instead = prepare_refused::<A>(r);
                    A::refuse(r, instead.unwrap_or(status)).await
                }
            }
        });
        main.life.unless_given_up(run).await
    };
    if done.is_none() {
        give_up::<A>(r).await;
    }
    done
}

/// Finds the server of a malformed request, as far as that is known.
fn prepare_refused<A: Answer>(r: &mut Request) -> Option<u16> {
    r.target.method = r.head.method;
    if r.head.target.is_empty() {
        return None;
    }
    A::prepare_refused(r, false).err()
}

/// Whether a connection is to end because it has had all the requests, or all the time, that it
/// gets. One without a request yet is not: the client has no other one for its first request,
/// whatever `keepalive_timeout 0` or `keepalive_requests 0` say of those that follow.
pub(crate) fn is_worn(c: &Conn) -> bool {
    let core = &c.server().root.core;
    let requests = c.requests.get();
    requests > 0
        && (requests >= core.keepalive_requests
            || c.is_unwanted()
            || core.keepalive_timeout == 0
            || base::time::now_ms().saturating_sub(c.start_ms) > core.keepalive_time)
}

/// The time for which a connection is kept without streams, in milliseconds. With
/// `keepalive_timeout 0` only a client that has not sent its first request waits at all, and that
/// request has the time of any other.
pub(crate) fn kept_ms(c: &Conn) -> u64 {
    match c.server().root.core.keepalive_timeout {
        0 => c.head_timeout(),
        ms => ms,
    }
}

/// Waits for a tunnel's end.
///
/// # Errors
/// `TimedOut` behind the deadline.
pub(crate) async fn until(ready: impl Future<Output = ()>, deadline: Deadline) -> io::Result<()> {
    match event::race(ready, event::sleep_until(deadline)).await {
        Either::First(()) => Ok(()),
        Either::Second(()) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Writes a line about the address of a connection's client, unless there was one lately.
#[cold]
pub(crate) fn tell_of_address(c: &Conn, what: &'static str) {
    if told::is_due(c.client_ip(), what) {
        c.log(Level::Warn, format_args!("{what} by connections of one address"));
    }
}

/// Writes a line about a connection that ends for a fault of the client's. A client gets one a
/// minute for each fault, and one for all floods; it has the number of those that were left out.
/// A log of level `debug` has all.
#[cold]
pub(crate) fn tell_fault(c: &Conn, what: &'static str, is_flood: bool) {
    let ip = c.client_ip();
    if is_flood {
        flooders::cut_off(ip);
    }
    let (level, subject) = if is_flood { (Level::Warn, "flood") } else { (Level::Info, what) };
    let due = told::due(ip, subject);
    let left_out = match due {
        Some(n) => n + flooders::take_left_out(ip),
        None if c.log_enabled(&c.server().root.core.error_log, Level::Debug) => 0,
        None => return,
    };
    match left_out {
        0 => c.log(level, format_args!("client sent {what}")),
        n => {
            let m = format_args!("client sent {what}; lines about it that were left out: {n}");
            c.log(level, m);
        }
    }
}
