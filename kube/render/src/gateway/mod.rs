//! The Gateway API: which Gateways are ours, which routes they take, and statuses.
//!
//! Times are no part of statuses here: the loop adds `lastTransitionTime`.

mod clients;
mod filters;
mod http;
mod layer4;
mod matching;
mod places;
mod pool;
mod refs;
pub mod types;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Status;
use crate::check;
use crate::conf::Block;
use crate::cx::Cx;
use crate::objects::{Key, Kind, Meta, ObjectRef};
use clients::Clients;
pub use pool::Pool;
use pool::{Addresses, UNSUPPORTED};
use refs::Resolved;
use types::{Gateway, Listener, Ref, Selector};

/// The `server` blocks of Gateways.
#[derive(Default)]
pub(crate) struct Servers {
    pub blocks: Vec<Block>,
}

/// What the conformance suite knows as supported.
pub const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendRequestRedirect",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// A listener of a Gateway of ours.
pub(crate) struct Bound<'a> {
    pub gateway: &'a Key,
    pub listener: &'a Listener,
    /// Where it listens.
    pub addresses: Addresses,
    pub hostname: Option<String>,
    /// Certificates and keys, as files.
    pub certificates: Vec<(String, String)>,
    /// How it verifies the certificates of clients.
    pub clients: Option<Clients>,
    /// The certificate and key for backends.
    pub backend_client: Option<(String, String)>,
    /// The kinds of routes that it takes.
    kinds: Vec<Kind>,
    /// Why it does not serve: a reason and a message.
    conflict: Option<(&'static str, String)>,
    /// Whether its references resolve.
    resolved: Resolved,
    attached: usize,
}

impl Bound<'_> {
    /// Whether it serves.
    pub fn serves(&self) -> bool {
        let has_address = !matches!(self.addresses, Addresses::Missing(..));
        let resolved =
            self.resolved.is_ok() || (self.listener.protocol != "HTTPS" && !layer4::ends_tls(self));
        self.conflict.is_none() && has_address && resolved
    }
}

/// Renders Gateways and their routes.
pub(crate) fn servers<'a>(cx: &mut Cx<'a>) -> Servers {
    classes(cx);
    let mut bound = listeners(cx);
    let mut out = Servers::default();
    let users = http::render(cx, &mut bound, &mut out);
    layer4::render(cx, &mut bound);
    refs::policies(cx, &users);
    gateway_statuses(cx, &bound);
    out
}

fn is_ours(cx: &Cx, gateway: &Gateway) -> bool {
    let class = cx.objects.gateway_classes.get(&Key::new("", &gateway.spec.gateway_class_name));
    class.is_some_and(|c| c.spec.controller_name == cx.options.gateway_controller)
}

pub(crate) fn condition(
    kind: &str,
    good: bool,
    reason: &str,
    message: &str,
    generation: i64,
) -> Value {
    json!({
        "type": kind,
        "status": if good { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    })
}

fn classes(cx: &mut Cx) {
    for (key, class) in &cx.objects.gateway_classes {
        if class.spec.controller_name != cx.options.gateway_controller {
            continue;
        }
        let generation = class.metadata.generation;
        let accepted = match &class.spec.parameters_ref {
            None => condition("Accepted", true, "Accepted", "served by Weir", generation),
            Some(_) => {
                let m = "parametersRef is not supported";
                condition("Accepted", false, "InvalidParameters", m, generation)
            }
        };
        let features: Vec<Value> = FEATURES.iter().map(|name| json!({ "name": name })).collect();
        let status = json!({ "conditions": [accepted], "supportedFeatures": features });
        let object = ObjectRef::new(Kind::GatewayClass, "", &key.name);
        cx.statuses.push(Status { object, status });
    }
}

/// All listeners of our Gateways, the oldest Gateway first.
fn listeners<'a>(cx: &mut Cx<'a>) -> Vec<Bound<'a>> {
    let objects = cx.objects;
    let mut gateways: Vec<(&Key, &Gateway)> =
        objects.gateways.iter().filter(|(_, gateway)| is_ours(cx, gateway)).collect();
    gateways.sort_by_key(|(key, g)| (&g.metadata.creation_timestamp, *key));
    let assigned = pool::assign(&cx.options.gateway_addresses, &gateways);
    let mut out: Vec<Bound> = Vec::new();
    for (key, gateway) in gateways {
        let object = ObjectRef::new(Kind::Gateway, &key.namespace, &key.name);
        if let Some(message) = cx.refused.get(&object) {
            cx.warn(object, "Rejected", format!("the configuration does not load: {message}"));
            continue;
        }
        let addresses = Addresses::of(cx, key, gateway, &assigned);
        let backend_client = clients::of_backends(cx, key, gateway).and_then(Result::ok);
        for listener in &gateway.spec.listeners {
            let mut bound = bind(cx, key, listener, &addresses, &out);
            bound.backend_client.clone_from(&backend_client);
            if listener.protocol == "HTTPS" {
                let (clients, resolved) = Clients::of(cx, key, gateway, listener.port);
                if let (None, Err((_, message))) = (&clients, &resolved) {
                    let invalid = ("NoValidCACertificate", message.clone());
                    bound.conflict = bound.conflict.or(Some(invalid));
                }
                bound.clients = clients;
                bound.resolved = bound.resolved.and(resolved);
            }
            out.push(bound);
        }
    }
    out
}

fn bind<'a>(
    cx: &mut Cx,
    gateway: &'a Key,
    listener: &'a Listener,
    addresses: &Addresses,
    others: &[Bound],
) -> Bound<'a> {
    let hostname = listener.hostname.as_ref().map(|h| h.to_ascii_lowercase());
    let hostname = hostname.filter(|h| !h.is_empty());
    let (kinds, kinds_resolved) = route_kinds(listener);
    let mut resolved = kinds_resolved;
    let mut certificates = Vec::new();
    if listener.protocol == "HTTPS" || (listener.protocol == "TLS" && mode(listener) == "Terminate")
    {
        match refs::certificates(cx, gateway, listener) {
            Ok(files) => certificates = files,
            Err(error) => resolved = Err(error),
        }
    }
    let mut conflict = None;
    let same_port = others
        .iter()
        .filter(|o| o.listener.port == listener.port && o.addresses.overlap(addresses));
    for other in same_port {
        let udp = |l: &Listener| l.protocol == "UDP";
        if udp(other.listener) != udp(listener) {
            continue;
        }
        if other.listener.protocol != listener.protocol {
            let m = format!("port {} has the protocol {}", listener.port, other.listener.protocol);
            conflict = Some(("ProtocolConflict", m));
        } else if other.hostname == hostname
            && (other.gateway == gateway || hostname.is_some() || !is_http(listener))
        {
            // Listeners of HTTP without a name share what no other listener has.
            let m = format!("a listener of Gateway {} has this port and name", other.gateway);
            conflict = Some(("HostnameConflict", m));
        }
    }
    if is_unavailable(cx, listener) {
        let m = format!("port {} serves something else", listener.port);
        conflict = Some(("PortUnavailable", m));
    }
    if !matches!(listener.protocol.as_str(), "HTTP" | "HTTPS" | "TLS" | "TCP" | "UDP") {
        conflict = Some(("UnsupportedProtocol", format!("no protocol {}", listener.protocol)));
    } else if hostname.as_ref().is_some_and(|h| !check::is_host(h, true)) {
        conflict = Some(("UnsupportedProtocol", "the hostname is not one".to_owned()));
    }
    Bound {
        gateway,
        listener,
        addresses: addresses.clone(),
        hostname,
        certificates,
        clients: None,
        backend_client: None,
        kinds,
        conflict,
        resolved,
        attached: 0,
    }
}

/// Whether the server itself has the port, for something else.
fn is_unavailable(cx: &Cx, listener: &Listener) -> bool {
    let options = cx.options;
    let status = options.status.rsplit(':').next().and_then(|port| port.parse().ok());
    let others: &[u16] = match listener.protocol.as_str() {
        "UDP" => return false,
        "HTTP" => &[options.https_port],
        "HTTPS" => &[options.http_port],
        _ => &[options.http_port, options.https_port],
    };
    let own = others.iter().copied().chain([options.ssl_proxy_port]).chain(status);
    own.into_iter().any(|port: u16| port == listener.port)
}

fn is_http(listener: &Listener) -> bool {
    matches!(listener.protocol.as_str(), "HTTP" | "HTTPS")
}

fn mode(listener: &Listener) -> &str {
    listener.tls.as_ref().and_then(|tls| tls.mode.as_deref()).unwrap_or("Terminate")
}

/// The kinds that a listener takes: those of its protocol, or fewer.
fn route_kinds(listener: &Listener) -> (Vec<Kind>, Resolved) {
    let possible: &[Kind] = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => &[Kind::HttpRoute, Kind::GrpcRoute],
        "TLS" => &[Kind::TlsRoute],
        "TCP" => &[Kind::TcpRoute],
        "UDP" => &[Kind::UdpRoute],
        _ => &[],
    };
    let wanted = &listener.allowed_routes.kinds;
    if wanted.is_empty() {
        return (possible.to_vec(), Ok(()));
    }
    let known = |k: &types::RouteKind| {
        let group = k.group.as_deref().unwrap_or("gateway.networking.k8s.io");
        possible.iter().copied().find(|p| p.names().0 == group && p.names().2 == k.kind)
    };
    let kinds: Vec<Kind> = wanted.iter().filter_map(known).collect();
    let resolved = match kinds.len() == wanted.len() {
        true => Ok(()),
        false => {
            Err(("InvalidRouteKinds", "a kind of routes does not fit the protocol".to_owned()))
        }
    };
    (kinds, resolved)
}

/// Whether a set of labels is selected.
fn selects(selector: &Selector, labels: &BTreeMap<String, String>) -> bool {
    let all = selector.match_labels.iter().all(|(name, value)| labels.get(name) == Some(value));
    all && selector.match_expressions.iter().all(|e| {
        let value = labels.get(&e.key);
        match e.operator.as_str() {
            "In" => value.is_some_and(|v| e.values.contains(v)),
            "NotIn" => !value.is_some_and(|v| e.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    })
}

fn takes_namespace(cx: &Cx, bound: &Bound, namespace: &str) -> bool {
    let from = &bound.listener.allowed_routes.namespaces;
    match from.from.as_deref().unwrap_or("Same") {
        "All" => true,
        "Selector" => cx
            .objects
            .namespaces
            .get(&Key::new("", namespace))
            .is_some_and(|n| selects(&from.selector, &n.metadata.labels)),
        _ => bound.gateway.namespace == namespace,
    }
}

/// A route and the listeners that took it.
pub(crate) struct Attachment {
    /// Indices of listeners, each with the names that it and the route have in common; none for
    /// all names.
    pub listeners: Vec<(usize, Vec<Option<String>>)>,
}

/// Attaches a route to its parents, and notes its status.
#[allow(clippy::too_many_arguments)]
pub(crate) fn attach(
    cx: &mut Cx,
    bound: &mut [Bound],
    kind: Kind,
    key: &Key,
    meta: &Meta,
    parents: &[Ref],
    hostnames: &[String],
    resolved: &Resolved,
) -> Attachment {
    let mut attachment = Attachment { listeners: Vec::new() };
    let mut statuses = Vec::new();
    for parent in parents {
        let is_gateway = parent.kind.as_deref().unwrap_or("Gateway") == "Gateway"
            && parent.group.as_deref().unwrap_or("gateway.networking.k8s.io")
                == "gateway.networking.k8s.io";
        let namespace = parent.namespace.as_deref().unwrap_or(&key.namespace);
        let gateway = Key::new(namespace, &parent.name);
        if !is_gateway || !bound.iter().any(|b| *b.gateway == gateway) {
            continue;
        }
        let (found, reason) = matching_listeners(cx, bound, kind, key, parent, &gateway, hostnames);
        for (index, names) in found {
            if !attachment.listeners.iter().any(|(i, _)| *i == index) {
                bound[index].attached += 1;
                attachment.listeners.push((index, names));
            }
        }
        let accepted = reason == "Accepted";
        let generation = meta.generation;
        let refs = match resolved {
            Ok(()) => condition("ResolvedRefs", true, "ResolvedRefs", "", generation),
            Err((reason, message)) => condition("ResolvedRefs", false, reason, message, generation),
        };
        let mut of = json!({ "name": parent.name });
        let fields = [
            ("group", &parent.group),
            ("kind", &parent.kind),
            ("namespace", &parent.namespace),
            ("sectionName", &parent.section_name),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                of[name] = json!(value);
            }
        }
        if let Some(port) = parent.port {
            of["port"] = json!(port);
        }
        statuses.push(json!({
            "parentRef": of,
            "controllerName": cx.options.gateway_controller,
            "conditions": [condition("Accepted", accepted, reason, "", generation), refs],
        }));
    }
    if !statuses.is_empty() {
        let object = ObjectRef::new(kind, &key.namespace, &key.name);
        cx.statuses.push(Status { object, status: json!({ "parents": statuses }) });
    }
    attachment
}

type Found = Vec<(usize, Vec<Option<String>>)>;

fn matching_listeners(
    cx: &Cx,
    bound: &[Bound],
    kind: Kind,
    key: &Key,
    parent: &Ref,
    gateway: &Key,
    hostnames: &[String],
) -> (Found, &'static str) {
    let mut found = Vec::new();
    let (mut named, mut allowed) = (false, false);
    for (index, listener) in bound.iter().enumerate() {
        let fits = listener.gateway == gateway
            && parent.section_name.as_ref().is_none_or(|name| *name == listener.listener.name)
            && parent.port.is_none_or(|port| port == listener.listener.port);
        if !fits {
            continue;
        }
        named = true;
        if !listener.kinds.contains(&kind) || !takes_namespace(cx, listener, &key.namespace) {
            continue;
        }
        allowed = true;
        let names = common_names(listener.hostname.as_deref(), hostnames);
        if !names.is_empty() {
            found.push((index, names));
        }
    }
    let reason = match (found.is_empty(), named, allowed) {
        (false, ..) => "Accepted",
        (_, false, _) => "NoMatchingParent",
        (_, _, false) => "NotAllowedByListeners",
        _ => "NoMatchingListenerHostname",
    };
    (found, reason)
}

/// The names that a listener and a route have in common; `None` stands for all.
fn common_names(listener: Option<&str>, route: &[String]) -> Vec<Option<String>> {
    if route.is_empty() {
        return vec![listener.map(str::to_owned)];
    }
    let mut out = Vec::new();
    for name in route.iter().map(|name| name.to_ascii_lowercase()) {
        if !check::is_host(&name, true) {
            continue;
        }
        match listener {
            None => out.push(Some(name)),
            Some(listener) if covers(listener, &name) => out.push(Some(name)),
            Some(listener) if covers(&name, listener) => out.push(Some(listener.to_owned())),
            Some(_) => {}
        }
    }
    out
}

/// Whether a name or wildcard includes another one. A wildcard of the Gateway API stands for one
/// or more labels.
pub(crate) fn covers(wide: &str, name: &str) -> bool {
    match wide.strip_prefix('*') {
        None => wide == name,
        Some(suffix) => {
            let name = name.strip_prefix('*').unwrap_or(name);
            name.ends_with(suffix) && (name.len() > suffix.len() || wide == format!("*{name}"))
        }
    }
}

fn gateway_statuses(cx: &mut Cx, bound: &[Bound]) {
    let mut by_gateway: BTreeMap<&Key, Vec<&Bound>> = BTreeMap::new();
    for b in bound {
        by_gateway.entry(b.gateway).or_default().push(b);
    }
    for (key, listeners) in by_gateway {
        let Some(gateway) = cx.objects.gateways.get(key) else { continue };
        let generation = gateway.metadata.generation;
        let own = &listeners[0].addresses;
        let addresses: Vec<Value> = match own {
            Addresses::Shared => cx.options.addresses.iter().map(|a| address_status(a)).collect(),
            Addresses::Own(ips) => ips.iter().map(|ip| address_status(&ip.to_string())).collect(),
            Addresses::Missing(..) => Vec::new(),
        };
        let valid = listeners.iter().all(|b| b.conflict.is_none());
        let any = listeners.iter().any(|b| b.serves());
        let some = listeners.iter().any(|b| b.conflict.is_none());
        let accepted = match own {
            Addresses::Missing(UNSUPPORTED, message) => {
                condition("Accepted", false, UNSUPPORTED, message, generation)
            }
            _ if valid => condition("Accepted", true, "Accepted", "", generation),
            _ => {
                let m = "a listener is not valid";
                condition("Accepted", some, "ListenersNotValid", m, generation)
            }
        };
        let programmed = match own {
            Addresses::Missing(reason, message) if *reason != UNSUPPORTED => {
                condition("Programmed", false, reason, message, generation)
            }
            _ if any => condition("Programmed", true, "Programmed", "", generation),
            _ => condition("Programmed", false, "Invalid", "no listener serves", generation),
        };
        let mut conditions = vec![accepted, programmed];
        match clients::of_backends(cx, key, gateway) {
            None => {}
            Some(Ok(_)) => {
                conditions.push(condition("ResolvedRefs", true, "ResolvedRefs", "", generation));
            }
            Some(Err((reason, message))) => {
                conditions.push(condition("ResolvedRefs", false, reason, &message, generation));
            }
        }
        if clients::is_insecure(gateway) {
            let (kind, m) = ("InsecureFrontendValidationMode", "clients need no valid certificate");
            conditions.push(condition(kind, true, "ConfigurationChanged", m, generation));
        }
        let listeners: Vec<Value> =
            listeners.iter().map(|b| listener_status(b, generation)).collect();
        let status = json!({
            "addresses": addresses,
            "conditions": conditions,
            "listeners": listeners,
        });
        let object = ObjectRef::new(Kind::Gateway, &key.namespace, &key.name);
        cx.statuses.push(Status { object, status });
    }
}

fn address_status(address: &str) -> Value {
    let bare = address.trim_matches(['[', ']']);
    let kind = if bare.parse::<std::net::IpAddr>().is_ok() { "IPAddress" } else { "Hostname" };
    json!({ "type": kind, "value": bare })
}

fn listener_status(b: &Bound, generation: i64) -> Value {
    let kinds: Vec<Value> =
        b.kinds.iter().map(|k| json!({ "group": k.names().0, "kind": k.names().2 })).collect();
    let conflicted = match &b.conflict {
        Some((reason @ ("ProtocolConflict" | "HostnameConflict"), message)) => {
            condition("Conflicted", true, reason, message, generation)
        }
        _ => condition("Conflicted", false, "NoConflicts", "", generation),
    };
    let accepted = match &b.conflict {
        Some((reason, message)) => condition("Accepted", false, reason, message, generation),
        None => condition("Accepted", true, "Accepted", "", generation),
    };
    let refs = match &b.resolved {
        Ok(()) => condition("ResolvedRefs", true, "ResolvedRefs", "", generation),
        Err((reason, message)) => condition("ResolvedRefs", false, reason, message, generation),
    };
    let programmed = match b.serves() && b.resolved.is_ok() {
        true => condition("Programmed", true, "Programmed", "", generation),
        false => condition("Programmed", false, "Invalid", "", generation),
    };
    json!({
        "name": b.listener.name,
        "attachedRoutes": b.attached,
        "supportedKinds": kinds,
        "conditions": [accepted, programmed, refs, conflicted],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_common() {
        let route = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let some = |n: &str| Some(n.to_owned());
        assert_eq!(common_names(None, &[]), [None]);
        assert_eq!(common_names(Some("a.b"), &[]), [some("a.b")]);
        assert_eq!(
            common_names(Some("*.b"), &route(&["a.b", "x.y.b", "b"])),
            [some("a.b"), some("x.y.b")]
        );
        assert_eq!(common_names(Some("a.b"), &route(&["*.b"])), [some("a.b")]);
        assert_eq!(common_names(Some("*.a.b"), &route(&["*.b"])), [some("*.a.b")]);
        assert!(common_names(Some("a.b"), &route(&["c.d"])).is_empty());
    }
}
