//! The compiled configuration: the `stream` block and its servers.

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

/// A socket to accept on.
pub type Listen = addresses::Listen<Server>;
/// An address with its servers.
pub type Address = addresses::Address<Server>;

/// The `stream` block, compiled.
pub struct StreamMain {
    /// Its variables.
    pub vars: Rc<Variables<StreamSession>>,
    /// The settings of its own level.
    pub confs: ConfSet,
    /// Its sockets.
    pub listens: Vec<Listen>,
    /// Its servers.
    pub servers: Vec<Rc<Server>>,
    /// The counters of all workers.
    pub stats: Rc<Stats>,
    /// Counters by zone.
    pub metrics: Rc<Metrics>,
    /// The state of the engine's life in this worker.
    pub life: Life,
    /// Some variable is made of the client's hello, which is kept.
    pub(crate) asks_hello: bool,
    pub(crate) starts: Vec<Start<StreamSession>>,
    pub(crate) seat: OnceCell<Seat>,
    /// The sessions over UDP in this worker.
    pub(crate) udp_sessions: Rc<Sessions>,
    /// Shown by sessions that have nothing of the kind.
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

/// A server.
pub struct Server {
    /// Its first name.
    pub name: Bytes,
    /// The zone that its sessions are counted in.
    pub(crate) zone: ZoneName,
    /// Its names.
    pub names: Box<[ServerName]>,
    /// The core's settings.
    pub core: CoreConf,
    /// The merged settings of modules.
    pub confs: ConfSet,
    /// Its TLS.
    pub tls: Rc<ServerTls>,
    /// Its handlers.
    pub pipeline: Pipeline,
}

impl SecureServer for Server {
    fn name_and_tls(&self) -> (&Bytes, &ServerTls) {
        (&self.name, &self.tls)
    }
}

/// A server and its addresses.
pub(crate) type Built = addresses::Built<Server>;
