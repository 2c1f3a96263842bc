//! Receiving from a stream socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use mem::Page;
use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;

use super::ready::Limits;
use super::wait::Wait;
use crate::deadline::Deadline;
use crate::driver::Driver;
use crate::runtime::inner::{Inner, with};
use crate::sock::{Registered, Sock};
use crate::state::flights::FlightOp;
use crate::state::socks::{Direction, bits, out};

/// The system call, for drivers that make it themselves.
pub(crate) fn attempt(fd: BorrowedFd<'_>, vec: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match rustix::net::recv(fd, spare_capacity(vec), RecvFlags::empty()) {
            Ok((_, n)) => return Ok(n),
            Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives into the spare room of `page` if the socket may have something; `WouldBlock` when it
/// has nothing. Makes room for `min` bytes first. 0 is the end.
fn recv(inner: &mut Inner, sock: &Registered, page: &mut Page, min: usize) -> io::Result<usize> {
    let Some(entry) = inner.core.socks.get(sock.key) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    // A send that failed says nothing of what the peer sent before it closed: the kernel keeps it
    // behind a reset, and it is read before the error counts.
    let is_broken = entry.out & out::BROKEN != 0;
    if entry.bits & bits::READ == 0 && !is_broken {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    if let Driver::Uring(uring) = &mut inner.driver
        && let Some(received) = uring.recv(entry, sock.key, page, min)
    {
        return received.and_then(|n| if is_broken { unless_over(n) } else { Ok(n) });
    }
    page.try_reserve(min)?;
    let room = page.spare();
    let received = page.append_with(|vec| match &mut inner.driver {
        Driver::Sim(sim) => sim.net.recv(sock.key, vec),
        _ => attempt(sock.fd(), vec),
    });
    match &received {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_broken => {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            entry.bits &= !bits::READ;
            // A wait for the first byte holds no buffer; one of a special size is kept.
            if page.is_empty() && page.capacity() == mem::PAGE_SIZE {
                page.release();
            }
        }
        Ok(0) => {
            entry.bits |= bits::PEER_CLOSED;
            if is_broken {
                return unless_over(0);
            }
        }
        // Fewer bytes than there was room for: the socket is empty, and the next arrival is
        // reported. After the peer's end nothing is reported any more: then it must be read until
        // 0.
        Ok(n) if *n < room && entry.bits & bits::PEER_CLOSED == 0 => entry.bits &= !bits::READ,
        _ => (),
    }
    received
}

/// The bytes read of a broken connection; its error where there are no more.
fn unless_over(n: usize) -> io::Result<usize> {
    if n > 0 { Ok(n) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// The future of [`Sock::recv_into`].
struct RecvInto<'a> {
    sock: &'a Registered,
    page: &'a mut Page,
    wait: Wait,
    deadline: Deadline,
}

impl Future for RecvInto<'_> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        with(|inner| poll_recv(inner, cx, this.sock, (this.page, 1), &mut this.wait, this.deadline))
    }
}

/// The future of [`Sock::recv`]; has no page until there is something to put in.
struct Recv<'a> {
    sock: &'a Registered,
    min: usize,
    wait: Wait,
    deadline: Deadline,
}

impl Future for Recv<'_> {
    type Output = io::Result<Page>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Page>> {
        let this = &mut *self;
        let mut page = Page::new();
        with(|inner| {
            let into = (&mut page, this.min);
            poll_recv(inner, cx, this.sock, into, &mut this.wait, this.deadline)
        })
        .map_ok(|_| page)
    }
}

fn poll_recv(
    inner: &mut Inner,
    cx: &mut Context<'_>,
    sock: &Registered,
    (page, min): (&mut Page, usize),
    wait: &mut Wait,
    deadline: Deadline,
) -> Poll<io::Result<usize>> {
    let broken = inner.core.socks.get(sock.key).is_some_and(|entry| entry.out & out::BROKEN != 0);
    if inner.driver.completes_recv() && !(broken && wait.is_idle()) {
        if wait.is_idle() {
            page.try_reserve(min)?;
        }
        let make = || {
            page.reserve(min);
            FlightOp::Recv { page: std::mem::take(page) }
        };
        return wait.poll_flight(inner, cx, sock, deadline, make).map(|(op, received)| {
            if let Some(FlightOp::Recv { page: back }) = op {
                *page = back;
            }
            received
        });
    }
    loop {
        if wait.is_idle() {
            match recv(inner, sock, page, min) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                received => return Poll::Ready(received),
            }
        }
        match wait.poll_ready(inner, cx, sock, Direction::Read, Limits::plain(deadline)) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(_)) => (),
        }
    }
}

impl Sock {
    /// Receives the bytes that are there, or waits for some. The page comes from the driver, has
    /// room for at least `min_capacity` bytes, and is empty at the end of the stream. The error is
    /// `TimedOut` at the deadline.
    pub fn recv(
        &self,
        min_capacity: usize,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Page>> + use<'_> {
        Recv { sock: &self.0, min: min_capacity.max(1), wait: Wait::new(), deadline }
    }

    /// Receives the bytes that are there, or waits for some, and appends them to `page`, which gets
    /// room for at least one byte. Returns their number; 0 at the end of the stream. A driver may
    /// hold the page while it waits: dropping the future may leave an empty one.
    pub fn recv_into<'a>(
        &'a self,
        page: &'a mut Page,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<usize>> + use<'a> {
        RecvInto { sock: &self.0, page, wait: Wait::new(), deadline }
    }

    /// Receives without waiting: `None` when there is nothing, an empty page at the end of the
    /// stream. Makes no system call when the socket is known to be empty.
    pub fn try_recv(&self) -> io::Result<Option<Page>> {
        let mut page = Page::new();
        Ok(self.try_recv_into(&mut page)?.map(|_| page))
    }

    /// The same as [`Sock::try_recv`], appended to `page`; 0 at the end of the stream.
    pub fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        match with(|inner| recv(inner, &self.0, page, 1)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => received.map(Some),
        }
    }
}
