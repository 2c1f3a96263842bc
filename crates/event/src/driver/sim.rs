//! The simulated driver: reports come from [`crate::sim::net`], and time from nowhere.
//!
//! Descriptors that are no sockets (an eventfd, say) are real here too, and so are wakes from other
//! threads: they go through an epoll of the simulation's own.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Epoll, Phase};
use crate::op::Direction;
use crate::remote::Mailbox;
use crate::sim::Plan;
use crate::sim::net::{Net, heard};
use crate::slot::NONE;
use crate::sock::{Kind, SockKey, bits};
use crate::turn::Core;

/// The first moment of every simulation: the loop's clock, and the world's (14 November 2023).
const START_MS: u64 = 1_000_000;
const START_UNIX_MS: u64 = 1_700_000_000_000;

/// How long a simulation in which nothing can happen waits, in real milliseconds, for a thread
/// that may still wake it.
const STUCK_MS: u64 = 2000;

pub(crate) struct Sim {
    pub(crate) net: Net,
    plan: Plan,
    real: Epoll,
    reports: Vec<(SockKey, u8)>,
}

impl Sim {
    pub(crate) fn new(plan: Plan, mailbox: Arc<Mailbox>) -> io::Result<Sim> {
        let real = Epoll::new(mailbox, 0)?;
        base::time::pin(START_MS, START_UNIX_MS);
        Ok(Sim { net: Net::new(plan, START_MS), plan, real, reports: Vec::new() })
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    pub(super) fn arm(
        &mut self,
        core: &mut Core,
        key: SockKey,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> io::Result<()> {
        let Some(entry) = core.socks.get(key) else { return Ok(()) };
        if entry.kind == Kind::Other {
            return self.real.arm(core, key, fd, direction);
        }
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

    pub(super) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        let now_ms = base::time::now_ms();
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
            let listener = entry.kind == Kind::Listener;
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
    }

    pub(super) fn leaving(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        self.real.leaving(core, key, fd);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        base::time::unpin();
    }
}
