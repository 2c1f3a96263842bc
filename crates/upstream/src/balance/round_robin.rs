//! Weighted round robin, the method where none is named.

use std::rc::Rc;

use engine::Client;

use super::{Balancer, ExchangeTimes, Picker, Round, ServerOutcome};
use crate::peer::Peer;
use crate::servers::Servers;

/// The balancer over these servers.
pub struct RoundRobin(pub Rc<Servers>);

impl Balancer for RoundRobin {
    fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
        Box::new(Round::new(&self.0))
    }

    fn round(&self) -> Option<Round> {
        Some(Round::new(&self.0))
    }
}

impl Picker for Round {
    fn tries(&self) -> u32 {
        Round::tries(self)
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        Round::next(self, bound)
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, _: ExchangeTimes) -> bool {
        Round::done(self, peer, outcome)
    }

    fn is_single(&self) -> bool {
        Round::is_single(self)
    }
}
