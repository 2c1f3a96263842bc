//! The values of a series in one step, in the 64 bytes of a cell.

use shm::{CELL_WORDS, Cell};

/// The upper bounds of the heat map's buckets, microseconds; one more bucket has the rest. Each is
/// about three times the one before, which makes rows of equal height on a logarithmic scale. All
/// of them are bounds of the histograms of zones.
pub const HEAT_BOUNDS_US: [u64; 9] =
    [300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000];

/// Buckets of the heat map, the one with the rest last.
pub const HEAT: usize = HEAT_BOUNDS_US.len() + 1;

/// The state of a server of an upstream at the end of a step.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PeerState {
    /// The series did not exist then.
    #[default]
    Absent,
    /// It is used. Series of other things are always up.
    Up,
    /// It gets no new clients.
    Draining,
    /// Its first health check is not over.
    Checking,
    /// It failed too often.
    Unavail,
    /// Its health checks fail.
    Unhealthy,
    /// It was taken out by hand.
    Down,
}

impl PeerState {
    const ALL: [(PeerState, &'static str); 7] = [
        (PeerState::Absent, "absent"),
        (PeerState::Up, "up"),
        (PeerState::Draining, "draining"),
        (PeerState::Checking, "checking"),
        (PeerState::Unavail, "unavail"),
        (PeerState::Unhealthy, "unhealthy"),
        (PeerState::Down, "down"),
    ];

    /// The state of that name in nginx's API.
    pub fn of(text: &str) -> PeerState {
        let found = PeerState::ALL.iter().find(|(_, name)| *name == text);
        found.map_or(PeerState::Up, |(state, _)| *state)
    }

    /// Its name.
    pub fn text(self) -> &'static str {
        PeerState::ALL[self as usize].1
    }

    /// Failures keep the server out of rotation.
    pub fn has_failed(self) -> bool {
        matches!(self, PeerState::Unavail | PeerState::Unhealthy)
    }

    fn of_number(n: u32) -> PeerState {
        PeerState::ALL.get(n as usize).map_or(PeerState::Up, |(state, _)| *state)
    }
}

/// The values of a step.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Point {
    /// Requests, sessions or exchanges that ended.
    pub done: u32,
    /// Responses of 400 to 499, without 444 and 499.
    pub errors_4xx: u32,
    /// Responses of 500 and above.
    pub errors_5xx: u32,
    /// Of a server of an upstream: failed attempts. Otherwise work that was lost with a worker.
    pub failed: u32,
    /// Work in progress at the end of the step; open connections of the whole server.
    pub active: u32,
    /// The state at the end of the step.
    pub state: PeerState,
    /// 99 of 100 times are not above this, microseconds. 0: there are none; `u32::MAX`: beyond the
    /// last bound of the histogram.
    pub p99_us: u32,
    /// The numbers of times by bucket: see [`HEAT_BOUNDS_US`].
    pub heat: [u32; HEAT],
}

/// Bits of the number of work in progress; the state is above.
const ACTIVE_BITS: u32 = 28;

impl Point {
    /// As the words of a cell, two values each.
    pub(crate) fn to_cell(self) -> Cell {
        let active = self.active.min((1 << ACTIVE_BITS) - 1);
        let mut values = [0; CELL_WORDS * 2];
        values[..6].copy_from_slice(&[
            self.done,
            self.errors_4xx,
            self.errors_5xx,
            self.failed,
            active | (self.state as u32) << ACTIVE_BITS,
            self.p99_us,
        ]);
        values[6..].copy_from_slice(&self.heat);
        std::array::from_fn(|i| u64::from(values[2 * i]) | u64::from(values[2 * i + 1]) << 32)
    }

    /// The point in a cell.
    pub(crate) fn of_cell(cell: Cell) -> Point {
        let value = |i: usize| (cell[i / 2] >> (32 * (i % 2))) as u32;
        Point {
            done: value(0),
            errors_4xx: value(1),
            errors_5xx: value(2),
            failed: value(3),
            active: value(4) & ((1 << ACTIVE_BITS) - 1),
            state: PeerState::of_number(value(4) >> ACTIVE_BITS),
            p99_us: value(5),
            heat: std::array::from_fn(|i| value(6 + i)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_come_back_from_their_cells() {
        let point = Point {
            done: u32::MAX,
            errors_4xx: 2,
            errors_5xx: 3,
            failed: 4,
            active: 5,
            state: PeerState::Unhealthy,
            p99_us: 6,
            heat: std::array::from_fn(|i| i as u32 + 7),
        };
        assert_eq!(Point::of_cell(point.to_cell()), point);
        assert_eq!(Point::of_cell([0; CELL_WORDS]), Point::default());
        let many = Point { active: u32::MAX, ..point };
        assert_eq!(Point::of_cell(many.to_cell()).state, PeerState::Unhealthy);
        for (state, name) in PeerState::ALL {
            assert_eq!((state.text(), PeerState::of(name)), (name, state));
        }
    }
}
