//! References between objects: backends, certificates, grants, policies.

use serde_json::json;

use super::types::{BackendRef, BackendTlsPolicy, Listener};
use super::{Bound, condition};
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
    let mut any = false;
    for reference in refs {
        any = true;
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        if kind != "Secret" || reference.group.as_deref().is_some_and(|g| !g.is_empty()) {
            return Err(("InvalidCertificateRef", format!("{kind} is not a Secret")));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(&gateway.namespace);
        let key = Key::new(namespace, &reference.name);
        if !is_granted(cx, Kind::Gateway, &gateway.namespace, Kind::Secret, &key) {
            return Err(("RefNotPermitted", format!("no grant for Secret {key}")));
        }
        files.push(cx.certificate(&key).map_err(|m| ("InvalidCertificateRef", m))?);
    }
    match any {
        true => Ok(files),
        false => Err(("InvalidCertificateRef", "no certificateRefs".to_owned())),
    }
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
    let text = cx.objects.config_maps.get(&map).and_then(|m| m.data.get("ca.crt"));
    match text.filter(|text| text.contains("-----BEGIN CERTIFICATE-----")) {
        Some(text) => Ok(cx.file(
            &format!("{}-{}-ca", map.namespace, map.name),
            "crt",
            text.clone().into_bytes(),
        )),
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

/// Statuses of policies, for each Gateway: whether they are in effect.
pub(super) fn policies(cx: &mut Cx, bound: &[Bound]) {
    let Some(first) = bound.first() else { return };
    for (key, policy) in &cx.objects.backend_tls_policies {
        let generation = policy.metadata.generation;
        let result = policy_ca(cx, key, policy);
        let conditions = match &result {
            Ok(_) => [
                condition("Accepted", true, "Accepted", "", generation),
                condition("ResolvedRefs", true, "ResolvedRefs", "", generation),
            ],
            Err((reason, message)) => [
                condition("Accepted", false, "NoValidCACertificate", message, generation),
                condition("ResolvedRefs", false, reason, message, generation),
            ],
        };
        let status = json!({ "ancestors": [{
            "ancestorRef": {
                "group": "gateway.networking.k8s.io",
                "kind": "Gateway",
                "namespace": first.gateway.namespace,
                "name": first.gateway.name,
            },
            "controllerName": cx.options.gateway_controller,
            "conditions": conditions,
        }] });
        let object = ObjectRef::new(Kind::BackendTlsPolicy, &key.namespace, &key.name);
        cx.statuses.push(Status { object, status });
    }
}
