//! The faults of a simulation, and its seed.

/// The faults of a simulated network, each with its frequency (in a thousand operations).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// The longest way of a segment, in milliseconds.
    pub latency_ms: u64,
    /// Bytes that may be on their way in one direction.
    pub window: usize,
    /// Reads and writes that do less than they could.
    pub short: u16,
    /// Attempts at a ready socket that find it not ready after all.
    pub again: u16,
    /// Operations at which the connection breaks.
    pub reset: u16,
    /// Turns in which readiness is reported that is not there, or of sockets that are closed.
    pub stray: u16,
    /// Turns that come late, by up to 20 milliseconds.
    pub late: u16,
    /// Connections that cannot be accepted because there is no descriptor.
    pub starved: u16,
    /// Tasks of thread pools that a disk holds up, for [`STALL_MS`] at most.
    pub stalls: u16,
    /// Tasks that a thread pool refuses, as if its queue were full.
    pub refused: u16,
}

/// Longest stall of a simulated disk, in milliseconds.
pub const STALL_MS: u64 = 30_000;

impl Faults {
    /// A network without latency and without faults.
    pub const NONE: Faults = Faults {
        latency_ms: 0,
        window: 64 * 1024,
        short: 0,
        again: 0,
        reset: 0,
        stray: 0,
        late: 0,
        starved: 0,
        stalls: 0,
        refused: 0,
    };

    /// Everything that does not break connections, and often.
    pub const ROUGH: Faults = Faults {
        latency_ms: 50,
        window: 4096,
        short: 300,
        again: 200,
        reset: 0,
        stray: 200,
        late: 100,
        starved: 0,
        stalls: 0,
        refused: 0,
    };

    /// [`Faults::ROUGH`], and connections break.
    pub const HOSTILE: Faults = Faults { reset: 10, ..Faults::ROUGH };

    /// [`Faults::ROUGH`], and disks that stand still for a while.
    pub const STALLING: Faults = Faults { stalls: 200, ..Faults::ROUGH };
}

/// The seed and the faults of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The same seed gives the same run.
    pub seed: u64,
    /// The faults that are injected, with their probabilities.
    pub faults: Faults,
    /// Whether the driver completes operations, as io_uring does, or reports readiness, as epoll
    /// does. Cancelled operations may then end with a result all the same.
    pub completes: bool,
}

impl Plan {
    /// A simulation that reports readiness.
    pub const fn new(seed: u64, faults: Faults) -> Plan {
        Plan { seed, faults, completes: false }
    }

    /// The same with a driver that completes operations.
    pub const fn completing(self) -> Plan {
        Plan { completes: true, ..self }
    }
}
