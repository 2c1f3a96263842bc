//! `random [two [METHOD]]`: a server at random by weight, or the better of two.

use std::rc::Rc;

use base::dice::Dice;
use conf::table::Args;
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use super::drawn::{Draw, Drawn, Misses, at_weight, until_one_fits};
use super::least_time::{TimeUntil, account, eta, words};
use super::{Balancer, ExchangeTimes, Picker, Round, ServerOutcome, method, table};
use crate::block::Block;
use crate::peer::Peer;
use crate::servers::Servers;

/// The measure by which the better of two servers is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Conns,
    Time(TimeUntil),
}

const DOC: &str = "Selects a random server, or the less loaded of two random ones (`two`).";

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    table("upstream_random", const { &[method("random", Args::NONE.or(Args::T12), DOC, set)] })
}

/// `random [two [METHOD]]`
///
/// # Errors
/// `invalid parameter`.
fn set<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let invalid = |i: usize| {
        let w = &n.args[i];
        ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
    };
    let args: Vec<&[u8]> = n.args.iter().map(|w| w.bytes()).collect();
    let two = match args[..] {
        [] => None,
        [b"two"] | [b"two", b"least_conn"] => Some(Measure::Conns),
        [b"two", word] if word.starts_with(b"least_time=") => {
            let known = words::<S>().iter().find(|(name, _)| word[11..] == *name.as_bytes());
            Some(Measure::Time(known.ok_or_else(|| invalid(1))?.1))
        }
        [b"two", ..] => return Err(invalid(1)),
        _ => return Err(invalid(0)),
    };
    let make = move |servers: &Rc<Servers>| {
        let dice = Rc::new(Dice::default());
        Box::new(Random { servers: servers.clone(), two, dice }) as Box<_>
    };
    cx.loc::<Block>().set_method(n, false, Box::new(make));
    Ok(())
}

struct Random {
    servers: Rc<Servers>,
    two: Option<Measure>,
    dice: Rc<Dice>,
}

impl Balancer for Random {
    fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
        let (round, dice) = (Round::new(&self.servers), self.dice.clone());
        Box::new(Drawn::new(round, ByChance { two: self.two, dice }))
    }
}

struct ByChance {
    two: Option<Measure>,
    dice: Rc<Dice>,
}

impl ByChance {
    /// A server at random that can be asked, other than `but`.
    fn any(
        &self,
        round: &Round,
        misses: &mut Misses,
        but: Option<usize>,
        now: i64,
    ) -> Option<usize> {
        until_one_fits(misses, || {
            let point = self.dice.roll().cast_signed() % round.total_weight();
            let i = at_weight(round.list(), point);
            (but != Some(i) && round.may_ask(i, now)).then_some(i)
        })
    }
}

fn is_better(a: &Peer, b: &Peer, two: Measure) -> bool {
    let load = |p: &Peer| match two {
        Measure::Conns => p.conns(),
        Measure::Time(mode) => eta(p, mode),
    };
    let weight = |p: &Peer| p.spec.weight.cast_unsigned();
    load(a) * weight(b) <= load(b) * weight(a)
}

impl Draw for ByChance {
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize> {
        let first = self.any(round, misses, None, now)?;
        let Some(two) = self.two else { return Some(first) };
        let other = self.any(round, misses, Some(first), now)?;
        let list = round.list();
        Some(if is_better(&list[other], &list[first], two) { other } else { first })
    }

    fn counts_connecting(&self) -> bool {
        self.two == Some(Measure::Time(TimeUntil::Connect))
    }

    fn account(&self, peer: &Peer, outcome: ServerOutcome, times: ExchangeTimes) {
        if let Some(Measure::Time(_)) = self.two {
            account(peer, outcome, times, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ServerSpec;
    use os::SockAddr;

    fn servers(weights: &[i64]) -> Rc<Servers> {
        let spec = |(i, weight): (usize, &i64)| {
            let addr = SockAddr::parse(format!("127.0.0.1:{}", i + 1).as_bytes()).unwrap();
            ServerSpec { weight: *weight, ..ServerSpec::new(addr) }
        };
        let specs: Vec<ServerSpec> = weights.iter().enumerate().map(spec).collect();
        Servers::own("u".into(), &specs)
    }

    fn spread(servers: &Rc<Servers>, two: Option<Measure>, hold: bool) -> Vec<usize> {
        let dice = Rc::new(Dice::seeded(7));
        let mut counts = vec![0; servers.lists().main.len()];
        for _ in 0..3000 {
            let round = Round::new(servers);
            let mut p = Drawn::new(round, ByChance { two, dice: dice.clone() });
            let peer = p.next(None).unwrap();
            counts[usize::from(peer.spec.addr.port()) - 1] += 1;
            if !hold {
                p.done(&peer, ServerOutcome::Ok, ExchangeTimes::default());
            }
        }
        counts
    }

    #[test]
    fn by_weight() {
        let counts = spread(&servers(&[1, 2]), None, false);
        assert!((900..1100).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn the_better_of_two_evens_out() {
        let counts = spread(&servers(&[1, 1, 1]), Some(Measure::Conns), true);
        assert!(counts.iter().all(|n| (990..=1010).contains(n)), "{counts:?}");
    }
}
