//! The choices of the person at the terminal, and the keys that change them.

use std::cmp::Ordering;

use super::judge::Judged;

/// The order of the servers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// Those in trouble, the worst first, then by requests a second.
    #[default]
    Worst,
    /// Rows are sorted by the column of this number, from 0.
    Column(usize),
}

/// The columns of servers: their titles, widths, and whether they are texts.
pub(crate) const COLUMNS: [(&str, usize, bool); 8] = [
    ("UPSTREAM", 16, true),
    ("SERVER", 22, true),
    ("STATE", 10, true),
    ("REQ/S", 7, false),
    ("ERRORS", 7, false),
    ("P50", 8, false),
    ("P99", 8, false),
    ("UNDER WAY", 9, false),
];

/// What a key makes the command do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Nothing.
    None,
    /// Show the same view again, in another way.
    Redraw,
    /// End.
    Quit,
}

/// The choices.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Screen {
    /// The order of servers.
    pub(crate) sort: Sort,
    /// The other way round.
    pub(crate) is_reversed: bool,
    /// The view stays as it is.
    pub(crate) is_paused: bool,
    /// The keys are shown.
    pub(crate) shows_help: bool,
}

impl Screen {
    /// Takes the bytes of keys.
    pub(crate) fn keys(&mut self, mut bytes: &[u8]) -> Act {
        let mut act = Act::None;
        while let Some((&first, rest)) = bytes.split_first() {
            let (key, rest) = match bytes {
                [0x1b, b'[', b'C', rest @ ..] => (b'>', rest),
                [0x1b, b'[', b'D', rest @ ..] => (b'<', rest),
                _ => (first, rest),
            };
            bytes = rest;
            match self.key(key) {
                Act::Quit => return Act::Quit,
                Act::Redraw => act = Act::Redraw,
                Act::None => {}
            }
        }
        act
    }

    fn key(&mut self, key: u8) -> Act {
        match key {
            // Ctrl-C sends no signal, so that the terminal is restored.
            b'q' | 3 => return Act::Quit,
            b'p' | b' ' => self.is_paused = !self.is_paused,
            b'r' => self.is_reversed = !self.is_reversed,
            b'h' | b'?' => self.shows_help = !self.shows_help,
            b'0' | b'w' => (self.sort, self.is_reversed) = (Sort::Worst, false),
            b'1'..=b'8' => self.by(usize::from(key - b'1')),
            b'>' => self.by(self.column().map_or(0, |column| (column + 1) % COLUMNS.len())),
            b'<' => {
                let last = COLUMNS.len() - 1;
                self.by(self.column().map_or(last, |column| column.checked_sub(1).unwrap_or(last)));
            }
            _ => return Act::None,
        }
        Act::Redraw
    }

    fn column(&self) -> Option<usize> {
        match self.sort {
            Sort::Worst => None,
            Sort::Column(column) => Some(column),
        }
    }

    /// Sorts by a column; by the same one again, the other way round.
    fn by(&mut self, column: usize) {
        self.is_reversed = self.sort == Sort::Column(column) && !self.is_reversed;
        self.sort = Sort::Column(column);
    }

    /// Whether a column is the one that orders, and grows downwards.
    pub(crate) fn mark(&self, column: usize) -> Option<bool> {
        (self.sort == Sort::Column(column)).then_some(COLUMNS[column].2 != self.is_reversed)
    }

    /// The order of two servers.
    pub(crate) fn order(&self, a: &Judged, b: &Judged) -> Ordering {
        let numbers = |of: fn(&Judged) -> f64| of(b).total_cmp(&of(a));
        // A time beyond the last bound is longer than any; a server without times comes last.
        let time = |judged: &Judged, us: Option<u64>| match us {
            Some(us) => us as f64,
            None if judged.is_timed => f64::INFINITY,
            None => -1.0,
        };
        let order = match self.sort {
            Sort::Worst => a.worse_than(b),
            Sort::Column(0) => a.server.group.cmp(&b.server.group),
            Sort::Column(1) => a.server.address.cmp(&b.server.address),
            Sort::Column(2) => a.server.state.cmp(&b.server.state),
            Sort::Column(3) => numbers(|judged| judged.rate),
            Sort::Column(4) => numbers(|judged| judged.errors),
            Sort::Column(5) => time(b, b.p50_us).total_cmp(&time(a, a.p50_us)),
            Sort::Column(6) => time(b, b.p99_us).total_cmp(&time(a, a.p99_us)),
            Sort::Column(_) => numbers(|judged| judged.server.active as f64),
        };
        if self.is_reversed { order.reverse() } else { order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_the_screen() {
        let mut screen = Screen::default();
        assert_eq!(screen.keys(b"xyz\x04"), Act::None);
        assert_eq!(screen.keys(b"4"), Act::Redraw);
        assert_eq!((screen.sort, screen.is_reversed), (Sort::Column(3), false));
        screen.keys(b"4");
        assert!(screen.is_reversed);
        assert_eq!(screen.mark(3), Some(true));
        screen.keys(b"\x1b[C");
        assert_eq!((screen.sort, screen.is_reversed), (Sort::Column(4), false));
        screen.keys(b"\x1b[D<<<<");
        assert_eq!(screen.sort, Sort::Column(7));
        screen.keys(b"ph");
        assert!(screen.is_paused && screen.shows_help);
        screen.keys(b" ?rw");
        assert_eq!(screen, Screen::default());
        assert_eq!(screen.keys(b"rq1"), Act::Quit);
        assert_eq!(screen.keys(&[3]), Act::Quit);
    }
}
