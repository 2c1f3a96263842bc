//! Receiving through the ring: the recv that waits in the kernel, and the socket's inbox.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::squeue::Flags;
use io_uring::{opcode, types};
use mem::Page;
use rustix::io::Errno;

use super::ring::{self, Completion};
use super::socks::state;
use super::token::{self, Token};
use super::{Uring, buffers};
use crate::state::Core;
use crate::state::index::NONE;
use crate::state::socks::{SockEntry, SockKey, bits};

/// The maximum number of pages in a connection's inbox, at which its recv stops.
const INBOX_MAX: usize = 4;

/// The number of pages in all inboxes from which a recv brings a single one.
const INBOXES_MAX: usize = 256;

/// Interval between sweeps for recvs without bytes, in milliseconds.
const SWEEP_MS: u64 = 1000;

impl Uring {
    pub(super) fn arm_recv(&mut self, key: SockKey, fd: BorrowedFd<'_>) {
        let Some(own) = self.owns.get(key) else { return };
        let fresh = own.state & state::FRESH != 0;
        let once = fresh
            || self.in_inboxes > INBOXES_MAX
            || os::memory::is_scarce()
            || !self.recvs_go_on
            || !own.may_go_on(fd);
        own.state &= !(state::FRESH | state::AGED);
        own.state |= state::RECV;
        own.fd = fd.as_raw_fd();
        self.recvs += 1;
        let (fd, nowhere) = (types::Fd(own.fd), std::ptr::null_mut());
        let entry = match once {
            true => opcode::Recv::new(fd, nowhere, 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT),
            // Of bytes in bulk it takes dozens of buffers in a turn, which are memory until they
            // are used. Where that is scarce, or many connections have bytes that no task takes,
            // the single recv takes one, and the rest is read without the ring when it is needed;
            // it costs a tenth more.
            false => opcode::RecvMulti::new(fd, buffers::GROUP).build(),
        };
        // Many connections end with their first request, which often arrives before they are
        // accepted; a later wait has seen the socket empty.
        let entry = if fresh { entry } else { ring::poll_first(entry) };
        self.push(entry, token::of_sock(Token::Recv, key));
        if self.sweep_at_ms.is_none() {
            self.sweep_at_ms = Some(base::time::now_ms() + SWEEP_MS);
        }
    }

    pub(super) fn recv_done(&mut self, core: &mut Core, done: Completion) {
        self.recvs -= usize::from(!done.goes_on());
        let page = match (done.buffer(), &mut self.buffers) {
            // Taken in any case, or the kernel would have one buffer less.
            (Some(number), Some(buffers)) => {
                Some(buffers.take(number, usize::try_from(done.result).unwrap_or(0)))
            }
            _ => None,
        };
        if done.is(Errno::NOBUFS)
            && let Some(buffers) = &mut self.buffers
        {
            buffers.ran_out();
        }
        let Some((key, own)) = self.owns.of(done.token) else { return };
        let exchange = own.state & state::EXCHANGE != 0;
        own.state &= !(state::AGED | state::MORE);
        if !done.goes_on() {
            own.state &= !(state::RECV | state::EXCHANGE);
        }
        let ready = match (done.result, page) {
            (1.., Some(page)) => {
                own.inbox.push(page);
                self.in_inboxes += 1;
                if done.nonempty() {
                    own.state |= state::MORE;
                }
                if done.goes_on() && own.inbox.len() >= INBOX_MAX && !exchange {
                    own.state |= state::EXCHANGE;
                    self.push_cancel(done.token);
                }
                bits::READ
            }
            (0, _) => {
                own.state |= state::ENDED;
                bits::READ | bits::PEER_CLOSED
            }
            _ if done.is(Errno::CANCELED) => {
                let fd = own.fd;
                let waits = core.socks.get(key).is_some_and(|entry| entry.reader != NONE);
                if exchange && waits {
                    self.arm_poll(key, fd, state::POLL_READ);
                }
                return;
            }
            // Older than recvs that go on.
            _ if done.is(Errno::INVAL) && self.recvs_go_on => {
                self.recvs_go_on = false;
                bits::READ
            }
            // No buffer was left, or a signal came: the next read is made without the ring.
            _ if done.is(Errno::NOBUFS) || done.is(Errno::INTR) || done.is(Errno::AGAIN) => {
                bits::READ
            }
            _ => {
                own.error = -done.result;
                bits::READ | bits::WRITE | bits::PEER_CLOSED
            }
        };
        core.apply(key, ready);
    }

    /// Whether an operation in the kernel waits for bytes of the socket, or some are here.
    pub(crate) fn receives(&mut self, key: SockKey) -> bool {
        let pending = state::RECV | state::POLL_READ;
        self.owns.get(key).is_some_and(|own| own.state & pending != 0 || own.has_news())
    }

    /// Cancels the recv of a socket that no task waits for; see [`crate::Sock::withdraw`]. Returns
    /// whether none is left.
    ///
    /// # Errors
    /// The one that a recv has brought, which stays for the next operation.
    pub(crate) fn withdraw(&mut self, key: SockKey) -> io::Result<bool> {
        let Some(own) = self.owns.get(key) else { return Ok(true) };
        if own.error != 0 {
            return Err(io::Error::from_raw_os_error(own.error));
        }
        if own.state & state::RECV == 0 {
            return Ok(true);
        }
        // No poll follows, because there is no reader.
        if own.state & state::EXCHANGE == 0 {
            own.state |= state::EXCHANGE;
            self.push_cancel(token::of_sock(Token::Recv, key));
        }
        Ok(false)
    }

    /// Takes the next page of a socket's inbox.
    pub(crate) fn take_received(&mut self, key: SockKey) -> Option<Page> {
        let own = self.owns.get(key)?;
        let before = own.inbox.len();
        let mut page = Page::new();
        let taken = own.take(&mut page, 1);
        self.in_inboxes -= before - own.inbox.len();
        (taken > 0).then_some(page)
    }

    /// Exchanges recvs that have been pending for a while for polls.
    pub(super) fn sweep(&mut self) {
        let now_ms = base::time::now_ms();
        if self.sweep_at_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        let mut young = false;
        let mut old = Vec::new();
        for (key, own) in self.owns.all() {
            if own.state & state::RECV == 0 || own.state & state::EXCHANGE != 0 {
                continue;
            }
            if own.state & state::AGED == 0 {
                own.state |= state::AGED;
                young = true;
            } else {
                own.state |= state::EXCHANGE;
                old.push(key);
            }
        }
        for key in old {
            self.push_cancel(token::of_sock(Token::Recv, key));
        }
        self.sweep_at_ms = young.then_some(now_ms + SWEEP_MS);
    }

    /// Receives from the inbox, or from the socket.
    pub(crate) fn recv(
        &mut self,
        entry: &mut SockEntry,
        key: SockKey,
        page: &mut Page,
        min: usize,
    ) -> Option<io::Result<usize>> {
        let own = self.owns.get(key)?;
        let before = own.inbox.len();
        let taken = own.take(page, min);
        self.in_inboxes -= before - own.inbox.len();
        if taken > 0 {
            let more = own.state & (state::MORE | state::RECV) == state::MORE;
            if own.inbox.len() == 0 && !more && !own.has_news() {
                entry.bits &= !bits::READ;
            }
            return Some(Ok(taken));
        }
        if let Some(error) = own.take_error() {
            return Some(Err(error));
        }
        if own.state & state::ENDED != 0 {
            return Some(Ok(0));
        }
        own.state &= !state::FRESH;
        if own.state & state::RECV != 0 {
            // The recv in the kernel brings the next bytes.
            entry.bits &= !bits::READ;
            return Some(Err(io::ErrorKind::WouldBlock.into()));
        }
        None
    }
}
