//! Addresses of datagrams that a reload removes.
//!
//! ```text
//!  in force ──reload without it──► removed ──workers of before have ended──► ended
//!   ▲    │                          │                                          ▲
//!   └────┼──────reload with it──────┘                                          │
//!        └──────────────────────the server ends────────────────────────────────┘
//! ```
//!
//! Sessions and connections of the workers of before go on. What their successors, who know the
//! address no more, and they themselves do about its sockets depends on the state, which the master
//! writes and all of its processes read:
//!
//! - Sessions over UDP have sockets of their clients' own. A leaving worker makes the common socket
//!   of a removed address deaf (`os::datagram::deafen`): the kernel refuses what new clients send.
//! - Of QUIC, the next workers read the sockets of a removed address on and pass on what belongs to
//!   the workers of before; the rest is dropped. Where the server ends, the workers that leave read
//!   their sockets to their ends, and refuse new clients.
//! - The master keeps the sockets until those workers have ended. An address that comes back before
//!   has the same ones: others would share its clients with those of the leaving workers, which
//!   are of the same group as long as somebody has them open.

use std::fmt;
use std::io;
use std::rc::Rc;

use os::SockAddr;
use shm::Counters;

/// The state of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The running configuration listens on it.
    InForce,
    /// It does not, and workers of before may have sessions.
    Removed,
    /// They have ended, or the server ends: nobody passes anything on to its workers any more.
    Ended,
}

/// The state of an address, in memory that the master shares with its processes.
#[derive(Clone)]
pub struct Removal(Rc<Counters>);

impl fmt::Debug for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Removal({:?})", self.get())
    }
}

impl Removal {
    /// An address in force.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new() -> io::Result<Removal> {
        Ok(Removal(Rc::new(Counters::new(1)?)))
    }

    /// What the master has decided about the listener.
    pub fn get(&self) -> State {
        match self.0.line(0).get(0) {
            0 => State::InForce,
            1 => State::Removed,
            _ => State::Ended,
        }
    }

    /// Only the master has it.
    pub(super) fn set(&self, state: State) {
        self.0.line(0).set(0, state as u64);
    }
}

/// The states of all addresses of datagrams of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Removals(Rc<[(SockAddr, Removal)]>);

impl Removals {
    pub(super) fn of(all: impl Iterator<Item = (SockAddr, Removal)>) -> Removals {
        Removals(all.collect())
    }

    /// Whether no configuration listens on the address any more.
    pub fn has(&self, addr: &SockAddr) -> bool {
        self.get(addr) != State::InForce
    }

    /// The state of an address.
    pub fn get(&self, addr: &SockAddr) -> State {
        let removal = self.0.iter().find(|(own, _)| own == addr);
        removal.map_or(State::InForce, |(_, removal)| removal.get())
    }
}
