//! The settings of an `upstream` block. Each directive's setter is a method of [`Block`]; the
//! engine's table of directives calls it.

use std::path::PathBuf;
use std::rc::Rc;

use base::ascii::parse_u64;
use conf::value;
use conf::{ConfError, Node, Word};
use engine::settings::Conf;
use net::resolver::Resolver;

use crate::balance::Balancer;
use crate::lease::Affinity;
use crate::peer::ServerSpec;
use crate::server_line::{ResolveLine, ServerLine};
use crate::servers::{ResolveQuery, Servers};

pub use crate::server_line::ROUTE_MAX;

/// The users of an idle connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The location that made it, in the same worker (`local`).
    Location,
    /// The worker that made it.
    Worker,
    /// Any worker (`shared`).
    AnyWorker,
}

/// Makes a method's balancer over the servers of the group.
pub type MakeBalancer = Box<dyn FnOnce(&Rc<Servers>) -> Box<dyn Balancer>>;

/// Makes the affinity of clients to the servers of the group.
pub type MakeAffinity = Box<dyn FnOnce(&Rc<Servers>) -> Rc<dyn Affinity>>;

/// The settings of an `upstream` block.
#[derive(Default)]
pub struct Block {
    pub(crate) lines: Vec<ServerLine>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) zone: Option<Word>,
    pub(crate) queue: Option<(usize, u64)>,
    pub(crate) ntlm: bool,
    pub(crate) keepalive: Option<(usize, Reuse)>,
    pub(crate) method: Option<MakeBalancer>,
    pub(crate) affinity: Option<MakeAffinity>,
    pub(crate) no_backup: bool,
    /// `resolver`
    pub resolver: Option<Rc<Resolver>>,
    /// `resolver_timeout`, milliseconds.
    pub resolver_timeout: Option<u64>,
    /// How many requests a kept connection serves (`keepalive_requests`).
    pub keepalive_requests: Option<u64>,
    /// `keepalive_time`, milliseconds.
    pub keepalive_time: Option<u64>,
    /// `keepalive_timeout`, milliseconds.
    pub keepalive_timeout: Option<u64>,
    /// How many streams a connection of HTTP/2 has at a time (`keepalive_streams`).
    pub keepalive_streams: Option<u64>,
}

impl Conf for Block {}

/// An `upstream` block as it was read.
pub(crate) struct NamedUpstream {
    pub name: Word,
    pub block: Block,
}

impl NamedUpstream {
    /// The servers with constant addresses.
    pub fn specs(&self) -> Vec<ServerSpec> {
        self.block.lines.iter().flat_map(|l| l.specs.iter().cloned()).collect()
    }

    /// The questions for the resolver.
    pub fn queries(&self) -> Vec<ResolveQuery> {
        let query = |(template, t): (u64, &ResolveLine)| ResolveQuery {
            upstream: self.name.text.clone(),
            template,
            host: t.host.clone(),
            service: t.service.clone(),
        };
        self.resolve_lines().map(query).collect()
    }

    /// The `resolve` lines, with their numbers from 1.
    pub(crate) fn resolve_lines(&self) -> impl Iterator<Item = (u64, &ResolveLine)> {
        (1..).zip(self.block.lines.iter().filter_map(|l| l.resolve.as_ref()))
    }

    /// The settings of its servers as text, to be compared with those of another configuration.
    /// With a state file, whose servers the API sets, the file's name.
    pub fn print(&self) -> String {
        let templates: Vec<_> = self.resolve_lines().collect();
        let name = &self.name.text;
        match &self.block.state {
            Some(file) => format!("{name:?} {file:?} {templates:?}\n"),
            None => format!("{name:?} {:?} {templates:?}\n", self.specs()),
        }
    }

    /// A server that a name led to before, with the present settings of its line.
    pub fn resolved(&self, template: u64, was: &ServerSpec) -> Option<ServerSpec> {
        let (_, t) = self.resolve_lines().find(|(n, _)| *n == template)?;
        Some(match t.service.is_empty() {
            true => t.server(template, was.addr.with_port(t.port)),
            false => {
                let weight = u16::try_from(was.weight).unwrap_or(u16::MAX);
                let host = t.host(template, was.addr.clone(), was.server.clone(), weight);
                ServerSpec { backup: was.backup, ..host }
            }
        })
    }
}

/// The time that sessions wait in a queue by default, milliseconds.
const QUEUE_TIMEOUT_MS: u64 = 60_000;

impl Block {
    /// Chooses the balancing method. `backup` says whether it knows backup servers, and weights
    /// that grow slowly.
    pub fn set_method(&mut self, n: &Node, backup: bool, make: MakeBalancer) {
        if self.method.replace(make).is_some() {
            conf::warn(&n.name, "load balancing method redefined");
        }
        self.no_backup = !backup;
    }

    /// Binds clients to servers.
    pub fn set_affinity(&mut self, make: MakeAffinity) {
        self.affinity = Some(make);
    }

    /// Whether clients are bound to servers already.
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some()
    }

    /// `server ADDRESS [PARAMETER …]`
    ///
    /// # Errors
    /// The first error of the line.
    pub(crate) fn add_server(&mut self, n: &Node) -> Result<(), ConfError> {
        if self.state.is_some() {
            return Err(ConfError::directive(n, "is incompatible with \"state\""));
        }
        self.lines.push(ServerLine::parse(n, self.no_backup)?);
        Ok(())
    }

    /// `state FILE`: reads the servers from there. A file that is not there yet holds none.
    ///
    /// # Errors
    /// `is duplicate`, `is incompatible with`, and what is wrong with the file.
    pub(crate) fn set_state(&mut self, n: &Node, path: PathBuf) -> Result<(), ConfError> {
        if self.state.is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        if !self.lines.is_empty() {
            return Err(ConfError::directive(n, "is incompatible with \"server\""));
        }
        crate::state_file::read(&path, |node| self.add_server(node))?;
        self.state = Some(path);
        Ok(())
    }

    /// `zone NAME`; its size is given to [`crate::Upstreams::set_zone_bytes`].
    pub fn set_zone(&mut self, name: &Word) {
        self.zone = Some(name.clone());
    }

    /// `keepalive NUMBER [local|shared]`
    ///
    /// # Errors
    /// `is duplicate`, `invalid value`, `invalid parameter`.
    pub fn set_keepalive(&mut self, n: &Node) -> Result<(), ConfError> {
        if self.keepalive.is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        let count = count(n, n.arg(0)?)?;
        let reuse = match n.args.get(1) {
            None => Reuse::Worker,
            Some(w) if w.bytes() == b"local" => Reuse::Location,
            Some(w) if w.bytes() == b"shared" => Reuse::AnyWorker,
            Some(w) => {
                return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy())));
            }
        };
        self.keepalive = Some((count, reuse));
        Ok(())
    }

    /// `queue NUMBER [timeout=TIME]`
    ///
    /// # Errors
    /// `is duplicate`, `invalid value`, `invalid parameter`.
    pub(crate) fn set_queue(&mut self, n: &Node) -> Result<(), ConfError> {
        if self.queue.is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        let max = count(n, n.arg(0)?)?;
        let timeout_ms = match n.args.get(1) {
            None => QUEUE_TIMEOUT_MS,
            Some(w) => {
                let value = w.bytes().strip_prefix(b"timeout=").and_then(value::parse_msec);
                value.ok_or_else(|| {
                    ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
                })?
            }
        };
        self.queue = Some((max, timeout_ms));
        Ok(())
    }
}

fn count(n: &Node, w: &Word) -> Result<usize, ConfError> {
    let count = parse_u64(w.bytes()).and_then(|n| usize::try_from(n).ok());
    count.ok_or_else(|| {
        let m = format!("invalid value \"{}\" in \"{}\" directive", w.lossy(), n.name.lossy());
        ConfError::at(w, m)
    })
}
