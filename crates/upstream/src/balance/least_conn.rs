//! `least_conn`: the server with the fewest exchanges under way, for its weight.

use std::rc::Rc;

use base::time;
use conf::table::Args;
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use super::{Balancer, ExchangeTimes, Picker, Round, ServerOutcome, method, table};
use crate::block::Block;
use crate::peer::Peer;
use crate::servers::Servers;

const DOC: &str =
    "Selects the server with the fewest active requests or sessions, relative to its weight.";

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    table("upstream_least_conn", const { &[method("least_conn", Args::NONE, DOC, set)] })
}

/// `least_conn`
///
/// # Errors
/// None of its own.
fn set<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let make = |servers: &Rc<Servers>| Box::new(LeastConn(servers.clone())) as Box<_>;
    cx.loc::<Block>().set_method(n, true, Box::new(make));
    Ok(())
}

struct LeastConn(Rc<Servers>);

impl Balancer for LeastConn {
    fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
        Box::new(LeastConnPicker(Round::new(&self.0)))
    }
}

struct LeastConnPicker(Round);

impl LeastConnPicker {
    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let (now, round) = (time::unix_secs() as i64, &mut self.0);
        if let Some(i) = round.bound(bound, now) {
            return Some(round.take(i, now));
        }
        let i = least(round, now, |p| p.conns())?;
        Some(round.take(i, now))
    }
}

/// The server of which `load` is least for its weight; of several such, the next by round robin.
pub(super) fn least(round: &Round, now: i64, load: impl Fn(&Peer) -> u64) -> Option<usize> {
    let now_ms = time::unix_ms();
    let weight = |p: &Peer| round.weight(p, now_ms).cast_unsigned();
    let list = round.list();
    // Fractions are compared crosswise.
    let mut best: Option<(usize, u64, u64)> = None;
    let mut several = false;
    for (i, p) in list.iter().enumerate() {
        if !round.may_ask(i, now) {
            continue;
        }
        let (load, weight) = (load(p), weight(p));
        match best {
            Some((_, l, w)) if load * w > l * weight => {}
            Some((_, l, w)) if load * w == l * weight => several = true,
            _ => {
                best = Some((i, load, weight));
                several = false;
            }
        }
    }
    let (first, l, w) = best?;
    if !several {
        return Some(first);
    }
    let fits = |i: usize| {
        let p = &list[i];
        round.may_ask(i, now) && load(p) * w == l * weight(p)
    };
    let (best, total) = round.smoothest(Some(first), fits);
    let i = best.unwrap_or(first);
    round.pay(i, total);
    Some(i)
}

impl Picker for LeastConnPicker {
    fn tries(&self) -> u32 {
        self.0.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        if self.0.is_single() {
            return self.0.next(bound);
        }
        let servers = self.0.servers();
        let _lock = self.0.lock_to_choose(&servers);
        self.choose(bound).or_else(|| if self.0.to_backup() { self.choose(bound) } else { None })
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, _: ExchangeTimes) -> bool {
        self.0.done(peer, outcome)
    }

    fn is_single(&self) -> bool {
        self.0.is_single()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ServerSpec;
    use os::SockAddr;

    fn picker(weights: &[i64]) -> (Rc<Servers>, impl Fn() -> LeastConnPicker) {
        let spec = |(i, weight): (usize, &i64)| {
            let addr = SockAddr::parse(format!("127.0.0.1:{}", i + 1).as_bytes()).unwrap();
            ServerSpec { weight: *weight, ..ServerSpec::new(addr) }
        };
        let specs: Vec<ServerSpec> = weights.iter().enumerate().map(spec).collect();
        let servers = Servers::own("u".into(), &specs);
        (servers.clone(), move || LeastConnPicker(Round::new(&servers)))
    }

    #[test]
    fn the_least_loaded_for_its_weight() {
        let (_, picker) = picker(&[1, 3]);
        let mut ports = Vec::new();
        for _ in 0..8 {
            // Each stays under way.
            ports.push(picker().next(None).unwrap().spec.addr.port());
        }
        let first = ports.iter().filter(|p| **p == 1).count();
        assert_eq!((first, ports.len() - first), (2, 6), "{ports:?}");
    }

    #[test]
    fn ties_go_round() {
        let (_, picker) = picker(&[1, 1, 1]);
        let ports: Vec<u16> = (0..6)
            .map(|_| {
                let mut p = picker();
                let peer = p.next(None).unwrap();
                p.done(&peer, ServerOutcome::Ok, ExchangeTimes::default());
                peer.spec.addr.port()
            })
            .collect();
        assert_eq!(ports, [1, 2, 3, 1, 2, 3]);
    }
}
