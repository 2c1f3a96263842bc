//! References between objects: backends, certificates, grants, policies.

use std::collections::BTreeSet;

use serde_json::json;

use super::condition;
use super::http::Users;
use super::types::{BackendRef, BackendTlsPolicy, Listener, Ref};
use crate::Status;
use crate::conf::{Block, plain};
use crate::cx::Cx;
use crate::objects::{Key, Kind, ObjectRef, PortRef};
use crate::upstreams::Backend;

/// Whether references resolve, or else a reason and a message.
pub(crate) type Resolved = Result<(), (&'static str, String)>;

/// Whether a grant allows a reference into another namespace.
fn is_granted(cx: &Cx, from: Kind, from_namespace: &str, to: Kind, key: &Key) -> bool {
    if from_namespace == key.namespace {
        return true;
    }
    cx.objects.reference_grants.iter().any(|(grant, g)| {
        grant.namespace == key.namespace
            && g.spec.from.iter().any(|f| {
                f.group == from.names().0
                    && f.kind == from.names().2
                    && f.namespace == from_namespace
            })
            && g.spec.to.iter().any(|t| {
                t.group == to.names().0
                    && t.kind == to.names().2
                    && t.name.as_ref().is_none_or(|name| name.is_empty() || *name == key.name)
            })
    })
}

/// The certificates of a listener, as files.
pub(super) fn certificates(
    cx: &mut Cx,
    gateway: &Key,
    listener: &Listener,
) -> Result<Vec<(String, String)>, (&'static str, String)> {
    let refs = listener.tls.iter().flat_map(|tls| &tls.certificate_refs);
    let mut files = Vec::new();
    for reference in refs {
        files.push(certificate(cx, gateway, reference, "InvalidCertificateRef")?);
    }
    match files.is_empty() {
        false => Ok(files),
        true => Err(("InvalidCertificateRef", "no certificateRefs".to_owned())),
    }
}

/// The certificate and key that a Gateway refers to, as files.
pub(super) fn certificate(
    cx: &mut Cx,
    gateway: &Key,
    reference: &Ref,
    invalid: &'static str,
) -> Result<(String, String), (&'static str, String)> {
    let kind = reference.kind.as_deref().unwrap_or("Secret");
    if kind != "Secret" || reference.group.as_deref().is_some_and(|g| !g.is_empty()) {
        return Err((invalid, format!("{kind} is not a Secret")));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&gateway.namespace);
    let key = Key::new(namespace, &reference.name);
    if !is_granted(cx, Kind::Gateway, &gateway.namespace, Kind::Secret, &key) {
        return Err(("RefNotPermitted", format!("no grant for Secret {key}")));
    }
    cx.certificate(&key).map_err(|m| (invalid, m))
}

/// The text of the CA certificates that a Gateway refers to.
pub(super) fn ca<'a>(
    cx: &Cx<'a>,
    gateway: &Key,
    reference: &Ref,
) -> Result<&'a str, (&'static str, String)> {
    let kind = reference.kind.as_deref().unwrap_or("ConfigMap");
    if kind != "ConfigMap" || reference.group.as_deref().is_some_and(|g| !g.is_empty()) {
        return Err(("InvalidCACertificateKind", format!("{kind} is not a ConfigMap")));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&gateway.namespace);
    let key = Key::new(namespace, &reference.name);
    if !is_granted(cx, Kind::Gateway, &gateway.namespace, Kind::ConfigMap, &key) {
        return Err(("RefNotPermitted", format!("no grant for ConfigMap {key}")));
    }
    ca_of(cx, &key).ok_or_else(|| {
        ("InvalidCACertificateRef", format!("ConfigMap {key} has no CA certificate"))
    })
}

fn ca_of<'a>(cx: &Cx<'a>, key: &Key) -> Option<&'a str> {
    let text = cx.objects.config_maps.get(key).and_then(|m| m.data.get("ca.crt"))?;
    text.contains("-----BEGIN CERTIFICATE-----").then_some(text.as_str())
}

/// What a backend reference resolves to.
pub(crate) fn backend(
    cx: &Cx,
    from: Kind,
    namespace: &str,
    reference: &BackendRef,
    udp: bool,
) -> Result<(Key, Backend), (&'static str, String)> {
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let group = reference.group.as_deref().unwrap_or("");
    if kind != "Service" || !group.is_empty() {
        return Err(("InvalidKind", format!("{kind} cannot be a backend")));
    }
    let key = Key::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
    if !is_granted(cx, from, namespace, Kind::Service, &key) {
        return Err(("RefNotPermitted", format!("no grant for Service {key}")));
    }
    let port = PortRef { number: reference.port, name: String::new() };
    match cx.backend(&key, &port, false, udp) {
        Ok(backend) => Ok((key, backend)),
        Err(message) => Err(("BackendNotFound", message)),
    }
}

/// The first reference that does not resolve.
pub(crate) fn resolve<'r>(
    cx: &Cx,
    from: Kind,
    namespace: &str,
    references: impl Iterator<Item = &'r BackendRef>,
    udp: bool,
) -> Resolved {
    for reference in references {
        backend(cx, from, namespace, reference, udp)?;
    }
    Ok(())
}

/// The policy for a Service's port: the one for the port before the one for all, then the oldest.
pub(crate) fn policy<'a>(
    cx: &Cx<'a>,
    service: &Key,
    port: Option<u16>,
) -> Option<(&'a Key, &'a BackendTlsPolicy)> {
    let name =
        cx.objects.services.get(service).and_then(|s| {
            s.spec.ports.iter().find(|p| Some(p.port) == port).map(|p| p.name.clone())
        });
    let mut found: Vec<_> = cx
        .objects
        .backend_tls_policies
        .iter()
        .filter(|(key, _)| key.namespace == service.namespace)
        .filter_map(|(key, policy)| {
            let target = policy.spec.target_refs.iter().find(|t| {
                t.name == service.name
                    && t.kind.as_deref().unwrap_or("Service") == "Service"
                    && t.section_name.as_ref().is_none_or(|s| Some(s) == name.as_ref())
            })?;
            let order = (target.section_name.is_none(), &policy.metadata.creation_timestamp, key);
            Some((order, key, policy))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.first().map(|(_, key, policy)| (*key, *policy))
}

/// The file with the CA certificates that a BackendTLSPolicy names, or the system's file if the
/// policy asks for the system's.
pub(crate) fn policy_ca(
    cx: &mut Cx,
    key: &Key,
    policy: &BackendTlsPolicy,
) -> Result<String, (&'static str, String)> {
    let validation = &policy.spec.validation;
    if !validation.subject_alt_names.is_empty() {
        return Err(("Invalid", "subjectAltNames are not supported".to_owned()));
    }
    if validation.well_known_ca_certificates.as_deref() == Some("System") {
        return Ok("/etc/ssl/certs/ca-certificates.crt".to_owned());
    }
    let Some(reference) = validation.ca_certificate_refs.first() else {
        return Err(("NoValidCACertificate", "no caCertificateRefs".to_owned()));
    };
    if reference.kind.as_deref() != Some("ConfigMap") {
        return Err(("InvalidKind", "CA certificates have to be in a ConfigMap".to_owned()));
    }
    let map = Key::new(&key.namespace, &reference.name);
    match ca_of(cx, &map) {
        Some(text) => {
            let name = format!("{}-{}-ca", map.namespace, map.name);
            Ok(cx.file(&name, "crt", text.as_bytes().to_vec()))
        }
        None => Err(("InvalidCACertificateRef", format!("ConfigMap {map} has no CA certificate"))),
    }
}

/// TLS to a backend, as its policy says.
///
/// # Errors
/// The policy has no valid CA certificate: the backend must not be asked without.
pub(crate) fn backend_tls(
    cx: &mut Cx,
    service: &Key,
    port: Option<u16>,
    grpc: bool,
) -> Result<Option<Block>, String> {
    let Some((key, policy)) = policy(cx, service, port) else { return Ok(None) };
    let ca = policy_ca(cx, key, policy).map_err(|(_, message)| message)?;
    let pick = |proxy: &'static str, of_grpc: &'static str| if grpc { of_grpc } else { proxy };
    let mut block = Block::default();
    block.add(pick("proxy_ssl_trusted_certificate", "grpc_ssl_trusted_certificate"), [plain(ca)]);
    block.add(pick("proxy_ssl_verify", "grpc_ssl_verify"), ["on"]);
    block.add(pick("proxy_ssl_verify_depth", "grpc_ssl_verify_depth"), ["3"]);
    block.add(pick("proxy_ssl_server_name", "grpc_ssl_server_name"), ["on"]);
    let name = &policy.spec.validation.hostname;
    if !crate::check::is_host(name, false) {
        return Err(format!("\"{name}\" is not a host name"));
    }
    block.add(pick("proxy_ssl_name", "grpc_ssl_name"), [plain(name)]);
    Ok(Some(block))
}

/// Whether another policy goes before one: an older one for the same Service and port.
fn is_conflicted(cx: &Cx, key: &Key, policy: &BackendTlsPolicy) -> bool {
    let age =
        |key: &Key, p: &BackendTlsPolicy| (p.metadata.creation_timestamp.clone(), key.clone());
    let own = age(key, policy);
    cx.objects.backend_tls_policies.iter().any(|(other, p)| {
        let same = |t: &Ref| {
            let alike = |o: &Ref| {
                (&o.kind, &o.name, &o.section_name) == (&t.kind, &t.name, &t.section_name)
            };
            policy.spec.target_refs.iter().any(alike)
        };
        other.namespace == key.namespace
            && age(other, p) < own
            && p.spec.target_refs.iter().any(same)
    })
}

/// Statuses of policies, for each Gateway with a route to one of their Services: whether they are
/// in effect.
pub(super) fn policies(cx: &mut Cx, users: &Users) {
    for (key, policy) in &cx.objects.backend_tls_policies {
        let targets = policy.spec.target_refs.iter();
        let gateways: BTreeSet<&Key> = targets
            .filter_map(|t| users.get(&Key::new(&key.namespace, &t.name)))
            .flatten()
            .copied()
            .collect();
        if gateways.is_empty() {
            continue;
        }
        let generation = policy.metadata.generation;
        let resolved = match policy_ca(cx, key, policy) {
            Ok(_) => Ok(condition("ResolvedRefs", true, "ResolvedRefs", "", generation)),
            Err(("Invalid", message)) => {
                let resolved = condition("ResolvedRefs", true, "ResolvedRefs", "", generation);
                Err((resolved, "Invalid", message))
            }
            Err((reason, message)) => {
                let resolved = condition("ResolvedRefs", false, reason, &message, generation);
                Err((resolved, "NoValidCACertificate", message))
            }
        };
        let conditions = match resolved {
            Err((resolved, reason, message)) => {
                [condition("Accepted", false, reason, &message, generation), resolved]
            }
            Ok(resolved) if is_conflicted(cx, key, policy) => {
                let m = "an older policy has this Service and port";
                [condition("Accepted", false, "Conflicted", m, generation), resolved]
            }
            Ok(resolved) => [condition("Accepted", true, "Accepted", "", generation), resolved],
        };
        let ancestor = |gateway: &&Key| {
            json!({
                "ancestorRef": {
                    "group": "gateway.networking.k8s.io",
                    "kind": "Gateway",
                    "namespace": gateway.namespace,
                    "name": gateway.name,
                },
                "controllerName": cx.options.gateway_controller,
                "conditions": conditions,
            })
        };
        // The API takes 16 at most.
        let ancestors: Vec<_> = gateways.iter().take(16).map(ancestor).collect();
        let object = ObjectRef::new(Kind::BackendTlsPolicy, &key.namespace, &key.name);
        cx.statuses.push(Status { object, status: json!({ "ancestors": ancestors }) });
    }
}
