//! An accepted connection: its task, from the PROXY protocol header to its end.

use std::rc::Rc;

use base::future::rarely;
use common_modules::passing::{Passed, Receiver};
use event::Sock;
use mem::Page;
use os::SockAddr;

use crate::answer::Answerer;
use crate::channel::conn::Conn;
use crate::output::Tunnel;
use crate::request::Request;
use crate::server::HttpMain;
use crate::{h1, h2, proxy_header, ssl};
use engine::life::Active;
use engine::stats::Field;

/// Makes the connection and its task.
pub(crate) fn accept(main: &Rc<HttpMain>, listen: usize, sock: Sock, peer: SockAddr) {
    let c = Rc::new(Conn::new(main, listen, sock, peer));
    main.stats.add(Field::Accepted, 1);
    main.stats.add(Field::Handled, 1);
    event::spawn(task(c, main.clone(), Page::new()));
}

/// Connections that another engine accepted.
impl Receiver for HttpMain {
    fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    fn wants_tls(&self, listen: usize, local: &SockAddr) -> bool {
        self.listens[listen].address(|| Some(local.clone())).ssl
    }

    fn take(self: Rc<HttpMain>, listen: usize, mut passed: Passed) {
        // The worker stays until the task counts itself.
        let kept = (std::mem::take(&mut passed.kept), self.life.work());
        let read = std::mem::take(&mut passed.read);
        let c = Rc::new(Conn::passed(&self, listen, passed));
        event::spawn(async move {
            task(c, self, read).await;
            drop(kept);
        });
    }
}

/// Serves a connection, of which `first` was read already.
fn task(c: Rc<Conn>, main: Rc<HttpMain>, mut first: Page) -> impl Future<Output = ()> {
    let main = Active::new(&main);
    async move {
        main.trace.get().into_iter().for_each(|trace| trace.begun.set(true));
        if c.listen.proxy_protocol {
            let ms = c.head_timeout();
            let read = std::mem::take(&mut first);
            let header = rarely(proxy_header::read(&c, read, &main.life.gate, ms));
            match main.life.unless_given_up(header).await {
                Some(Ok(behind)) => first = behind,
                Some(Err(())) | None => return,
            }
        }
        if c.listen.ssl && main.trace.get().is_none() {
            c.sock().prepend(std::mem::take(&mut first));
            if rarely(ssl::accept(&c, &main)).await.is_err() {
                return;
            }
        }
        let ms = c.head_timeout();
        let first = match is_http2(&c) {
            true => Some(first),
            false => h1::run::<Answerer>(&c, &main, first, ms).await,
        };
        if let Some(first) = first {
            rarely(h2::run::<Answerer>(c.clone(), Rc::clone(&main), first)).await;
        }
        end(c);
    }
}

/// Serves a connection that another process has had so far: `first` has arrived, or the client has
/// `left_ms` milliseconds to send something.
pub(crate) fn resume_idle(
    main: Active<HttpMain>,
    c: Rc<Conn>,
    http2: Option<Box<h2::Resting>>,
    first: Page,
    left_ms: u64,
) {
    event::spawn(async move {
        if let Some(resting) = http2 {
            rarely(h2::resume::<Answerer>(*resting, Rc::clone(&main), first, left_ms)).await;
        } else if let Some(first) = h1::run::<Answerer>(&c, &main, first, left_ms).await {
            // The first bytes of a connection in plain text.
            rarely(h2::run::<Answerer>(c.clone(), Rc::clone(&main), first)).await;
        }
        end(c);
    });
}

/// The connection's last task is over.
fn end(c: Rc<Conn>) {
    if c.has_moved.get() {
        return;
    }
    if c.reset_at_end.get() {
        c.sock().reset_at_end();
        return;
    }
    if c.moved_in != 0 {
        // A detached subrequest in the process before may still have the descriptor: closing this
        // one alone would tell the client nothing.
        let _ = c.sock().shutdown_write();
    }
    let left = Rc::downgrade(&c);
    drop(c);
    if let Some(c) = left.upgrade() {
        // A detached subrequest is still running; the client need not wait for it.
        let _ = c.sock().shutdown_write();
    }
}

/// Serves a tunnel that another process has begun.
pub(crate) fn resume(
    main: Active<HttpMain>,
    c: Rc<Conn>,
    r: Box<Request>,
    tunnel: Box<dyn Tunnel>,
) {
    event::spawn(async move {
        h1::resume::<Answerer>(&c, &main, r, tunnel).await;
        end(c);
    });
}

/// Whether the handshake chose HTTP/2; never for TLS that another engine terminated.
fn is_http2(c: &Conn) -> bool {
    let tls = c.tls.get().filter(|_| c.listen.ssl);
    tls.is_some_and(|tls| tls.session.info().is_some_and(|i| i.alpn.as_deref() == Some(b"h2")))
}
