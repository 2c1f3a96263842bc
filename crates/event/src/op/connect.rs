//! Connecting to a peer.

use std::future::Future;
use std::io;
use std::task::{Context, Poll};

use os::SockAddr;
use rustix::io::Errno;

use super::ready::Limits;
use super::wait::Wait;
use crate::deadline::Deadline;
use crate::driver::Driver;
use crate::runtime::inner::with;
use crate::sock::Sock;
use crate::state::socks::{Direction, bits};

impl Sock {
    /// Connects to `addr`. The error is the system's, or `TimedOut` at the deadline.
    pub fn connect<'a>(
        &'a self,
        addr: &'a SockAddr,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        let mut wait = Wait::new();
        let mut begun = false;
        std::future::poll_fn(move |cx| {
            if !begun {
                begun = true;
                match self.begin_connect(addr) {
                    // In progress: the wait below is for its end.
                    Err(error)
                        if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
                    done => return Poll::Ready(done),
                }
            }
            self.poll_connect(cx, &mut wait, deadline)
        })
    }

    fn begin_connect(&self, addr: &SockAddr) -> io::Result<()> {
        with(|inner| {
            let connected = match &mut inner.driver {
                Driver::Sim(sim) => sim.net.connect(self.0.key, addr),
                _ => os::socket::connect(self.fd(), addr),
            };
            if connected.is_err()
                && let Some(entry) = inner.core.socks.get(self.0.key)
            {
                // Nothing can be read or written before the connection stands.
                entry.bits &= !(bits::READ | bits::WRITE);
            }
            connected
        })
    }

    fn poll_connect(
        &self,
        cx: &mut Context<'_>,
        wait: &mut Wait,
        deadline: Deadline,
    ) -> Poll<io::Result<()>> {
        with(|inner| {
            let limits = Limits::plain(deadline);
            match wait.poll_ready(inner, cx, &self.0, Direction::Write, limits) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(_)) => (),
            }
            let is_broken = inner
                .core
                .socks
                .get(self.0.key)
                .is_none_or(|entry| entry.bits & bits::PEER_CLOSED != 0);
            Poll::Ready(match &mut inner.driver {
                Driver::Sim(sim) => sim.net.take_error(self.0.key),
                _ if is_broken => os::socket::take_error(self.fd()),
                // A connection that fails is reported as writable and as broken (tcp_poll).
                _ => Ok(()),
            })
        })
    }
}
