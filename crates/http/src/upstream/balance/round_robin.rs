//! Weighted round robin, the method where none is named.

use std::rc::Rc;

use super::{Balancer, Outcome, Picker, Round, Times};
use crate::request::Request;
use crate::upstream::peer::Peer;
use crate::upstream::servers::Servers;

/// See the module's documentation.
pub struct RoundRobin(pub Rc<Servers>);

impl Balancer for RoundRobin {
    fn picker(&self, _: &mut Request) -> Box<dyn Picker> {
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

    fn done(&mut self, peer: &Peer, outcome: Outcome, _: Times) -> bool {
        Round::done(self, peer, outcome)
    }

    fn is_single(&self) -> bool {
        Round::is_single(self)
    }
}
