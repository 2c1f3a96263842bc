//! `least_time header|last_byte [inflight]`: the server that is expected to answer first.

use std::rc::Rc;

use base::time;
use conf::table::Args;
use conf::value::enumeration;
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use super::least_conn::least;
use super::{Balancer, ExchangeTimes, Picker, Round, ServerOutcome, method, table};
use crate::block::Block;
use crate::peer::{Peer, word};
use crate::servers::Servers;

/// The time that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUntil {
    Header,
    /// Of engines without heads: until the connection stands.
    Connect,
    LastByte,
}

/// The words of `least_time` in HTTP.
const OF_REQUESTS: &[(&str, TimeUntil)] =
    &[("header", TimeUntil::Header), ("last_byte", TimeUntil::LastByte)];

/// The words for sessions of any protocol.
const OF_SESSIONS: &[(&str, TimeUntil)] = &[
    ("connect", TimeUntil::Connect),
    ("first_byte", TimeUntil::Header),
    ("last_byte", TimeUntil::LastByte),
];

/// The words of an engine.
pub(super) fn words<S: Session>() -> &'static [(&'static str, TimeUntil)] {
    if S::HAS_HEADS { OF_REQUESTS } else { OF_SESSIONS }
}

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    table("upstream_least_time", const { &[method("least_time", Args::T12, doc::<S>(), set)] })
}

/// The text of the table: engines have other times to go by.
const fn doc<S: Session>() -> &'static str {
    if S::HAS_HEADS {
        "Selects the server with the lowest average time to response headers or the last byte."
    } else {
        "Selects the server with the lowest average time to connect, or to the first or last byte."
    }
}

/// `least_time header|last_byte [inflight]`; for sessions without heads `connect`, `first_byte` or
/// `last_byte`.
///
/// # Errors
/// `invalid parameter`, `invalid value`.
fn set<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let inflight = match n.args.get(1) {
        None => false,
        Some(w) if w.bytes() == b"inflight" => true,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    let mode = enumeration(n, 0, words::<S>())?;
    let make = move |servers: &Rc<Servers>| {
        Box::new(LeastTime { servers: servers.clone(), mode, inflight }) as Box<_>
    };
    cx.loc::<Block>().set_method(n, true, Box::new(make));
    Ok(())
}

struct LeastTime {
    servers: Rc<Servers>,
    mode: TimeUntil,
    inflight: bool,
}

impl Balancer for LeastTime {
    fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
        let round = Round::new(&self.servers);
        let (mode, inflight) = (self.mode, self.inflight);
        Box::new(LeastTimePicker { round, mode, inflight, counted: false })
    }
}

struct LeastTimePicker {
    round: Round,
    mode: TimeUntil,
    inflight: bool,
    /// The exchange is counted in the words `INFLIGHT…`.
    counted: bool,
}

/// ExchangeTimes above this are equally bad, milliseconds; the number of exchanges decides between
/// them.
const TIME_MAX_MS: u64 = 5000;

/// ExchangeTimes that differ by less are the same, milliseconds.
const CLUSTER_MS: u64 = 20;

/// Moves an average by a twentieth towards a new value.
fn average(peer: &Peer, at: usize, value: u64) {
    let old = peer.get(at);
    let new = match old {
        0 => value,
        _ => (0.5 + value as f64 * 0.05 + old as f64 * 0.95) as u64,
    };
    peer.set(at, new);
}

/// The expected duration of one more request at a server, milliseconds.
pub(super) fn eta(peer: &Peer, mode: TimeUntil) -> u64 {
    let mut ms = match mode {
        TimeUntil::Header | TimeUntil::Connect => peer.get(word::HEADER_TIME),
        TimeUntil::LastByte => peer.get(word::RESPONSE_TIME),
    };
    let timeout = peer.spec.fail_timeout.max(0).cast_unsigned();
    let unseen = time::unix_secs().saturating_sub(peer.get(word::CHECKED));
    if unseen > timeout {
        // A slow server gets its chance again: its time halves with each span without requests.
        ms = ms.checked_shr(u32::try_from(unseen / (timeout + 1)).unwrap_or(64)).unwrap_or(0);
    }
    if peer.get(word::INFLIGHT) > 0 {
        ms = ms.max(peer.get(word::INFLIGHT_TIME));
    }
    ms = if ms > TIME_MAX_MS { TIME_MAX_MS } else { ms + CLUSTER_MS - ms % CLUSTER_MS };
    ms * (1 + peer.conns())
}

/// Under the lock: takes the times of an exchange into the averages. Failures do not count: a
/// server must not be preferred for failing fast.
pub(super) fn account(peer: &Peer, outcome: ServerOutcome, times: ExchangeTimes, header: bool) {
    let (ServerOutcome::Ok, Some(header_ms)) = (outcome, times.header_ms) else { return };
    average(peer, word::RESPONSE_TIME, times.response_ms);
    if header {
        average(peer, word::HEADER_TIME, header_ms);
    }
}

impl LeastTimePicker {
    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let now = time::unix_secs() as i64;
        let chosen = match self.round.bound(bound, now) {
            Some(i) => i,
            None => {
                self.age(now);
                least(&self.round, now, |p| eta(p, self.mode))?
            }
        };
        if self.inflight {
            let peer = &self.round.list()[chosen];
            let count = peer.get(word::INFLIGHT);
            if count > 0 {
                let more = since_change(peer) * count;
                peer.set(word::INFLIGHT_LAST, peer.get(word::INFLIGHT_LAST).wrapping_add(more));
            }
            peer.set(word::INFLIGHT_CHANGED, time::unix_ms());
            peer.set(word::INFLIGHT, count + 1);
            self.counted = true;
        }
        Some(self.round.take(chosen, now))
    }

    /// Takes the age of exchanges under way into their average.
    fn age(&self, now: i64) {
        for (i, p) in self.round.list().iter().enumerate() {
            let count = p.get(word::INFLIGHT);
            if count > 0 && self.round.may_ask(i, now) {
                let each = p.get(word::INFLIGHT_LAST) / count + since_change(p);
                average(p, word::INFLIGHT_TIME, each);
            }
        }
    }

    /// Under the lock: ends the count of the exchange under way, which took so long.
    fn end_inflight(&mut self, peer: &Peer, ms: u64) {
        if !std::mem::take(&mut self.counted) {
            return;
        }
        let count = peer.get(word::INFLIGHT);
        if count <= 1 {
            peer.set(word::INFLIGHT_LAST, 0);
        } else {
            let all = peer.get(word::INFLIGHT_LAST).wrapping_add(since_change(peer) * count);
            peer.set(word::INFLIGHT_LAST, all.saturating_sub(ms));
            peer.set(word::INFLIGHT_CHANGED, time::unix_ms());
        }
        peer.set(word::INFLIGHT, count.saturating_sub(1));
    }
}

/// Milliseconds since the number of exchanges under way changed.
fn since_change(peer: &Peer) -> u64 {
    time::unix_ms().saturating_sub(peer.get(word::INFLIGHT_CHANGED))
}

impl Picker for LeastTimePicker {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        if self.round.is_single() {
            return self.round.next(bound);
        }
        let servers = self.round.servers();
        let _lock = self.round.lock_to_choose(&servers);
        self.choose(bound)
            .or_else(|| if self.round.to_backup() { self.choose(bound) } else { None })
    }

    fn header(&mut self, peer: &Peer, ms: u64) {
        if self.inflight && self.mode != TimeUntil::LastByte {
            let servers = self.round.servers();
            let _lock = servers.lock();
            average(peer, word::HEADER_TIME, ms);
            self.end_inflight(peer, ms);
        }
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome, times: ExchangeTimes) -> bool {
        let servers = self.round.servers();
        let lock = servers.lock();
        self.end_inflight(peer, times.response_ms);
        account(peer, outcome, times, !(self.inflight && self.mode != TimeUntil::LastByte));
        drop(lock);
        self.round.done(peer, outcome)
    }

    fn is_single(&self) -> bool {
        self.round.is_single()
    }

    fn counts_connecting(&self) -> bool {
        self.mode == TimeUntil::Connect
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ServerSpec;
    use os::SockAddr;

    fn servers() -> Rc<Servers> {
        base::time::update();
        let addr = |port: u16| SockAddr::parse(format!("127.0.0.1:{port}").as_bytes()).unwrap();
        Servers::own("u".into(), &[ServerSpec::new(addr(1)), ServerSpec::new(addr(2))])
    }

    fn ask(servers: &Rc<Servers>, mode: TimeUntil, ms: impl Fn(u16) -> u64) -> u16 {
        let round = Round::new(servers);
        let mut p = LeastTimePicker { round, mode, inflight: false, counted: false };
        let peer = p.next(None).unwrap();
        let port = peer.spec.addr.port();
        let times = ExchangeTimes { header_ms: Some(ms(port)), response_ms: ms(port) };
        p.done(&peer, ServerOutcome::Ok, times);
        port
    }

    #[test]
    fn the_faster_server_is_asked() {
        for mode in [TimeUntil::Header, TimeUntil::LastByte] {
            let u = servers();
            let ms = |port| if port == 1 { 300 } else { 30 };
            let first = [ask(&u, mode, ms), ask(&u, mode, ms)];
            assert_eq!(first, [1, 2]);
            assert!((0..10).all(|_| ask(&u, mode, ms) == 2));
        }
    }

    #[test]
    fn times_that_are_close_count_the_same() {
        let u = servers();
        let ports: Vec<u16> =
            (0..6).map(|_| ask(&u, TimeUntil::Header, |port| port.into())).collect();
        assert_eq!(ports, [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn a_busy_server_takes_longer() {
        let u = servers();
        let peer = &u.lists().main[0];
        peer.set(word::CHECKED, time::unix_secs());
        peer.set(word::HEADER_TIME, 100);
        assert_eq!(eta(peer, TimeUntil::Header), 120);
        peer.set(word::CONNS, 2);
        assert_eq!(eta(peer, TimeUntil::Header), 360);
        peer.set(word::HEADER_TIME, 9000);
        assert_eq!(eta(peer, TimeUntil::Header), 15_000);
        peer.set(word::HEADER_TIME, 40);
        peer.set(word::INFLIGHT, 1);
        peer.set(word::INFLIGHT_TIME, 61);
        assert_eq!(eta(peer, TimeUntil::Header), 240);
    }
}
