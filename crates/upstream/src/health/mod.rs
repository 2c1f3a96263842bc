//! Health checks of an upstream's servers: their directives ([`conf`]), rounds, and verdicts from
//! the results. One worker, the leader of the zone, checks for all; the verdicts are in the
//! upstream's zone. An engine supplies the check itself as a [`Probe`] (`http-proxying/src/health`,
//! `stream/src/proxy/health`).

pub mod conf;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use ::conf::{ConfError, Node, Word, value};
use base::ascii::parse_u64;
use base::log::{Level, lossy};
use base::time::now_ms;
use event::Gate;
use os::SockAddr;

use crate::group::Group;
use crate::peer::{Peer, down, word};
use crate::pool::UpConn;

/// The settings of `health_check` that concern rounds and verdicts, whatever is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `interval=`: between two rounds, milliseconds.
    pub interval_ms: u64,
    /// `jitter=`: the most that is added to it at random, milliseconds.
    pub jitter_ms: u64,
    /// `fails=`: failures in a row that make a server unhealthy.
    pub fails: u64,
    /// `passes=`: passed checks in a row that make it healthy again.
    pub passes: u64,
    /// `mandatory`: a server is asked for nothing before its first check.
    pub mandatory: bool,
    /// `persistent`: the verdict of the configuration before holds until then.
    pub persistent: bool,
    /// `port=`: the port of checks, where it is another one.
    pub port: Option<u16>,
    /// `keepalive_time=`: the age up to which connections of checks are used again, milliseconds.
    pub keepalive_ms: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval_ms: 5_000,
            jitter_ms: 0,
            fails: 1,
            passes: 1,
            mandatory: false,
            persistent: false,
            port: None,
            keepalive_ms: 0,
        }
    }
}

impl Settings {
    /// Reads a parameter of `health_check`; false where it is none of these.
    ///
    /// # Errors
    /// `invalid parameter`.
    pub fn parameter(&mut self, w: &Word) -> Result<bool, ConfError> {
        let invalid = || conf::invalid(w);
        let text = w.bytes();
        let (name, v) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        let msec = |v: &[u8]| value::parse_msec(v).ok_or_else(invalid);
        let count = |v: &[u8]| parse_u64(v).filter(|n| *n > 0).ok_or_else(invalid);
        match (name, v) {
            (b"interval", Some(v)) => self.interval_ms = msec(v)?.max(1),
            (b"jitter", Some(v)) => self.jitter_ms = msec(v)?,
            (b"keepalive_time", Some(v)) => self.keepalive_ms = msec(v)?,
            (b"fails", Some(v)) => self.fails = count(v)?,
            (b"passes", Some(v)) => self.passes = count(v)?,
            (b"port", Some(v)) => {
                let port = parse_u64(v).and_then(|p| u16::try_from(p).ok());
                self.port = Some(port.filter(|p| *p > 0).ok_or_else(invalid)?);
            }
            (b"mandatory", None) => self.mandatory = true,
            (b"persistent", None) => self.persistent = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// All parameters are read.
    ///
    /// # Errors
    /// `persistent` without `mandatory`.
    pub fn finish(&self, n: &Node) -> Result<(), ConfError> {
        match self.persistent && !self.mandatory {
            true => Err(ConfError::directive(n, "\"persistent\" is a parameter of \"mandatory\"")),
            false => Ok(()),
        }
    }
}

/// The failure of a check, for the log.
pub type Failure = String;

/// The result of a check: the connection, if it can carry the next one.
pub type Checked = Result<Option<UpConn>, Failure>;

/// The question of a check, in the engine's protocol.
pub trait Probe {
    /// Asks the server at an address. `kept` is the connection of an earlier check.
    fn ask<'a>(
        &'a self,
        addr: &'a SockAddr,
        kept: Option<UpConn>,
    ) -> Pin<Box<dyn Future<Output = Checked> + 'a>>;
}

/// Servers without a zone cannot be checked: workers would not share the verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotShared;

/// The checks of one upstream.
pub struct Checker {
    settings: Settings,
    group: Rc<Group>,
    probe: Box<dyn Probe>,
    /// Of this configuration: without `persistent` the checks of another one do not count.
    generation: u64,
    /// Numbers of servers that are being asked.
    busy: RefCell<HashSet<u64>>,
    /// Connections for the next checks, by the servers' numbers.
    kept: RefCell<HashMap<u64, UpConn>>,
}

/// Interval at which a worker tries to become the one that leads, milliseconds.
const LEAD_MS: u64 = 1_000;

/// Checks that begin in one turn of the loop: each opens a connection, and requests of clients
/// wait.
const BEGUN_AT_ONCE: usize = 32;

async fn run(checker: Rc<Checker>, gate: Gate) {
    let rows = checker.group.servers.rows();
    while !gate.is_closed() {
        let wait = if rows.try_lead() {
            checker.round().await;
            let jitter = checker.settings.jitter_ms;
            let more = if jitter > 0 { os::random::number() % (jitter + 1) } else { 0 };
            checker.settings.interval_ms.saturating_add(more)
        } else {
            LEAD_MS
        };
        event::race(event::sleep(wait), gate.closed()).await;
    }
    rows.stop_leading();
}

impl Checker {
    /// Checks of that group's servers.
    ///
    /// # Errors
    /// The group has no zone.
    pub fn new(
        settings: Settings,
        group: &Rc<Group>,
        probe: Box<dyn Probe>,
    ) -> Result<Rc<Checker>, NotShared> {
        if !group.servers.is_shared() {
            return Err(NotShared);
        }
        if settings.mandatory {
            group.servers.add_as(down::UNCHECKED);
        }
        Ok(Rc::new(Checker {
            settings,
            group: group.clone(),
            probe,
            generation: os::random::number() | 1,
            busy: RefCell::default(),
            kept: RefCell::default(),
        }))
    }

    /// In a worker: begins to check, until the gate closes.
    pub fn start(self: &Rc<Self>, gate: &Gate) {
        self.mark_unchecked();
        event::spawn(run(self.clone(), gate.clone()));
    }

    /// With `mandatory`: marks servers that had no check yet.
    fn mark_unchecked(&self) {
        if !self.settings.mandatory {
            return;
        }
        let servers = &self.group.servers;
        for peer in servers.lists().all() {
            let anew = !self.settings.persistent && peer.get(word::CHECKED_BY) != self.generation;
            if peer.get(word::CHECKS) == 0 || anew {
                peer.set(word::CHECKED_BY, self.generation);
                servers.set_down(peer, down::UNCHECKED, 0);
            }
        }
    }

    /// Begins to ask every server once.
    async fn round(self: &Rc<Self>) {
        let lists = self.group.servers.lists();
        let there: HashSet<u64> = lists.all().map(|p| p.number()).collect();
        self.kept.borrow_mut().retain(|n, _| there.contains(n));
        for (i, peer) in lists.all().filter(|p| p.down() & down::DOWN == 0).enumerate() {
            if i > 0 && i % BEGUN_AT_ONCE == 0 {
                event::task::yield_now().await;
            }
            if !self.busy.borrow_mut().insert(peer.number()) {
                continue;
            }
            let (checker, peer) = (self.clone(), peer.clone());
            event::spawn(async move {
                checker.ask(&peer).await;
                checker.busy.borrow_mut().remove(&peer.number());
            });
        }
    }

    async fn ask(&self, peer: &Peer) {
        let s = &self.settings;
        let kept = self.kept.borrow_mut().remove(&peer.number());
        let kept = kept.filter(|c| now_ms().saturating_sub(c.start_ms) < s.keepalive_ms);
        let addr = match s.port {
            Some(port) => peer.spec.addr.with_port(port),
            None => peer.spec.addr.clone(),
        };
        match self.probe.ask(&addr, kept).await {
            Ok(kept) => {
                if let Some(kept) = kept.filter(|_| s.keepalive_ms > 0) {
                    self.kept.borrow_mut().insert(peer.number(), kept);
                }
                self.passed(peer);
            }
            Err(failure) => self.failed(peer, &failure),
        }
    }

    /// Counts a check; gives the length of its streak.
    fn count(&self, peer: &Peer, of: usize, other: usize) -> u64 {
        let _lock = self.group.servers.lock();
        peer.set(word::CHECKS, peer.get(word::CHECKS).wrapping_add(1));
        peer.set(other, 0);
        let streak = peer.get(of).saturating_add(1);
        peer.set(of, streak);
        streak
    }

    fn passed(&self, peer: &Peer) {
        let streak = self.count(peer, word::STREAK, word::STREAK_BAD);
        let unfit = down::UNHEALTHY | down::UNCHECKED;
        if peer.down() & unfit != 0 && streak >= self.settings.passes {
            self.log(Level::Notice, peer, "is healthy");
            self.group.servers.set_down(peer, 0, unfit);
        }
    }

    fn failed(&self, peer: &Peer, why: &str) {
        let streak = self.count(peer, word::STREAK_BAD, word::STREAK);
        {
            let _lock = self.group.servers.lock();
            peer.set(word::CHECKS_FAILED, peer.get(word::CHECKS_FAILED).wrapping_add(1));
        }
        if peer.down() & down::UNHEALTHY == 0 && streak >= self.settings.fails {
            self.log(Level::Warn, peer, &format!("is unhealthy: {why}"));
            self.group.servers.set_down(peer, down::UNHEALTHY, down::UNCHECKED);
        }
    }

    fn log(&self, level: Level, peer: &Peer, what: &str) {
        let (name, upstream) = (lossy(&peer.name), lossy(&self.group.name));
        let log = base::log::default();
        base::log!(log, level, None, "peer {name} in upstream \"{upstream}\" {what}");
    }
}
