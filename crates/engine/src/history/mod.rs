//! An hour of history: requests, errors, latency and connections of the whole server, of each
//! virtual server, location, upstream and upstream server, and the events on the same time axis.
//!
//! The master takes a sample every [`STEP_MS`] ([`crate::sampler`]) and writes it to shared memory
//! (`shm::Timeline`), which outlives workers and configurations. Workers only read it, for the API:
//! their loops do no work for the history. A step of ten seconds is chosen because an hour then has
//! 360 steps, which is what a chart on a phone can show, and because the master wakes no more often
//! than a human would notice.
//!
//! **Memory.** A series takes 24 KB when its hour is full: 368 cells of 64 bytes and a name. The
//! first [`SERIES_MAX`] series are kept, 24 MB at most; others only count in their sums.

pub mod events;
pub mod point;

use std::io;

use shm::{Latest, Timeline};

pub use events::{Event, EventKind, Severity};
pub use point::{HEAT, HEAT_BOUNDS_US, PeerState, Point};

/// The length of a step, milliseconds.
pub const STEP_MS: u64 = 10_000;

/// The number of steps: an hour.
pub const STEPS: usize = 360;

/// The most series that are kept.
pub(crate) const SERIES_MAX: usize = 1024;

/// The most events that are kept.
const EVENTS_MAX: usize = 512;

/// The thing that a series is about; the first byte of the series' name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeriesKind {
    /// All requests of HTTP, and the connections of all engines.
    Total,
    /// A virtual server of HTTP.
    HttpServer,
    /// A server of `stream`.
    StreamServer,
    /// An upstream of HTTP.
    HttpUpstream,
    /// An upstream of `stream`.
    StreamUpstream,
    /// A server of an upstream of HTTP.
    HttpPeer,
    /// A server of an upstream of `stream`.
    StreamPeer,
    /// A location.
    Location,
}

impl SeriesKind {
    const ALL: [(SeriesKind, u8, &'static str); 8] = [
        (SeriesKind::Total, b't', "total"),
        (SeriesKind::HttpServer, b's', "server"),
        (SeriesKind::StreamServer, b'S', "stream_server"),
        (SeriesKind::HttpUpstream, b'u', "upstream"),
        (SeriesKind::StreamUpstream, b'U', "stream_upstream"),
        (SeriesKind::HttpPeer, b'p', "peer"),
        (SeriesKind::StreamPeer, b'P', "stream_peer"),
        (SeriesKind::Location, b'l', "location"),
    ];

    fn byte(self) -> u8 {
        let found = SeriesKind::ALL.iter().find(|(kind, ..)| *kind == self);
        found.map_or(b't', |(_, byte, _)| *byte)
    }

    /// Its name in the API.
    pub fn text(self) -> &'static str {
        let found = SeriesKind::ALL.iter().find(|(kind, ..)| *kind == self);
        found.map_or("total", |(.., text)| text)
    }

    fn of(byte: u8) -> Option<SeriesKind> {
        let found = SeriesKind::ALL.iter().find(|(_, of, _)| *of == byte);
        found.map(|(kind, ..)| *kind)
    }
}

/// The name of a series. That of an upstream's server has the upstream's name and a NUL in front.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeriesName {
    /// The thing.
    pub kind: SeriesKind,
    /// The name of the zone, upstream or server.
    pub name: Vec<u8>,
}

impl SeriesName {
    /// The series of the whole server.
    pub fn total() -> SeriesName {
        SeriesName { kind: SeriesKind::Total, name: Vec::new() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&[self.kind.byte()], &self.name[..]].concat()
    }

    fn decode(bytes: &[u8]) -> Option<SeriesName> {
        let (kind, name) = bytes.split_first()?;
        Some(SeriesName { kind: SeriesKind::of(*kind)?, name: name.to_vec() })
    }
}

/// The history in shared memory, made before the fork.
pub struct History {
    pub(crate) line: Timeline,
    events: Latest,
}

/// A series as it is read.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its name.
    pub name: SeriesName,
    /// Its points, one for each step that was asked for.
    pub points: Vec<Point>,
}

impl History {
    /// An empty history. Memory is taken for what is written.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<History> {
        let line = Timeline::new(SERIES_MAX, STEPS)?;
        Ok(History { line, events: Latest::new(EVENTS_MAX, events::EVENT_BYTES)? })
    }

    /// The steps that are kept, the oldest first.
    pub fn steps(&self) -> std::ops::Range<u64> {
        self.line.steps()
    }

    /// The times of a kept step, on the clock of [`crate::beat::now_ms`].
    pub fn step(&self, step: u64) -> shm::StepTime {
        self.line.step(step)
    }

    /// The number of series, each by its row.
    pub fn rows(&self) -> usize {
        self.line.rows()
    }

    /// Goes up when a row is given to a series.
    pub fn version(&self) -> u64 {
        self.line.version()
    }

    /// The series in a row. `None` if a new one begins there at this moment.
    pub fn series(&self, row: usize, steps: std::ops::Range<u64>) -> Option<Series> {
        let (name, cells) = self.line.read(row, steps)?;
        let name = SeriesName::decode(&name)?;
        Some(Series { name, points: cells.into_iter().map(Point::of_cell).collect() })
    }

    /// Adds an event that happens now.
    #[cold]
    pub fn note(&self, event: &Event<'_>) {
        self.events.push(&event.encode());
    }

    /// The numbers of the events that are kept, the oldest first.
    pub fn event_numbers(&self) -> std::ops::Range<u64> {
        self.events.numbers()
    }

    /// Shows the event of that number; `None` where another one has its place.
    pub fn event<T>(&self, number: u64, show: impl FnOnce(&Event<'_>) -> T) -> Option<T> {
        let bytes = self.events.get(number)?;
        Some(show(&Event::decode(&bytes)?))
    }
}
