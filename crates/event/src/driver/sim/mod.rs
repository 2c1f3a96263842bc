//! A simulated network and clock: the loop's real code, and everything built on it, runs on sockets
//! that exist in memory only, under faults chosen by a seed.
//!
//! Sockets are made as always. Under a simulated loop the descriptor serves for addresses and
//! options; connecting, sending and receiving happen in [`net`]. A listener is found under the
//! address that its descriptor is bound to. Time stands still while tasks run and jumps to the next
//! event when none can, so that a test of an hour's timeouts takes microseconds.
//!
//! The driver's reports come from [`net`]. Descriptors that are no sockets (an eventfd, say) are
//! real here too, and so are wakes from other threads: they go through an epoll of the simulation's
//! own.

pub(crate) mod net;
pub(crate) mod plan;
mod rng;
pub(crate) mod send;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::epoll::{EPOLL_EVENTS, Epoll};
use super::seam::{Arm, Phase};
use crate::runtime::remote::Mailbox;
use crate::state::Core;
use crate::state::flights::FlightOp;
use crate::state::index::NONE;
use crate::state::socks::{Direction, SockKey, SockKind, bits};
use net::{Net, heard};
use plan::Plan;
use send::simulate;

/// The first moment of every simulation: the loop's clock, and the world's (14 November 2023).
const START_MS: u64 = 1_000_000;
const START_UNIX_MS: u64 = 1_700_000_000_000;

/// Real milliseconds that a simulation without any event waits for a thread that may still wake it.
const STUCK_MS: u64 = 2000;

pub(crate) struct Sim {
    pub(crate) net: Net,
    plan: Plan,
    real: Epoll,
    reports: Vec<(SockKey, u8)>,
    flying: Vec<Flying>,
    /// An operation was started or cancelled: the next turn looks at once.
    eager: bool,
}

/// An operation that the driver has taken on.
struct Flying {
    slot: u32,
    /// Turns that a cancelled operation may still take to complete.
    left: Option<u64>,
}

impl Sim {
    pub(crate) fn new(plan: Plan, mailbox: Arc<Mailbox>) -> io::Result<Sim> {
        let real = Epoll::new(mailbox, 0, EPOLL_EVENTS)?;
        base::time::pin(START_MS, START_UNIX_MS);
        let net = Net::new(plan, START_MS);
        let (reports, flying) = (Vec::new(), Vec::new());
        Ok(Sim { net, plan, real, reports, flying, eager: false })
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    pub(super) fn arm(&mut self, core: &mut Core, wish: Arm<'_>) -> io::Result<()> {
        let Arm { key, kind, direction, .. } = wish;
        if matches!(kind, SockKind::Other | SockKind::Member) {
            return self.real.arm(core, wish);
        }
        let Some(entry) = core.socks.get(key) else { return Ok(()) };
        let wanted = match direction {
            Direction::Write => bits::ARMED_WRITE,
            Direction::Read | Direction::PeerClosed => bits::ARMED_READ,
        };
        if entry.bits & wanted == 0 {
            entry.bits |= wanted;
            self.net.armed(key, direction);
        }
        Ok(())
    }

    pub(super) fn disarm(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        self.real.disarm(core, key, fd);
    }

    pub(super) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        let now_ms = base::time::now_ms();
        let timeout_ms = if std::mem::take(&mut self.eager) { Some(0) } else { timeout_ms };
        let due = timeout_ms.map(|ms| now_ms.saturating_add(ms));
        let next = match (self.net.next_ms(), due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        match next {
            Some(next) => {
                self.real.wait(Some(0))?;
                let now = self.net.advance(next);
                base::time::pin(now, START_UNIX_MS + (now - START_MS));
            }
            None => {
                self.real.wait(Some(STUCK_MS))?;
                if self.real.is_quiet() {
                    return Err(io::Error::other("the simulation waits for what cannot come"));
                }
            }
        }
        self.net.collect(&mut self.reports);
        Ok(false)
    }

    pub(super) fn apply(&mut self, core: &mut Core, phase: Phase) {
        self.real.apply(core, phase);
        let mut reports = std::mem::take(&mut self.reports);
        reports.retain(|&(key, ready)| {
            let Some(entry) = core.socks.get(key) else { return false };
            let listener = entry.kind == SockKind::Listener;
            if phase == Phase::Listeners && !listener {
                return true;
            }
            let heard = heard(entry, ready);
            if heard != 0 {
                if listener && entry.reader == NONE {
                    core.idle_listener(key);
                }
                core.apply(key, heard);
            }
            false
        });
        self.reports = reports;
        if phase == Phase::Rest {
            self.fly(core);
        }
    }

    pub(super) fn start(&mut self, slot: u32) {
        self.flying.push(Flying { slot, left: None });
        self.eager = true;
    }

    pub(super) fn cancel(&mut self, slot: u32) {
        let left = self.net.chance(2);
        if let Some(flying) = self.flying.iter_mut().find(|flying| flying.slot == slot) {
            flying.left = Some(left);
            self.eager = true;
        }
    }

    /// Attempts the operations in flight; those that would wait stay.
    fn fly(&mut self, core: &mut Core) {
        let mut flying = std::mem::take(&mut self.flying);
        self.net.shuffle(&mut flying);
        flying.retain_mut(|operation| {
            let result = match operation.left {
                Some(0) => Err(Errno::CANCELED.into()),
                _ => self.attempt(core, operation.slot),
            };
            if let Err(error) = &result
                && error.kind() == io::ErrorKind::WouldBlock
            {
                if let Some(left) = &mut operation.left {
                    *left -= 1;
                    self.eager = true;
                }
                return true;
            }
            core.land(operation.slot, result);
            false
        });
        self.flying = flying;
    }

    fn attempt(&mut self, core: &mut Core, slot: u32) -> io::Result<usize> {
        let Some(flight) = core.flights.get(slot) else { return Err(Errno::CANCELED.into()) };
        let key = flight.sock;
        match &mut flight.op {
            FlightOp::Recv { page } => page.append_with(|vec| self.net.recv(key, vec)),
            FlightOp::Read(_) | FlightOp::Over => Err(Errno::CANCELED.into()),
            FlightOp::Send { chain, limit } => simulate(&mut self.net, key, chain, 0..*limit),
            FlightOp::Post { chain, sent, len, .. } => {
                simulate(&mut self.net, key, chain, *sent as usize..*len as usize)
            }
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        base::time::unpin();
    }
}
