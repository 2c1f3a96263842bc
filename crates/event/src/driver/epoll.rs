//! epoll(7), edge-triggered.
//!
//! A socket is registered at its first wait, and stays so until it closes: a keep-alive request
//! costs recv, send and its share of epoll_wait. Reports of writability are requested at the first
//! short send, because most sockets never need them, and because a unix socket reports it after
//! every read of its peer. Listeners are level-triggered and exclusive: one report wakes one
//! worker, and is repeated until the queue is empty.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::PollFlags;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::poll::ready_bits;
use super::seam::{Arm, Phase};
use super::ticker::{Ticker, limit};
use crate::runtime::remote::{self, Mailbox};
use crate::state::Core;
use crate::state::index::NONE;
use crate::state::socks::{Direction, SockKey, SockKind, bits};

/// Events that one call of `epoll_wait` collects at most by default.
pub const EPOLL_EVENTS: usize = 512;

/// The token of the clock's timerfd: another place that no socket has.
const TICK: u64 = NONE as u64 - 1;

pub(crate) struct Epoll {
    epoll: OwnedFd,
    mailbox: Arc<Mailbox>,
    events: Vec<Event>,
    posted: Vec<u64>,
    /// Ticks at `timer_resolution`, when that is set: then only its ticks move the clock.
    tick: Option<Ticker>,
}

impl Epoll {
    /// `batch` is how many events one call collects at most, not 0.
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        resolution_ms: u64,
        batch: usize,
    ) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, mailbox.event(), EventData::new_u64(remote::TOKEN), EventFlags::IN)?;
        let tick = Ticker::new(resolution_ms)?;
        if let Some(tick) = &tick {
            epoll::add(&epoll, tick, EventData::new_u64(TICK), EventFlags::IN)?;
        }
        let mut events = Vec::new();
        events.try_reserve_exact(batch).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Epoll { epoll, mailbox, events, posted: Vec::new(), tick })
    }

    pub(super) fn arm(&mut self, core: &mut Core, wish: Arm<'_>) -> io::Result<()> {
        let Arm { key, kind, fd, direction } = wish;
        let Some(entry) = core.socks.get(key) else { return Ok(()) };
        let before = entry.bits & (bits::ARMED_READ | bits::ARMED_WRITE);
        let wanted = match direction {
            Direction::Read | Direction::PeerClosed => bits::ARMED_READ,
            Direction::Write => bits::ARMED_WRITE,
        };
        if before & wanted != 0 {
            return Ok(());
        }
        // A socket that waits for writability first is being connected, and is read from next.
        let both = match (before, wanted) {
            (0, bits::ARMED_WRITE) => bits::ARMED_READ | bits::ARMED_WRITE,
            _ => before | wanted,
        };
        // A set's members are reported until they are read.
        let mut flags = match kind {
            SockKind::Member => EventFlags::empty(),
            _ => EventFlags::ET | EventFlags::RDHUP,
        };
        flags.set(EventFlags::IN, both & bits::ARMED_READ != 0);
        flags.set(EventFlags::OUT, both & bits::ARMED_WRITE != 0);
        let data = EventData::new_u64(key.token());
        match before {
            0 => epoll::add(&self.epoll, fd, data, flags)?,
            _ => epoll::modify(&self.epoll, fd, data, flags)?,
        }
        entry.bits |= both;
        Ok(())
    }

    /// Ends the reports of a descriptor until it is armed again.
    pub(super) fn disarm(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        if let Some(entry) = core.socks.get(key)
            && entry.bits & bits::ARMED_READ != 0
        {
            entry.bits &= !(bits::ARMED_READ | bits::ARMED_WRITE);
            self.parting(fd);
        }
    }

    pub(super) fn listen(
        &mut self,
        key: SockKey,
        fd: BorrowedFd<'_>,
        on: bool,
        exclusive: bool,
    ) -> io::Result<()> {
        let changed = if on {
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::EXCLUSIVE, exclusive);
            epoll::add(&self.epoll, fd, EventData::new_u64(key.token()), flags)
        } else {
            epoll::delete(&self.epoll, fd)
        };
        Ok(changed?)
    }

    /// Ends the reports of a socket, if it has any.
    pub(super) fn parting(&mut self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    pub(super) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        let timeout = limit(self.tick.as_ref(), timeout_ms);
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) => (),
            // A signal: the turn ends without events, and the owner of the signal's flag looks at
            // it.
            Err(Errno::INTR) => self.events.clear(),
            Err(error) => return Err(error.into()),
        }
        Ok(match &self.tick {
            None => true,
            Some(tick) => {
                let ticked = self.events.iter().any(|event| event_token(event) == TICK);
                if ticked {
                    tick.take();
                }
                ticked
            }
        })
    }

    pub(super) fn apply(&mut self, core: &mut Core, phase: Phase) {
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            self.apply_one(core, phase, event);
        }
        if phase == Phase::Rest {
            events.clear();
        }
        self.events = events;
    }

    fn apply_one(&mut self, core: &mut Core, phase: Phase, event: &mut Event) {
        let token = event_token(event);
        match token {
            TICK => return,
            remote::TOKEN => {
                if phase == Phase::Rest {
                    self.mailbox.take(&mut self.posted);
                    for data in self.posted.drain(..) {
                        core.tasks.wake(data);
                    }
                }
                return;
            }
            _ => (),
        }
        let key = SockKey::from_token(token);
        let Some(entry) = core.socks.get(key) else { return };
        let listener = entry.kind == SockKind::Listener;
        if phase == Phase::Listeners {
            if !listener {
                return;
            }
            // Applied now, and not a second time with the rest.
            event.data = EventData::new_u64(TICK);
        }
        if listener && entry.reader == NONE {
            // No task accepts; the report would be repeated in every turn.
            core.idle_listener(key);
        }
        // The structure is packed: a copy, not a reference.
        let flags = event.flags;
        core.apply(key, ready_bits(PollFlags::from_bits_retain(flags.bits() as u16)));
    }

    /// Whether the last wait collected nothing.
    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }
}

fn event_token(event: &Event) -> u64 {
    // The structure is packed: a copy, not a reference.
    let data = event.data;
    data.u64()
}

/// The lower half of epoll's flags are poll's.
const _: () = assert!(
    EventFlags::IN.bits() == PollFlags::IN.bits() as u32
        && EventFlags::OUT.bits() == PollFlags::OUT.bits() as u32
        && EventFlags::RDHUP.bits() == PollFlags::RDHUP.bits() as u32
        && EventFlags::HUP.bits() == PollFlags::HUP.bits() as u32
        && EventFlags::ERR.bits() == PollFlags::ERR.bits() as u32
);
