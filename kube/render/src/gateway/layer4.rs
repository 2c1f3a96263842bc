//! TLSRoute, TCPRoute and UDPRoute.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::pool::Addresses;
use super::types::L4Route;
use super::{Bound, attach, refs};
use crate::conf::{Block, Owner, Word, plain, w};
use crate::cx::{Cx, digest};
use crate::layer4;
use crate::objects::{Key, Kind, ObjectRef};
use crate::upstreams::{Backend, Server};

pub(super) fn render(cx: &mut Cx, bound: &mut [Bound]) {
    // The oldest route of an address and a name wins.
    let mut taken = Taken::new();
    for kind in [Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute] {
        let objects = cx.objects;
        let routes = match kind {
            Kind::TlsRoute => &objects.tls_routes,
            Kind::TcpRoute => &objects.tcp_routes,
            _ => &objects.udp_routes,
        };
        let mut routes: Vec<(&Key, &L4Route)> = routes.iter().collect();
        routes.sort_by_key(|(key, r)| (&r.metadata.creation_timestamp, *key));
        for (key, route) in routes {
            one(cx, bound, kind, key, route, &mut taken);
        }
    }
    others(cx, bound, &taken);
}

/// Servers for the names that no TLSRoute has: they refuse the handshake, or close the connection.
fn others(cx: &mut Cx, bound: &[Bound], taken: &Taken) {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, listener) in bound.iter().enumerate() {
        if listener.listener.protocol == "TLS" && listener.serves() {
            for address in listen_addresses(cx, listener) {
                places.entry(address).or_default().push(index);
            }
        }
    }
    for (address, place) in places {
        let mut names =
            taken.iter().filter(|(a, _)| *a == address).map(|(_, name)| name).peekable();
        // A route without names has all of them.
        if names.peek().is_none() || names.any(Option::is_none) {
            continue;
        }
        let gateway = bound[place[0]].gateway;
        let object = ObjectRef::new(Kind::Gateway, &gateway.namespace, &gateway.name);
        let owner = cx.owner(&object);
        let mut block = Block::of(Some(owner));
        let looks = place.iter().any(|i| !ends_tls(&bound[*i]));
        let words = [plain(address), w("default_server")].into_iter();
        block.add("listen", words.chain((!looks).then(|| w("ssl"))).collect::<Vec<_>>());
        match looks {
            true => {
                block.add("ssl_preread", ["on"]);
                block.add("return", [w("")]);
            }
            false => block.add("ssl_reject_handshake", ["on"]),
        }
        add(cx, owner, block);
    }
}

/// Addresses and names that routes have; `None` stands for all names.
type Taken = BTreeSet<(String, Option<String>)>;

/// Whether a listener ends TLS, instead of passing it on.
pub(super) fn ends_tls(bound: &Bound) -> bool {
    bound.listener.protocol == "TLS" && super::mode(bound.listener) == "Terminate"
}

fn one(
    cx: &mut Cx,
    bound: &mut [Bound],
    kind: Kind,
    key: &Key,
    route: &L4Route,
    taken: &mut Taken,
) {
    let udp = kind == Kind::UdpRoute;
    let object = ObjectRef::new(kind, &key.namespace, &key.name);
    let all = route.spec.rules.iter().flat_map(|rule| &rule.backend_refs);
    let resolved = refs::resolve(cx, kind, &key.namespace, all, udp);
    let names: &[String] = if kind == Kind::TlsRoute { &route.spec.hostnames } else { &[] };
    let parents = &route.spec.parent_refs;
    let attached = attach(cx, bound, kind, key, &route.metadata, parents, names, &resolved);
    let owner = cx.owner(&object);
    let Some(rule) = route.spec.rules.first() else { return };
    let mut backends = Vec::new();
    for reference in &rule.backend_refs {
        if let Ok((_, backend)) = refs::backend(cx, kind, &key.namespace, reference, udp) {
            backends.push((backend, reference.weight.unwrap_or(1)));
        }
    }
    // No name has an underscore: those of two routes cannot become one.
    let name = format!("{}-{}_{}", kind.names().3, key.namespace, key.name);
    let servers = weighted(backends);
    for (index, names) in attached.listeners {
        if !bound[index].serves() {
            continue;
        }
        let mut free: Vec<Option<String>> = Vec::new();
        let mut addresses = listen_addresses(cx, &bound[index]);
        if udp {
            addresses.iter_mut().for_each(|address| address.push_str(" udp"));
        }
        for name in names {
            let of_name: Taken = addresses.iter().map(|a| (a.clone(), name.clone())).collect();
            if of_name.is_disjoint(taken) {
                taken.extend(of_name);
                free.push(name);
            }
        }
        if free.is_empty() {
            continue;
        }
        let backend =
            Backend { name: name.clone(), servers: servers.clone(), app_protocol: String::new() };
        let group = layer4::group(cx, "gateway", backend, Some(owner));
        let mut block = Block::of(Some(owner));
        if udp {
            listen(cx, &bound[index], &["udp"], &mut block);
        } else if ends_tls(&bound[index]) {
            ending(cx, bound, index, &free, owner, &mut block);
        } else {
            listen(cx, &bound[index], &[], &mut block);
            if kind == Kind::TlsRoute {
                block.add("ssl_preread", ["on"]);
            }
        }
        if kind == Kind::TlsRoute {
            server_name(&free, &mut block);
        }
        layer4::settings(cx, udp, &mut block);
        block.add("proxy_pass", [plain(group)]);
        add(cx, owner, block);
    }
}

/// Adds a server to `stream`.
fn add(cx: &mut Cx, owner: Owner, block: Block) {
    cx.stream.owned_by(Some(owner));
    cx.stream.block("server", [] as [Word; 0], block);
    cx.stream.owned_by(None);
}

fn listen(cx: &Cx, bound: &Bound, more: &[&'static str], block: &mut Block) {
    for address in listen_addresses(cx, bound) {
        let words = [plain(address)].into_iter().chain(more.iter().map(|word| w(*word)));
        block.add("listen", words.collect::<Vec<_>>());
    }
}

fn server_name(names: &[Option<String>], block: &mut Block) {
    let names = names.iter().map(|name| plain(name.as_deref().unwrap_or("~^")));
    block.add("server_name", names.collect::<Vec<_>>());
}

/// A server that ends TLS. If another listener of the port passes TLS on, a server that looks at
/// the name is before it, and hands it the connection.
fn ending(
    cx: &mut Cx,
    bound: &[Bound],
    index: usize,
    names: &[Option<String>],
    owner: Owner,
    block: &mut Block,
) {
    let own = &bound[index];
    let passes = |b: &Bound| {
        let at_port = b.listener.port == own.listener.port && b.addresses.overlap(&own.addresses);
        at_port && b.serves() && b.listener.protocol == "TLS" && !ends_tls(b)
    };
    if bound.iter().any(passes) {
        let place = format!("{} {} {names:?}", own.gateway, own.listener.name);
        let socket = format!("unix:{}/tls-{}.sock", cx.options.temp, digest(&[place.as_bytes()]));
        let mut before = Block::of(Some(owner));
        listen(cx, own, &[], &mut before);
        before.add("ssl_preread", ["on"]);
        server_name(names, &mut before);
        before.add("pass", [plain(&socket)]);
        add(cx, owner, before);
        block.add("listen", [plain(socket), w("ssl")]);
    } else {
        listen(cx, own, &["ssl"], block);
    }
    for (certificate, private) in &own.certificates {
        block.add("ssl_certificate", [plain(certificate)]);
        block.add("ssl_certificate_key", [plain(private)]);
    }
}

/// Where a listener listens.
pub(super) fn listen_addresses(cx: &Cx, bound: &Bound) -> Vec<String> {
    let port = bound.listener.port;
    match &bound.addresses {
        Addresses::Shared => crate::ingress::addresses(cx, port),
        Addresses::Own(ips) => {
            ips.iter().map(|ip| SocketAddr::new(*ip, port).to_string()).collect()
        }
        Addresses::Missing(..) => Vec::new(),
    }
}

/// The servers of several backends, so that each backend has its share whatever the number of its
/// servers.
fn weighted(backends: Vec<(Backend, u32)>) -> Vec<Server> {
    let common = backends
        .iter()
        .map(|(b, _)| b.servers.len() as u64)
        .filter(|n| *n > 0)
        .fold(1, |all, n| all / gcd(all, n) * n);
    let mut out = Vec::new();
    for (backend, weight) in backends {
        let count = backend.servers.len() as u64;
        if weight == 0 || count == 0 {
            continue;
        }
        let share = u64::from(weight) * common / count;
        for server in backend.servers {
            let weight = u32::try_from(share).unwrap_or(u32::MAX).min(65_535);
            out.push(Server { weight, ..server });
        }
    }
    let divisor = out.iter().fold(0, |d, s| gcd(d, s.weight.into()));
    for server in &mut out {
        server.weight = (u64::from(server.weight) / divisor.max(1)) as u32;
    }
    out.sort();
    out.dedup_by(|b, a| {
        let same = a.address == b.address;
        if same {
            a.weight += b.weight;
        }
        same
    });
    out
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_depend_on_the_number_of_servers() {
        let backend = |name: &str, n: u16| Backend {
            name: name.to_owned(),
            servers: (0..n)
                .map(|i| Server {
                    address: format!("{name}:{i}"),
                    weight: 1,
                    down: false,
                    resolve: false,
                })
                .collect(),
            app_protocol: String::new(),
        };
        let servers =
            weighted(vec![(backend("a", 1), 70), (backend("b", 2), 30), (backend("c", 3), 0)]);
        let of = |name: &str| {
            servers.iter().filter(|s| s.address.starts_with(name)).map(|s| s.weight).sum::<u32>()
        };
        assert_eq!((of("a") * 30, of("c")), (of("b") * 70, 0));
    }
}
