//! Groups of servers: those of `upstream` blocks, and those that stand for a host named without
//! one.

use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::table::Contexts as C;
use conf::{ConfError, Node, Word};

use super::balance::{Balancer, RoundRobin};
use super::block::{Block, DIRECTIVES, Kept, Template};
use super::exchange::Target;
use super::handover::Handover;
use super::lease::Affinity;
use super::peer::Spec;
use super::pool::{Pool, PoolConf};
use super::queue::Queue;
use super::resolving::Names;
use super::saved::Saved;
use super::servers::{Asked, Servers};
use super::url::{self, Url};
use super::zone;
use crate::cx::Cx;
use crate::module::{Conf, ConfType, Module, Scope};
use crate::request::Request;
use crate::server::HttpMain;

/// The `upstream` module's table: the block, round robin, kept connections, `$upstream_…`.
pub static MODULE: Module = Module {
    name: "upstream",
    directives: DIRECTIVES,
    variables: super::state::VARIABLES,
    confs: &[ConfType::of::<Upstreams>(Scope::Main), ConfType::of::<Block>(Scope::Server)],
    init: Some(init),
    start: Some(start),
    ..Module::EMPTY
};

/// A group of servers, ready to be asked.
pub struct Group {
    /// Its name; the host's where there is no block.
    pub name: Bytes,
    /// Its servers.
    pub servers: Rc<Servers>,
    /// How they are chosen.
    pub balancer: Box<dyn Balancer>,
    /// Its idle connections, where it keeps any.
    pub pool: Option<Rc<Pool>>,
    /// How clients are bound to servers, where they are.
    pub affinity: Option<Rc<dyn Affinity>>,
    pub(crate) queue: Option<Queue>,
    /// Names that are looked up at run time.
    pub(crate) names: Option<Names>,
    /// Where servers are kept that the API changes.
    pub(crate) saved: Option<Saved>,
    port: u16,
    explicit: bool,
}

/// An `upstream` block as it was read.
pub(crate) struct Explicit {
    pub name: Word,
    pub block: Block,
}

impl Explicit {
    /// The servers whose addresses are known from the start.
    pub fn specs(&self) -> Vec<Spec> {
        self.block.lines.iter().flat_map(|l| l.specs.iter().cloned()).collect()
    }

    /// What is asked of the resolver.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = |(template, t): (u64, &Template)| Asked {
            upstream: self.name.text.clone(),
            template,
            host: t.host.clone(),
            service: t.service.clone(),
        };
        self.templates().map(asked).collect()
    }

    /// The lines that are looked up at run time, with their numbers from 1.
    fn templates(&self) -> impl Iterator<Item = (u64, &Template)> {
        (1..).zip(self.block.lines.iter().filter_map(|l| l.template.as_ref()))
    }

    /// What the configuration says of its servers. Where the API says it, in the zone and behind
    /// that in a file, the file's name.
    pub fn print(&self) -> String {
        let templates: Vec<_> = self.templates().collect();
        let name = &self.name.text;
        match &self.block.state {
            Some(file) => format!("{name:?} {file:?} {templates:?}\n"),
            None => format!("{name:?} {:?} {templates:?}\n", self.specs()),
        }
    }

    /// A server that a name led to before, with the settings that its line has now.
    pub fn resolved(&self, template: u64, was: &Spec) -> Option<Spec> {
        let (_, t) = self.templates().find(|(n, _)| *n == template)?;
        Some(match t.service.is_empty() {
            true => t.server(template, was.addr.with_port(t.port)),
            false => {
                let weight = u16::try_from(was.weight).unwrap_or(u16::MAX);
                let host = t.host(template, was.addr.clone(), was.server.clone(), weight);
                Spec { backup: was.backup, ..host }
            }
        })
    }
}

/// All upstreams of the configuration.
#[derive(Default)]
pub struct Upstreams {
    blocks: Vec<Explicit>,
    references: Vec<(Url, Word)>,
    groups: Vec<Rc<Group>>,
    /// For each reference its group.
    of_reference: Vec<usize>,
    /// Sizes of zones, by name.
    pub(crate) zone_bytes: HashMap<Bytes, usize>,
    /// The name of the block that is being read.
    pub(crate) reading: Bytes,
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

    /// The groups of `upstream` blocks, in order.
    pub fn named(&self) -> impl Iterator<Item = &Rc<Group>> {
        self.groups.iter().filter(|g| g.explicit)
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
            _ => Ok(Target::Name(url.host.clone(), url.port)),
        }
    }
}

pub(super) fn upstream(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?.clone();
    let same = |e: &&Explicit| base::ascii::eq_ignore_case(&e.name.text, &name.text);
    if cx.main::<Upstreams>().blocks.iter().find(same).is_some() {
        return Err(ConfError::at(&name, format!("duplicate upstream \"{}\"", name.lossy())));
    }
    cx.main::<Upstreams>().reading = name.text.clone();
    let mut level = cx.block(n, C::UPSTREAM, crate::cx::Block::default())?;
    let block = std::mem::take(level.get::<Block>());
    if block.lines.is_empty() && block.state.is_none() {
        return Err(ConfError::at(&n.name, "no servers are inside upstream"));
    }
    cx.main::<Upstreams>().blocks.push(Explicit { name, block });
    Ok(())
}

/// Makes the groups: the blocks', then one for each other host that a directive named.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let blocks = std::mem::take(&mut cx.main::<Upstreams>().blocks);
    let servers = zone::servers(cx, &blocks)?;
    let mut groups = Vec::new();
    for (e, servers) in blocks.into_iter().zip(servers) {
        groups.push(Rc::new(explicit(cx, e, servers)?));
    }
    let all = cx.main::<Upstreams>();
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

fn explicit(cx: &mut Cx, e: Explicit, servers: Rc<Servers>) -> Result<Group, ConfError> {
    let no_main = e.specs().iter().all(|s| s.backup)
        && e.templates().all(|(_, t)| t.spec.backup)
        && e.block.state.is_none();
    let templates: Vec<Template> = e.templates().map(|(_, t)| t.clone()).collect();
    let names = super::resolving::names(cx, &e, templates)?;
    let b = e.block;
    if no_main {
        let m = format!("no servers in upstream \"{}\"", e.name.lossy());
        return Err(ConfError::at(&e.name, m));
    }
    if b.state.is_some() && b.zone.is_none() {
        let m = format!("\"state\" requires a zone in upstream \"{}\"", e.name.lossy());
        return Err(ConfError::at(&e.name, m));
    }
    let (max, kept) = b.keepalive.unwrap_or((32, Kept::Location));
    let handover = match kept {
        Kept::All if max > 0 => Some(Handover::new(max, b.lines.len()).map_err(|failed| {
            let failed = base::log::os_error(&failed);
            ConfError::at(&e.name, format!("socketpair() failed {failed}"))
        })?),
        _ => None,
    };
    let conf = PoolConf {
        max,
        local: kept == Kept::Location,
        requests: b.requests.unwrap_or(1000),
        time_ms: b.time.unwrap_or(3_600_000),
        timeout_ms: b.timeout.unwrap_or(60_000),
    };
    let pool = (max > 0).then(|| Pool::with(conf, handover));
    let balancer = match b.method {
        Some(make) => make(&servers),
        None => Box::new(RoundRobin(servers.clone())),
    };
    let affinity = b.affinity.map(|bind| bind(&servers));
    Ok(Group {
        name: e.name.text,
        servers,
        balancer,
        pool,
        affinity,
        queue: b.queue.map(|(max, timeout_ms)| Queue::new(max, timeout_ms)),
        names,
        saved: b.state.map(Saved::new),
        port: 0,
        explicit: true,
    })
}

fn implicit(url: &Url, at: &Word) -> Result<Group, ConfError> {
    if url.port == 0 && !url.addr.as_ref().is_some_and(os::SockAddr::is_unix) {
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
    let specs: Vec<Spec> = addrs.into_iter().map(Spec::new).collect();
    let servers = Servers::own(url.host.clone(), &specs);
    Ok(Group {
        name: url.host.clone(),
        balancer: Box::new(RoundRobin(servers.clone())),
        servers,
        pool: None,
        affinity: None,
        queue: None,
        names: None,
        saved: None,
        port: url.port,
        explicit: false,
    })
}

/// In a worker: begins what goes on beside requests.
fn start(main: &Rc<HttpMain>, seat: &engine::Seat) {
    let Some(all) = main.confs.get::<Upstreams>() else { return };
    for group in all.named() {
        group.servers.rows().use_slot(seat.slot);
        if group.names.is_some() {
            super::resolving::keep(main, group);
        }
    }
}
