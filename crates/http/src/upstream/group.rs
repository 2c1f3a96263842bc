//! `upstream` blocks, and the upstreams that stand for a host named without one.

use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::{self, set_msec, set_num};
use conf::{ConfError, Node, Word};
use os::SockAddr;

use super::balance::{Balancer, Peer, RoundRobin};
use super::exchange::Target;
use super::pool::{Pool, PoolConf};
use super::url::{self, Url};
use crate::core_directives::directive;
use crate::cx::Cx;
use crate::module::{Conf, ConfType, Module, Scope};
use crate::request::Request;

/// The `upstream` module's table: the block, round robin, kept connections, `$upstream_…`.
pub static MODULE: Module = Module {
    name: "upstream",
    directives: DIRECTIVES,
    variables: super::state::VARIABLES,
    confs: &[ConfType::of::<Upstreams>(Scope::Main), ConfType::of::<Block>(Scope::Server)],
    init: Some(init),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "upstream",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "A group of servers that requests are passed to by its name.",
        upstream,
    ),
    directive(
        "server",
        C::UPSTREAM,
        Args::ONE_MORE,
        "",
        "A server of the group, with its weight and limits.",
        server,
    ),
    directive(
        "keepalive",
        C::UPSTREAM,
        Args::T12,
        "32 local",
        "How many idle connections a worker keeps to servers of the group; 0 keeps none.",
        keepalive,
    ),
    directive(
        "keepalive_requests",
        C::UPSTREAM,
        Args::T1,
        "1000",
        "How many requests a connection to a server may carry.",
        |cx, n| set_num(&mut cx.loc::<Block>().requests, n),
    ),
    directive(
        "keepalive_time",
        C::UPSTREAM,
        Args::T1,
        "1h",
        "How old a connection to a server may become.",
        |cx, n| set_msec(&mut cx.loc::<Block>().time, n),
    ),
    directive(
        "keepalive_timeout",
        C::UPSTREAM,
        Args::T1,
        "60s",
        "How long an idle connection to a server is kept.",
        |cx, n| set_msec(&mut cx.loc::<Block>().timeout, n),
    ),
];

/// A group of servers, ready to be asked.
pub struct Group {
    /// Its name; the host's where there is no block.
    pub name: Bytes,
    /// How its servers are chosen.
    pub balancer: Box<dyn Balancer>,
    /// Its idle connections, where it keeps any.
    pub pool: Option<Rc<Pool>>,
    port: u16,
    explicit: bool,
}

/// One `server` line.
struct Server {
    addrs: Vec<SockAddr>,
    weight: i64,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: i64,
    backup: bool,
    down: bool,
}

/// What an `upstream` block sets.
#[derive(Default)]
pub struct Block {
    servers: Vec<Server>,
    keepalive: Option<(usize, bool)>,
    requests: Option<u64>,
    time: Option<u64>,
    timeout: Option<u64>,
}

impl Conf for Block {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

struct Explicit {
    name: Word,
    block: Block,
}

/// All upstreams of the configuration.
#[derive(Default)]
pub struct Upstreams {
    blocks: Vec<Explicit>,
    references: Vec<(Url, Word)>,
    groups: Vec<Rc<Group>>,
    /// For each reference its group.
    of_reference: Vec<usize>,
}

impl Conf for Upstreams {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

/// Stands for the group that a directive named, until all groups are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRef(usize);

impl Upstreams {
    /// Notes that a directive passes requests to `url`.
    pub fn refer(&mut self, url: Url, at: &Word) -> GroupRef {
        self.references.push((url, at.clone()));
        GroupRef(self.references.len() - 1)
    }

    /// The group of a reference, once the configuration was read.
    pub fn group(&self, r: GroupRef) -> Option<Rc<Group>> {
        self.of_reference.get(r.0).and_then(|i| self.groups.get(*i)).cloned()
    }

    /// The group that a name and port computed at run time stand for.
    pub fn find(&self, url: &Url) -> Option<Rc<Group>> {
        let fits = |g: &&Rc<Group>| {
            (g.port == 0 && url.no_port || g.port == url.port)
                && base::ascii::eq_ignore_case(&g.name, &url.host)
        };
        self.groups.iter().find(fits).cloned()
    }
}

impl Upstreams {
    /// Where a request goes whose server was named at run time.
    ///
    /// # Errors
    /// The status to answer with; the reason was logged.
    pub fn target(&self, r: &Request, url: &Url) -> Result<Target, u16> {
        if let Some(group) = self.find(url) {
            return Ok(Target::Group(group));
        }
        let host = || base::log::lossy(&url.host).into_owned();
        match &url.addr {
            Some(addr) if url.port > 0 || addr.is_unix() => Ok(Target::Addr(addr.clone())),
            _ if url.port == 0 => {
                r.log(Level::Error, format_args!("no port in upstream \"{}\"", host()));
                Err(500)
            }
            _ => {
                let host = host();
                r.log(Level::Error, format_args!("no resolver defined to resolve {host}"));
                Err(502)
            }
        }
    }
}

fn upstream(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?.clone();
    let same = |e: &&Explicit| base::ascii::eq_ignore_case(&e.name.text, &name.text);
    if cx.main::<Upstreams>().blocks.iter().find(same).is_some() {
        return Err(ConfError::at(&name, format!("duplicate upstream \"{}\"", name.lossy())));
    }
    let mut level = cx.block(n, C::UPSTREAM, None)?;
    let block = std::mem::take(level.get::<Block>());
    if block.servers.is_empty() {
        return Err(ConfError::at(&n.name, "no servers are inside upstream"));
    }
    cx.main::<Upstreams>().blocks.push(Explicit { name, block });
    Ok(())
}

fn server(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let mut s = Server {
        addrs: Vec::new(),
        weight: 1,
        max_conns: 0,
        max_fails: 1,
        fail_timeout: 10,
        backup: false,
        down: false,
    };
    for w in &n.args[1..] {
        parameter(&mut s, w)?;
    }
    let in_upstream =
        |e: &str| ConfError::at(word, format!("{e} in upstream \"{}\"", word.lossy()));
    let url = url::parse(&word.text, 80, false).map_err(in_upstream)?;
    s.addrs = match url.addr {
        Some(a) => vec![a],
        None => url::resolve(&url.host, url.port),
    };
    if s.addrs.is_empty() {
        return Err(in_upstream("host not found"));
    }
    cx.loc::<Block>().servers.push(s);
    Ok(())
}

fn parameter(s: &mut Server, w: &Word) -> Result<(), ConfError> {
    let invalid = || ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()));
    let text = w.bytes();
    let (name, value) = match memchr::memchr(b'=', text) {
        Some(i) => (&text[..i], Some(&text[i + 1..])),
        None => (text, None),
    };
    let number = |v: &[u8]| {
        base::ascii::parse_u64(v).and_then(|n| u32::try_from(n).ok()).ok_or_else(invalid)
    };
    match (name, value) {
        (b"weight", Some(v)) => {
            s.weight = number(v)?.into();
            if s.weight == 0 {
                return Err(invalid());
            }
        }
        (b"max_conns", Some(v)) => s.max_conns = number(v)?,
        (b"max_fails", Some(v)) => s.max_fails = number(v)?,
        (b"fail_timeout", Some(v)) => {
            s.fail_timeout = value::parse_sec(v).ok_or_else(invalid)? as i64;
        }
        (b"backup", None) => s.backup = true,
        (b"down", None) => s.down = true,
        (b"resolve" | b"drain", None) | (b"service" | b"route", Some(_)) => {
            let m = "is not supported by this version of weir";
            return Err(ConfError::at(w, format!("parameter \"{}\" {m}", w.lossy())));
        }
        _ => return Err(invalid()),
    }
    Ok(())
}

fn keepalive(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().keepalive.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let max = n.arg(0)?;
    let count = base::ascii::parse_u64(max.bytes()).and_then(|n| usize::try_from(n).ok());
    let count = count.ok_or_else(|| {
        let m = format!("invalid value \"{}\" in \"keepalive\" directive", max.lossy());
        ConfError::at(max, m)
    })?;
    let local = match n.args.get(1) {
        None => false,
        Some(w) if w.bytes() == b"local" => true,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    cx.loc::<Block>().keepalive = Some((count, local));
    Ok(())
}

/// Makes the groups: the blocks', then one for each other host that a directive named.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let all = cx.main::<Upstreams>();
    let mut groups = Vec::new();
    for e in std::mem::take(&mut all.blocks) {
        groups.push(Rc::new(explicit(e)?));
    }
    let mut by_name: HashMap<(Vec<u8>, u16), usize> = HashMap::new();
    for (url, at) in &all.references {
        let name = url.host.to_ascii_lowercase();
        let block = groups
            .iter()
            .position(|g: &Rc<Group>| g.explicit && base::ascii::eq_ignore_case(&g.name, &name));
        let i = match block {
            Some(_) if !url.no_port => {
                let (host, port) = (String::from_utf8_lossy(&url.host), url.port);
                let m = format!("upstream \"{host}\" may not have port {port}");
                return Err(ConfError::at(at, m));
            }
            Some(i) => i,
            None => match by_name.get(&(name.clone(), url.port)) {
                Some(i) => *i,
                None => {
                    groups.push(Rc::new(implicit(url, at)?));
                    by_name.insert((name, url.port), groups.len() - 1);
                    groups.len() - 1
                }
            },
        };
        all.of_reference.push(i);
    }
    all.groups = groups;
    Ok(())
}

fn explicit(e: Explicit) -> Result<Group, ConfError> {
    let b = e.block;
    let (mut main, mut backup) = (Vec::new(), Vec::new());
    for s in b.servers {
        let list = if s.backup { &mut backup } else { &mut main };
        list.extend(s.addrs.into_iter().map(|a| {
            let mut p = Peer::new(a).with_weight(s.weight);
            p.max_conns = s.max_conns;
            p.max_fails = s.max_fails;
            p.fail_timeout = s.fail_timeout;
            p.down = s.down;
            Rc::new(p)
        }));
    }
    if main.is_empty() {
        let m = format!("no servers in upstream \"{}\"", e.name.lossy());
        return Err(ConfError::at(&e.name, m));
    }
    let (max, local) = b.keepalive.unwrap_or((32, true));
    let pool = (max > 0).then(|| {
        Pool::new(PoolConf {
            max,
            local,
            requests: b.requests.unwrap_or(1000),
            time_ms: b.time.unwrap_or(3_600_000),
            timeout_ms: b.timeout.unwrap_or(60_000),
        })
    });
    Ok(Group {
        name: e.name.text,
        balancer: Box::new(RoundRobin::new(main, backup)),
        pool,
        port: 0,
        explicit: true,
    })
}

fn implicit(url: &Url, at: &Word) -> Result<Group, ConfError> {
    if url.port == 0 && !url.addr.as_ref().is_some_and(SockAddr::is_unix) {
        let host = String::from_utf8_lossy(&url.host);
        return Err(ConfError::at(at, format!("no port in upstream \"{host}\"")));
    }
    let addrs = match &url.addr {
        Some(a) => vec![a.clone()],
        None => url::resolve(&url.host, url.port),
    };
    let host = String::from_utf8_lossy(&url.host);
    if addrs.is_empty() {
        return Err(ConfError::at(at, format!("host not found in upstream \"{host}\"")));
    }
    let peers = addrs.into_iter().map(|a| Rc::new(Peer::new(a))).collect();
    Ok(Group {
        name: url.host.clone(),
        balancer: Box::new(RoundRobin::new(peers, Vec::new())),
        pool: None,
        port: url.port,
        explicit: false,
    })
}
