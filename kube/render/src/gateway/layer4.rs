//! TLSRoute, TCPRoute and UDPRoute.

use std::collections::BTreeSet;

use super::types::L4Route;
use super::{Bound, attach, refs};
use crate::conf::{Block, Word, plain, w};
use crate::cx::Cx;
use crate::layer4;
use crate::objects::{Key, Kind, ObjectRef};
use crate::upstreams::{Backend, Server};

pub(super) fn render(cx: &mut Cx, bound: &mut [Bound]) {
    // The oldest route of a listener and a name wins.
    let mut taken: BTreeSet<(usize, Option<String>)> = BTreeSet::new();
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
}

fn one(
    cx: &mut Cx,
    bound: &mut [Bound],
    kind: Kind,
    key: &Key,
    route: &L4Route,
    taken: &mut BTreeSet<(usize, Option<String>)>,
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
    let name = format!("{}-{}-{}", kind.names().3, key.namespace, key.name);
    let servers = weighted(backends);
    for (index, names) in attached.listeners {
        if !bound[index].serves() {
            continue;
        }
        let mut free: Vec<Option<String>> = Vec::new();
        for name in names {
            if taken.insert((index, name.clone())) {
                free.push(name);
            }
        }
        if free.is_empty() {
            continue;
        }
        let listener = &bound[index];
        let mut block = Block::of(Some(owner));
        for address in listen_addresses(cx, listener) {
            let mut words = vec![plain(address)];
            if udp {
                words.push(w("udp"));
            }
            block.add("listen", words);
        }
        if kind == Kind::TlsRoute {
            block.add("ssl_preread", ["on"]);
            let names = free.iter().map(|name| plain(name.as_deref().unwrap_or("~^")));
            block.add("server_name", names.collect::<Vec<_>>());
        }
        layer4::settings(cx, udp, &mut block);
        let backend =
            Backend { name: name.clone(), servers: servers.clone(), app_protocol: String::new() };
        let group = layer4::group(cx, "gateway", backend, Some(owner));
        block.add("proxy_pass", [plain(group)]);
        cx.stream.owned_by(Some(owner));
        cx.stream.block("server", [] as [Word; 0], block);
        cx.stream.owned_by(None);
    }
}

/// Where a listener listens.
pub(super) fn listen_addresses(cx: &Cx, bound: &Bound) -> Vec<String> {
    let port = bound.listener.port;
    match bound.addresses.is_empty() {
        true => crate::ingress::addresses(cx, port),
        false => bound.addresses.iter().map(|a| format!("{a}:{port}")).collect(),
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
