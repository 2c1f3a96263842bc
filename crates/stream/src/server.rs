//! The compiled configuration of `stream`: the block and its servers.

use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::ssl::{SecureServer, ServerTls};
use engine::addresses;
use engine::life::{Life, Main};
use engine::metrics::status_zone::ZoneName;
use engine::module::Start;
use engine::names::ServerName;
use engine::settings::ConfSet;
use engine::vars::Variables;
use engine::{Metrics, Seat, Stats};
use net::Origin;

use crate::core_conf::CoreConf;
use crate::module::Pipeline;
use crate::session::{Rare, StreamSession};
use crate::udp::sessions::Sessions;

/// A listening socket.
pub type Listen = addresses::Listen<Server>;
/// A listening address and its servers.
pub type Address = addresses::Address<Server>;

/// The compiled `stream` block.
pub struct StreamMain {
    /// All variables.
    pub vars: Rc<Variables<StreamSession>>,
    /// The settings at the level of `stream`.
    pub confs: ConfSet,
    /// The listening sockets.
    pub listens: Vec<Listen>,
    /// All servers.
    pub servers: Vec<Rc<Server>>,
    /// The counters of all workers.
    pub stats: Rc<Stats>,
    /// Counters by zone.
    pub metrics: Rc<Metrics>,
    /// The lifecycle of the engine in this worker.
    pub life: Life,
    /// Some variable needs the ClientHello, so it is kept.
    pub(crate) asks_hello: bool,
    pub(crate) starts: Vec<Start<StreamSession>>,
    pub(crate) seat: OnceCell<Seat>,
    /// The UDP sessions of this worker.
    pub(crate) udp_sessions: Rc<Sessions>,
    /// The shared default of sessions without rare data.
    pub(crate) nothing: Rare,
}

impl Main for StreamMain {
    fn life(&self) -> &Life {
        &self.life
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn debug_connections(&self) -> &[Origin] {
        self.seat.get().map_or(&[], |seat| &seat.debug_connections)
    }
}

/// A compiled `server` block.
pub struct Server {
    /// The first name of `server_name`.
    pub name: Bytes,
    /// The zone in which its sessions are counted.
    pub(crate) zone: ZoneName,
    /// All names of `server_name`.
    pub names: Box<[ServerName]>,
    /// The core's settings.
    pub core: CoreConf,
    /// The merged settings of modules.
    pub confs: ConfSet,
    /// TLS with clients.
    pub tls: Rc<ServerTls>,
    /// The installed handlers.
    pub pipeline: Pipeline,
}

impl SecureServer for Server {
    fn name_and_tls(&self) -> (&Bytes, &ServerTls) {
        (&self.name, &self.tls)
    }
}

/// A compiled server and its listening addresses.
pub(crate) type Built = addresses::Built<Server>;
