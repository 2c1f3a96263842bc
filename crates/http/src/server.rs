//! The compiled `http` block: virtual servers, addresses, and what all requests share.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use event::Gate;
use os::SockAddr;

use crate::core_conf::{CoreSrv, TempPath};
use crate::location::Location;
use crate::module::ConfSet;
use crate::names::{Names, ServerName};
use crate::regex::MatchFailed;
use crate::request::Request;
use crate::stats::Stats;
use crate::vars::Var;

/// A virtual server.
pub struct Server {
    /// Its first name; may be empty.
    pub name: Bytes,
    /// The core's settings, plain values.
    pub core: Rc<CoreSrv>,
    /// Its own level: what holds for requests that no location takes.
    pub root: Rc<Location>,
    pub(crate) named: HashMap<Bytes, Rc<Location>>,
    /// Its names, as written; at least one.
    pub(crate) names: Box<[ServerName]>,
    /// The same for looking up, made when first needed.
    pub(crate) by_name: OnceCell<Names<()>>,
}

impl Server {
    /// Whether one of its names stands for `host`, which is in lower case.
    ///
    /// # Errors
    /// A regular expression's match was given up.
    pub fn is_named(&self, host: &[u8], r: &Request) -> Result<bool, MatchFailed> {
        let names = self.by_name.get_or_init(|| {
            let mut names = Names::new();
            for name in &self.names {
                names.add(name, &());
            }
            names
        });
        names.has(host, r)
    }
}

/// The whole `http` block, as a worker runs it.
pub struct HttpMain {
    /// Variables by id.
    pub(crate) vars: Vec<Var>,
    pub(crate) var_names: crate::vars::Names,
    /// `$realpath_root` is among them.
    pub(crate) asks_real_root: bool,
    /// Modules' configuration of scope `Main`.
    pub confs: ConfSet,
    /// What modules do when a worker begins to serve.
    pub(crate) starts: Vec<crate::module::Start>,
    /// What modules show of themselves, by their names.
    pub(crate) sections: Vec<(&'static str, crate::status::Section)>,
    /// The sockets to answer on, with their servers.
    pub listens: Vec<Listen>,
    /// Counters shared by all workers.
    pub stats: Rc<Stats>,
    /// Pools of threads, by name.
    pub pools: Rc<event::Pools>,
    /// All servers, in order.
    pub servers: Vec<Rc<Server>>,
    /// Closed when the worker is to leave: parked connections wake, responses say `close`.
    pub gate: Gate,
    /// Set when connections are given up; every task is woken then.
    pub(crate) forced: Cell<bool>,
    /// Connections of this worker.
    pub(crate) active: Rc<Cell<usize>>,
    /// The prefix, absolute.
    pub(crate) prefix: Bytes,
    /// `html` below the prefix: the root where none is set.
    pub(crate) default_root: Bytes,
    pub(crate) debug_from: OnceCell<Rc<[net::Origin]>>,
    /// Folders for temporary files, made before the workers start.
    pub(crate) temp_paths: Vec<TempPath>,
    /// Bells that wake other processes.
    pub(crate) bells: Rc<shm::Bells>,
    /// What this worker knows about files.
    pub(crate) files: crate::files::Files,
}

impl HttpMain {
    /// Whether `debug_connection` names this client.
    pub(crate) fn debug_connection(&self, peer: &SockAddr) -> bool {
        self.debug_from.get().is_some_and(|from| from.iter().any(|o| o.matches(peer)))
    }

    /// All caches.
    pub(crate) fn caches(&self) -> Vec<Rc<crate::cache::Cache>> {
        self.confs.get::<crate::cache::Caches>().map(|all| all.all()).unwrap_or_default()
    }

    /// Connections of this worker that are open.
    pub fn active(&self) -> usize {
        self.active.get()
    }
}

/// A socket to answer on: one address, or a wildcard that stands for several.
pub struct Listen {
    /// What to bind, and how.
    pub spec: net::ListenSpec,
    /// Servers by the address that a connection was made to; the wildcard's own last.
    pub addresses: Vec<Rc<Address>>,
}

impl Listen {
    /// The servers for a connection whose local address is `local` (asked only where it matters).
    pub fn address(&self, local: impl FnOnce() -> Option<SockAddr>) -> Rc<Address> {
        let last = self.addresses.len() - 1;
        if last > 0
            && let Some(local) = local()
        {
            let found = self.addresses[..last].iter().find(|a| a.addr == local);
            if let Some(a) = found {
                return a.clone();
            }
        }
        self.addresses[last].clone()
    }
}

/// One address with its servers.
pub struct Address {
    /// The address as configured.
    pub addr: SockAddr,
    /// The server for hosts that no name matches.
    pub default: Rc<Server>,
    /// `None` where no host can lead to another server.
    pub(crate) names: Option<Names<Rc<Server>>>,
    /// Some server here has settings of its own for reading a head.
    pub(crate) limits_differ: bool,
    /// `listen … proxy_protocol`
    pub proxy_protocol: bool,
}
