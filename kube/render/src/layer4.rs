//! `stream`: TCP and UDP services, and TLS by name.

use crate::check;
use crate::conf::{Block, Owner, Word, plain, w};
use crate::cx::Cx;
use crate::ingress::{CATCH_ALL, Ing, Server, Target, addresses};
use crate::objects::{Key, Kind, ObjectRef, PortRef};
use crate::upstreams::{Backend, Upstream};

/// Adds a group of `stream`; returns its name.
pub(crate) fn group(cx: &mut Cx, prefix: &str, backend: Backend, owner: Option<Owner>) -> String {
    let name = format!("{prefix}-{}", backend.name);
    cx.stream_upstreams.entry(name.clone()).or_insert(Upstream {
        settings: Block::of(owner),
        servers: backend.servers,
        owner,
    });
    name
}

/// The directives of a server of `stream` that the ConfigMap sets.
pub(crate) fn settings(cx: &Cx, udp: bool, block: &mut Block) {
    let config = &cx.config;
    if udp {
        block.add("proxy_responses", [plain(config.get("proxy-stream-responses"))]);
    }
    block.add("proxy_timeout", [plain(config.get("proxy-stream-timeout"))]);
    block.add("proxy_next_upstream", [config.on_off("proxy-stream-next-upstream")]);
    let timeout = config.get("proxy-stream-next-upstream-timeout");
    block.add("proxy_next_upstream_timeout", [plain(timeout)]);
    let tries = config.get("proxy-stream-next-upstream-tries");
    block.add("proxy_next_upstream_tries", [plain(tries)]);
}

/// The services of the two ConfigMaps: `PORT: NAMESPACE/SERVICE:PORT[:PROXY][:PROXY]`.
pub(crate) fn services(cx: &mut Cx) {
    for (map, udp) in
        [(cx.options.tcp_services.clone(), false), (cx.options.udp_services.clone(), true)]
    {
        let Some(key) = map else { continue };
        let Some(map) = cx.objects.config_maps.get(&key) else { continue };
        let object = ObjectRef::new(Kind::ConfigMap, &key.namespace, &key.name);
        for (port, value) in &map.data {
            let owner = cx.owner(&object);
            if let Err(message) = service(cx, port, value, udp, owner) {
                let m = format!("\"{}\": {message}", port.escape_debug());
                cx.warn(object.clone(), "Rejected", m);
            }
        }
    }
    if cx.options.ssl_passthrough {
        rest_of_passthrough(cx);
    }
}

fn service(cx: &mut Cx, port: &str, value: &str, udp: bool, owner: Owner) -> Result<(), String> {
    let port: u16 = port.trim().parse().map_err(|_| "the key is not a port")?;
    let status = cx.options.status.rsplit(':').next().and_then(|p| p.parse().ok());
    let taken = [cx.options.http_port, cx.options.https_port, cx.options.ssl_proxy_port];
    if port == 0 || (!udp && (taken.contains(&port) || status == Some(port))) {
        return Err("the port is in use by the controller".to_owned());
    }
    let parts: Vec<&str> = value.trim().split(':').collect();
    let [service, target, options @ ..] = parts.as_slice() else {
        return Err("the value is not NAMESPACE/SERVICE:PORT".to_owned());
    };
    if options.len() > 2
        || options.iter().any(|o| !o.is_empty() && !o.eq_ignore_ascii_case("PROXY"))
    {
        return Err("behind the port, only PROXY may stand".to_owned());
    }
    if !service.contains('/') {
        return Err("the value is not NAMESPACE/SERVICE:PORT".to_owned());
    }
    let reference = match target.parse() {
        Ok(number) => PortRef { number: Some(number), name: String::new() },
        Err(_) => PortRef { number: None, name: (*target).to_owned() },
    };
    let backend = cx.backend(&Key::parse(service, "default"), &reference, false, udp)?;
    if backend.servers.is_empty() {
        return Err(format!("Service {service} has no endpoints"));
    }
    let mut block = Block::of(Some(owner));
    let is_proxy = |i: usize| options.get(i).is_some_and(|o| !o.is_empty());
    for address in addresses(cx, port) {
        let mut words = vec![plain(address)];
        if udp {
            words.push(w("udp"));
        } else if is_proxy(0) {
            words.push(w("proxy_protocol"));
        }
        block.add("listen", words);
    }
    settings(cx, udp, &mut block);
    let name = group(cx, if udp { "udp" } else { "tcp" }, backend, Some(owner));
    block.add("proxy_pass", [plain(name)]);
    if is_proxy(1) && !udp {
        block.add("proxy_protocol", ["on"]);
    }
    cx.stream.owned_by(Some(owner));
    cx.stream.block("server", [] as [Word; 0], block);
    cx.stream.owned_by(None);
    Ok(())
}

/// Hands the TLS connections for a host to the backend of its root.
pub(crate) fn passthrough(cx: &mut Cx, ings: &[Ing], server: &Server) {
    let root = server.locations.iter().find(|l| l.path == "/");
    let Some((ing, Target::Service { service, port })) =
        root.and_then(|l| Some((&ings[l.ing?], &l.target)))
    else {
        return;
    };
    if server.host == CATCH_ALL {
        let m = "ssl-passthrough needs a host";
        cx.warn(ing.object.clone(), "Ignored", m);
        return;
    }
    match cx.backend(&Key::new(&ing.key.namespace, service), port, false, false) {
        Ok(backend) => {
            let mut block = Block::of(Some(ing.owner));
            tls_listen(cx, &mut block, false);
            let mut names = vec![plain(&server.host)];
            names.extend(server.aliases.iter().filter(|a| check::is_host(a, true)).map(plain));
            block.add("server_name", names);
            settings(cx, false, &mut block);
            let name = group(cx, "tls", backend, Some(ing.owner));
            block.add("proxy_pass", [plain(name)]);
            cx.stream.block("server", [] as [Word; 0], block);
        }
        Err(message) => cx.warn(ing.object.clone(), "NoBackend", message),
    }
}

fn tls_listen(cx: &Cx, block: &mut Block, is_default: bool) {
    for address in addresses(cx, cx.options.https_port) {
        let mut words = vec![plain(address)];
        if is_default {
            words.push(w("default_server"));
        }
        if cx.config.bool("use-proxy-protocol") {
            words.push(w("proxy_protocol"));
        }
        block.add("listen", words);
    }
    block.add("ssl_preread", ["on"]);
}

/// The server for all other names: it hands connections to `http`, with the clients' addresses.
fn rest_of_passthrough(cx: &mut Cx) {
    let mut block = Block::default();
    tls_listen(cx, &mut block, true);
    block.add("server_name", [""]);
    block.add("pass", [plain(format!("127.0.0.1:{}", cx.options.ssl_proxy_port))]);
    cx.stream.block("server", [] as [Word; 0], block);
}
