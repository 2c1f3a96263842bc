//! `random [two [METHOD]]`: a server at random by weight, or the better of two.

use std::cell::Cell;
use std::rc::Rc;

use base::time;
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

use super::TRIES_MAX;
use super::ip_hash::at_weight;
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
        Box::new(RandomPicker { round, two: self.two, dice, tries: 0 })
    }
}

struct RandomPicker {
    round: Round,
    two: Option<Two>,
    dice: Rc<Dice>,
    tries: u32,
}

impl RandomPicker {
    /// Another server at random that can be asked.
    fn any(&mut self, but: Option<usize>, now: i64) -> Option<usize> {
        let total = self.round.total_weight();
        while self.tries <= TRIES_MAX {
            let point = self.dice.roll().cast_signed() % total;
            let i = at_weight(self.round.list(), point);
            if but != Some(i) && self.round.may_ask(i, now) {
                return Some(i);
            }
            self.tries += 1;
        }
        None
    }

    fn is_better(&self, other: usize, than: usize, two: Two) -> bool {
        let (a, b) = (&self.round.list()[other], &self.round.list()[than]);
        let load = |p: &Peer| match two {
            Two::Conns => p.conns(),
            Two::Time(mode) => eta(p, mode),
        };
        let weight = |p: &Peer| p.spec.weight.cast_unsigned();
        load(a) * weight(b) <= load(b) * weight(a)
    }

    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = servers.lock();
        let now = time::unix_secs() as i64;
        if let Some(i) = self.round.bound(bound, now) {
            return Some(self.round.take(i, now));
        }
        let mut i = self.any(None, now)?;
        if let Some(two) = self.two {
            let other = self.any(Some(i), now)?;
            if self.is_better(other, i, two) {
                i = other;
            }
        }
        Some(self.round.take(i, now))
    }
}

impl Picker for RandomPicker {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        if self.tries > TRIES_MAX || self.round.list().len() < 2 {
            return self.round.next(bound);
        }
        self.choose(bound).or_else(|| self.round.next(bound))
    }

    fn done(&mut self, peer: &Peer, outcome: Outcome, times: Times) -> bool {
        if let Some(Two::Time(_)) = self.two {
            let servers = self.round.servers();
            let _lock = servers.lock();
            account(peer, outcome, times, true);
        }
        self.round.done(peer, outcome)
    }

    fn is_single(&self) -> bool {
        self.round.is_single()
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
            let mut p = RandomPicker { round, two, dice: dice.clone(), tries: 0 };
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
