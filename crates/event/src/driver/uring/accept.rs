//! Accepting through the ring: with a multishot accept where the kernel has it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use io_uring::{opcode, types};
use os::sockaddr::SockAddr;
use rustix::io::Errno;

use super::Uring;
use super::ring::Completion;
use super::socks::state;
use super::token::{self, Token};
use crate::state::socks::SockKey;

impl Uring {
    /// Begins or ends accepting. `one`: other workers accept from the same socket, and this one
    /// takes one connection at a time.
    pub(in crate::driver) fn listen(
        &mut self,
        key: SockKey,
        fd: BorrowedFd<'_>,
        on: bool,
        one: bool,
    ) {
        let Some(own) = self.owns.get(key) else { return };
        own.fd = fd.as_raw_fd();
        if on {
            own.state |= state::LISTENS;
            own.state &= !state::ONE;
            if one {
                own.state |= state::ONE;
            }
            self.listening.push(key);
        } else {
            own.state &= !state::LISTENS;
            if own.state & state::ACCEPT != 0 {
                self.push_cancel(token::of_sock(Token::Accept, key));
            }
        }
    }

    /// Only before a wait: a listener that was stopped until then has taken nothing.
    pub(super) fn arm_accept(&mut self, key: SockKey) {
        let Some(own) = self.owns.get(key) else { return };
        if own.state & (state::LISTENS | state::ACCEPT) != state::LISTENS {
            return;
        }
        let go_on = self.accepts_go_on && own.state & state::ONE == 0;
        own.state |= state::ACCEPT;
        let (fd, flags) = (types::Fd(own.fd), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let entry = match go_on {
            true => opcode::AcceptMulti::new(fd).flags(flags).build(),
            false => {
                let none = std::ptr::null_mut();
                opcode::Accept::new(fd, none, none.cast()).flags(flags).build()
            }
        };
        self.push(entry, token::of_sock(Token::Accept, key));
    }

    /// Whether connections of this listener wait here, where no other worker can take them.
    pub(crate) fn has_accepted(&self, key: SockKey) -> bool {
        self.accepted.iter().any(|(listener, _)| *listener == key)
    }

    /// Takes a connection that was accepted.
    pub(crate) fn accept(&mut self, key: SockKey) -> io::Result<(OwnedFd, SockAddr)> {
        while let Some(at) = self.accepted.iter().position(|(listener, _)| *listener == key) {
            let (_, fd) = self.accepted.remove(at);
            // Fails when the peer is gone already.
            if let Ok(addr) = os::socket::peer_addr(&fd) {
                return Ok((fd, addr));
            }
        }
        match self.owns.get(key).and_then(|own| own.take_error()) {
            Some(error) => Err(error),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Ends accepting and waits for the cancellation: afterwards, connections stay in the kernel's
    /// queue, and those that the ring has taken from it are left for [`Uring::accept`].
    pub(crate) fn stop_accepting(&mut self, key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.listen(key, fd, false, false);
        while self.owns.get(key).is_some_and(|own| own.state & state::ACCEPT != 0) {
            self.ring.enter(true, None)?;
            self.ring.collect(&mut self.done);
            let mut done = std::mem::take(&mut self.done);
            done.retain(|done| {
                let ours = token::kind(done.token) == Token::Accept;
                if ours {
                    self.accept_done(*done);
                }
                !ours
            });
            self.done = done;
        }
        Ok(())
    }

    /// Returns the listener, if it is still open and has news.
    pub(super) fn accept_done(&mut self, done: Completion) -> Option<SockKey> {
        let fd = done.outcome().map(|fd| {
            // SAFETY: the kernel has just opened it for this completion.
            unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
        });
        let (key, own) = self.owns.of(done.token)?;
        if !done.goes_on() {
            own.state &= !state::ACCEPT;
        }
        match fd {
            Ok(fd) => self.accepted.push((key, fd)),
            // Older than accepts that go on: from now on, one after the other.
            Err(_) if self.accepts_go_on && done.is(Errno::INVAL) => self.accepts_go_on = false,
            Err(_) if done.is(Errno::CANCELED) || done.is(Errno::AGAIN) => {}
            Err(_) => {
                own.error = -done.result;
                return Some(key);
            }
        }
        if !done.goes_on() {
            self.listening.push(key);
        }
        self.has_accepted(key).then_some(key)
    }
}
