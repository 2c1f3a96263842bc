//! `random [two [METHOD]]`: a server at random by weight, or the better of two.

use std::cell::Cell;
use std::rc::Rc;

use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;
use http::request::Request;
use http::upstream::balance::{Balancer, Outcome, Picker, Round, Times};
use http::upstream::block::Block;
use http::upstream::peer::Peer;
use http::upstream::servers::Servers;

use super::drawn::{Draw, Drawn, Misses, at_weight, until_it_fits};
use super::least_time::{Mode, account, eta};

/// The module's table.
pub static MODULE: Module =
    Module { name: "upstream_random", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "random",
    C::UPSTREAM,
    Args::NONE.or(Args::T12),
    "",
    "Requests go to servers at random, or to the better of two that were chosen at random.",
    set,
)];

/// Which of two is better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Two {
    Conns,
    Time(Mode),
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let invalid = |i: usize| {
        let w = &n.args[i];
        ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
    };
    let words: Vec<&[u8]> = n.args.iter().map(|w| w.bytes()).collect();
    let two = match words[..] {
        [] => None,
        [b"two"] | [b"two", b"least_conn"] => Some(Two::Conns),
        [b"two", b"least_time=header"] => Some(Two::Time(Mode::Header)),
        [b"two", b"least_time=last_byte"] => Some(Two::Time(Mode::LastByte)),
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

/// Chance, different in each worker.
#[derive(Default)]
struct Dice(Cell<u64>);

impl Dice {
    fn roll(&self) -> u64 {
        let mut x = self.0.get();
        if x == 0 {
            let mut seed = [0; 8];
            os::random::fill(&mut seed);
            x = u64::from_ne_bytes(seed) | 1;
        }
        // xorshift64*
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 1
    }
}

struct Random {
    servers: Rc<Servers>,
    two: Option<Two>,
    dice: Rc<Dice>,
}

impl Balancer for Random {
    fn picker(&self, _: &mut Request) -> Box<dyn Picker> {
        let (round, dice) = (Round::new(&self.servers), self.dice.clone());
        Box::new(Drawn::new(round, ByChance { two: self.two, dice }))
    }
}

struct ByChance {
    two: Option<Two>,
    dice: Rc<Dice>,
}

impl ByChance {
    /// Another server at random that can be asked.
    fn any(
        &self,
        round: &Round,
        misses: &mut Misses,
        but: Option<usize>,
        now: i64,
    ) -> Option<usize> {
        until_it_fits(misses, || {
            let point = self.dice.roll().cast_signed() % round.total_weight();
            let i = at_weight(round.list(), point);
            (but != Some(i) && round.may_ask(i, now)).then_some(i)
        })
    }
}

fn is_better(a: &Peer, b: &Peer, two: Two) -> bool {
    let load = |p: &Peer| match two {
        Two::Conns => p.conns(),
        Two::Time(mode) => eta(p, mode),
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

    fn account(&self, peer: &Peer, outcome: Outcome, times: Times) {
        if let Some(Two::Time(_)) = self.two {
            account(peer, outcome, times, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::upstream::peer::Spec;
    use os::SockAddr;

    fn servers(weights: &[i64]) -> Rc<Servers> {
        let spec = |(i, weight): (usize, &i64)| {
            let addr = SockAddr::parse(format!("127.0.0.1:{}", i + 1).as_bytes()).unwrap();
            Spec { weight: *weight, ..Spec::new(addr) }
        };
        let specs: Vec<Spec> = weights.iter().enumerate().map(spec).collect();
        Servers::own("u".into(), &specs)
    }

    fn spread(servers: &Rc<Servers>, two: Option<Two>, hold: bool) -> Vec<usize> {
        let dice = Rc::new(Dice(Cell::new(7)));
        let mut counts = vec![0; servers.lists().main.len()];
        for _ in 0..3000 {
            let round = Round::new(servers);
            let mut p = Drawn::new(round, ByChance { two, dice: dice.clone() });
            let peer = p.next(None).unwrap();
            counts[usize::from(peer.spec.addr.port()) - 1] += 1;
            if !hold {
                p.done(&peer, Outcome::Ok, Times::default());
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
        let counts = spread(&servers(&[1, 1, 1]), Some(Two::Conns), true);
        assert!(counts.iter().all(|n| (990..=1010).contains(n)), "{counts:?}");
    }
}
