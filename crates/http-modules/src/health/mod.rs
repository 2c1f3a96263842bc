//! `health_check` and `match`: servers are asked whether they are well, also while nobody else asks
//! them. One worker asks for all; what it finds lies in the upstream's zone.

mod matching;
mod probe;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base::log::{Level, lossy};
use base::time::now_ms;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node, Word, value};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use http::server::HttpMain;
use http::upstream::Group;
use http::upstream::conf::Conf as UpConf;
use http::upstream::peer::{Peer, down, word};

use matching::Matching;
use probe::{Kept, Probe};

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream_hc",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<HealthConf>(Scope::Location), ConfType::of::<Checks>(Scope::Main)],
    install: Some(refuse_lonely),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "health_check",
        C::LOCATION,
        Args::ANY,
        "",
        "Asks the servers of the location's upstream regularly whether they are well.",
        health_check,
    ),
    directive(
        "match",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "What the answer of a server that is well is like: status, header, body.",
        |cx, n| {
            let name = n.arg(0)?;
            let matching = Matching::parse(n.children())?;
            let known = &mut cx.main::<Checks>().matches;
            if known.insert(name.text.clone(), Rc::new(matching)).is_some() {
                return Err(ConfError::at(name, format!("duplicate match \"{}\"", name.lossy())));
            }
            Ok(())
        },
    ),
];

/// What `health_check` says.
#[derive(Clone)]
struct Settings {
    at: Word,
    interval_ms: u64,
    jitter_ms: u64,
    fails: u64,
    passes: u64,
    uri: Bytes,
    mandatory: bool,
    persistent: bool,
    matching: Option<Word>,
    tcp: bool,
    port: Option<u16>,
    keepalive_ms: u64,
    /// A location's handler passes requests to the upstream that is checked.
    taken: Cell<bool>,
}

#[derive(Default)]
struct HealthConf(Option<Rc<Settings>>);

impl Conf for HealthConf {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

/// All checks of the configuration, and the `match` blocks.
#[derive(Default)]
struct Checks {
    matches: HashMap<Bytes, Rc<Matching>>,
    list: RefCell<Vec<Rc<Check>>>,
}

impl Conf for Checks {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

fn health_check(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<HealthConf>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let mut s = Settings {
        at: n.name.clone(),
        interval_ms: 5_000,
        jitter_ms: 0,
        fails: 1,
        passes: 1,
        uri: Bytes::from_static(b"/"),
        mandatory: false,
        persistent: false,
        matching: None,
        tcp: false,
        port: None,
        keepalive_ms: 0,
        taken: Cell::new(false),
    };
    for w in &n.args {
        s.parameter(w)?;
    }
    if s.persistent && !s.mandatory {
        let m = "\"persistent\" is a parameter of \"mandatory\"";
        return Err(ConfError::directive(n, m));
    }
    cx.loc::<HealthConf>().0 = Some(Rc::new(s));
    Ok(())
}

impl Settings {
    fn parameter(&mut self, w: &Word) -> Result<(), ConfError> {
        let invalid = || ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()));
        let text = w.bytes();
        let (name, v) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        let msec = |v: &[u8]| value::parse_msec(v).ok_or_else(invalid);
        let count = |v: &[u8]| base::ascii::parse_u64(v).filter(|n| *n > 0).ok_or_else(invalid);
        match (name, v) {
            (b"interval", Some(v)) => self.interval_ms = msec(v)?.max(1),
            (b"jitter", Some(v)) => self.jitter_ms = msec(v)?,
            (b"keepalive_time", Some(v)) => self.keepalive_ms = msec(v)?,
            (b"fails", Some(v)) => self.fails = count(v)?,
            (b"passes", Some(v)) => self.passes = count(v)?,
            (b"uri", Some(v)) if v.first() == Some(&b'/') && is_line(v) => {
                self.uri = w.text.slice_ref(v);
            }
            (b"match", Some(v)) if !v.is_empty() => {
                self.matching = Some(Word { text: w.text.slice_ref(v), ..w.clone() });
            }
            (b"port", Some(v)) => {
                let port = base::ascii::parse_u64(v).and_then(|p| u16::try_from(p).ok());
                self.port = Some(port.filter(|p| *p > 0).ok_or_else(invalid)?);
            }
            (b"type", Some(b"http")) => self.tcp = false,
            (b"type", Some(b"tcp")) => self.tcp = true,
            (b"type", Some(b"grpc")) => {
                let m = "parameter \"type=grpc\" is not supported by this version of weir";
                return Err(ConfError::at(w, m));
            }
            (b"mandatory", None) => self.mandatory = true,
            (b"persistent", None) => self.persistent = true,
            _ => return Err(invalid()),
        }
        Ok(())
    }
}

/// Nothing in it ends a line or a word of a request.
fn is_line(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_graphic())
}

/// One upstream that is checked.
struct Check {
    settings: Rc<Settings>,
    matching: Rc<Matching>,
    group: Rc<Group>,
    request: Bytes,
    connect_ms: u64,
    read_ms: u64,
    /// Another configuration's checks count anew where nothing is `persistent`.
    generation: u64,
    /// Servers that are being asked, and connections that were kept, by the servers' numbers.
    busy: RefCell<Vec<u64>>,
    kept: RefCell<HashMap<u64, Kept>>,
}

/// What the servers of a location are asked in.
pub enum Language<'a> {
    /// HTTP, by requests that name this host.
    Http(&'a [u8]),
    /// The language of the gateway whose directives begin like this: only connections are tried.
    Gateway(&'static str),
}

/// Stands behind the modules that pass requests on: what none of them took would never be done.
fn refuse_lonely(l: &LocView, _: &mut Pipeline) -> Result<(), ConfError> {
    if !l.set_here::<HealthConf>() {
        return Ok(());
    }
    match &l.conf::<HealthConf>().0 {
        Some(settings) if !settings.taken.get() => {
            let m = "\"health_check\" requires that its location passes requests to an upstream \
                     without variables in its name";
            Err(ConfError::at(&settings.at, m.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Called for each location that passes requests to a group: its servers are checked where
/// `health_check` says so.
///
/// # Errors
/// The upstream has no zone; no such `match`; a gateway is to be asked for more than a connection.
pub fn install(
    l: &LocView,
    group: &Rc<Group>,
    conf: &UpConf,
    language: &Language,
) -> Result<(), ConfError> {
    if !l.set_here::<HealthConf>() {
        return Ok(());
    }
    let Some(settings) = l.conf::<HealthConf>().0.clone() else { return Ok(()) };
    settings.taken.set(true);
    let host = match language {
        Language::Http(host) => host,
        Language::Gateway(_) if settings.tcp => &b""[..],
        Language::Gateway(prefix) => {
            let m = format!("\"health_check\" beside \"{prefix}_pass\" requires \"type=tcp\"");
            return Err(ConfError::at(&settings.at, m));
        }
    };
    if !group.servers.is_shared() {
        let m = format!(
            "health_check requires upstream \"{}\" to be in shared memory",
            lossy(&group.name)
        );
        return Err(ConfError::at(&settings.at, m));
    }
    let checks = l.conf::<Checks>();
    let matching = match &settings.matching {
        None => Rc::new(Matching::default()),
        Some(w) => checks
            .matches
            .get(&w.text)
            .cloned()
            .ok_or_else(|| ConfError::at(w, format!("match \"{}\" not found", w.lossy())))?,
    };
    let connection: &[u8] = if settings.keepalive_ms > 0 { b"keep-alive" } else { b"close" };
    let request = [
        b"GET ",
        &settings.uri[..],
        b" HTTP/1.1\r\nHost: ",
        host,
        b"\r\nUser-Agent: weir (health check)\r\nConnection: ",
        connection,
        b"\r\n\r\n",
    ]
    .concat();
    if settings.mandatory {
        group.servers.add_as(down::UNCHECKED);
    }
    let check = Check {
        settings,
        matching,
        group: group.clone(),
        request: request.into(),
        connect_ms: conf.connect_timeout,
        read_ms: conf.read_timeout,
        generation: os::random::number() | 1,
        busy: RefCell::default(),
        kept: RefCell::default(),
    };
    checks.list.borrow_mut().push(Rc::new(check));
    Ok(())
}

fn start(main: &Rc<HttpMain>, _: &engine::Seat) {
    let Some(checks) = main.confs.get::<Checks>() else { return };
    for check in checks.list.borrow().iter() {
        check.begin();
        event::spawn(run(main.clone(), check.clone()));
    }
}

/// How often a worker looks whether it is its turn to check, milliseconds.
const LEAD_MS: u64 = 1_000;

async fn run(main: Rc<HttpMain>, check: Rc<Check>) {
    let rows = check.group.servers.rows();
    while !main.gate.is_closed() {
        let wait = if rows.try_lead() {
            check.round();
            let jitter = check.settings.jitter_ms;
            let more = if jitter > 0 { os::random::number() % (jitter + 1) } else { 0 };
            check.settings.interval_ms.saturating_add(more)
        } else {
            LEAD_MS
        };
        event::race(event::sleep(wait), main.gate.closed()).await;
    }
    rows.stop_leading();
}

impl Check {
    /// Where nothing is asked before its first check: notes that for servers that had none.
    fn begin(&self) {
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

    /// Asks every server once.
    fn round(self: &Rc<Self>) {
        let lists = self.group.servers.lists();
        let there = |n: &u64| lists.all().any(|p| p.number() == *n);
        self.kept.borrow_mut().retain(|n, _| there(n));
        for peer in lists.all().filter(|p| p.down() & down::DOWN == 0) {
            let mut busy = self.busy.borrow_mut();
            if busy.contains(&peer.number()) {
                continue;
            }
            busy.push(peer.number());
            let (check, peer) = (self.clone(), peer.clone());
            event::spawn(async move {
                check.ask(&peer).await;
                check.busy.borrow_mut().retain(|n| *n != peer.number());
            });
        }
    }

    async fn ask(&self, peer: &Peer) {
        let s = &self.settings;
        let kept = self.kept.borrow_mut().remove(&peer.number());
        let kept = kept.filter(|(_, made)| now_ms().saturating_sub(*made) < s.keepalive_ms);
        let addr = match s.port {
            Some(port) => peer.spec.addr.with_port(port),
            None => peer.spec.addr.clone(),
        };
        let probe = Probe {
            request: (!s.tcp).then_some(&self.request),
            matching: &self.matching,
            connect_ms: self.connect_ms,
            read_ms: self.read_ms,
        };
        match probe.ask(&addr, kept).await {
            Ok(kept) => {
                if let Some(kept) = kept.filter(|_| s.keepalive_ms > 0) {
                    self.kept.borrow_mut().insert(peer.number(), kept);
                }
                self.passed(peer);
            }
            Err(ill) => self.failed(peer, &ill),
        }
    }

    /// Counts a check; gives how many of its kind there were in a row.
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
        let ill = down::UNHEALTHY | down::UNCHECKED;
        if peer.down() & ill != 0 && streak >= self.settings.passes {
            self.tell(Level::Notice, peer, "is healthy");
            self.group.servers.set_down(peer, 0, ill);
        }
    }

    fn failed(&self, peer: &Peer, why: &str) {
        let streak = self.count(peer, word::STREAK_BAD, word::STREAK);
        {
            let _lock = self.group.servers.lock();
            peer.set(word::CHECKS_FAILED, peer.get(word::CHECKS_FAILED).wrapping_add(1));
        }
        if peer.down() & down::UNHEALTHY == 0 && streak >= self.settings.fails {
            self.tell(Level::Warn, peer, &format!("is unhealthy: {why}"));
            self.group.servers.set_down(peer, down::UNHEALTHY, down::UNCHECKED);
        }
    }

    fn tell(&self, level: Level, peer: &Peer, what: &str) {
        let (name, upstream) = (lossy(&peer.name), lossy(&self.group.name));
        let log = base::log::default();
        base::log!(log, level, None, "peer {name} in upstream \"{upstream}\" {what}");
    }
}
