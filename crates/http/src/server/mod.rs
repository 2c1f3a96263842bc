//! The compiled `http` block: virtual servers, addresses, and the state that all requests share.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::ssl::{SecureServer, ServerTls};
use engine::addresses;
use engine::life::{Life, Main};
use engine::metrics::status_zone::ZoneName;
use engine::module::Helping;
use engine::names::{ServerName, ServerNames};
use engine::regex::MatchFailed;
use engine::vars::Variables;
use engine::{Metrics, Stats, TempPath};

use crate::core_conf::CoreSrv;
use crate::module::ConfSet;
use crate::request::Request;
use location::Location;

pub mod location;

/// A virtual server.
pub struct Server {
    /// Its first name; may be empty.
    pub name: Bytes,
    /// The core's settings, plain values.
    pub core: Rc<CoreSrv>,
    /// The zone that its requests are counted in.
    pub zone: ZoneName,
    /// Its own level: the settings for requests that no location takes.
    pub root: Rc<Location>,
    /// Its settings for HTTP/2.
    pub(crate) http2: crate::http2_conf::Http2,
    /// Its settings for HTTP/3.
    pub(crate) http3: crate::http3_conf::Http3,
    pub(crate) tls: Rc<ServerTls>,
    pub(crate) named: HashMap<Bytes, Rc<Location>>,
    /// Its names, as written; at least one.
    pub(crate) names: Box<[ServerName]>,
    /// The same for looking up, made when first needed.
    pub(crate) by_name: OnceCell<ServerNames<()>>,
}

impl SecureServer for Server {
    fn name_and_tls(&self) -> (&Bytes, &ServerTls) {
        (&self.name, &self.tls)
    }
}

/// A server and its addresses.
pub(crate) type Built = addresses::Built<Server>;

impl Server {
    /// Whether one of its names stands for `host`, which is in lower case.
    ///
    /// # Errors
    /// A regular expression's match was given up.
    pub fn is_named(&self, host: &[u8], r: &Request) -> Result<bool, MatchFailed> {
        let names = self.by_name.get_or_init(|| {
            let mut names = ServerNames::new();
            for name in &self.names {
                names.add(name, &());
            }
            names
        });
        names.has(host, r)
    }
}

/// Finds the certificate that answers a challenge (RFC 8737) for a server name, and its key.
pub(crate) type TlsChallenges = Box<dyn Fn(&[u8]) -> Pin<Box<dyn Future<Output = TlsChallenge>>>>;

/// A certificate and its key, both in PEM; none where there is no such challenge.
pub(crate) type TlsChallenge = Option<(Vec<u8>, pki::pem::Secret)>;

/// The whole `http` block, as a worker runs it.
pub struct HttpMain {
    pub(crate) vars: Rc<Variables<Request>>,
    /// Some of them tell of the client's hello in TLS.
    pub(crate) asks_hello: bool,
    /// `$realpath_root` is among them.
    pub(crate) asks_real_root: bool,
    /// Modules' configuration of scope `Main`.
    pub confs: ConfSet,
    /// Functions of modules that run when a worker begins to serve.
    pub(crate) starts: Vec<crate::module::Start>,
    /// The work of modules in processes beside the workers.
    pub(crate) helps: Vec<&'static Helping<Request>>,
    /// Certificates for challenges by ALPN, if a module has set them.
    pub tls_challenges: OnceCell<TlsChallenges>,
    /// Begins tunnels that come from another process, if a module opens any.
    pub tunnels: OnceCell<crate::output::Begin>,
    /// The certificates that a module has ordered for servers, if there is one.
    pub tls_ordered: OnceCell<Box<dyn Fn() -> Vec<common_modules::ssl::Known>>>,
    /// The sections of modules in the status, by their names.
    pub(crate) sections: Vec<(&'static str, engine::status::Section<Request>)>,
    /// The sockets to answer on, with their servers.
    pub listens: Vec<Listen>,
    /// Counters shared by all workers.
    pub stats: Rc<Stats>,
    /// Counters by zone.
    pub metrics: Rc<Metrics>,
    /// Pools of threads, by name.
    pub pools: Rc<event::Pools>,
    /// All servers, in order.
    pub servers: Vec<Rc<Server>>,
    /// Whether the worker is to leave, and the connections and subrequests that it waits for.
    pub life: Life,
    /// Starts the tasks of subrequests.
    pub(crate) run_subrequest: crate::subrequest::Run,
    /// The prefix, absolute.
    pub prefix: Bytes,
    /// `html` below the prefix: the root where none is set.
    pub(crate) default_root: Bytes,
    pub(crate) debug_from: OnceCell<Rc<[net::Origin]>>,
    /// The record of the one request that is explained.
    pub(crate) trace: OnceCell<Rc<crate::trace::Trace>>,
    /// Folders for temporary files, made before the workers start.
    pub(crate) temp_paths: Vec<TempPath>,
    /// Where files go that only built-in defaults name.
    pub(crate) places: Rc<engine::Places>,
    /// This worker's caches of files.
    pub(crate) files: files::FileCaches,
}

impl Main for HttpMain {
    fn life(&self) -> &Life {
        &self.life
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn debug_connections(&self) -> &[net::Origin] {
        self.debug_from.get().map_or(&[], |from| from)
    }
}

impl HttpMain {
    /// Calls a function with every location of every server, named ones included.
    pub fn each_location(&self, mut f: impl FnMut(&Rc<Server>, &Rc<Location>)) {
        for server in &self.servers {
            server.root.visit(&mut |location| f(server, location));
            server
                .named
                .values()
                .for_each(|named| named.visit(&mut |location| f(server, location)));
        }
    }

    /// The object that `stub_status json` answers with.
    pub fn status(&self) -> Vec<u8> {
        engine::status::object(&self.stats, &self.pools, |o| {
            for (name, section) in &self.sections {
                o.object(name, |o| section(self, o));
            }
        })
    }
}

/// A socket to answer on: one address, or a wildcard that stands for several.
pub type Listen = engine::addresses::Listen<Server>;

/// One address with its servers.
pub type Address = engine::addresses::Address<Server>;
