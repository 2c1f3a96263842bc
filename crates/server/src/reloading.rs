//! Reloads whose clients wait for the connections that move: the master goes on with its work.

use std::time::{Duration, Instant};

use engine::Stats;

use crate::children::{Children, LOOK};
use crate::control::{Answer, ClientId, Control};
use crate::verdict::Moved;

/// The time that the answer to a reload waits for connections that move.
const MOVED_MAX: Duration = Duration::from_secs(3);

/// A reload that is answered when connections have moved.
struct Pending {
    client: ClientId,
    answer: Answer,
    /// The moves before it.
    before: Moved,
    generation: u64,
    until: Instant,
}

/// All such reloads.
#[derive(Default)]
pub struct Reloads(Vec<Pending>);

impl Reloads {
    /// Answers `client` later. `before`: the moves before the reload to `generation`.
    pub fn add(&mut self, client: ClientId, answer: Answer, before: Moved, generation: u64) {
        let until = Instant::now() + MOVED_MAX;
        self.0.push(Pending { client, answer, before, generation, until });
    }

    /// The limit of the wait for a signal.
    pub fn limit(&self) -> Option<Duration> {
        (!self.0.is_empty()).then_some(LOOK)
    }

    /// Answers the clients whose connections have moved, or that have waited for long enough.
    pub fn answer(&mut self, children: &mut Children, stats: &Stats, control: &mut Control) {
        let now = Instant::now();
        let is_over = |reload: &mut Pending| {
            let is_moving = children.are_moving(reload.generation);
            reload.until <= now || !is_moving && reload.before.has_arrived(stats)
        };
        let over: Vec<_> = self.0.extract_if(.., is_over).collect();
        for Pending { client, answer, before, generation, .. } in over {
            let (slots, left) = (children.slots_of(generation), children.left(generation, stats));
            control.answer(client, &before.told(stats, &slots, answer, left));
        }
    }
}
