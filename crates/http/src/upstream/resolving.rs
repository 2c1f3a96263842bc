//! `resolver`: names that become addresses at run time, those of variables when a request needs
//! them, those of `server … resolve` whenever their time is over.

use std::net::Ipv4Addr;
use std::rc::Rc;

use base::log::{Level, lossy};
use base::time::unix_secs;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::value::set_msec;
use conf::{ConfError, Node};
use net::resolver::{Config, Failure, Host, Resolver, Status, system_servers};
use os::SockAddr;

use super::block::Template;
use super::conf::Conf as UpConf;
use super::group::{Explicit, Group};
use super::peer::{Peer, Spec};
use super::servers::Servers;
use super::wire::{Either, client_end, either, either_if};
use crate::core_directives::{HSL, directive};
use crate::cx::Cx;
use crate::module::{Conf, ConfType, Module, Scope, Verdict};
use crate::request::Request;
use crate::server::HttpMain;

/// The module's table.
pub static MODULE: Module = Module {
    name: "resolver",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<Resolving>(Scope::Location), ConfType::of::<Statuses>(Scope::Main)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "resolver",
        HSL,
        Args::ONE_MORE,
        "",
        "The name servers for names that are known only at run time.",
        |cx, n| {
            if cx.loc::<Resolving>().resolver.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            let resolver = parse(cx, n)?;
            cx.loc::<Resolving>().resolver = Some(resolver);
            Ok(())
        },
    ),
    directive(
        "resolver_timeout",
        HSL,
        Args::T1,
        "30s",
        "How long looking up a name may take.",
        |cx, n| set_msec(&mut cx.loc::<Resolving>().timeout_ms, n),
    ),
];

/// The client of name servers that holds in a location.
#[derive(Default, Clone)]
pub struct Resolving {
    /// `resolver`
    pub resolver: Option<Rc<Resolver>>,
    timeout_ms: Option<u64>,
}

impl Conf for Resolving {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.resolver.is_none() {
            self.resolver.clone_from(&prev.resolver);
        }
        self.timeout_ms = self.timeout_ms.or(prev.timeout_ms);
        Ok(())
    }
}

const TIMEOUT_MS: u64 = 30_000;

impl Resolving {
    /// `resolver_timeout`, milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(TIMEOUT_MS)
    }
}

/// What `status_zone=` counts, by name.
#[derive(Default)]
pub struct Statuses(pub Vec<(Bytes, Rc<Status>)>);

impl Conf for Statuses {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

/// The parameters of `resolver`.
pub(super) fn parse(cx: &mut Cx, n: &Node) -> Result<Rc<Resolver>, ConfError> {
    let mut status = None;
    let mut words = Vec::new();
    for w in &n.args {
        match w.bytes().strip_prefix(b"status_zone=") {
            Some(b"") => {
                return Err(ConfError::at(w, format!("invalid parameter: {}", w.lossy())));
            }
            Some(name) => status = Some(counters(cx, w, name)?),
            None => words.push(w),
        }
    }
    let config = Config::parse(words.iter().map(|w| w.bytes())).map_err(|(i, e)| {
        let at = words.get(i).copied().unwrap_or(&n.name);
        ConfError::at(at, e.0)
    })?;
    Ok(Resolver::new(config, status))
}

fn counters(cx: &mut Cx, w: &conf::Word, name: &[u8]) -> Result<Rc<Status>, ConfError> {
    cx.declare_zone(w, name, Some(1), "resolver")?;
    let known = |s: &&(Bytes, Rc<Status>)| s.0 == name;
    if let Some((_, status)) = cx.main::<Statuses>().0.iter().find(known) {
        return Ok(status.clone());
    }
    let status = match cx.env.zones.kept::<Status>(name) {
        Some(kept) => kept,
        None => Rc::new(Status::new().map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(w, format!("mmap(MAP_ANON|MAP_SHARED) failed {e}"))
        })?),
    };
    cx.env.zones.put(name, status.clone());
    cx.main::<Statuses>().0.push((Bytes::copy_from_slice(name), status.clone()));
    Ok(status)
}

/// The servers that a name stands for, by the resolver of the request's location.
pub(super) async fn addresses(
    r: &mut Request,
    conf: &UpConf,
    host: &Bytes,
    port: u16,
) -> Result<Vec<Spec>, Verdict> {
    let bad_gateway = Err(Verdict::Status(502));
    let shown = lossy(host).into_owned();
    let resolving = r.loc.confs.get::<Resolving>().cloned().unwrap_or_default();
    let Some(resolver) = &resolving.resolver else {
        r.log(Level::Error, format_args!("no resolver defined to resolve {shown}"));
        return bad_gateway;
    };
    let watch = if conf.ignore_client_abort { None } else { r.watched().cloned() };
    let found = resolver.addresses(host, resolving.timeout_ms());
    match either_if(found, watch.as_deref().map(client_end)).await {
        Either::Second(_) => {
            super::exchange::client_gone(r, "connecting to upstream");
            r.err_status = 499;
            Err(Verdict::Close)
        }
        Either::First(Err(failure)) => {
            r.log(Level::Error, format_args!("{shown} could not be resolved ({failure})"));
            bad_gateway
        }
        Either::First(Ok(found)) => {
            let spec = |ip| Spec { server: host.clone(), ..Spec::new(SockAddr::ip(ip, port)) };
            Ok(found.list.into_iter().map(spec).collect())
        }
    }
}

/// The names of an upstream that are looked up at run time, and by whom.
pub(crate) struct Names {
    resolver: Rc<Resolver>,
    timeout_ms: u64,
    templates: Vec<Template>,
    /// The method knows backups: services may have some.
    backups: bool,
}

impl Names {
    /// The lines that ask for them.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }
}

/// The names of a block; none where it has none.
pub(super) fn names(
    cx: &mut Cx,
    e: &Explicit,
    templates: Vec<Template>,
) -> Result<Option<Names>, ConfError> {
    if templates.is_empty() {
        return Ok(None);
    }
    let upstream = e.name.lossy();
    if e.block.zone.is_none() {
        let m = format!(
            "resolving names at run time requires upstream \"{upstream}\" to be in shared memory"
        );
        return Err(ConfError::at(&e.name, m));
    }
    let main = cx.main::<Resolving>();
    let resolver = e.block.resolver.clone().or_else(|| main.resolver.clone());
    let timeout_ms = e.block.resolver_timeout.unwrap_or(main.timeout_ms());
    let Some(resolver) = resolver.or_else(system) else {
        let m =
            format!("no resolver defined to resolve names at run time in upstream \"{upstream}\"");
        return Err(ConfError::at(&e.name, m));
    };
    let backups = !e.block.no_backup;
    Ok(Some(Names { resolver, timeout_ms, templates, backups }))
}

/// The name servers that the system uses itself.
fn system() -> Option<Rc<Resolver>> {
    let text = std::fs::read_to_string("/etc/resolv.conf").ok()?;
    let servers = system_servers(&text);
    let config = Config { servers, valid: None, ipv4: true, ipv6: true };
    (!config.servers.is_empty()).then(|| Resolver::new(config, None))
}

impl Template {
    /// A server at one of the name's addresses.
    pub(super) fn server(&self, number: u64, addr: SockAddr) -> Spec {
        Spec { addr, template: number, ..self.spec.clone() }
    }

    /// A host of the service.
    pub(super) fn host(&self, number: u64, addr: SockAddr, name: Bytes, weight: u16) -> Spec {
        let weight = if self.weighted { self.spec.weight } else { weight.into() };
        Spec { server: name, weight, ..self.server(number, addr) }
    }
}

/// In a worker: follows the names of a group, if this is the worker that does.
pub(super) fn keep(main: &Rc<HttpMain>, group: &Rc<Group>) {
    let count = group.names.as_ref().map_or(0, |n| n.templates.len());
    for number in 1..=count as u64 {
        event::spawn(follow(main.clone(), group.clone(), number));
    }
}

/// How often a worker looks whether it is its turn to follow names, milliseconds.
pub(super) const LEAD_MS: u64 = 1_000;

async fn follow(main: Rc<HttpMain>, group: Rc<Group>, number: u64) {
    let rows = group.servers.rows();
    while !main.gate.is_closed() {
        let wait = match rows.try_lead() {
            false => LEAD_MS,
            true => match group.servers.valid(number).checked_sub(unix_secs()) {
                Some(secs) if secs > 0 => secs * 1000,
                _ => match either(look_up(&group, number), main.gate.closed()).await {
                    Either::First(wait) => wait,
                    Either::Second(_) => break,
                },
            },
        };
        // The clock may be set, and a zone be made anew: look now and then.
        either(event::sleep(wait.min(60_000)), main.gate.closed()).await;
    }
    rows.stop_leading();
}

/// A server that a name leads to now.
type Wanted = Vec<Spec>;

/// Looks a name up and puts its servers into the zone. Gives the milliseconds until the next time.
async fn look_up(group: &Group, number: u64) -> u64 {
    let Some(names) = &group.names else { return LEAD_MS };
    let Some(template) = usize::try_from(number - 1).ok().and_then(|i| names.templates.get(i))
    else {
        return LEAD_MS;
    };
    let found = match template.service.is_empty() {
        true => of_name(names, template, number).await,
        false => of_service(names, template, number).await,
    };
    let now = unix_secs();
    match found {
        Some((wanted, valid)) => {
            put(&group.servers, number, &wanted);
            let until = valid.max(now) + 1;
            group.servers.set_valid(number, until);
            (until - now).saturating_mul(1000)
        }
        None => names.timeout_ms.max(1000),
    }
}

fn complain(what: std::fmt::Arguments<'_>) {
    base::log!(base::log::default(), Level::Error, None, "{what}");
}

/// How long a name that does not exist is believed not to, seconds.
fn again(names: &Names) -> u64 {
    unix_secs() + names.resolver.config().valid.unwrap_or(10)
}

async fn of_name(names: &Names, t: &Template, number: u64) -> Option<(Wanted, u64)> {
    match names.resolver.addresses(&t.host, names.timeout_ms).await {
        Ok(found) => {
            let server = |ip| t.server(number, SockAddr::ip(ip, t.port));
            Some((found.list.into_iter().map(server).collect(), found.valid))
        }
        Err(failure) => {
            complain(format_args!("{} could not be resolved ({failure})", lossy(&t.host)));
            (failure == Failure::NotFound).then(|| (Vec::new(), again(names)))
        }
    }
}

async fn of_service(names: &Names, t: &Template, number: u64) -> Option<(Wanted, u64)> {
    let (service, domain) = (lossy(&t.service), lossy(&t.host));
    let found = names.resolver.service(&t.service, &t.host, names.timeout_ms).await;
    let hosts = match &found {
        Ok(found) => &found.hosts,
        Err(none) => &none.hosts,
    };
    for Host { name, addresses, .. } in hosts {
        if let Err(failure) = addresses {
            let name = lossy(name);
            complain(format_args!(
                "{name} could not be resolved ({failure}) while resolving service {service} of \
                 {domain}"
            ));
        }
    }
    match found {
        Ok(found) => Some((wanted(names, t, number, &found.hosts), found.valid)),
        Err(none) => {
            let failure = none.failure;
            complain(format_args!(
                "service {service} of {domain} could not be resolved ({failure})"
            ));
            (failure == Failure::NotFound).then(|| (Vec::new(), none.valid))
        }
    }
}

/// Hosts of the lowest priority are in use; the others are their backups.
fn wanted(names: &Names, t: &Template, number: u64, hosts: &[Host]) -> Wanted {
    let with = |h: &&Host| h.addresses.as_ref().is_ok_and(|list| !list.is_empty());
    let first = hosts.iter().filter(with).map(|h| h.priority).min();
    let mut wanted = Vec::new();
    for h in hosts.iter().filter(with) {
        let later = Some(h.priority) != first;
        if later && (t.spec.backup || !names.backups) {
            continue;
        }
        for ip in h.addresses.iter().flatten() {
            let addr = SockAddr::ip(*ip, h.port);
            let spec = t.host(number, addr, h.name.clone(), h.weight);
            wanted.push(Spec { backup: t.spec.backup || later, ..spec });
        }
    }
    wanted
}

/// Whether a server is the one that is wanted.
fn is_wanted(peer: &Peer, spec: &Spec) -> bool {
    peer.spec.addr == spec.addr
        && peer.spec.backup == spec.backup
        && peer.spec.server == spec.server
        && peer.spec.weight == spec.weight
}

/// Takes out servers that the name does not lead to any more, and adds those that are new. What is
/// known of the others stays.
fn put(servers: &Servers, number: u64, wanted: &[Spec]) {
    let lists = servers.lists();
    let _lock = servers.lock();
    let mut missing: Vec<&Spec> = wanted.iter().collect();
    for peer in lists.all().filter(|p| p.spec.template == number) {
        match missing.iter().position(|spec| is_wanted(peer, spec)) {
            Some(i) => drop(missing.remove(i)),
            None => servers.remove_locked(peer),
        }
    }
    for spec in missing {
        if servers.add_locked(spec).is_err() {
            let name = lossy(&servers.name);
            complain(format_args!(
                "cannot add new server to upstream \"{name}\", memory exhausted"
            ));
            return;
        }
    }
}

/// An address that stands for none, for servers whose addresses are not known yet.
pub(super) fn nowhere(port: u16) -> SockAddr {
    SockAddr::ip(Ipv4Addr::UNSPECIFIED.into(), port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn template(service: &'static str) -> Template {
        Template {
            host: Bytes::from_static(b"a.example"),
            service: Bytes::from_static(service.as_bytes()),
            port: 80,
            weighted: false,
            spec: Spec { max_fails: 7, ..Spec::new(nowhere(80)) },
        }
    }

    fn names(backups: bool) -> Names {
        let servers = vec![SockAddr::parse(b"127.0.0.1:53").unwrap()];
        let config = Config { servers, valid: None, ipv4: true, ipv6: true };
        let resolver = Resolver::new(config, None);
        Names { resolver, timeout_ms: 1, templates: Vec::new(), backups }
    }

    fn host(name: &'static str, priority: u16, ip: &str) -> Host {
        let ip: IpAddr = ip.parse().unwrap();
        let name = Bytes::from_static(name.as_bytes());
        Host { name, port: 8080, priority, weight: 3, addresses: Ok(vec![ip]) }
    }

    #[test]
    fn priorities_make_backups() {
        let hosts = [
            Host { addresses: Err(Failure::NotFound), ..host("gone", 0, "127.0.0.9") },
            host("one", 5, "127.0.0.1"),
            host("two", 6, "127.0.0.2"),
        ];
        let of = |names: &Names, t: &Template| -> Vec<(String, bool, i64)> {
            let wanted = wanted(names, t, 1, &hosts);
            wanted.iter().map(|s| (s.addr.to_string(), s.backup, s.weight)).collect()
        };
        let (one, two) = ("127.0.0.1:8080".to_owned(), "127.0.0.2:8080".to_owned());
        let t = template("http");
        assert_eq!(of(&names(true), &t), [(one.clone(), false, 3), (two, true, 3)]);
        assert_eq!(of(&names(false), &t), [(one.clone(), false, 3)]);
        let spec = Spec { weight: 9, backup: true, ..t.spec.clone() };
        let t = Template { weighted: true, spec, ..t };
        assert_eq!(of(&names(true), &t), [(one, true, 9)]);
    }

    #[test]
    fn servers_come_and_go() {
        let rows = Rc::new(shm::Rows::shared(16 << 10, super::super::peer::word::ROW, 2).unwrap());
        let servers = Servers::at(Bytes::from_static(b"u"), rows, 1);
        let t = template("");
        let at =
            |n: u8| t.server(1, SockAddr::parse(format!("127.0.0.{n}:80").as_bytes()).unwrap());
        servers.add(&Spec::new(nowhere(9))).unwrap();
        let now = |servers: &Servers| -> Vec<String> {
            servers
                .lists()
                .main
                .iter()
                .map(|p| p.name.iter().map(|b| *b as char).collect())
                .collect()
        };
        put(&servers, 1, &[at(1), at(2)]);
        assert_eq!(now(&servers), ["0.0.0.0:9", "127.0.0.1:80", "127.0.0.2:80"]);
        let second = servers.lists().main[2].clone();
        assert_eq!(second.spec.max_fails, 7);
        put(&servers, 1, &[at(3), at(2)]);
        assert_eq!(now(&servers), ["0.0.0.0:9", "127.0.0.2:80", "127.0.0.3:80"]);
        assert_eq!(servers.lists().main[1].order, second.order);
        let version = servers.lists().version();
        put(&servers, 1, &[at(2), at(3)]);
        assert_eq!(servers.lists().version(), version, "nothing has changed");
        put(&servers, 1, &[]);
        assert_eq!(now(&servers), ["0.0.0.0:9"]);
    }
}
