//! Sends a request over a connection and reads the response headers.

use std::io;
use std::pin::pin;
use std::rc::Rc;

use base::future::rarely;
use base::log::Level;
use bytes::Bytes;
use event::{Deadline, Either, Side, race, race_if};
use http::channel::{ClientEnd, in_memory};
use http::request::Request;
use http_wire::h1::{Field, ResponseHead};
use mem::{Buf, Chain, Page};
use net::Transport;
use upstream::failure::may_have_answered;
use upstream::h2::Stream;
use upstream::wire::Wire;

use super::{Answered, Exchange};
use crate::HeadStep;
use crate::conf::next;
use crate::failure::{Stop, client_gone, log_io, no_answer, stream_failed, timed_out, too_big};
use crate::headers::is_of_interim;

/// The maximum size of all interim (1xx) responses, in bytes.
const INTERIM_MAX: usize = 1 << 20;

/// Why sending the request failed.
enum Unsent {
    /// The connection failed.
    Broken(io::Error),
    /// The temporary file of the request body cannot be read; this was logged.
    Unreadable,
}

impl From<io::Error> for Unsent {
    fn from(error: io::Error) -> Unsent {
        Unsent::Broken(error)
    }
}

/// Sends as much as the socket accepts. `last`: nothing follows `out`. A body in a file is read
/// into memory if the connection cannot use sendfile (TLS).
async fn send(r: &mut Request, wire: &Wire, out: &mut Chain, last: bool) -> Result<usize, Unsent> {
    if wire.sends_files() || out.iter().all(|buf| !matches!(buf, Buf::File { .. })) {
        return Ok(wire.try_send(out, last)?);
    }
    rarely(send_read(r, wire, out, last)).await
}

async fn send_read(
    r: &mut Request,
    wire: &Wire,
    out: &mut Chain,
    last: bool,
) -> Result<usize, Unsent> {
    wire.try_send(&mut Chain::new(), false)?;
    let mut sent = 0;
    while !out.is_empty() && !wire.has_unsent(false) {
        let mut piece = in_memory(r, out).await.map_err(|_| Unsent::Unreadable)?;
        sent += wire.try_send(&mut piece, last && out.is_empty())?;
        let is_taken = piece.is_empty();
        piece.append(out);
        std::mem::swap(out, &mut piece);
        if !is_taken {
            break;
        }
    }
    Ok(sent)
}

impl Exchange {
    /// Sends the request and reads the response headers concurrently, because a server may respond
    /// before it has read the whole body. Returns the buffer, the length of the headers, and
    /// whether sending never failed.
    pub(super) async fn converse(
        &mut self,
        r: &mut Request,
        wire: &Wire,
        out: &mut Chain,
    ) -> Result<Answered, Stop> {
        let sock = wire.transport();
        let watch = self.client(r);
        event::task::gather().await;
        let mut page = Page::new();
        let mut broken = None;
        loop {
            if !out.is_empty() || sock.has_unsent() {
                match send(r, wire, out, false).await {
                    Ok(n) => {
                        self.sent |= n > 0;
                        r.upstream_mut().now().sent += n as u64;
                    }
                    // A local error, which another server would not solve.
                    Err(Unsent::Unreadable) => return Err(Stop::Status(500)),
                    // The server may have responded before it closed the connection (RFC 9112
                    // section 9.5).
                    Err(Unsent::Broken(e)) => {
                        out.clear();
                        self.body.give_up();
                        broken = Some(e);
                    }
                }
            }
            match sock.try_recv_into(&mut page) {
                // After a reset the kernel still delivers data that arrived earlier.
                Ok(None) if broken.as_ref().is_none_or(may_have_answered) => {}
                Ok(Some(n)) if n > 0 => {
                    r.upstream_mut().now().received += n as u64;
                    let head = self.parse_head(r, &mut page)?;
                    if std::mem::take(&mut self.hints) {
                        let sent = rarely(http::channel::flush(r)).await;
                        sent.map_err(|_| Stop::ClientGone)?;
                    }
                    match head {
                        Some(len) => {
                            let mut rest = page.freeze();
                            let head = rest.split_to(len);
                            let text = self.protocol.text().unwrap_or(head);
                            return Ok(Answered { text, rest, takes: broken.is_none() });
                        }
                        None => continue,
                    }
                }
                end => {
                    no_answer(r, broken, end.err());
                    return Err(Stop::Next(next::ERROR));
                }
            }
            let reading = |client, until| sock.readable_while(client, until);
            self.wait(r, wire, out, watch.as_ref(), reading).await?;
        }
    }

    /// Opens the stream of an exchange with the request's fields.
    pub(super) fn begin_stream(
        &mut self,
        r: &mut Request,
        stream: &Stream,
        list: &[u8],
        end: bool,
    ) -> Result<(), Stop> {
        match stream.begin(list, end, self.conf.buffer_size) {
            Ok(()) => {
                self.sent = true;
                r.upstream_mut().now().sent += list.len() as u64;
                Ok(())
            }
            Err(ended) => Err(stream_failed(r, &ended)),
        }
    }

    /// The same over an HTTP/2 stream; the first piece of `out` is the field list.
    pub(super) async fn converse_by_stream(
        &mut self,
        r: &mut Request,
        wire: &Wire,
        stream: &Stream,
        out: &mut Chain,
    ) -> Result<Answered, Stop> {
        stream.end_at(self.protocol.until());
        let list = out.pop_front();
        let list = list.as_ref().and_then(Buf::memory).unwrap_or_default();
        self.connects = false;
        match self.protocol.connect(list) {
            None => {
                let nothing = out.is_empty() && self.body.is_sent();
                // gRPC ends a stream without messages by an empty DATA frame.
                let end = nothing && !r.body_ended_behind_head();
                self.begin_stream(r, stream, list, end)?;
            }
            Some(connect) => rarely(self.begin_connect(r, stream, list, &connect)).await?,
        }
        let watch = self.client(r);
        let mut takes = true;
        loop {
            let last = self.has_ended();
            if !out.is_empty() || wire.has_unsent(last) {
                match send(r, wire, out, last).await {
                    Ok(n) => r.upstream_mut().now().sent += n as u64,
                    Err(Unsent::Unreadable) => return Err(Stop::Status(500)),
                    // The response may have arrived already.
                    Err(Unsent::Broken(_)) => {
                        out.clear();
                        self.body.give_up();
                        takes = false;
                    }
                }
            }
            let u = r.upstream_mut();
            match stream.take_head(Rc::make_mut(&mut u.head)) {
                Ok(None) => {}
                Ok(Some(text)) if u.head.status < 200 => {
                    self.interim_of_stream(r, &text).await?;
                    continue;
                }
                Ok(Some(text)) => {
                    let status = u.head.status;
                    let a = u.now();
                    a.status = status;
                    a.received += text.len() as u64;
                    let text = if self.connects { self.answered_connect(r, text) } else { text };
                    return Ok(Answered { text, rest: Bytes::new(), takes });
                }
                Err(end) => return Err(stream_failed(r, &end)),
            }
            let reading = |client, until| readable_while(stream, client, until);
            self.wait(r, wire, out, watch.as_ref(), reading).await?;
        }
    }

    #[cold]
    async fn interim_of_stream(&mut self, r: &mut Request, text: &Bytes) -> Result<(), Stop> {
        self.interim += text.len();
        if self.interim > INTERIM_MAX {
            return Err(too_big(r));
        }
        if r.upstream_mut().head.status == 103 {
            self.pass_hints(r, text);
        }
        r.upstream_mut().forget_response();
        if std::mem::take(&mut self.hints) {
            let sent = rarely(http::channel::flush(r)).await;
            sent.map_err(|_| Stop::ClientGone)?;
        }
        Ok(())
    }

    /// Whether the whole request was taken for sending.
    fn has_ended(&self) -> bool {
        self.body.is_sent() && !self.connects
    }

    /// Waits until the connection is readable or writable, or the client has disconnected.
    /// `reading` creates the future for the common case, waiting for the response or for the
    /// client's end; it is embedded in every exchange.
    async fn wait<'a, F: Future<Output = io::Result<Side>>>(
        &mut self,
        r: &mut Request,
        wire: &Wire,
        out: &mut Chain,
        watch: Option<&'a ClientEnd>,
        reading: impl FnOnce(Option<&'a Transport>, Deadline) -> F,
    ) -> Result<(), Stop> {
        let sent = out.is_empty() && !wire.has_unsent(self.has_ended());
        if sent && !self.body.is_sent() {
            return rarely(self.body.more(r, wire, self.protocol.as_mut(), out)).await;
        }
        let (done, doing) = if sent {
            let until = Deadline::in_ms(self.conf.read_timeout);
            let done = match watch {
                Some(client) if client.transport().is_none() => {
                    rarely(readable_unless_gone(wire, client, until)).await
                }
                _ => {
                    let client = watch.and_then(ClientEnd::transport);
                    reading(client, until).await
                }
            };
            (done, "reading response header from upstream")
        } else {
            let until = Deadline::in_ms(self.conf.send_timeout);
            let done = rarely(readable_or_writable(wire, watch, until)).await;
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

    /// Parses the headers at the start of the buffer; `None` if they are incomplete.
    fn parse_head(&mut self, r: &mut Request, page: &mut Page) -> Result<Option<usize>, Stop> {
        loop {
            let u = r.upstream_mut();
            let step = self.protocol.head(page.filled(), Rc::make_mut(&mut u.head));
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
                    u.head = Rc::new(ResponseHead { status: 200, ..ResponseHead::new() });
                    u.now().status = 200;
                    // The response to the client has no headers either (HTTP/0.9).
                    r.head.version = http_wire::h1::Version::HTTP_09;
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

    /// Forwards early hints (103) to the client, if configured.
    #[cold]
    fn pass_hints(&mut self, r: &mut Request, text: &[u8]) {
        if self.interim > self.conf.buffer_size {
            r.log(Level::Info, format_args!("upstream sent too big early hints"));
            return;
        }
        if !crate::early_hints::wanted(r) {
            return;
        }
        let head = r.upstream_mut().head.clone();
        let is_shown = |f: &&Field| {
            !self.conf.hidden.has(f.id, f.name.of(text)) && is_of_interim(&head, f, text)
        };
        let shown = head.fields.iter().filter(is_shown);
        http::channel::interim(r, 103, shown.map(|f| (f.name.of(text), f.value.of(text))));
        self.hints = r.has_output();
    }
}

/// Waits until a stream has data, or until the client is known to send no more.
async fn readable_while(
    stream: &Stream,
    client: Option<&Transport>,
    until: Deadline,
) -> io::Result<Side> {
    match client {
        None => stream.readable(until).await.map(|()| Side::This),
        Some(client) => stream.readable_while(client, until).await,
    }
}

/// Waits until the connection is readable, or a client that shares its connection has cancelled.
async fn readable_unless_gone(
    wire: &Wire,
    client: &ClientEnd,
    until: Deadline,
) -> io::Result<Side> {
    match event::race(pin!(wire.readable(until)), client.gone()).await {
        Either::First(ready) => ready.map(|()| Side::This),
        Either::Second(()) => Ok(Side::Other),
    }
}

/// Waits until the connection is readable or writable, or the client has disconnected.
async fn readable_or_writable(
    wire: &Wire,
    client: Option<&ClientEnd>,
    until: Deadline,
) -> io::Result<Side> {
    let readable = pin!(wire.readable(Deadline::NEVER));
    let writable = pin!(wire.writable(until));
    let ready = race(writable, readable);
    match race_if(ready, client.map(ClientEnd::gone)).await {
        Either::First(Either::First(done) | Either::Second(done)) => done.map(|()| Side::This),
        Either::Second(_) => Ok(Side::Other),
    }
}
