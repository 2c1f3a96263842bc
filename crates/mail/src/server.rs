//! The compiled configuration: the `mail` block and its servers.

use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::ssl::{SecureServer, ServerTls};
use engine::addresses;
use engine::life::{Life, Main};
use engine::module::Start;
use engine::names::ServerName;
use engine::settings::ConfSet;
use engine::vars::{Values, Variables};
use engine::{Metrics, Seat, Stats};
use mail_proto::Settings;
use net::Origin;

use crate::auth_http::AuthHttp;
use crate::core_conf::CoreConf;
use crate::proxy::ProxyConf;
use crate::session::MailSession;

/// A socket to accept on.
pub type Listen = addresses::Listen<Server>;
/// An address with its server.
pub type Address = addresses::Address<Server>;
/// A server and its addresses.
pub(crate) type Built = addresses::Built<Server>;

/// The `mail` block, compiled.
pub struct MailMain {
    /// No module has variables, but values may be named.
    pub(crate) vars: Rc<Variables<MailSession>>,
    /// Its sockets.
    pub listens: Vec<Listen>,
    /// The servers in the order of the configuration.
    pub servers: Vec<Rc<Server>>,
    /// The counters of all workers.
    pub stats: Rc<Stats>,
    /// Counters by zone.
    pub metrics: Rc<Metrics>,
    /// The state of the engine's life in this worker.
    pub life: Life,
    pub(crate) starts: Vec<Start<MailSession>>,
    pub(crate) seat: OnceCell<Seat>,
    /// Shown by sessions, which have no values.
    pub(crate) nothing: Values,
}

impl Main for MailMain {
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

pub struct Server {
    /// Its name, of one list with others' for addresses.
    pub(crate) names: Box<[ServerName]>,
    /// The core's settings.
    pub core: CoreConf,
    /// The merged settings of modules.
    pub confs: ConfSet,
    pub tls: Rc<ServerTls>,
    /// The dialogue with clients.
    pub dialogue: Rc<Settings>,
    /// `smtp_greeting_delay`, milliseconds; 0: none.
    pub greeting_delay: u64,
    /// The authentication server.
    pub(crate) auth: AuthHttp,
    /// The way to mail servers.
    pub(crate) proxy: ProxyConf,
}

impl SecureServer for Server {
    fn name_and_tls(&self) -> (&Bytes, &ServerTls) {
        (&self.core.server_name, &self.tls)
    }
}
