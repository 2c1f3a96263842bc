//! Names that become addresses at run time: those that variables name, when a session needs them,
//! and those of `server … resolve`, whenever their answers expire.

use std::fmt;
use std::pin::pin;
use std::rc::Rc;

use base::log::{Level, lossy};
use base::time::unix_secs;
use bytes::Bytes;
use conf::ConfError;
use engine::Client;
use event::{Deadline, Either, Gate, race};
use net::resolver::{Config, Failure, Host, Resolver, system_servers};
use os::SockAddr;

use crate::block::NamedUpstream;
use crate::peer::{Peer, ServerSpec};
use crate::server_line::ResolveLine;
use crate::servers::Servers;
use crate::url::{self, Url};

/// The name servers of an engine's level.
#[derive(Clone)]
pub struct Lookup {
    /// `resolver`
    pub resolver: Option<Rc<Resolver>>,
    /// `resolver_timeout`, milliseconds.
    pub timeout_ms: u64,
}

impl Lookup {
    /// The servers that a name stands for; `None` if there are none, which is logged.
    pub async fn addresses(
        &self,
        client: &dyn Client,
        host: &Bytes,
        port: u16,
    ) -> Option<Vec<ServerSpec>> {
        let shown = lossy(host);
        let Some(resolver) = &self.resolver else {
            client.log(Level::Error, format_args!("no resolver defined to resolve {shown}"));
            return None;
        };
        match resolver.addresses(host, self.timeout_ms).await {
            Err(failure) => {
                client.log(Level::Error, format_args!("{shown} could not be resolved ({failure})"));
                None
            }
            Ok(found) => {
                let spec = |ip| ServerSpec {
                    server: host.clone(),
                    ..ServerSpec::new(SockAddr::ip(ip, port))
                };
                Some(found.list.into_iter().map(spec).collect())
            }
        }
    }
}

/// A name without addresses.
#[derive(Clone, Debug)]
pub struct Unresolved {
    host: Bytes,
    why: Why,
}

/// See [`Unresolved`].
#[derive(Clone, Debug)]
enum Why {
    /// The configured resolver has no answer.
    Resolver(Failure),
    /// The system's resolver has none.
    System,
    /// No answer came in time.
    Deadline,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be resolved", lossy(&self.host))?;
        match &self.why {
            Why::Resolver(failure) => write!(f, " ({failure})"),
            Why::System => Ok(()),
            Why::Deadline => f.write_str(" in time"),
        }
    }
}

impl Lookup {
    /// The addresses of a server that this one talks to of its own accord, from `resolver`, or else
    /// from the system's resolver, which blocks and so runs in a thread.
    ///
    /// # Errors
    /// There are none until the deadline.
    pub async fn find(
        &self,
        target: &Url,
        deadline: Deadline,
    ) -> Result<Vec<SockAddr>, Unresolved> {
        if let Some(address) = &target.addr {
            return Ok(vec![address.clone()]);
        }
        match race(pin!(self.resolve(target)), event::sleep_until(deadline)).await {
            Either::First(found) => found,
            Either::Second(()) => Err(Unresolved { host: target.host.clone(), why: Why::Deadline }),
        }
    }

    async fn resolve(&self, target: &Url) -> Result<Vec<SockAddr>, Unresolved> {
        let (host, port) = (target.host.clone(), target.port);
        let unresolved = |why| Unresolved { host: target.host.clone(), why };
        match &self.resolver {
            Some(resolver) => match resolver.addresses(&host, self.timeout_ms).await {
                Ok(found) => Ok(found.list.into_iter().map(|ip| SockAddr::ip(ip, port)).collect()),
                Err(failure) => Err(unresolved(Why::Resolver(failure))),
            },
            None => {
                let asked = event::pool::default().run_short(move || url::resolve(&host, port));
                match asked.await {
                    Ok(list) if !list.is_empty() => Ok(list),
                    _ => Err(unresolved(Why::System)),
                }
            }
        }
    }
}

/// The names of an upstream that are looked up at run time, with their resolver.
pub(crate) struct Names {
    resolver: Rc<Resolver>,
    timeout_ms: u64,
    lines: Vec<ResolveLine>,
    /// The balancing method knows backups: hosts of services may be some.
    backups: bool,
}

impl Names {
    pub fn lines(&self) -> &[ResolveLine] {
        &self.lines
    }
}

/// The names of a block, if it has any. `around` is the resolver of the enclosing level.
pub(crate) fn of_block(
    around: &Lookup,
    e: &NamedUpstream,
    lines: Vec<ResolveLine>,
) -> Result<Option<Rc<Names>>, ConfError> {
    if lines.is_empty() {
        return Ok(None);
    }
    let upstream = e.name.lossy();
    if e.block.zone.is_none() {
        let m = format!(
            "resolving names at run time requires upstream \"{upstream}\" to be in shared memory"
        );
        return Err(ConfError::at(&e.name, m));
    }
    let resolver = e.block.resolver.clone().or_else(|| around.resolver.clone());
    let timeout_ms = e.block.resolver_timeout.unwrap_or(around.timeout_ms);
    let Some(resolver) = resolver.or_else(system) else {
        let m =
            format!("no resolver defined to resolve names at run time in upstream \"{upstream}\"");
        return Err(ConfError::at(&e.name, m));
    };
    let backups = !e.block.no_backup;
    Ok(Some(Rc::new(Names { resolver, timeout_ms, lines, backups })))
}

/// The system's name servers.
fn system() -> Option<Rc<Resolver>> {
    let text = std::fs::read_to_string("/etc/resolv.conf").ok()?;
    let servers = system_servers(&text);
    let config = Config { servers, valid: None, ipv4: true, ipv6: true };
    (!config.servers.is_empty()).then(|| Resolver::new(config, None))
}

impl ResolveLine {
    /// A server at one of the name's addresses.
    pub(crate) fn server(&self, number: u64, addr: SockAddr) -> ServerSpec {
        ServerSpec { addr, template: number, ..self.spec.clone() }
    }

    /// A host of the service.
    pub(crate) fn host(&self, number: u64, addr: SockAddr, name: Bytes, weight: u16) -> ServerSpec {
        let weight = if self.weighted { self.spec.weight } else { weight.into() };
        ServerSpec { server: name, weight, ..self.server(number, addr) }
    }
}

/// In a worker: keeps the addresses of names up to date, while this worker leads.
pub(crate) fn start(names: &Rc<Names>, servers: &Rc<Servers>, gate: &Gate) {
    for number in 1..=names.lines.len() as u64 {
        event::spawn(follow(names.clone(), servers.clone(), gate.clone(), number));
    }
}

/// Interval at which a worker tries to become the one that leads, milliseconds.
const LEAD_MS: u64 = 1_000;

async fn follow(names: Rc<Names>, servers: Rc<Servers>, gate: Gate, number: u64) {
    let rows = servers.rows();
    while !gate.is_closed() {
        let wait = match rows.try_lead() {
            false => LEAD_MS,
            true => match servers.valid(number).checked_sub(unix_secs()) {
                Some(secs) if secs > 0 => secs * 1000,
                _ => match race(look_up(&names, &servers, number), gate.closed()).await {
                    Either::First(wait) => wait,
                    Either::Second(_) => break,
                },
            },
        };
        // At least once a minute: the clock may be set, a zone made anew.
        race(event::sleep(wait.min(60_000)), gate.closed()).await;
    }
    rows.stop_leading();
}

/// Looks a name up and puts its servers into the zone. Gives the milliseconds until its expiry.
async fn look_up(names: &Names, servers: &Servers, number: u64) -> u64 {
    let Some(line) = usize::try_from(number - 1).ok().and_then(|i| names.lines.get(i)) else {
        return LEAD_MS;
    };
    let found = match line.service.is_empty() {
        true => of_name(names, line, number).await,
        false => of_service(names, line, number).await,
    };
    let now = unix_secs();
    match found {
        Some((wanted, valid)) => {
            put(servers, number, &wanted);
            let until = valid.max(now) + 1;
            servers.set_valid(number, until);
            (until - now).saturating_mul(1000)
        }
        None => names.timeout_ms.max(1000),
    }
}

fn log_error(what: std::fmt::Arguments<'_>) {
    base::log!(base::log::default(), Level::Error, None, "{what}");
}

/// The expiry of the answer that a name does not exist, seconds since the epoch.
fn negative_expiry(names: &Names) -> u64 {
    unix_secs() + names.resolver.config().valid.unwrap_or(10)
}

async fn of_name(names: &Names, t: &ResolveLine, number: u64) -> Option<(Vec<ServerSpec>, u64)> {
    match names.resolver.addresses(&t.host, names.timeout_ms).await {
        Ok(found) => {
            let server = |ip| t.server(number, SockAddr::ip(ip, t.port));
            Some((found.list.into_iter().map(server).collect(), found.valid))
        }
        Err(failure) => {
            log_error(format_args!("{} could not be resolved ({failure})", lossy(&t.host)));
            (failure == Failure::NotFound).then(|| (Vec::new(), negative_expiry(names)))
        }
    }
}

async fn of_service(names: &Names, t: &ResolveLine, number: u64) -> Option<(Vec<ServerSpec>, u64)> {
    let (service, domain) = (lossy(&t.service), lossy(&t.host));
    let found = names.resolver.service(&t.service, &t.host, names.timeout_ms).await;
    let hosts = match &found {
        Ok(found) => &found.hosts,
        Err(none) => &none.hosts,
    };
    for Host { name, addresses, .. } in hosts {
        if let Err(failure) = addresses {
            let name = lossy(name);
            log_error(format_args!(
                "{name} could not be resolved ({failure}) while resolving service {service} of \
                 {domain}"
            ));
        }
    }
    match found {
        Ok(found) => Some((hosts_to_servers(names, t, number, &found.hosts), found.valid)),
        Err(none) => {
            let failure = none.failure;
            log_error(format_args!(
                "service {service} of {domain} could not be resolved ({failure})"
            ));
            (failure == Failure::NotFound).then(|| (Vec::new(), none.valid))
        }
    }
}

/// The servers of a service: hosts of the lowest priority, and the others as their backups.
fn hosts_to_servers(
    names: &Names,
    t: &ResolveLine,
    number: u64,
    hosts: &[Host],
) -> Vec<ServerSpec> {
    let with = |h: &&Host| h.addresses.as_ref().is_ok_and(|list| !list.is_empty());
    let first = hosts.iter().filter(with).map(|h| h.priority).min();
    let mut servers = Vec::new();
    for h in hosts.iter().filter(with) {
        let later = Some(h.priority) != first;
        if later && (t.spec.backup || !names.backups) {
            continue;
        }
        for ip in h.addresses.iter().flatten() {
            let addr = SockAddr::ip(*ip, h.port);
            let spec = t.host(number, addr, h.name.clone(), h.weight);
            servers.push(ServerSpec { backup: t.spec.backup || later, ..spec });
        }
    }
    servers
}

/// Whether a server is the one that a name leads to.
fn is_same(peer: &Peer, spec: &ServerSpec) -> bool {
    peer.spec.addr == spec.addr
        && peer.spec.backup == spec.backup
        && peer.spec.server == spec.server
        && peer.spec.weight == spec.weight
}

/// Takes out servers that the name leads to no more, and adds the new ones. The state of the others
/// stays.
fn put(servers: &Servers, number: u64, wanted: &[ServerSpec]) {
    let lists = servers.lists();
    let _lock = servers.lock();
    let mut missing: Vec<&ServerSpec> = wanted.iter().collect();
    for peer in lists.all().filter(|p| p.spec.template == number) {
        match missing.iter().position(|spec| is_same(peer, spec)) {
            Some(i) => drop(missing.remove(i)),
            None => servers.remove_locked(peer),
        }
    }
    for spec in missing {
        if servers.add_locked(spec).is_err() {
            let name = lossy(&servers.name);
            log_error(format_args!(
                "cannot add new server to upstream \"{name}\", memory exhausted"
            ));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_line::nowhere;
    use std::net::IpAddr;

    fn template(service: &'static str) -> ResolveLine {
        ResolveLine {
            host: Bytes::from_static(b"a.example"),
            service: Bytes::from_static(service.as_bytes()),
            port: 80,
            weighted: false,
            spec: ServerSpec { max_fails: 7, ..ServerSpec::new(nowhere(80)) },
        }
    }

    fn names(backups: bool) -> Names {
        let servers = vec![SockAddr::parse(b"127.0.0.1:53").unwrap()];
        let config = Config { servers, valid: None, ipv4: true, ipv6: true };
        let resolver = Resolver::new(config, None);
        Names { resolver, timeout_ms: 1, lines: Vec::new(), backups }
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
        let of = |names: &Names, t: &ResolveLine| -> Vec<(String, bool, i64)> {
            let wanted = hosts_to_servers(names, t, 1, &hosts);
            wanted.iter().map(|s| (s.addr.to_string(), s.backup, s.weight)).collect()
        };
        let (one, two) = ("127.0.0.1:8080".to_owned(), "127.0.0.2:8080".to_owned());
        let t = template("http");
        assert_eq!(of(&names(true), &t), [(one.clone(), false, 3), (two, true, 3)]);
        assert_eq!(of(&names(false), &t), [(one.clone(), false, 3)]);
        let spec = ServerSpec { weight: 9, backup: true, ..t.spec.clone() };
        let t = ResolveLine { weighted: true, spec, ..t };
        assert_eq!(of(&names(true), &t), [(one, true, 9)]);
    }

    #[test]
    fn servers_come_and_go() {
        let rows = Rc::new(shm::Rows::shared(16 << 10, crate::peer::word::ROW, 2).unwrap());
        let servers = Servers::at(Bytes::from_static(b"u"), rows, 1);
        let t = template("");
        let at =
            |n: u8| t.server(1, SockAddr::parse(format!("127.0.0.{n}:80").as_bytes()).unwrap());
        servers.add(&ServerSpec::new(nowhere(9))).unwrap();
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
