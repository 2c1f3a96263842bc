//! A small HTTP/1.1 client for the server's own exchanges, such as health checks: one request, one
//! response held in memory, within limits of length and time. Requests that are proxied for clients
//! do not use it: they go piece by piece through `http-upstream`.
//!
//! ```text
//!  Request ─▶ Message ──────┐                     ┌─▶ Response: head, Body
//!                           ├─▶ Client::exchange ─┤
//!  Client::connect, Pool ───┘                     └─▶ the connection, if it can carry another one
//! ```
//!
//! The client repeats nothing. The server may have closed an idle connection in the meantime;
//! whether the request may be sent once more over a new one depends on the request, so its author
//! decides.

mod body;
mod message;

use std::fmt;
use std::io;

use base::time::now_ms;
use event::{Deadline, Sock};
use http_wire::h1::{ResponseHead, ResponseParser, ResponseStep};
use mem::{Buf, Chain};
use net::Transport;
use os::SockAddr;

pub use body::{Body, Missing};
pub use message::{Message, Request};

use crate::pool::UpConn;
use crate::ssl::{self, NoSession};
use body::{BodyReader, Progress};

/// Room for one receive, bytes.
const RECV_SIZE: usize = 4096;

/// The limit on the time of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// The whole exchange, from the first byte sent to the last one received, milliseconds.
    Exchange(u64),
    /// Each send and each receive, milliseconds.
    Operation(u64),
}

/// The settings of exchanges.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The limit on the time of connecting, milliseconds.
    pub connect_ms: u64,
    /// The limit on the time of an exchange over a connection.
    pub timeout: Timeout,
    /// The longest response head, bytes; interim responses count with it.
    pub head_max: usize,
    /// The longest body, bytes, without its framing. `None`: the exchange ends at the head, and the
    /// body is what arrived together with it.
    pub body_max: Option<usize>,
}

/// A response, its interim responses left out.
#[derive(Debug)]
pub struct Response {
    /// The parsed head; its positions are those of `text`.
    pub head: ResponseHead,
    /// The bytes of the head.
    pub text: Vec<u8>,
    /// The body without its framing.
    pub body: Body,
}

/// The failure of an exchange: there is no response.
#[derive(Debug)]
pub enum Error {
    /// No connection was made.
    Connect(io::Error),
    /// The connection has no TLS session: the reason, or none if the time was over.
    Handshake(Option<String>),
    /// The request was not sent, or not in time.
    Send(io::Error),
    /// The response did not arrive, or not in time.
    Recv(io::Error),
    /// The server closed the connection before the end of the response's head, or the connection
    /// was found closed or with unasked bytes on it before the request was sent.
    Closed,
    /// The head is refused; the parser's message.
    InvalidHead(String),
    /// The head is longer than `head_max`.
    HeadTooLong,
    /// A proxy opens no tunnel: its status.
    Tunnel(u16),
}

impl Error {
    /// Whether the time was over.
    pub fn is_timeout(&self) -> bool {
        match self {
            // A timeout of the kernel, as after many SYNs, has an error number; it is not ours.
            Error::Connect(e) | Error::Send(e) | Error::Recv(e) => {
                e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none()
            }
            Error::Handshake(why) => why.is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use base::log::os_error;
        match self {
            Error::Connect(e) => write!(f, "connect() failed {}", os_error(e)),
            Error::Handshake(Some(why)) => f.write_str(why),
            Error::Handshake(None) => f.write_str("the SSL handshake timed out"),
            Error::Send(e) => write!(f, "send() failed {}", os_error(e)),
            Error::Recv(e) => write!(f, "recv() failed {}", os_error(e)),
            Error::Closed => f.write_str("the connection was closed"),
            Error::InvalidHead(message) => f.write_str(message),
            Error::HeadTooLong => f.write_str("the head of the response is too long"),
            Error::Tunnel(status) => write!(f, "proxy CONNECT failed with status {status}"),
        }
    }
}

impl std::error::Error for Error {}

/// The deadlines of an exchange under way.
#[derive(Clone, Copy)]
struct Clock {
    deadline: Deadline,
    renews: bool,
}

impl Clock {
    fn start(timeout: Timeout) -> Clock {
        match timeout {
            Timeout::Exchange(ms) => Clock { deadline: Deadline::in_ms(ms), renews: false },
            Timeout::Operation(ms) => Clock { deadline: Deadline::in_ms(ms), renews: true },
        }
    }

    /// The deadline of the operation that begins now.
    fn next(&self) -> Deadline {
        if self.renews { self.deadline.renewed() } else { self.deadline }
    }
}

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn connect(&self, addr: &SockAddr) -> Result<UpConn, Error> {
        Ok(connection(self.connect_sock(addr).await?.into()))
    }

    /// Connects to a server under TLS; the handshake may take `connect_ms` once more.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Handshake`].
    pub async fn connect_tls(&self, addr: &SockAddr, tls: &ssl::Fixed) -> Result<UpConn, Error> {
        let sock = self.connect_sock(addr).await?;
        self.secure(sock, addr, tls).await
    }

    async fn secure(&self, sock: Sock, addr: &SockAddr, tls: &ssl::Fixed) -> Result<UpConn, Error> {
        let deadline = Deadline::in_ms(self.connect_ms);
        match tls.connect(sock, addr, deadline).await {
            Ok(transport) => Ok(connection(transport)),
            Err(NoSession::TimedOut) => Err(Error::Handshake(None)),
            Err(NoSession::Failed(_, m) | NoSession::NoCertificate(m)) => {
                Err(Error::Handshake(Some(m)))
            }
        }
    }

    /// Connects to a server under TLS through a proxy at `addr`, which `connect` asks for a tunnel.
    ///
    /// # Errors
    /// [`Error::Tunnel`], those of [`Client::connect_tls`], and those of an exchange with the
    /// proxy.
    pub async fn connect_through(
        &self,
        addr: &SockAddr,
        connect: &Message,
        tls: &ssl::Fixed,
    ) -> Result<UpConn, Error> {
        let proxy = connection(self.connect_sock(addr).await?.into());
        let clock = Clock::start(self.timeout);
        send(&proxy.sock, connect, clock).await.map_err(Error::Send)?;
        let (head, _, rest) = self.receive_head(&proxy.sock, clock).await?;
        // Bytes behind the head would be the server's, which speaks only when it is spoken to.
        if !(200..300).contains(&head.status) || !rest.is_empty() {
            return Err(Error::Tunnel(head.status));
        }
        let sock = Sock::from_fd(proxy.sock.into_fd().map_err(Error::Connect)?);
        self.secure(sock, addr, tls).await
    }

    async fn connect_sock(&self, addr: &SockAddr) -> Result<Sock, Error> {
        let fd = os::socket::socket(addr, os::socket::Kind::Stream).map_err(Error::Connect)?;
        let sock = Sock::from_fd(fd);
        sock.connect(addr, Deadline::in_ms(self.connect_ms)).await.map_err(Error::Connect)?;
        if !addr.is_unix() {
            // The end of a handshake and the request are two writes: the second one would wait for
            // the acknowledgement of the first, which servers delay by 40 ms.
            let _ = os::socket::set_nodelay(sock.fd(), true);
        }
        Ok(sock)
    }

    /// Sends a request and receives the response. Gives the connection back if it can carry another
    /// exchange, and closes it otherwise.
    ///
    /// # Errors
    /// There is no response. A body that is not whole is no error: see [`Body`].
    pub async fn exchange(
        &self,
        mut conn: UpConn,
        message: &Message,
    ) -> Result<(Response, Option<UpConn>), Error> {
        // An unasked response must not be taken for the one to this request.
        if conn.requests > 0 && !conn.sock.is_quiet() {
            return Err(Error::Closed);
        }
        conn.requests += 1;
        let clock = Clock::start(self.timeout);
        send(&conn.sock, message, clock).await.map_err(Error::Send)?;
        let (head, text, rest) = self.receive_head(&conn.sock, clock).await?;
        let mut body = BodyReader::new(&head, message.is_head, self.body_max);
        let mut progress = body.take(&rest);
        while self.body_max.is_some() && progress == Progress::More {
            let page = conn.sock.recv(RECV_SIZE, clock.next()).await.map_err(Error::Recv)?;
            progress = if page.is_empty() { body.closed() } else { body.take(page.filled()) };
        }
        let keeps = message.keeps_connection && head.keeps_connection();
        let reusable = keeps && progress == Progress::Whole { reusable: true };
        let response = Response { head, text, body: body.finish(progress) };
        Ok((response, reusable.then_some(conn)))
    }

    /// The head of the final response, its bytes, and what arrived behind it.
    async fn receive_head(
        &self,
        sock: &Transport,
        clock: Clock,
    ) -> Result<(ResponseHead, Vec<u8>, Vec<u8>), Error> {
        let (mut parser, mut head) = (ResponseParser::new(), ResponseHead::new());
        let mut text: Vec<u8> = Vec::new();
        let mut left = self.head_max;
        loop {
            match parser.parse(&text, &mut head) {
                ResponseStep::Done { len } if len > left => return Err(Error::HeadTooLong),
                ResponseStep::Done { len } if (100..200).contains(&head.status) => {
                    text.drain(..len);
                    left -= len;
                    continue;
                }
                ResponseStep::Done { len } => {
                    let rest = text.split_off(len);
                    return Ok((head, text, rest));
                }
                ResponseStep::Bad(e) => return Err(Error::InvalidHead(e.message(&text))),
                ResponseStep::More if text.len() >= left => return Err(Error::HeadTooLong),
                ResponseStep::More => {}
            }
            let page = sock.recv(RECV_SIZE, clock.next()).await.map_err(Error::Recv)?;
            if page.is_empty() {
                return Err(Error::Closed);
            }
            text.extend_from_slice(page.filled());
        }
    }
}

fn connection(sock: Transport) -> UpConn {
    UpConn { sock, requests: 0, start_ms: now_ms(), cached: false, moved_in: 0 }
}

/// Not [`Transport::send`]: that one begins the deadline's span again with each progress.
async fn send(sock: &Transport, message: &Message, clock: Clock) -> io::Result<()> {
    let mut out = Chain::new();
    out.push(Buf::Mem(message.text.clone()));
    while !out.is_empty() {
        sock.send_some(&mut out, None, clock.next()).await?;
    }
    sock.flush(clock.next()).await
}

#[cfg(test)]
mod tests;
