//! An accepted connection: its task, from the PROXY protocol header to the end.

use std::pin::pin;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use common_modules::passing::{Passed, Receiver};
use engine::beat::{self, Doing};
use engine::stats::Field;
use engine::{Client, Session, overload};
use event::Sock;
use net::{Transport, proxy_header};
use os::SockAddr;

use crate::dialogue::{self, LoggedIn, Over};
use crate::server::MailMain;
use crate::session::MailSession;
use crate::{realip, relay};

/// Makes the session of a connection, and its task.
pub(crate) fn accept(main: &Rc<MailMain>, listen: usize, sock: Sock, peer: SockAddr) {
    let mut local = None;
    let address = main.listens[listen].address(|| {
        local = os::socket::local_addr(sock.fd()).ok();
        local.clone()
    });
    let sock = if address.ssl { Transport::awaiting_tls(sock) } else { sock.into() };
    main.stats.add(Field::Accepted, 1);
    if !address.proxy_protocol && overload::is_surplus(peer.ip_addr(), |share| sock.standing(share))
    {
        overload::refused();
        return;
    }
    let s = MailSession::new(main, address, peer, local, sock);
    main.stats.add(Field::Handled, 1);
    event::spawn(task(s));
}

/// Connections that are passed on.
impl Receiver for MailMain {
    fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    fn wants_tls(&self, listen: usize, local: &SockAddr) -> bool {
        self.listens[listen].address(|| Some(local.clone())).ssl
    }

    fn take(self: Rc<MailMain>, listen: usize, passed: Passed) {
        event::spawn(task(MailSession::passed(&self, listen, passed)));
    }
}

/// The task of a session. While it is idle behind the login it keeps the session and the relay,
/// and nothing of what came before.
#[allow(clippy::manual_async_fn, reason = "an async fn has room for its argument twice")]
fn task(mut s: MailSession) -> impl Future<Output = ()> {
    async move {
        let main = s.main.clone();
        beat::serves(s.number, &s.peer, Doing::Mail);
        let ended = match main.life.unless_given_up(boxed(|| begin(&mut s))).await {
            Some(Ok(logged_in)) => {
                main.life.unless_given_up(pin!(relay::run(&mut s, logged_in))).await
            }
            Some(Err(Over)) => Some(()),
            None => None,
        };
        if ended.is_none() {
            s.log(Level::Info, format_args!("shutdown timeout"));
        }
    }
}

/// A session until its client is logged in.
async fn begin(s: &mut MailSession) -> Result<LoggedIn, Over> {
    let (peer, at) = (&s.peer, &s.listen.addr);
    s.log_bare(Level::Info, format_args!("client {peer} connected to {at}"));
    s.debug(format_args!("mail session of {}", s.server.dialogue.protocol.name()));
    if s.listen.proxy_protocol && !proxy_header(s).await {
        return Err(Over);
    }
    dialogue::run(s).await
}

/// Reads the PROXY protocol header; says whether the client may go on.
async fn proxy_header(s: &mut MailSession) -> bool {
    s.now("reading PROXY protocol");
    let Some(sock) = s.sock() else { return false };
    let (read, ms) = (mem::Page::new(), s.server.core.timeout);
    match proxy_header::read(sock, read, &s.main.life.gate, ms).await {
        Ok((behind, header)) => {
            sock.prepend(behind);
            let ip = header.as_ref().map_or(s.peer.ip_addr(), |header| header.source.ip);
            if overload::is_surplus(ip, |share| sock.standing(share)) {
                overload::refused();
                return false;
            }
            if let Some(header) = &header {
                realip::apply(s, header);
            }
            s.proxy = header;
            true
        }
        Err(none) => {
            if let Some((level, m)) = none.line() {
                s.log(level, format_args!("{m}"));
            }
            false
        }
    }
}
