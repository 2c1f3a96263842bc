//! The common part of poll and select: a table of descriptors with the directions that are watched
//! on each.
//!
//! Both report a state, not a change, for as long as it lasts. So a direction is removed when it
//! was reported, and an operation that finds nothing adds it again. Only listeners, and the loop's
//! own descriptors, stay.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::event::Timespec;

use super::kind::DriverKind;
use super::seam::{Arm, Phase};
use super::select::SELECT_MAX;
use super::ticker::{Ticker, limit};
use super::{poll, select};
use crate::runtime::remote::Mailbox;
use crate::state::Core;
use crate::state::index::NONE;
use crate::state::socks::{Direction, SockKey, SockKind, bits};

/// The owner of a watched descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Sock(SockKey),
    Mailbox,
    Ticker,
}

/// A watched descriptor. It is open: [`Level::closing`] comes before it is closed, and the mailbox
/// and the ticker live as long as the driver.
pub(super) struct Watch {
    pub(super) fd: RawFd,
    pub(super) owner: Owner,
    /// [`bits::READ`], [`bits::WRITE`] and [`bits::PEER_CLOSED`], as they are wished for.
    pub(super) wants: u8,
    /// Reports do not end the wish.
    lasting: bool,
}

impl Watch {
    /// The descriptor, for one system call.
    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: descriptors in the table are open, as said above: `Registered` calls `closing`
        // before it closes one.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

/// Descriptors by their numbers.
#[derive(Default)]
pub(super) struct Watches {
    pub(super) list: Vec<Watch>,
    /// The index in the list of each descriptor, by the descriptor's number.
    places: Vec<u32>,
}

impl Watches {
    pub(super) fn find(&self, fd: RawFd) -> Option<&Watch> {
        let place = *self.places.get(fd as usize)?;
        self.list.get(place as usize)
    }

    fn find_mut(&mut self, fd: RawFd) -> Option<&mut Watch> {
        let place = *self.places.get(fd as usize)?;
        self.list.get_mut(place as usize)
    }

    fn add(&mut self, fd: RawFd, owner: Owner, wants: u8, lasting: bool) {
        if let Some(watch) = self.find_mut(fd) {
            watch.wants |= wants;
            return;
        }
        let number = fd as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, NONE);
        }
        self.places[number] = self.list.len() as u32;
        self.list.push(Watch { fd, owner, wants, lasting });
    }

    fn remove(&mut self, fd: RawFd) {
        let Some(place) = self.places.get_mut(fd as usize) else { return };
        let place = std::mem::replace(place, NONE);
        if place == NONE {
            return;
        }
        self.list.swap_remove(place as usize);
        if let Some(moved) = self.list.get(place as usize) {
            self.places[moved.fd as usize] = place;
        }
    }

    /// Ends the wishes that were reported.
    fn told(&mut self, fd: RawFd, ready: u8) {
        let Some(watch) = self.find_mut(fd) else { return };
        if !watch.lasting {
            watch.wants &= !ready;
            if watch.wants == 0 {
                self.remove(fd);
            }
        }
    }
}

/// One event of a wait.
pub(super) struct Report {
    pub(super) fd: RawFd,
    pub(super) owner: Owner,
    pub(super) ready: u8,
}

pub(crate) struct Level {
    kind: DriverKind,
    watches: Watches,
    reports: Vec<Report>,
    sets: select::Sets,
    mailbox: Arc<Mailbox>,
    posted: Vec<u64>,
    tick: Option<Ticker>,
}

impl Level {
    pub(super) fn new(
        kind: DriverKind,
        mailbox: Arc<Mailbox>,
        resolution_ms: u64,
    ) -> io::Result<Level> {
        let tick = Ticker::new(resolution_ms)?;
        let mut level = Level {
            kind,
            watches: Watches::default(),
            reports: Vec::new(),
            sets: select::Sets::default(),
            mailbox: mailbox.clone(),
            posted: Vec::new(),
            tick: None,
        };
        level.watch(mailbox.event(), Owner::Mailbox, bits::READ, true)?;
        if let Some(tick) = &tick {
            level.watch(tick.as_fd(), Owner::Ticker, bits::READ, true)?;
        }
        level.tick = tick;
        Ok(level)
    }

    pub(super) fn kind(&self) -> DriverKind {
        self.kind
    }

    /// Whether the descriptor's number is not too high.
    pub(super) fn takes(&self, fd: BorrowedFd<'_>) -> bool {
        self.kind != DriverKind::Select || fd.as_raw_fd() < SELECT_MAX
    }

    fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        owner: Owner,
        wants: u8,
        lasting: bool,
    ) -> io::Result<()> {
        if !self.takes(fd) {
            let number = fd.as_raw_fd();
            let message = format!("descriptor {number} is not below select's {SELECT_MAX}");
            return Err(io::Error::other(message));
        }
        self.watches.add(fd.as_raw_fd(), owner, wants, lasting);
        Ok(())
    }

    pub(super) fn arm(&mut self, wish: Arm<'_>) -> io::Result<()> {
        let Arm { key, fd, direction, .. } = wish;
        let wants = match direction {
            Direction::Read => bits::READ,
            Direction::Write => bits::WRITE,
            Direction::PeerClosed => bits::PEER_CLOSED,
        };
        self.watch(fd, Owner::Sock(key), wants, false)
    }

    pub(super) fn listen(&mut self, key: SockKey, fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
        if !on {
            self.watches.remove(fd.as_raw_fd());
            return Ok(());
        }
        self.watch(fd, Owner::Sock(key), bits::READ, true)
    }

    pub(super) fn closing(&mut self, fd: BorrowedFd<'_>) {
        self.watches.remove(fd.as_raw_fd());
    }

    pub(super) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        let limit: Option<Timespec> = limit(self.tick.as_ref(), timeout_ms);
        self.reports.clear();
        let reports = &mut self.reports;
        match self.kind {
            DriverKind::Select => select::wait(&self.watches, &mut self.sets, limit, reports)?,
            _ => poll::wait(&self.watches, limit, reports)?,
        }
        Ok(match &self.tick {
            None => true,
            Some(tick) => {
                let ticked = self.reports.iter().any(|report| report.owner == Owner::Ticker);
                if ticked {
                    tick.take();
                }
                ticked
            }
        })
    }

    pub(super) fn apply(&mut self, core: &mut Core, phase: Phase) {
        let mut reports = std::mem::take(&mut self.reports);
        reports.retain(|report| !self.apply_one(core, phase, report));
        self.reports = reports;
    }

    /// Returns whether the report belongs to this phase.
    fn apply_one(&mut self, core: &mut Core, phase: Phase, report: &Report) -> bool {
        let key = match report.owner {
            Owner::Sock(key) => key,
            Owner::Ticker => return true,
            Owner::Mailbox if phase == Phase::Listeners => return false,
            Owner::Mailbox => {
                self.mailbox.take(&mut self.posted);
                for data in self.posted.drain(..) {
                    core.tasks.wake(data);
                }
                return true;
            }
        };
        let Some(entry) = core.socks.get(key) else { return true };
        let listener = entry.kind == SockKind::Listener;
        if phase == Phase::Listeners && !listener {
            return false;
        }
        if listener && entry.reader == NONE {
            core.idle_listener(key);
        }
        self.watches.told(report.fd, report.ready);
        core.apply(key, report.ready);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stays_whole_when_descriptors_come_and_go() {
        let mut watches = Watches::default();
        for fd in [5, 9, 7, 3] {
            watches.add(fd, Owner::Mailbox, bits::READ, fd == 9);
        }
        watches.add(7, Owner::Mailbox, bits::WRITE, false);
        watches.remove(5);
        watches.remove(5);
        watches.remove(1000);
        watches.told(7, bits::READ);
        watches.told(9, bits::READ);
        watches.told(3, bits::READ);
        let mut left: Vec<(RawFd, u8)> = watches.list.iter().map(|w| (w.fd, w.wants)).collect();
        left.sort_unstable();
        assert_eq!(left, [(7, bits::WRITE), (9, bits::READ)]);
        assert!(watches.find(3).is_none() && watches.find(9).is_some_and(|w| w.fd == 9));
    }
}
