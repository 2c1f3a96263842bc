//! Where servers listen, and which listener has a name there.

use std::collections::{BTreeMap, BTreeSet};

use super::http::{Entry, includes};
use super::{Bound, Servers, layer4};
use crate::conf::{Block, Owner, Word, key, plain, w};
use crate::cx::{Cx, digest};
use crate::objects::{Kind, ObjectRef};

/// Where servers listen: addresses at which each name belongs to the same listener, whether they
/// speak TLS, and the listener of each name.
pub(super) struct Place {
    pub addresses: Vec<String>,
    pub tls: bool,
    pub listeners: Owners,
}

/// The listener that has a name at an address; `None` stands for all names that nobody has.
pub(super) type Owners = BTreeMap<Option<String>, usize>;

/// The places of all listeners. At an address that several Gateways share, a name belongs to the
/// Gateway whose listener names it, then to the oldest one: nobody gets requests for a name of
/// another one, or sets the certificate and the rules for clients there.
pub(super) fn places<'a>(
    cx: &mut Cx<'a>,
    bound: &[Bound<'a>],
    entries: &[(usize, Entry<'a>)],
) -> Vec<Place> {
    let mut by_address: BTreeMap<(String, bool), Owners> = BTreeMap::new();
    let mut lost: BTreeSet<(usize, usize, String)> = BTreeSet::new();
    for (index, listener) in bound.iter().enumerate() {
        if !listener.serves() || !matches!(listener.listener.protocol.as_str(), "HTTP" | "HTTPS") {
            continue;
        }
        let tls = listener.listener.protocol == "HTTPS";
        let own = entries.iter().filter(|(i, _)| *i == index);
        let mut names: BTreeSet<Option<String>> = own.flat_map(|(_, e)| e.names.clone()).collect();
        names.insert(listener.hostname.clone());
        names.retain(|name| !is_another_listeners(bound, listener, name));
        for address in layer4::listen_addresses(cx, listener) {
            let owners = by_address.entry((address, tls)).or_default();
            for name in &names {
                let is_named = |i: usize| name.is_some() && bound[i].hostname == *name;
                let holder = *owners.entry(name.clone()).or_insert(index);
                if holder == index {
                    continue;
                }
                let (wins, loses) = match is_named(index) && !is_named(holder) {
                    true => (index, holder),
                    false => (holder, index),
                };
                owners.insert(name.clone(), wins);
                lost.insert((loses, wins, name.clone().unwrap_or_else(|| "all names".to_owned())));
            }
        }
    }
    for (loses, wins, name) in lost {
        let (loses, wins) = (bound[loses].gateway, bound[wins].gateway);
        if loses != wins {
            let object = ObjectRef::new(Kind::Gateway, &loses.namespace, &loses.name);
            let m = format!("{name}: Gateway {wins} has this name at the same address");
            cx.warn(object, "Conflicted", m);
        }
    }
    let mut places: Vec<Place> = Vec::new();
    for ((address, tls), listeners) in by_address {
        match places.iter_mut().find(|p| p.tls == tls && p.listeners == listeners) {
            Some(place) => place.addresses.push(address),
            None => places.push(Place { addresses: vec![address], tls, listeners }),
        }
    }
    places
}

/// The server for names that no listener has.
pub(super) fn nobody(
    cx: &mut Cx,
    bound: &[Bound],
    place: &Place,
    defaults: &mut BTreeSet<String>,
    out: &mut Servers,
) {
    let owner = place.listeners.values().next().map(|index| of_gateway(cx, &bound[*index]));
    let mut block = Block::of(owner);
    let mut any = false;
    for address in &place.addresses {
        if !is_of_ingresses(cx, address) && defaults.insert(address.clone()) {
            let words = [plain(address), w("default_server")].into_iter();
            block.add("listen", words.chain(place.tls.then(|| w("ssl"))).collect::<Vec<_>>());
            any = true;
        }
    }
    if !any {
        return;
    }
    match place.tls {
        true => block.add("ssl_reject_handshake", ["on"]),
        false => {
            block.add("http2", ["on"]);
            block.add("return", ["404"]);
        }
    }
    out.blocks.push(block);
}

/// The Gateway of a listener, as the origin of what is written for it.
pub(super) fn of_gateway(cx: &mut Cx, bound: &Bound) -> Owner {
    cx.owner(&ObjectRef::new(Kind::Gateway, &bound.gateway.namespace, &bound.gateway.name))
}

/// Whether Ingresses have an address, too: their servers stay the default there.
pub(super) fn is_of_ingresses(cx: &Cx, address: &String) -> bool {
    let ports = [cx.options.http_port, cx.options.https_port];
    ports.iter().any(|port| crate::ingress::addresses(cx, *port).contains(address))
}

/// Whether requests for a name are for another listener of the Gateway, because its name is more
/// specific.
fn is_another_listeners(bound: &[Bound], listener: &Bound, name: &Option<String>) -> bool {
    bound.iter().any(|other| {
        other.serves()
            && other.gateway == listener.gateway
            && other.listener.port == listener.listener.port
            && other.listener.protocol == listener.listener.protocol
            && other.hostname != listener.hostname
            && includes(&other.hostname, name)
            && includes(&listener.hostname, &other.hostname)
    })
}

/// Refuses requests of connections whose TLS name belongs to another listener: that may have other
/// certificates, and other rules for those of clients (RFC 9110, section 15.5.20). Connections
/// without a name were accepted by the default server.
pub(super) fn misdirected(
    cx: &mut Cx,
    bound: &[Bound],
    place: &Place,
    index: usize,
    block: &mut Block,
) {
    let listeners: BTreeSet<usize> = place.listeners.values().copied().collect();
    let asks = listeners.iter().any(|index| bound[*index].clients.is_some());
    let of_ingresses = place.addresses.iter().any(|address| is_of_ingresses(cx, address));
    // Where everybody has the same rules, a client may use any connection.
    if !asks && listeners.len() < 2 {
        return;
    }
    let variable = format!("$gw_listener_{}", digest(&[place.addresses.join(" ").as_bytes()]));
    if cx.first(&variable) {
        let mut map = Block::of(Some(of_gateway(cx, &bound[index])));
        map.entry(w("hostnames"), [] as [Word; 0]);
        for (name, listener) in &place.listeners {
            let listener = plain(listener.to_string());
            match name {
                Some(name) => map.entry(key(name), [listener]),
                // The default server is that of the Ingresses, then.
                None if of_ingresses => map.entry(w("~."), [listener]),
                None => map.entry(w("default"), [listener]),
            }
        }
        cx.http.block("map", [w("$ssl_server_name"), w(&variable)], map);
    }
    let mut refuse = Block::default();
    refuse.add("return", ["421"]);
    block.block("if", [w(format!("({variable}")), w("!="), w(format!("{index})"))], refuse);
}
