//! A group of servers, ready to be asked: one of an `upstream` block, or one that stands for a host
//! named without a block.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Pos, Word};

use crate::balance::{Balancer, RoundRobin};
use crate::block::{NamedUpstream, Reuse};
use crate::handover::Handover;
use crate::lease::Affinity;
use crate::names::{self, Lookup, Names};
use crate::peer::ServerSpec;
use crate::pool::{Pool, PoolConf};
use crate::queue::Queue;
use crate::server_line::ResolveLine;
use crate::servers::Servers;
use crate::state_file::StateFile;
use crate::url::{self, Url};

/// Exchanges that share a connection over HTTP/2, by default. With eight, 64 clients kept eight
/// connections busy with a request or two in each send, and nothing was saved; servers allow a
/// hundred or so.
const STREAMS: u32 = 100;

/// A group of servers, ready to be asked.
pub struct Group {
    /// Its name; the host's where there is no block.
    pub name: Bytes,
    /// The servers that are chosen among.
    pub servers: Rc<Servers>,
    /// Their balancing method.
    pub balancer: Box<dyn Balancer>,
    /// Its idle connections, if it keeps any.
    pub pool: Option<Rc<Pool>>,
    /// The affinity of clients to servers, if there is one.
    pub affinity: Option<Rc<dyn Affinity>>,
    /// Sessions that wait for a server, if they may.
    pub queue: Option<Queue>,
    /// Clients that sign in by NTLM have connections to servers of their own.
    pub ntlm: bool,
    /// Names looked up at run time.
    pub(crate) names: Option<Rc<Names>>,
    /// The file of the servers that the API changes.
    pub(crate) state_file: Option<StateFile>,
    /// The name of its zone, if it has one.
    pub zone: Option<Bytes>,
    /// The place of its block, if it has one.
    pub at: Option<Pos>,
    pub(crate) port: u16,
    /// It is an `upstream` block's.
    pub(crate) named: bool,
}

impl Group {
    /// Its name, with the port where a host is its name.
    pub fn shown(&self) -> Bytes {
        match self.named || self.port == 0 {
            true => self.name.clone(),
            false => [&self.name, format!(":{}", self.port).as_bytes()].concat().into(),
        }
    }

    /// The group of a block. `around` is the resolver of the enclosing level.
    pub(crate) fn of_block(
        around: &Lookup,
        e: NamedUpstream,
        servers: Rc<Servers>,
    ) -> Result<Group, ConfError> {
        let no_main = e.specs().iter().all(|s| s.backup)
            && e.resolve_lines().all(|(_, t)| t.spec.backup)
            && e.block.state.is_none();
        let lines: Vec<ResolveLine> = e.resolve_lines().map(|(_, t)| t.clone()).collect();
        let names = names::of_block(around, &e, lines)?;
        let b = e.block;
        if no_main {
            let m = format!("no servers in upstream \"{}\"", e.name.lossy());
            return Err(ConfError::at(&e.name, m));
        }
        if b.state.is_some() && b.zone.is_none() {
            let m = format!("\"state\" requires a zone in upstream \"{}\"", e.name.lossy());
            return Err(ConfError::at(&e.name, m));
        }
        let (max, reuse) = b.keepalive.unwrap_or((32, Reuse::Location));
        let handover = match reuse {
            Reuse::AnyWorker if max > 0 => {
                Some(Handover::new(max, b.lines.len()).map_err(|failed| {
                    let failed = base::log::os_error(&failed);
                    ConfError::at(&e.name, format!("socketpair() failed {failed}"))
                })?)
            }
            _ => None,
        };
        let conf = PoolConf {
            max,
            local: reuse == Reuse::Location,
            requests: b.keepalive_requests.unwrap_or(1000),
            time_ms: b.keepalive_time.unwrap_or(3_600_000),
            timeout_ms: b.keepalive_timeout.unwrap_or(60_000),
            streams: b.keepalive_streams.map_or(STREAMS, |n| u32::try_from(n).unwrap_or(u32::MAX)),
        };
        let pool = (max > 0).then(|| Pool::with(conf, handover));
        if let Some(pool) = &pool {
            pool.set_meter(servers.group_meter());
        }
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
            ntlm: b.ntlm,
            queue: b.queue.map(|(max, timeout_ms)| Queue::new(max, timeout_ms)),
            names,
            state_file: b.state.map(StateFile::new),
            zone: b.zone.map(|zone| zone.text),
            at: Some(e.name.pos),
            port: 0,
            named: true,
        })
    }

    /// The group of a host named without a block.
    pub(crate) fn of_host(url: &Url, at: &Word) -> Result<Group, ConfError> {
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
        let specs: Vec<ServerSpec> = addrs.into_iter().map(ServerSpec::new).collect();
        let servers = Servers::own(url.host.clone(), &specs);
        Ok(Group {
            name: url.host.clone(),
            balancer: Box::new(RoundRobin(servers.clone())),
            servers,
            pool: None,
            affinity: None,
            queue: None,
            ntlm: false,
            names: None,
            state_file: None,
            zone: None,
            at: None,
            port: url.port,
            named: false,
        })
    }

    /// Idle connections of all workers, where anything is counted.
    pub fn idle(&self) -> u64 {
        self.servers.group_meter().map_or(0, |meter| meter.idle())
    }

    /// Writes the servers as they are now to the upstream's state file, if it has one.
    ///
    /// # Errors
    /// The system's.
    pub async fn save(&self) -> io::Result<()> {
        let Some(file) = &self.state_file else { return Ok(()) };
        let lines = self.names.as_ref().map_or(&[][..], |names| names.lines());
        file.save(&self.servers, lines).await
    }
}
