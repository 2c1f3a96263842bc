//! An accepted connection: its task, from the PROXY protocol header to the end.

use std::pin::pin;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use common_modules::accepting::{self, Headed, accepted};
use common_modules::passing::{Passed, Receiver};
use engine::beat::{self, Doing};
use engine::{Client, Session};
use event::Sock;
use os::SockAddr;

use crate::client::{LoggedIn, Over};
use crate::dialogue;
use crate::relay::Relayed;
use crate::server::MailMain;
use crate::session::MailSession;
use crate::{realip, relay};

/// Makes the session of a connection, and its task.
pub(crate) fn accept(main: &Rc<MailMain>, listen: usize, sock: Sock, peer: SockAddr) {
    let Some(new) = accepted(&main.listens[listen], &main.stats, sock, &peer) else { return };
    event::spawn(task(MailSession::new(main, new.address, peer, new.local, new.sock)));
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
                main.life.unless_given_up(pin!(relay::run(&mut s, logged_in.into()))).await
            }
            Some(Err(Over)) => Some(()),
            None => None,
        };
        if ended.is_none() {
            s.log(Level::Info, format_args!("shutdown timeout"));
        }
    }
}

/// Serves a session that another process has served so far.
pub(crate) fn resume(mut s: MailSession, relayed: Relayed) {
    event::spawn(async move {
        let main = s.main.clone();
        beat::serves(s.number, &s.peer, Doing::Mail);
        if main.life.unless_given_up(pin!(relay::run(&mut s, relayed))).await.is_none() {
            s.log(Level::Info, format_args!("shutdown timeout"));
        }
    });
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
    let Some(sock) = s.sock() else { return false };
    let (read, ms) = (mem::Page::new(), s.server.core.timeout);
    let read = accepting::proxy_header(s, sock, read, &s.main.life.gate, ms).await;
    let Ok(Headed { header, behind }) = read else { return false };
    sock.prepend(behind);
    if let Some(header) = &header {
        realip::apply(s, header);
    }
    s.proxy = header;
    true
}
