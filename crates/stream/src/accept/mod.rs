//! An accepted connection: its task, from the PROXY protocol header to the log.

pub(crate) mod metering;

use std::rc::Rc;

use base::future::{boxed, rarely};
use base::log::Level;
use common_modules::log::AccessLog;
use common_modules::passing::{Passed, Receiver};
use engine::beat::{self, Doing};
use engine::life::Work;
use engine::stats::Field;
use engine::{Client, Session, overload};
use event::Sock;
use net::Transport;
use net::proxy_header::{self, NoHeader};
use os::SockAddr;

use crate::module::Served;
use crate::phases::{self, status};
use crate::server::{Server, StreamMain};
use crate::session::StreamSession;
use crate::ssl;

/// Makes the session of a connection, and its task.
pub(crate) fn accept(main: &Rc<StreamMain>, listen: usize, sock: Sock, peer: SockAddr) {
    let mut local = None;
    let address = main.listens[listen].address(|| {
        local = os::socket::local_addr(sock.fd()).ok();
        local.clone()
    });
    let sock = match address.ssl {
        true => Transport::awaiting_tls(sock),
        false => sock.into(),
    };
    main.stats.add(Field::Accepted, 1);
    if overload::is_surplus() {
        overload::refused();
        return;
    }
    let s = StreamSession::new(main, address, peer, local, Some(sock));
    main.stats.add(Field::Handled, 1);
    spawn(s);
}

/// Connections that are passed on.
impl Receiver for StreamMain {
    fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    fn wants_tls(&self, listen: usize, local: &SockAddr) -> bool {
        self.listens[listen].address(|| Some(local.clone())).ssl
    }

    fn take(self: Rc<StreamMain>, listen: usize, mut passed: Passed) {
        // The worker stays until the task counts itself.
        let kept = (std::mem::take(&mut passed.kept), self.life.work());
        let serving = boxed(|| task(StreamSession::passed(&self, listen, passed)));
        event::spawn(async move {
            serving.await;
            drop(kept);
        });
    }
}

/// Makes the task of a session.
pub(crate) fn spawn(s: StreamSession) {
    event::spawn(task(s));
}

/// Counts a session as active while it lives, whatever way it ends.
pub(crate) struct Counted {
    main: Rc<StreamMain>,
    #[allow(dead_code, reason = "kept for its drop")]
    work: Work,
}

impl Counted {
    pub(crate) fn new(main: &Rc<StreamMain>) -> Counted {
        main.stats.add(Field::Active, 1);
        Counted { main: main.clone(), work: main.life.work() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.main.stats.sub(Field::Active, 1);
    }
}

/// The task of a session. It lasts as long, and the session is in it.
fn task(mut s: StreamSession) -> impl Future<Output = ()> {
    let counted = Counted::new(&s.main);
    async move {
        let life = &counted.main.life;
        beat::serves(s.number, &s.peer, Doing::Session);
        metering::begin(&mut s);
        let outcome = match life.unless_given_up(rarely(begin(&mut s))).await {
            Some(Ok(())) => {
                let server = s.server.clone();
                life.unless_given_up(serve(&server, &mut s)).await
            }
            ended => ended.and_then(Result::err),
        };
        let status = outcome.unwrap_or_else(|| {
            s.log(Level::Info, format_args!("shutdown timeout"));
            status::OK
        });
        let logs = end(&mut s, status);
        if !logs.is_empty() {
            rarely(written(logs)).await;
        }
    }
}

/// Serves a session that came through its phases; gives its status.
fn serve<'a>(server: &'a Server, s: &'a mut StreamSession) -> Served<'a> {
    match &server.pipeline.content {
        Some(content) => {
            s.is_served = true;
            content.serve(s)
        }
        None => Box::pin(std::future::ready(status::INTERNAL)),
    }
}

/// Logs a session that ended; gives the logs whose lines are waited for before it is closed.
fn end(s: &mut StreamSession, status: u16) -> Vec<Rc<AccessLog>> {
    s.status = status;
    metering::end(s);
    if s.is_passed {
        // Whoever serves it logs it.
        return Vec::new();
    }
    if let Some(held) = &s.datagrams {
        // While its line is written the client may begin another session.
        held.client().close();
    }
    s.debug(format_args!("stream session ends with status {status}"));
    let server = s.server.clone();
    for handler in &server.pipeline.log {
        handler(s);
    }
    s.take_logs()
}

/// Waits until all lines of these logs are written.
async fn written(logs: Vec<Rc<AccessLog>>) {
    for log in logs {
        log.settled().await;
    }
}

/// The phases before the session is served.
async fn begin(s: &mut StreamSession) -> Result<(), u16> {
    if s.logs(Level::Info) {
        let (peer, at) = (&s.peer, &s.listen.addr);
        let udp = if s.is_udp() { "udp " } else { "" };
        s.log_bare(Level::Info, format_args!("{udp}client {peer} connected to {at}"));
    }
    if !s.server.core.tcp_nodelay
        && let Some(sock) = &s.sock
        && !s.listen.addr.is_unix()
    {
        // It is on in the listening socket, from which connections inherit it.
        let _ = sock.set_nodelay(false);
    }
    if s.listen.proxy_protocol {
        proxy_header(s).await?;
    }
    phases::run(s, |p| &p.post_accept).await?;
    phases::run(s, |p| &p.preaccess).await?;
    phases::run(s, |p| &p.access).await?;
    if s.listen.ssl {
        if let Some(sock) = &s.sock {
            sock.prepend(std::mem::take(&mut s.preread));
        }
        ssl::accept(s).await?;
    }
    phases::preread(s).await?;
    phases::run(s, |p| &p.set).await
}

async fn proxy_header(s: &mut StreamSession) -> Result<(), u16> {
    let Some(sock) = &s.sock else { return Ok(()) };
    let ms = s.server.core.proxy_protocol_timeout;
    match proxy_header::read(sock, std::mem::take(&mut s.preread), &s.main.life.gate, ms).await {
        Ok((behind, header)) => {
            s.proxy = header;
            if !s.listen.ssl {
                s.received.set(behind.len() as u64);
            }
            s.preread = behind;
            Ok(())
        }
        Err(none) => {
            if let Some((level, m)) = none.line() {
                s.log(level, format_args!("{m} while reading PROXY protocol"));
            }
            Err(match none {
                NoHeader::Malformed(_) | NoHeader::Closed => status::BAD_REQUEST,
                NoHeader::Gone | NoHeader::Client(_) => status::OK,
            })
        }
    }
}
