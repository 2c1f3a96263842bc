//! `auth_ldap`: names and passwords of the Basic scheme, checked by servers that speak LDAP, with
//! the directives of nginx-auth-ldap. [`proto::ldap`] has the protocol's messages.
//!
//! ```text
//!  request ─▶ was the password right a moment ago? ─▶ remembered.rs
//!          ─▶ each server in turn                  ─▶ question.rs: search, rules, bind
//!             over a connection that the worker keeps: pool.rs, connection.rs
//! ```
//!
//! A server that says no is no reason not to ask the next one: each may have users of its own. Only
//! if no server could be asked, the client gets 503, because its password may well be right.

mod check;
mod connection;
mod directives;
mod pool;
mod question;
mod remembered;
mod server;

use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Word};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use upstream::resolver::Resolving;

use check::Handler;
use remembered::Remembered;
use server::Server;

/// The module's table.
pub static MODULE: Module = Module {
    name: "auth_ldap",
    directives: directives::DIRECTIVES,
    confs: &[ConfType::of::<Ldap>(Scope::Main), ConfType::of::<LdapConf>(Scope::Location)],
    init: Some(init),
    install: Some(install),
    secrets: &["binddn_passwd"],
    ..Module::EMPTY
};

/// The least `auth_ldap_cache_expiration_time`, milliseconds, and the default.
const EXPIRATION_MS: (u64, u64) = (1_000, 10_000);

/// The least `auth_ldap_cache_size`, which is the default.
const CACHE_SIZE: usize = 100;

/// The servers, and the directives of `http`.
#[derive(Default)]
struct Ldap {
    defined: Vec<Server>,
    servers_max: Option<u64>,
    cache_enabled: Option<bool>,
    cache_ms: Option<u64>,
    cache_size: Option<usize>,
    /// Set after the whole configuration was read.
    servers: Vec<Rc<Server>>,
    remembered: Option<Rc<Remembered>>,
}

impl Conf for Ldap {}

engine::settings! {
    struct LdapConf {
        /// `auth_ldap`: the realm; empty with `off`.
        realm: Option<Bytes>,
        /// `auth_ldap_servers`
        servers: Option<Rc<Vec<Word>>>,
    }
}

/// Called after the whole configuration was read: `resolver` may stand behind the servers.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let lookup = cx.main::<Resolving>().lookup();
    let ldap = cx.main::<Ldap>();
    let defined = std::mem::take(&mut ldap.defined);
    let place = |server: Server| Rc::new(Server { lookup: lookup.clone(), ..server });
    ldap.servers = defined.into_iter().map(place).collect();
    if ldap.cache_enabled == Some(true) {
        let (least_ms, default_ms) = EXPIRATION_MS;
        let ms = ldap.cache_ms.unwrap_or(default_ms);
        let size = ldap.cache_size.unwrap_or(CACHE_SIZE);
        if ms < least_ms {
            let m = "\"auth_ldap_cache_expiration_time\" must not be less than 1000 ms";
            return Err(ConfError::new(m));
        }
        if size < CACHE_SIZE {
            let m = "\"auth_ldap_cache_size\" must not be less than 100 entries";
            return Err(ConfError::new(m));
        }
        ldap.remembered = Some(Rc::new(Remembered::new(ms, size)));
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<LdapConf>();
    let Some(realm) = conf.realm.clone().filter(|realm| !realm.is_empty()) else { return Ok(()) };
    let all = l.conf::<Ldap>();
    let mut servers = Vec::new();
    for word in conf.servers.iter().flat_map(|words| words.iter()) {
        let found = all.servers.iter().find(|server| server.name.as_bytes() == word.bytes());
        let Some(server) = found else {
            let m = format!("ldap_server \"{}\" is not defined", word.lossy());
            return Err(ConfError::at(word, m));
        };
        servers.push(server.clone());
    }
    let remembered = all.remembered.clone();
    p.access.push(Box::new(Handler { realm, servers, remembered }));
    Ok(())
}
