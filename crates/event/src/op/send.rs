//! Sending to a stream socket: memory with one gathering call, files with sendfile.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use mem::{Chain, FileHandle, IOV_MAX};

use super::ready::Limits;
use super::wait::Wait;
use crate::deadline::Deadline;
use crate::driver::Driver;
use crate::driver::sim::send::simulate;
use crate::runtime::inner::{Inner, with};
use crate::sock::{Registered, Sock};
use crate::state::flights::{FlightOp, TRUNCATED};
use crate::state::socks::{Direction, SockEntry, bits, out};

/// The limit of one sendfile(2), which cuts longer ranges to whole pages below 2 GiB.
const SENDFILE_MAX: u64 = 0x7fff_f000;

/// Bytes that a send writes before other tasks have their turn. A fast peer would otherwise keep
/// the loop for the length of a file.
const TURN_MAX: usize = 2 * 1024 * 1024;

/// The limit of a posted send: it fits the buffer of a socket whose peer reads.
const POST_MAX: usize = 16 * 1024;

/// The result of one call.
enum Sent {
    /// All bytes of the call were sent.
    All(usize),
    /// So many bytes, and the socket takes no more now.
    Short(usize),
}

/// The system calls, for the drivers that make them themselves.
pub(crate) struct Calls;

impl Calls {
    pub(crate) fn memory(
        fd: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> io::Result<usize> {
        loop {
            let sent = match slices {
                [one] => os::socket::send(fd, one, more),
                many => os::socket::send_vectored(fd, many, more),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                sent => return sent,
            }
        }
    }

    pub(crate) fn file(
        fd: BorrowedFd<'_>,
        file: &FileHandle,
        mut pos: u64,
        count: usize,
    ) -> io::Result<usize> {
        loop {
            match os::socket::sendfile(fd, file, &mut pos, count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                sent => return sent,
            }
        }
    }
}

/// Makes one call for the front of `chain`, `limit` bytes at most.
fn call(driver: &mut Driver, sock: &Registered, chain: &Chain, limit: usize) -> io::Result<Sent> {
    let ends = sock.ends.get();
    if let Some(all) = chain.single() {
        return pieces(driver, sock, &[IoSlice::new(&all[..all.len().min(limit)])], ends);
    }
    if let Some((file, pos, end)) = chain.front_file() {
        let count = (end - pos).min(limit as u64).min(SENDFILE_MAX) as usize;
        let sent = match driver {
            Driver::Sim(sim) => simulate(&mut sim.net, sock.key, chain, 0..limit)?,
            _ => Calls::file(sock.fd(), file, pos, count)?,
        };
        // A short count need not mean that the socket is full: the pipe between the two has its own
        // limits.
        return match sent {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, TRUNCATED)),
            sent => Ok(Sent::All(sent)),
        };
    }
    let (pieces, file_follows) = chain.leading_memory();
    let more = file_follows && sock.cork.get() || ends;
    if pieces <= 8 {
        memory::<8>(driver, sock, chain, limit, more)
    } else {
        memory::<IOV_MAX>(driver, sock, chain, limit, more || pieces > IOV_MAX)
    }
}

fn memory<const N: usize>(
    driver: &mut Driver,
    sock: &Registered,
    chain: &Chain,
    limit: usize,
    more: bool,
) -> io::Result<Sent> {
    let mut slices = [IoSlice::new(&[]); N];
    let (count, bytes) = chain.slices(&mut slices, limit);
    // The bytes behind leave with these in one packet, unless the limit holds them back.
    let follows = bytes < limit || sock.ends.get();
    pieces(driver, sock, &slices[..count], more && follows)
}

#[inline]
fn pieces(
    driver: &mut Driver,
    sock: &Registered,
    slices: &[IoSlice<'_>],
    more: bool,
) -> io::Result<Sent> {
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    let sent = match driver {
        Driver::Sim(sim) => sim.net.send(sock.key, slices)?,
        _ => Calls::memory(sock.fd(), slices, more)?,
    };
    Ok(if sent < bytes { Sent::Short(sent) } else { Sent::All(sent) })
}

/// Makes one call if the socket may have room; `WouldBlock` when it has none.
fn attempt(inner: &mut Inner, sock: &Registered, chain: &Chain, limit: usize) -> io::Result<usize> {
    let Some(entry) = inner.core.socks.get(sock.key) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    may_send(entry)?;
    let sent = call(&mut inner.driver, sock, chain, limit);
    taken(entry, sent)
}

/// `WouldBlock` while the socket is known to be full.
fn may_send(entry: &mut SockEntry) -> io::Result<()> {
    if entry.out & out::BROKEN != 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    if entry.out & out::POSTED != 0 {
        // Its landing is reported.
        entry.bits &= !bits::WRITE;
    }
    match entry.bits & bits::WRITE {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Notes what a call tells of the socket's room.
fn taken(entry: &mut SockEntry, sent: io::Result<Sent>) -> io::Result<usize> {
    match sent {
        Ok(Sent::All(sent)) => Ok(sent),
        Ok(Sent::Short(sent)) => {
            entry.bits &= !bits::WRITE;
            Ok(sent)
        }
        Err(error) => {
            match error.kind() {
                io::ErrorKind::WouldBlock => entry.bits &= !bits::WRITE,
                // The peer may have sent something before it closed, which the driver has not
                // reported yet: the next attempt to receive asks the kernel.
                _ => entry.bits |= bits::READ,
            }
            Err(error)
        }
    }
}

/// Sends from the front of `chain` until it is empty, `limit` bytes are sent, or the socket is
/// full. Returns the bytes; `WouldBlock` when there were none.
fn send(sock: &Registered, chain: &mut Chain, limit: usize) -> io::Result<usize> {
    let mut total = 0;
    while total < limit && !chain.is_empty() {
        match with(|inner| attempt(inner, sock, chain, limit - total)) {
            Ok(sent) => {
                // Outside: the owner of a piece may use the loop when the piece goes.
                chain.advance(sent as u64);
                total += sent;
            }
            // The bytes sent before are reported first; an error comes again with the next call.
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// The future of [`Sock::send_some`].
struct SendSome<'a> {
    sock: &'a Registered,
    chain: &'a mut Chain,
    limit: usize,
    wait: Wait,
    deadline: Deadline,
}

impl SendSome<'_> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // The chain of a flight is with the driver.
        let flies = match self.wait.is_idle() {
            true if !self.sock.driver_sends => false,
            true => with(|inner| {
                // The kernel does not wait for room once the peer sends no more.
                let waits =
                    |entry: &mut SockEntry| entry.out != 0 || entry.bits & bits::PEER_CLOSED != 0;
                inner.driver.completes_send(self.chain)
                    && !inner.core.socks.get(self.sock.key).is_some_and(waits)
            }),
            false => self.chain.is_empty(),
        };
        if flies {
            match self.poll_flight(cx) {
                // The same, where the peer's end came meanwhile.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => (),
                polled => return polled,
            }
        }
        loop {
            if self.wait.is_idle() {
                match send(self.sock, self.chain, self.limit) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                    sent => return Poll::Ready(sent),
                }
            }
            let (sock, limits) = (self.sock, Limits::plain(self.deadline));
            let polled =
                with(|inner| self.wait.poll_ready(inner, cx, sock, Direction::Write, limits));
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) => (),
            }
        }
    }

    fn poll_flight(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.wait.is_idle() && (self.chain.is_empty() || self.limit == 0) {
            return Poll::Ready(Ok(0));
        }
        let (chain, limit) = (&mut *self.chain, self.limit);
        let make = || FlightOp::Send { chain: chain.take(), limit };
        let polled = with(|inner| self.wait.poll_flight(inner, cx, self.sock, self.deadline, make));
        polled.map(|(op, sent)| {
            if let Some(FlightOp::Send { chain: mut back, .. }) = op {
                back.advance(*sent.as_ref().unwrap_or(&0) as u64);
                *chain = back;
            }
            sent
        })
    }
}

impl Future for SendSome<'_> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_send(cx)
    }
}

/// The future of [`Sock::send`] and [`Sock::send_last`].
struct SendAll<'a>(SendSome<'a>);

impl SendAll<'_> {
    /// All is sent. A waiting end of the connection goes with the last bytes.
    fn ended(&self) -> Poll<io::Result<()>> {
        let sock = self.0.sock;
        if sock.ends.get() {
            end_sending(sock);
        }
        Poll::Ready(Ok(()))
    }
}

/// Ends the sending direction behind its last bytes.
fn end_sending(sock: &Registered) {
    // The peer may have reset the connection meanwhile: the close that follows is the same.
    let _ = with(|inner| inner.driver.shutdown_write(sock.key, sock.fd()));
}

impl Future for SendAll<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.limit = TURN_MAX;
        loop {
            let polled = self.0.poll_send(cx);
            let some = &mut self.0;
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) if some.chain.is_empty() => return self.ended(),
                Poll::Ready(Ok(sent)) => {
                    some.deadline = some.deadline.renewed();
                    some.limit = some.limit.saturating_sub(sent);
                    if some.limit == 0 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Sock {
    /// Sends all of `chain` and leaves it empty. Each progress starts the deadline's span again;
    /// the error is `TimedOut` when there was none for that long. Sent bytes leave the chain in any
    /// case; a driver may hold the chain while it waits, and then dropping the future leaves an
    /// empty one.
    pub fn send<'a>(
        &'a self,
        chain: &'a mut Chain,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        self.send_all(chain, deadline)
    }

    fn send_all<'a>(&'a self, chain: &'a mut Chain, deadline: Deadline) -> SendAll<'a> {
        SendAll(SendSome { sock: &self.0, chain, limit: TURN_MAX, wait: Wait::new(), deadline })
    }

    /// [`Sock::send`] for the last bytes of the connection, which are in memory: ends the sending
    /// direction. The FIN travels in the packet of these bytes, which saves a packet and may save
    /// the peer a wake. A close behind them would do the same, but not where the peer sends
    /// something meanwhile: the reset that it gets would drop unsent bytes.
    pub fn send_last<'a>(
        &'a self,
        chain: &'a mut Chain,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        // A driver that sends by itself closes behind the bytes, too.
        self.0.ends.set(with(|inner| !inner.driver.completes_send(chain)));
        self.send_all(chain, deadline)
    }

    /// Sends from the front of `chain` as far as the socket has room, `limit` bytes at most, and
    /// waits only while it has none. Returns the number of bytes.
    pub fn send_some<'a>(
        &'a self,
        chain: &'a mut Chain,
        limit: Option<usize>,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<usize>> + use<'a> {
        let limit = limit.unwrap_or(TURN_MAX);
        SendSome { sock: &self.0, chain, limit, wait: Wait::new(), deadline }
    }

    /// Leaves the sending of `chain` to the driver, if it can send by itself and has no earlier
    /// post of this socket. Then the chain is empty, and no task waits; otherwise the chain is
    /// unchanged, and the result is `false`.
    ///
    /// Later sends, and the end of the connection, come after these bytes. If they are not sent by
    /// `deadline`, or cannot be, the connection is broken: it becomes readable, and receiving and
    /// sending fail.
    pub fn post(&self, chain: &mut Chain, deadline: Deadline) -> bool {
        if !self.0.driver_sends {
            return false;
        }
        with(|inner| {
            if !inner.driver.takes_posts(chain) {
                return false;
            }
            let len = chain.len();
            // Once the peer sends no more, the kernel waits for room with a thread, if at all.
            let free = inner
                .core
                .socks
                .get(self.0.key)
                .is_some_and(|entry| entry.out == 0 && entry.bits & bits::PEER_CLOSED == 0);
            let fits = 1..=POST_MAX as u64;
            let posts = free && fits.contains(&len) && !chain.leading_memory().1;
            if posts {
                inner.post(&self.0, chain.take(), len as u32, deadline);
            }
            posts
        })
    }

    /// Sends without waiting, `limit` bytes at most; 0 when the socket is full. Makes no system
    /// call when it is known to be full.
    pub fn try_send(&self, chain: &mut Chain, limit: Option<usize>) -> io::Result<usize> {
        match send(&self.0, chain, limit.unwrap_or(TURN_MAX)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }

    /// [`Sock::try_send`] for the last bytes of the connection, all of which `chain` has: ends the
    /// sending direction with them, as [`Sock::send_last`] does.
    pub fn try_send_last(&self, chain: &mut Chain) -> io::Result<usize> {
        self.0.ends.set(true);
        let sent = self.try_send(chain, None)?;
        if chain.is_empty() {
            end_sending(&self.0);
        }
        Ok(sent)
    }

    /// [`Sock::try_send`] for bytes that stay the caller's: the number of those that were taken.
    pub fn try_send_bytes(&self, bytes: &[u8]) -> io::Result<usize> {
        let sent = with(|inner| {
            let Some(entry) = inner.core.socks.get(self.0.key) else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            may_send(entry)?;
            let sent = pieces(&mut inner.driver, &self.0, &[IoSlice::new(bytes)], false);
            taken(entry, sent)
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        }
    }
}
