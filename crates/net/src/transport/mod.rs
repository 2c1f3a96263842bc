//! A connection's byte stream, whatever carries it. The engines read and write through
//! [`Transport`] and never see a descriptor.
//!
//! A transport is a plain socket, or TLS over one. The methods have the names of [`Sock`]'s; where
//! the two differ, the contract says what each must answer:
//!
//! | question | plain socket | TLS |
//! | --- | --- | --- |
//! | `readable` ends | bytes, or the end | plaintext at hand, or bytes |
//! | `is_quiet` | nothing arrived | no plaintext; tickets do not count |
//! | `peer_closed` | FIN, or broken | `close_notify`, or FIN |
//! | `has_unsent` | never | sealed bytes are left |
//! | `sends_files` | yes | no |
//! | `can_be_passed` | yes | no: the keys stay here |

#[cfg(test)]
pub(crate) mod contract_tests;
mod moving;
mod shake;
#[cfg(test)]
mod shake_tests;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(test)]
mod tls_tests;
mod waits;

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use ::tls::{Info, Session};
use event::{Deadline, Gate, Pool, Side, Sock, Standing, Wake};
use mem::{Chain, Page};
use os::SockAddr;
use os::socket::{TcpInfo, TcpSent};
use proto::tls_hello::{ClientHello, Malformed};

pub use self::shake::Overdue;
use self::tls::TlsSock;
pub use self::tls::{First, SealedCopy};
use self::waits::{Carried, Unless, until};

/// A connected byte stream of this thread's loop. It closes when it is dropped; each direction has
/// one waiter at most.
#[derive(Debug)]
pub struct Transport(Carrier);

/// The carrier of the bytes.
#[derive(Debug)]
enum Carrier {
    Plain(Sock),
    Tls(Box<TlsSock>),
}

impl From<Sock> for Transport {
    /// Bytes go over the socket as they are.
    #[inline]
    fn from(sock: Sock) -> Transport {
        Transport(Carrier::Plain(sock))
    }
}

/// TLS.
impl Transport {
    /// A connection whose client is to begin with TLS: [`Transport::first`] comes next.
    pub fn awaiting_tls(sock: Sock) -> Transport {
        Transport(Carrier::Tls(Box::new(TlsSock::waiting(sock))))
    }

    /// The same, of a connection that another engine accepted. One that carries TLS already stays
    /// what it is.
    pub fn expect_tls(self) -> Transport {
        match self.0 {
            Carrier::Plain(sock) => Transport::awaiting_tls(sock),
            other => Transport(other),
        }
    }

    /// Puts a session over the socket of a plain connection: [`Transport::handshake`] comes next.
    /// Any other connection stays what it is.
    pub fn with_session(self, session: Session) -> Transport {
        match self.0 {
            Carrier::Plain(sock) => {
                Transport(Carrier::Tls(Box::new(TlsSock::with_session(sock, session))))
            }
            other => Transport(other),
        }
    }

    /// Whether it carries TLS, or is about to.
    #[inline]
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Carrier::Tls(_))
    }

    /// Puts bytes that were read from the socket before the first of TLS.
    pub fn prepend(&self, bytes: Page) {
        if let Carrier::Tls(tls) = &self.0 {
            tls.prepend(bytes);
        }
    }

    /// Waits for the first bytes of a client that is to speak TLS, a whole hello.
    ///
    /// # Errors
    /// The connection's; `UnexpectedEof` where it ends within the hello, `TimedOut`.
    pub async fn first(&self, deadline: Deadline) -> io::Result<First> {
        match &self.0 {
            Carrier::Plain(_) => Ok(First::Other),
            Carrier::Tls(tls) => tls.first(deadline).await,
        }
    }

    /// Lets `see` look at the client's hello, before the session begins; none where it is
    /// malformed.
    pub fn with_hello<R>(&self, see: impl FnOnce(Option<&ClientHello<'_>>) -> R) -> R {
        match &self.0 {
            Carrier::Plain(_) => see(None),
            Carrier::Tls(tls) => tls.with_hello(see),
        }
    }

    /// Why the client's hello is malformed.
    pub fn hello_fault(&self) -> Option<Malformed> {
        match &self.0 {
            Carrier::Plain(_) => None,
            Carrier::Tls(tls) => tls.hello_fault(),
        }
    }

    /// Goes on in plain text with a client that does not speak TLS.
    pub fn go_clear(&self) {
        if let Carrier::Tls(tls) = &self.0 {
            tls.go_clear();
        }
    }

    /// Answers the client's hello with a session.
    pub fn go_sealed(&self, session: Session) {
        if let Carrier::Tls(tls) = &self.0 {
            tls.go_sealed(session);
        }
    }

    /// Runs the handshake to its end. A server's answers to hellos, which it signs, are made in
    /// `pool`, if there is one.
    ///
    /// # Errors
    /// The connection's; `InvalidData` with the session's [`Error`](::tls::Error) inside,
    /// `TimedOut` with [`Overdue`] or another one with the pool's
    /// [`TaskError`](event::TaskError).
    pub async fn handshake(&self, deadline: Deadline, pool: Option<&Pool>) -> io::Result<()> {
        match &self.0 {
            Carrier::Plain(_) => Ok(()),
            Carrier::Tls(tls) => tls.handshake(deadline, pool).await,
        }
    }

    /// Takes the facts of an established session, once.
    pub fn take_session_info(&self) -> Option<Info> {
        match &self.0 {
            Carrier::Plain(_) => None,
            Carrier::Tls(tls) => tls.take_info(),
        }
    }

    /// Whether a receive would give something that was taken from the socket already.
    #[inline]
    fn is_at_hand(&self) -> bool {
        match &self.0 {
            Carrier::Plain(_) => false,
            Carrier::Tls(tls) => tls.is_at_hand(),
        }
    }
}

/// Receiving.
impl Transport {
    /// Receives what is there, or waits for it: see [`Sock::recv`].
    #[inline]
    pub fn recv(
        &self,
        min_capacity: usize,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Page>> + use<'_> {
        match &self.0 {
            Carrier::Plain(sock) => Carried::Plain(sock.recv(min_capacity, deadline)),
            Carrier::Tls(tls) => Carried::Tls(until(
                move || {
                    let mut page = Page::new();
                    Ok(tls.try_recv_into(&mut page)?.map(|_| page))
                },
                move || tls.sock.readable(deadline),
            )),
        }
    }

    /// Receives what is there, or waits for it, and appends it to `page`: see [`Sock::recv_into`].
    #[inline]
    pub fn recv_into<'a>(
        &'a self,
        page: &'a mut Page,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<usize>> + use<'a> {
        match &self.0 {
            Carrier::Plain(sock) => Carried::Plain(sock.recv_into(page, deadline)),
            Carrier::Tls(tls) => Carried::Tls(until(
                move || tls.try_recv_into(page),
                move || tls.sock.readable(deadline),
            )),
        }
    }

    /// Receives what is there without waiting: `None` when there is nothing, an empty page at the
    /// end of the stream.
    ///
    /// # Errors
    /// The connection is broken; for TLS also a record that is not the peer's.
    #[inline]
    pub fn try_recv(&self) -> io::Result<Option<Page>> {
        match &self.0 {
            Carrier::Plain(sock) => sock.try_recv(),
            Carrier::Tls(tls) => {
                let mut page = Page::new();
                Ok(tls.try_recv_into(&mut page)?.map(|_| page))
            }
        }
    }

    /// The same, appended to `page`: `None` when there is nothing, 0 at the end of the stream.
    /// Bytes that carry no payload (a part of a record, a session ticket) are nothing.
    ///
    /// # Errors
    /// As [`Transport::try_recv`].
    #[inline]
    pub fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        match &self.0 {
            Carrier::Plain(sock) => sock.try_recv_into(page),
            Carrier::Tls(tls) => tls.try_recv_into(page),
        }
    }
}

/// Waiting. A wait for reading ends at once while payload is at hand that the transport has taken
/// from its carrier already: the carrier may have nothing more to report, and would not wake
/// anyone.
impl Transport {
    /// Waits until there may be something to read, or the end of it. Owns no buffer meanwhile.
    #[inline]
    pub fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> + use<'_> {
        let at_hand = self.is_at_hand().then_some(());
        Unless { at_hand, wait: self.carrier().readable(deadline) }
    }

    /// Parks an idle connection: waits until there may be something to read, the gate is closed, or
    /// the loop is short of connections and asks this one to close.
    #[inline]
    pub fn readable_or(
        &self,
        gate: &Gate,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + use<'_> {
        let at_hand = self.is_at_hand().then_some(Wake::Ready);
        Unless { at_hand, wait: self.carrier().readable_or(gate, deadline) }
    }

    /// The same for a connection whose peer owes its first request, or the rest of one.
    #[inline]
    pub fn owed_or(
        &self,
        gate: &Gate,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + use<'_> {
        let at_hand = self.is_at_hand().then_some(Wake::Ready);
        Unless { at_hand, wait: self.carrier().owed_or(gate, deadline) }
    }

    /// Receives what the peer owes: the bytes that are there, or that come while the connection is
    /// parked. Returns their number; 0 at the end of the stream.
    ///
    /// # Errors
    /// `TimedOut`; `ConnectionAborted` where the worker wants the connection back; the system's.
    pub async fn recv_owed(&self, page: &mut Page, deadline: Deadline) -> io::Result<usize> {
        loop {
            page.try_reserve(1)?;
            if let Some(n) = self.try_recv_into(page)? {
                return Ok(n);
            }
            if page.is_empty() {
                page.release();
            }
            self.carrier().owed(deadline).await?;
        }
    }

    /// Waits until there may be something to read, or until the peer of `other` is known to send no
    /// more: see [`Sock::readable_while`].
    #[inline]
    pub fn readable_while<'a>(
        &'a self,
        other: Option<&'a Transport>,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Side>> + use<'a> {
        let at_hand = self.is_at_hand().then_some(Side::This);
        let wait = self.carrier().readable_while(other.map(Transport::carrier), deadline);
        Unless { at_hand, wait }
    }

    /// Waits until there may be something to read from this connection or from `other`: see
    /// [`Sock::either_readable`].
    #[inline]
    pub fn either_readable<'a>(
        &'a self,
        other: &'a Transport,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Side>> + use<'a> {
        let at_hand = match (self.is_at_hand(), other.is_at_hand()) {
            (true, _) => Some(Side::This),
            (false, true) => Some(Side::Other),
            (false, false) => None,
        };
        Unless { at_hand, wait: self.carrier().either_readable(other.carrier(), deadline) }
    }

    /// Waits until something may be sent.
    #[inline]
    pub fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> + use<'_> {
        self.carrier().writable(deadline)
    }

    /// Waits until the peer is known to send no more. Takes the reader's place; data that arrives
    /// meanwhile stays for the next receive.
    #[inline]
    pub fn closed_by_peer(&self) -> impl Future<Output = io::Result<()>> + use<'_> {
        self.carrier().closed_by_peer()
    }

    /// The same until a deadline, at which the error is `TimedOut`.
    #[inline]
    pub fn closed_by_peer_before(
        &self,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + Unpin + use<'_> {
        self.carrier().closed_by_peer_before(deadline)
    }

    /// Whether the peer is known to send no more. Known only once the transport has waited for
    /// something; data may still be there to be read.
    #[inline]
    pub fn peer_closed(&self) -> bool {
        match &self.0 {
            Carrier::Plain(sock) => sock.peer_closed(),
            Carrier::Tls(tls) => tls.is_ended() || tls.sock.peer_closed(),
        }
    }

    /// Whether an idle connection can carry another exchange: it stands, nothing is unsent, and its
    /// peer sent nothing unasked. What arrived is dropped, so a connection that is not quiet is of
    /// no more use. Makes no system call where the driver keeps watch and reported nothing.
    pub fn is_quiet(&self) -> bool {
        match &self.0 {
            Carrier::Plain(sock) => is_quiet(sock),
            Carrier::Tls(tls) => tls.is_quiet() && !hides_something(&tls.sock),
        }
    }

    #[inline]
    fn carrier(&self) -> &Sock {
        match &self.0 {
            Carrier::Plain(sock) => sock,
            Carrier::Tls(tls) => &tls.sock,
        }
    }
}

fn is_quiet(sock: &Sock) -> bool {
    // One look at the loop settles nearly all: a kept connection is asked twice for each request.
    sock.is_watched_and_silent() || is_quiet_by_kernel(sock)
}

fn is_quiet_by_kernel(sock: &Sock) -> bool {
    (sock.is_silent() || !sock.peer_closed() && matches!(sock.try_recv(), Ok(None)))
        && !hides_something(sock)
}

/// The kernel is asked where the driver does not watch the socket.
fn hides_something(sock: &Sock) -> bool {
    !sock.is_watched() && {
        let nothing = |e: &io::Error| e.kind() == io::ErrorKind::WouldBlock;
        !os::socket::peek(sock.fd(), &mut [0]).is_err_and(|e| nothing(&e))
    }
}

/// Sending. An empty chain says that the transport has taken all of it, not that all of it is on
/// its way: [`Transport::has_unsent`] tells, and [`Transport::flush`] waits. The sends that wait
/// for the whole chain ([`Transport::send`], [`Transport::send_last`]) and [`Transport::post`]
/// include that.
impl Transport {
    /// Sends all of `chain` and leaves it empty: see [`Sock::send`].
    #[inline]
    pub fn send<'a>(
        &'a self,
        chain: &'a mut Chain,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        match &self.0 {
            Carrier::Plain(sock) => Carried::Plain(sock.send(chain, deadline)),
            Carrier::Tls(tls) => Carried::Tls(tls.send(chain, deadline, false)),
        }
    }

    /// The same for the last bytes of the connection, which are memory alone; says that no more
    /// follows: see [`Sock::send_last`].
    #[inline]
    pub fn send_last<'a>(
        &'a self,
        chain: &'a mut Chain,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        match &self.0 {
            Carrier::Plain(sock) => Carried::Plain(sock.send_last(chain, deadline)),
            Carrier::Tls(tls) => Carried::Tls(tls.send(chain, deadline, true)),
        }
    }

    /// Sends from the front of `chain` what is taken, `limit` bytes at most, and waits only while
    /// nothing is: see [`Sock::send_some`].
    #[inline]
    pub fn send_some<'a>(
        &'a self,
        chain: &'a mut Chain,
        limit: Option<usize>,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<usize>> + use<'a> {
        match &self.0 {
            Carrier::Plain(sock) => Carried::Plain(sock.send_some(chain, limit, deadline)),
            Carrier::Tls(tls) => Carried::Tls(until(
                move || {
                    let sent = tls.try_send(chain, limit, false)?;
                    Ok((sent > 0 || chain.is_empty()).then_some(sent))
                },
                move || tls.sock.writable(deadline),
            )),
        }
    }

    /// Leaves the sending of `chain` to the driver where that can send by itself; `false` leaves
    /// the chain as it was: see [`Sock::post`].
    #[inline]
    pub fn post(&self, chain: &mut Chain, deadline: Deadline) -> bool {
        match &self.0 {
            Carrier::Plain(sock) => sock.post(chain, deadline),
            Carrier::Tls(_) => false,
        }
    }

    /// Sends what is taken without waiting, `limit` bytes at most; 0 when nothing is. What is held
    /// back goes first; with an empty chain, alone.
    ///
    /// # Errors
    /// The connection is broken.
    #[inline]
    pub fn try_send(&self, chain: &mut Chain, limit: Option<usize>) -> io::Result<usize> {
        match &self.0 {
            Carrier::Plain(sock) => sock.try_send(chain, limit),
            Carrier::Tls(tls) => tls.try_send(chain, limit, false),
        }
    }

    /// [`Transport::try_send`] for the last bytes, all of which `chain` has: where the connection
    /// can, it ends its sending direction with them. The caller ends it in any case.
    pub fn try_send_last(&self, chain: &mut Chain) -> io::Result<usize> {
        match &self.0 {
            Carrier::Plain(sock) => sock.try_send_last(chain),
            Carrier::Tls(tls) => tls.try_send(chain, None, false),
        }
    }

    /// Whether bytes that left a chain are held back here still.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        match &self.0 {
            Carrier::Plain(_) => false,
            Carrier::Tls(tls) => tls.has_unsent(),
        }
    }

    /// Waits until nothing is held back any more. The deadline's span counts again after each
    /// progress.
    #[inline]
    pub fn flush(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> + use<'_> {
        match &self.0 {
            Carrier::Plain(_) => Carried::Plain(std::future::ready(Ok(()))),
            Carrier::Tls(tls) => Carried::Tls(tls.flush(deadline)),
        }
    }

    /// Whether parts of files in a chain may be sent; else they are read into memory first.
    #[inline]
    pub fn sends_files(&self) -> bool {
        match &self.0 {
            Carrier::Plain(_) => true,
            Carrier::Tls(_) => false,
        }
    }

    /// Whether memory waits for the file that follows it: see [`Sock::set_cork`].
    #[inline]
    pub fn set_cork(&self, on: bool) {
        match &self.0 {
            Carrier::Plain(sock) => sock.set_cork(on),
            // Records are gathered before they are sent.
            Carrier::Tls(_) => {}
        }
    }
}

/// The end.
impl Transport {
    /// Says that no more will be sent, once what was taken is sent. TLS says so by `close_notify`
    /// first.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match &self.0 {
            Carrier::Plain(sock) => sock.shutdown_write(),
            Carrier::Tls(tls) => tls.shutdown_write(),
        }
    }

    /// The peer will see a reset when the connection is closed. Nothing more is sent.
    pub fn reset_at_end(&self) {
        match &self.0 {
            Carrier::Plain(sock) => sock.reset_at_end(),
            Carrier::Tls(tls) => tls.reset_at_end(),
        }
    }

    /// Whether an idle connection can be handed to another process by [`Transport::into_fd`]: the
    /// descriptor is all there is of it.
    #[inline]
    pub fn can_be_passed(&self) -> bool {
        match &self.0 {
            Carrier::Plain(_) => true,
            Carrier::Tls(_) => false,
        }
    }

    /// Takes the connection out of the loop: its descriptor, for another process. Nothing may be
    /// under way on it.
    ///
    /// # Errors
    /// The system's: no more descriptors; `Unsupported` where it cannot be passed. The connection
    /// is closed then.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        match self.0 {
            Carrier::Plain(sock) => sock.into_fd(),
            Carrier::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// The socket beneath. A stream answers for the connection that carries it.
impl Transport {
    /// Our own end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SockAddr> {
        os::socket::local_addr(self.carrier().fd())
    }

    /// The kernel's view of the TCP connection.
    ///
    /// # Errors
    /// The system's; a socket that is not TCP's has none.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        os::socket::tcp_info(self.carrier().fd())
    }

    /// How far the bytes of the TCP connection have come.
    ///
    /// # Errors
    /// The system's; a socket that is not TCP's, or an old kernel, does not tell.
    pub fn tcp_sent(&self) -> io::Result<TcpSent> {
        os::socket::tcp_sent(self.carrier().fd())
    }

    /// TCP_NOTSENT_LOWAT.
    ///
    /// # Errors
    /// The system's; a socket that is not TCP's has none.
    pub fn set_notsent_lowat(&self, bytes: i32) -> io::Result<()> {
        os::socket::set_notsent_lowat(self.carrier().fd(), bytes)
    }

    /// TCP_NODELAY.
    ///
    /// # Errors
    /// The system's; a socket that is not TCP's has none.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        os::socket::set_nodelay(self.carrier().fd(), on)
    }

    /// The place of its client among all of them: see [`Sock::standing`].
    pub fn standing(&self, share: usize) -> Standing {
        self.carrier().standing(share)
    }

    /// Whether it was told to close for others: see [`Sock::is_displaced`].
    #[cold]
    pub fn is_displaced(&self) -> bool {
        self.carrier().is_displaced()
    }

    /// Names the client whose connection this is: see [`Sock::set_client`].
    pub fn set_client(&self, ip: IpAddr) {
        self.carrier().set_client(ip);
    }
}
