//! The task of an accepted connection, from the PROXY protocol header to the log.

pub(crate) mod metering;

use std::pin::pin;
use std::rc::Rc;

use base::future::{boxed, rarely};
use base::log::Level;
use common_modules::accepting::{self, Headed, Unheaded, accepted};
use common_modules::log::AccessLog;
use common_modules::passing::{Passed, Receiver};
use engine::beat::{self, Doing};
use engine::{Client, Session};
use event::Sock;
use event::task::Unborn;
use net::proxy_header::NoHeader;
use os::SockAddr;

use crate::module::{Served, TasklessProxy};
use crate::phases::{self, status};
use crate::proxy::resumed::Resumed;
use crate::server::{Server, StreamMain};
use crate::session::{ServedBy, StreamSession};
use crate::ssl;

/// Creates the session of an accepted connection and spawns its task.
pub(crate) fn accept(main: &Rc<StreamMain>, listen: usize, sock: Sock, peer: SockAddr) {
    let Some(new) = accepted(&main.listens[listen], &main.stats, sock, &peer) else { return };
    event::spawn(task(StreamSession::new(main, new.address, peer, new.local, Some(new.sock))));
}

/// Receives connections that `pass` hands over to a listening address of `stream`.
impl Receiver for StreamMain {
    fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    fn wants_tls(&self, listen: usize, local: &SockAddr) -> bool {
        self.listens[listen].address(|| Some(local.clone())).ssl
    }

    fn take(self: Rc<StreamMain>, listen: usize, mut passed: Passed) {
        // Keeps the worker alive until the task has registered itself.
        let kept = (std::mem::take(&mut passed.kept), self.life.work());
        let serving = boxed(|| task(StreamSession::passed(&self, listen, passed)));
        event::spawn(async move {
            serving.await;
            drop(kept);
        });
    }
}

/// The task of a TCP session. The session is stored inside the future, which lives as long.
#[allow(clippy::manual_async_fn, reason = "an async fn has room for its argument twice")]
fn task(mut s: StreamSession) -> impl Future<Output = ()> {
    async move {
        let main = s.main.clone();
        let life = &main.life;
        beat::serves(s.number, &s.peer, Doing::Session);
        metering::begin(&mut s);
        let outcome = match life.unless_given_up(rarely(begin(&mut s))).await {
            Some(Ok(())) => {
                let server = s.server.clone();
                life.unless_given_up(serve(&server, &mut s)).await
            }
            ended => ended.and_then(Result::err),
        };
        let status = outcome.unwrap_or_else(|| given_up(&s));
        let logs = end(&mut s, status);
        if !logs.is_empty() {
            rarely(written(logs)).await;
        }
    }
}

/// Serves a session that another process has begun, by `proxy`.
pub(crate) fn resume(mut s: StreamSession, proxy: Rc<dyn TasklessProxy>, resumed: Resumed) {
    event::spawn(async move {
        let main = s.main.clone();
        beat::serves(s.number, &s.peer, Doing::Session);
        metering::begin(&mut s);
        s.is_served = true;
        let server = s.server.clone();
        server.pipeline.resume.iter().for_each(|resume| resume(&mut s));
        let outcome = main.life.unless_given_up(proxy.resume(&mut s, resumed)).await;
        let status = outcome.unwrap_or_else(|| given_up(&s));
        let logs = end(&mut s, status);
        if !logs.is_empty() {
            written(logs).await;
        }
    });
}

/// The status of a session that is aborted.
pub(crate) fn given_up(s: &StreamSession) -> u16 {
    s.log(Level::Info, format_args!("shutdown timeout"));
    status::OK
}

/// Starts a UDP session. It gets a task only if one of its phases has to wait.
pub(crate) fn begin_datagrams(s: StreamSession) {
    let unborn = Unborn::new();
    event::task::caught(|| {
        let mut serving = boxed(|| serve_datagrams(s));
        if unborn.poll(&mut serving).is_pending() {
            unborn.spawn(serving);
        }
    });
}

/// Runs the phases of a UDP session until the proxy takes it over.
async fn serve_datagrams(mut s: StreamSession) {
    let main = s.main.clone();
    let life = &main.life;
    beat::serves(s.number, &s.peer, Doing::Session);
    metering::begin(&mut s);
    let begun = life.unless_given_up(pin!(begin(&mut s))).await;
    let server = s.server.clone();
    // A session with a filter is a task.
    let proxy = server.pipeline.datagrams.as_ref().filter(|_| server.pipeline.filter.is_none());
    let ended = match (begun, proxy) {
        (Some(Ok(())), Some(proxy)) => {
            s.is_served = true;
            match life.unless_given_up(proxy.choose(&mut s)).await {
                Some(Ok(choice)) => {
                    let Some(client) = s.datagrams().cloned() else { return };
                    return client.adopt(proxy.relay(s, choice));
                }
                ended => ended.and_then(Result::err),
            }
        }
        (Some(Ok(())), None) => life.unless_given_up(serve(&server, &mut s)).await,
        (ended, _) => ended.and_then(Result::err),
    };
    let status = ended.unwrap_or_else(|| given_up(&s));
    end_datagrams(s, status);
}

/// Logs a UDP session. If log lines must be written before it closes, the session lives until then.
pub(crate) fn end_datagrams(mut s: StreamSession, status: u16) {
    let logs = end(&mut s, status);
    if !logs.is_empty() {
        event::spawn(async move {
            written(logs).await;
            drop(s);
        });
    }
}

/// Runs the content handler of a session after its phases; resolves to its status.
fn serve<'a>(server: &'a Server, s: &'a mut StreamSession) -> Served<'a> {
    match &server.pipeline.content {
        Some(content) => {
            s.is_served = true;
            content.serve(s)
        }
        None => Box::pin(std::future::ready(status::INTERNAL)),
    }
}

/// Logs a session. Returns the logs whose lines must be written before the connection is closed.
fn end(s: &mut StreamSession, status: u16) -> Vec<Rc<AccessLog>> {
    if s.served_by == ServedBy::Process {
        metering::leave(s);
        return Vec::new();
    }
    s.status = status;
    metering::end(s);
    if s.served_by == ServedBy::Engine {
        // The session was handed over: its new owner logs it.
        return Vec::new();
    }
    if let Some(client) = s.datagrams() {
        // The client may start another session while the line is written.
        client.close();
    }
    s.debug(format_args!("stream session ends with status {status}"));
    let server = s.server.clone();
    for handler in &server.pipeline.log {
        handler(s);
    }
    s.take_logs()
}

/// Waits until all pending lines of these logs are written.
async fn written(logs: Vec<Rc<AccessLog>>) {
    for log in logs {
        log.settled().await;
    }
}

/// Runs the phases before the content handler.
async fn begin(s: &mut StreamSession) -> Result<(), u16> {
    if s.logs(Level::Info) {
        let (peer, at) = (&s.peer, &s.listen.addr);
        let udp = if s.is_udp() { "udp " } else { "" };
        s.log_bare(Level::Info, format_args!("{udp}client {peer} connected to {at}"));
    }
    if !s.server.core.tcp_nodelay
        && let Some(sock) = s.sock()
        && !s.listen.addr.is_unix()
    {
        // TCP_NODELAY is set on the listening socket, from which connections inherit it.
        let _ = sock.set_nodelay(false);
    }
    if s.listen.proxy_protocol {
        proxy_header(s).await?;
    }
    phases::run(s, |p| &p.post_accept).await?;
    phases::run(s, |p| &p.preaccess).await?;
    if s.server.pipeline.first_access.is_empty()
        || boxed(|| phases::run_first(s, |p| &p.first_access)).await?
    {
        phases::run(s, |p| &p.access).await?;
    }
    if s.listen.ssl {
        let read = std::mem::take(&mut s.preread);
        if let Some(sock) = s.sock() {
            sock.prepend(read);
        }
        ssl::accept(s).await?;
    }
    phases::preread(s).await?;
    phases::run(s, |p| &p.set).await
}

async fn proxy_header(s: &mut StreamSession) -> Result<(), u16> {
    let read = std::mem::take(&mut s.preread);
    let Some(sock) = s.sock() else { return Ok(()) };
    let ms = s.server.core.proxy_protocol_timeout;
    match accepting::proxy_header(s, sock, read, &s.main.life.gate, ms).await {
        Ok(Headed { header, behind }) => {
            s.set_proxy_header(header);
            if !s.listen.ssl {
                s.received.set(behind.len() as u64);
            }
            s.preread = behind;
            Ok(())
        }
        Err(Unheaded::Refused) => Err(status::UNAVAILABLE),
        Err(Unheaded::NoHeader(NoHeader::Malformed(_) | NoHeader::Closed)) => {
            Err(status::BAD_REQUEST)
        }
        Err(Unheaded::NoHeader(NoHeader::Gone | NoHeader::Client(_))) => Err(status::OK),
    }
}
