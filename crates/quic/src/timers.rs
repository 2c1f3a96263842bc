//! The timer queue of an endpoint: the next deadline of each connection.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A heap of deadlines, each with the number of a connection. The deadline of a connection is moved
/// back with nearly every datagram; its entry then stays in the heap and is replaced when it falls
/// due, because removing an entry from the middle of a heap is expensive.
#[derive(Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Instant, usize)>>);

impl Timers {
    /// Sets the deadline of connection `number`. `planned` is the time of its present entry and is
    /// updated; an entry that is early enough is left in place.
    pub fn set(&mut self, number: usize, at: Option<Instant>, planned: &mut Option<Instant>) {
        let Some(at) = at else { return };
        if planned.is_none_or(|planned| at < planned) {
            *planned = Some(at);
            self.0.push(Reverse((at, number)));
        }
    }

    /// Removes and returns the first entry that is due at `now`: its time and the connection's
    /// number.
    pub fn due(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// The time of the first entry.
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn entries_come_when_they_are_due() {
        let now = Instant::now();
        let ms = |ms| now + Duration::from_millis(ms);
        let mut timers = Timers::default();
        let (mut one, mut two) = (None, None);
        timers.set(1, Some(ms(5)), &mut one);
        timers.set(2, Some(ms(3)), &mut two);
        // Later than planned: the entry stays. Earlier: there is another one.
        timers.set(1, Some(ms(9)), &mut one);
        timers.set(2, Some(ms(2)), &mut two);
        timers.set(2, None, &mut two);
        assert_eq!((one, two, timers.next()), (Some(ms(5)), Some(ms(2)), Some(ms(2))));
        assert_eq!(timers.due(ms(1)), None);
        let due: Vec<_> = std::iter::from_fn(|| timers.due(ms(6))).collect();
        assert_eq!(due, [(ms(2), 2), (ms(3), 2), (ms(5), 1)]);
        assert_eq!(timers.next(), None);
    }
}
