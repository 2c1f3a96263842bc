//! One request and the head of its response over a connection.

use std::io;

use ::upstream::pool::UpConn;
use base::future::rarely;
use base::log::Level;
use event::{Deadline, Either, Side, race, race_if};
use mem::{Buf, Chain, Page};
use net::Transport;

use super::failure::{client_gone, log_io, no_answer, timed_out, too_big};
use super::{Exchange, Stop};
use crate::channel::{client_end, in_memory};
use crate::request::Request;
use crate::upstream::HeadStep;
use crate::upstream::conf::next;

/// The most bytes of interim responses before the final one.
const INTERIM_MAX: usize = 1 << 20;

/// The reason why a request is not sent.
enum Unsent {
    /// The connection failed.
    Broken(io::Error),
    /// The file of the request's body cannot be read, which was logged.
    Unreadable,
}

impl From<io::Error> for Unsent {
    fn from(error: io::Error) -> Unsent {
        Unsent::Broken(error)
    }
}

/// Sends what is taken. Of a transport that sends no files, a body's file goes through memory.
async fn send(r: &mut Request, sock: &Transport, out: &mut Chain) -> Result<usize, Unsent> {
    if sock.sends_files() || out.iter().all(|buf| !matches!(buf, Buf::File { .. })) {
        return Ok(sock.try_send(out, None)?);
    }
    rarely(send_read(r, sock, out)).await
}

async fn send_read(r: &mut Request, sock: &Transport, out: &mut Chain) -> Result<usize, Unsent> {
    sock.try_send(&mut Chain::new(), None)?;
    let mut sent = 0;
    while !out.is_empty() && !sock.has_unsent() {
        let mut piece = in_memory(r, out).await.map_err(|_| Unsent::Unreadable)?;
        sent += sock.try_send(&mut piece, None)?;
        piece.append(out);
        std::mem::swap(out, &mut piece);
    }
    Ok(sent)
}

impl Exchange {
    /// Sends the request and reads the response's head, both at once: a server may answer before it
    /// read all of a body. Gives the page, the head's length, and whether sending never failed.
    pub(super) async fn converse(
        &mut self,
        r: &mut Request,
        conn: &UpConn,
        out: &mut Chain,
    ) -> Result<(Page, usize, bool), Stop> {
        let sock = &conn.sock;
        let watch = self.client(r);
        let mut page = Page::new();
        let mut broken = None;
        loop {
            if !out.is_empty() || sock.has_unsent() {
                match send(r, sock, out).await {
                    Ok(n) => {
                        self.sent |= n > 0;
                        r.upstream_mut().now().sent += n as u64;
                    }
                    // The fault is here, and the same with every server.
                    Err(Unsent::Unreadable) => return Err(Stop::Status(500)),
                    // The server may have answered before it closed: RFC 9112 section 9.5.
                    Err(Unsent::Broken(e)) => {
                        out.clear();
                        self.body.give_up();
                        broken = Some(e);
                    }
                }
            }
            match sock.try_recv_into(&mut page) {
                Ok(None) if broken.is_none() => {}
                Ok(Some(n)) if n > 0 => {
                    r.upstream_mut().now().received += n as u64;
                    let head = self.parse_head(r, &mut page)?;
                    if std::mem::take(&mut self.hints) {
                        let sent = rarely(crate::channel::flush(r)).await;
                        sent.map_err(|_| Stop::ClientGone)?;
                    }
                    match head {
                        Some(len) => return Ok((page, len, broken.is_none())),
                        None => continue,
                    }
                }
                end => {
                    no_answer(r, broken, end.err());
                    return Err(Stop::Next(next::ERROR));
                }
            }
            self.wait(r, conn, out, watch.as_ref()).await?;
        }
    }

    /// Waits until something can be read, written, or the client is gone.
    async fn wait(
        &mut self,
        r: &mut Request,
        conn: &UpConn,
        out: &mut Chain,
        watch: Option<&crate::channel::ClientEnd>,
    ) -> Result<(), Stop> {
        let sock = &conn.sock;
        let sent = out.is_empty() && !sock.has_unsent();
        if sent && !self.body.is_sent() {
            return rarely(self.body.more(r, sock, self.protocol.as_mut(), out)).await;
        }
        let (done, doing) = if sent {
            let until = Deadline::in_ms(self.conf.read_timeout);
            let done = match watch {
                Some(client) if client.transport().is_none() => {
                    rarely(readable_unless_gone(sock, client, until)).await
                }
                _ => {
                    let client = watch.and_then(crate::channel::ClientEnd::transport);
                    sock.readable_while(client, until).await
                }
            };
            (done, "reading response header from upstream")
        } else {
            let until = Deadline::in_ms(self.conf.send_timeout);
            let done = rarely(readable_or_writable(sock, watch, until)).await;
            (done, "sending request to upstream")
        };
        match done {
            Ok(Side::This) => Ok(()),
            Ok(Side::Other) => Err(client_gone(r, doing)),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(timed_out(r, doing)),
            Err(e) => {
                log_io(r, "recv()", &e, "reading response header from upstream");
                Err(Stop::Next(next::ERROR))
            }
        }
    }

    /// Looks for a whole head at the start of the page.
    fn parse_head(&mut self, r: &mut Request, page: &mut Page) -> Result<Option<usize>, Stop> {
        loop {
            let u = r.upstream_mut();
            let step = self.protocol.head(page.filled(), &mut u.head);
            while let Some((level, m)) = self.protocol.complaint() {
                r.log(level, format_args!("{m} while reading response header from upstream"));
            }
            return match step {
                HeadStep::More if page.len() >= self.conf.buffer_size => Err(too_big(r)),
                HeadStep::More => Ok(None),
                HeadStep::Interim(len) => {
                    self.interim += len;
                    if self.interim > INTERIM_MAX {
                        return Err(too_big(r));
                    }
                    if r.upstream_mut().head.status == 103 {
                        self.pass_hints(r, page.filled());
                    }
                    page.consume(len);
                    r.upstream_mut().forget_response();
                    if page.is_empty() {
                        return Ok(None);
                    }
                    continue;
                }
                HeadStep::Done(len) if len > self.conf.buffer_size => Err(too_big(r)),
                HeadStep::Done(len) => {
                    let u = r.upstream_mut();
                    let status = u.head.status;
                    u.now().status = status;
                    Ok(Some(len))
                }
                HeadStep::NoHead(m) => {
                    let m = format_args!("{m} while reading response header from upstream");
                    r.log(Level::Error, m);
                    let u = r.upstream_mut();
                    u.head.clear();
                    u.head.status = 200;
                    u.now().status = 200;
                    // The answer has no head either.
                    r.head.version = proto::h1::Version::HTTP_09;
                    Ok(Some(0))
                }
                HeadStep::Bad(m) if m.is_empty() => Err(Stop::Next(next::INVALID_HEADER)),
                HeadStep::Bad(m) => {
                    let m = format_args!("{m} while reading response header from upstream");
                    r.log(Level::Error, m);
                    Err(Stop::Next(next::INVALID_HEADER))
                }
            };
        }
    }

    /// Writes early hints for the client, where it is to have them.
    #[cold]
    fn pass_hints(&mut self, r: &mut Request, text: &[u8]) {
        if self.interim > self.conf.buffer_size {
            r.log(Level::Info, format_args!("upstream sent too big early hints"));
            return;
        }
        if !crate::early_hints::wanted(r) {
            return;
        }
        let head = std::mem::take(&mut r.upstream_mut().head);
        let shown = head.fields.iter().filter(|f| !self.conf.hidden.has(f.id, f.name.of(text)));
        crate::channel::interim(r, 103, shown.map(|f| (f.name.of(text), f.value.of(text))));
        r.upstream_mut().head = head;
        self.hints = !r.channel.queued().is_empty();
    }
}

/// Waits until something can be read, or a client without a connection of its own is gone.
async fn readable_unless_gone(
    sock: &Transport,
    client: &crate::channel::ClientEnd,
    until: Deadline,
) -> io::Result<Side> {
    match event::race(sock.readable(until), client_end(client)).await {
        Either::First(ready) => ready.map(|()| Side::This),
        Either::Second(()) => Ok(Side::Other),
    }
}

/// Waits until the server takes or sends something, or until the client is gone.
async fn readable_or_writable(
    sock: &Transport,
    client: Option<&crate::channel::ClientEnd>,
    until: Deadline,
) -> io::Result<Side> {
    let readable = sock.readable(Deadline::NEVER);
    let ready = race(sock.writable(until), readable);
    match race_if(ready, client.map(client_end)).await {
        Either::First(Either::First(done) | Either::Second(done)) => done.map(|()| Side::This),
        Either::Second(_) => Ok(Side::Other),
    }
}
