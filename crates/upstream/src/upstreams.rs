//! All upstreams of a configuration: `upstream` blocks by name, references to them, and groups that
//! stand for hosts named without a block.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use base::ascii::eq_ignore_case;
use base::log::{Level, lossy};
use bytes::Bytes;
use conf::{ConfError, Word};
use engine::metrics::Kind;
use engine::settings::Conf;
use engine::{Client, LoadEnv};
use event::Gate;
use os::SockAddr;

use crate::block::{Block, NamedUpstream};
use crate::group::Group;
use crate::names::{self, Lookup};
use crate::peer::{Meter, Peer};
use crate::servers::Servers;
use crate::url::Url;
use crate::zone;

/// The destination of a session.
pub enum Target {
    /// A server of a group.
    Group(Rc<Group>),
    /// One address, found at run time.
    Addr(SockAddr),
    /// A host and port that a variable named: a resolver finds its addresses.
    Name(Bytes, u16),
}

impl Target {
    /// The name that logs show while no server is chosen.
    #[cold]
    pub fn name(&self) -> Bytes {
        match self {
            Target::Group(group) => group.name.clone(),
            Target::Addr(addr) => addr.to_string().into(),
            Target::Name(host, _) => host.clone(),
        }
    }
}

/// A destination without a port, which was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPort;

/// All upstreams of a configuration.
#[derive(Default)]
pub struct Upstreams {
    blocks: Vec<NamedUpstream>,
    references: Vec<(Url, Word)>,
    groups: Vec<Rc<Group>>,
    /// For each reference its group.
    of_reference: Vec<usize>,
    /// Sizes of zones, by name.
    zone_bytes: HashMap<Bytes, usize>,
    /// The name of the block that is being read.
    reading: Bytes,
    /// The places that connections are for, see [`Upstreams::place`]; `false`: several are it.
    places: RefCell<HashMap<u64, bool>>,
}

/// Stands for the group that a directive named, until all groups are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRef(usize);

impl Conf for Upstreams {}

/// While directives are read.
impl Upstreams {
    /// Begins an `upstream` block.
    ///
    /// # Errors
    /// `duplicate upstream`.
    pub(crate) fn begin_block(&mut self, name: &Word) -> Result<(), ConfError> {
        if self.blocks.iter().any(|e| eq_ignore_case(&e.name.text, &name.text)) {
            return Err(ConfError::at(name, format!("duplicate upstream \"{}\"", name.lossy())));
        }
        self.reading = name.text.clone();
        Ok(())
    }

    /// The name of the `upstream` block that is being read.
    pub fn block_name(&self) -> Bytes {
        self.reading.clone()
    }

    /// Ends an `upstream` block; `at` is its directive.
    ///
    /// # Errors
    /// `no servers are inside upstream`.
    pub(crate) fn end_block(
        &mut self,
        at: &Word,
        name: Word,
        block: Block,
    ) -> Result<(), ConfError> {
        if block.lines.is_empty() && block.state.is_none() {
            return Err(ConfError::at(at, "no servers are inside upstream"));
        }
        self.blocks.push(NamedUpstream { name, block });
        Ok(())
    }

    /// Notes the size of a zone.
    pub(crate) fn set_zone_bytes(&mut self, zone: Bytes, bytes: usize) {
        self.zone_bytes.insert(zone, bytes);
    }

    /// Notes that a directive passes sessions to `url`.
    pub fn refer(&mut self, url: Url, at: &Word) -> GroupRef {
        self.references.push((url, at.clone()));
        GroupRef(self.references.len() - 1)
    }

    /// Makes the groups: the blocks', then one for each other host that a directive named. `around`
    /// is the resolver of the level that holds the blocks.
    ///
    /// # Errors
    /// The first error of a block, a reference or a zone; the system's.
    pub fn make_groups(
        &mut self,
        env: &LoadEnv,
        around: &Lookup,
        kind: Kind,
    ) -> Result<(), ConfError> {
        let blocks = std::mem::take(&mut self.blocks);
        let servers = zone::servers(&self.zone_bytes, env, &blocks)?;
        let mut groups = Vec::new();
        for (e, servers) in blocks.into_iter().zip(servers) {
            count(env, &e.name.text, &servers, kind);
            if e.resolve_lines().next().is_some() {
                env.metrics.declare_dynamic(kind);
            }
            groups.push(Rc::new(Group::of_block(around, e, servers)?));
        }
        let mut by_name: HashMap<(Vec<u8>, u16), usize> = HashMap::new();
        for (url, at) in &self.references {
            let name = url.host.to_ascii_lowercase();
            let block =
                groups.iter().position(|g: &Rc<Group>| g.named && eq_ignore_case(&g.name, &name));
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
                        let group = Group::of_host(url, at)?;
                        count(env, &group.shown(), &group.servers, kind);
                        groups.push(Rc::new(group));
                        by_name.insert((name, url.port), groups.len() - 1);
                        groups.len() - 1
                    }
                },
            };
            self.of_reference.push(i);
        }
        self.groups = groups;
        Ok(())
    }
}

/// Has the servers of a group counted.
fn count(env: &LoadEnv, label: &Bytes, servers: &Servers, kind: Kind) {
    let (metrics, upstream) = (env.metrics.clone(), label.clone());
    let meter = Meter { metrics, kind, upstream };
    for peer in servers.lists().all() {
        env.metrics.declare(kind, &meter.name_of(&peer.name));
    }
    servers.set_meter(meter);
}

/// Once the configuration was read.
impl Upstreams {
    /// The group of a reference.
    pub fn group(&self, r: GroupRef) -> Option<Rc<Group>> {
        self.of_reference.get(r.0).and_then(|i| self.groups.get(*i)).cloned()
    }

    /// Notes a place that connections are for, with this hash of all that other processes know of
    /// it. Returns the hash, or 0 if another place has it.
    pub fn place(&self, hash: u64) -> u64 {
        match self.places.borrow_mut().entry(hash) {
            Entry::Vacant(new) => {
                new.insert(true);
                hash
            }
            Entry::Occupied(mut known) => {
                known.insert(false);
                0
            }
        }
    }

    /// Whether this is exactly one place, which has its connections in whatever process.
    pub fn is_place(&self, hash: u64) -> bool {
        self.places.borrow().get(&hash) == Some(&true)
    }

    /// The group that a name and port computed at run time stand for.
    pub fn find(&self, url: &Url) -> Option<Rc<Group>> {
        let fits = |g: &&Rc<Group>| {
            (g.port == 0 && url.no_port || g.port == url.port) && eq_ignore_case(&g.name, &url.host)
        };
        self.groups.iter().find(fits).cloned()
    }

    /// The server of this name in the group of this name.
    pub fn peer(&self, group: &[u8], server: &[u8]) -> Option<Rc<Peer>> {
        let groups = self.all().filter(|known| known.name == group);
        let mut all = groups.map(|group| group.servers.lists());
        all.find_map(|lists| lists.all().find(|peer| peer.name == server).cloned())
    }

    /// All groups, those of `upstream` blocks first.
    pub fn all(&self) -> impl Iterator<Item = &Rc<Group>> {
        self.groups.iter()
    }

    /// The groups of `upstream` blocks, in order.
    pub fn named(&self) -> impl Iterator<Item = &Rc<Group>> {
        self.groups.iter().filter(|g| g.named)
    }

    /// The destination of a session whose server was named at run time.
    ///
    /// # Errors
    /// It has no port, which is logged.
    pub fn target(&self, client: &dyn Client, url: &Url) -> Result<Target, NoPort> {
        if let Some(group) = self.find(url) {
            return Ok(Target::Group(group));
        }
        match &url.addr {
            Some(addr) if url.port > 0 || addr.is_unix() => Ok(Target::Addr(addr.clone())),
            _ if url.port == 0 => {
                let host = lossy(&url.host);
                client.log(Level::Error, format_args!("no port in upstream \"{host}\""));
                Err(NoPort)
            }
            _ => Ok(Target::Name(url.host.clone(), url.port)),
        }
    }

    /// In a worker with that slot: begins the work that goes on beside sessions.
    pub fn start(&self, gate: &Gate, slot: usize) {
        for group in self.named() {
            group.servers.rows().use_slot(slot);
            if let Some(names) = &group.names {
                names::start(names, &group.servers, gate);
            }
        }
    }
}
