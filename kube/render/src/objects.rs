//! The objects that a configuration is made of, as far as it needs them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::gateway::types::{
    BackendTlsPolicy, Gateway, GatewayClass, L4Route, ReferenceGrant, Route,
};

/// The kinds that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Ingress,
    IngressClass,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Namespace,
    GatewayClass,
    Gateway,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    UdpRoute,
    ReferenceGrant,
    BackendTlsPolicy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 16] = [
        Kind::Ingress,
        Kind::IngressClass,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Namespace,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::HttpRoute,
        Kind::GrpcRoute,
        Kind::TlsRoute,
        Kind::TcpRoute,
        Kind::UdpRoute,
        Kind::ReferenceGrant,
        Kind::BackendTlsPolicy,
    ];

    /// Its group, version, name and the plural that paths have.
    pub const fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        const GATEWAY: &str = "gateway.networking.k8s.io";
        match self {
            Kind::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Kind::IngressClass => ("networking.k8s.io", "v1", "IngressClass", "ingressclasses"),
            Kind::Service => ("", "v1", "Service", "services"),
            Kind::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Kind::Secret => ("", "v1", "Secret", "secrets"),
            Kind::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Kind::Namespace => ("", "v1", "Namespace", "namespaces"),
            Kind::GatewayClass => (GATEWAY, "v1", "GatewayClass", "gatewayclasses"),
            Kind::Gateway => (GATEWAY, "v1", "Gateway", "gateways"),
            Kind::HttpRoute => (GATEWAY, "v1", "HTTPRoute", "httproutes"),
            Kind::GrpcRoute => (GATEWAY, "v1", "GRPCRoute", "grpcroutes"),
            Kind::TlsRoute => (GATEWAY, "v1alpha2", "TLSRoute", "tlsroutes"),
            Kind::TcpRoute => (GATEWAY, "v1alpha2", "TCPRoute", "tcproutes"),
            Kind::UdpRoute => (GATEWAY, "v1alpha2", "UDPRoute", "udproutes"),
            Kind::ReferenceGrant => (GATEWAY, "v1beta1", "ReferenceGrant", "referencegrants"),
            Kind::BackendTlsPolicy => (GATEWAY, "v1", "BackendTLSPolicy", "backendtlspolicies"),
        }
    }

    /// The kind of an object that has this `apiVersion` and `kind`. Versions are not compared:
    /// those of a group differ in what they add.
    pub fn of(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Kind::ALL.into_iter().find(|k| k.names().0 == group && k.names().2 == kind)
    }

    /// Whether its objects have no namespace.
    pub fn is_cluster_wide(self) -> bool {
        matches!(self, Kind::IngressClass | Kind::GatewayClass | Kind::Namespace)
    }

    /// Whether it belongs to the Gateway API, whose definitions a cluster may lack.
    pub fn is_gateway(self) -> bool {
        self.names().0 == "gateway.networking.k8s.io"
    }
}

/// An object, by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds without.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// The object of this kind, namespace and name.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.names().2;
        match self.namespace.is_empty() {
            true => write!(f, "{kind} {}", self.name),
            false => write!(f, "{kind} {}/{}", self.namespace, self.name),
        }
    }
}

/// A namespace and a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of these two.
    pub fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `NAMESPACE/NAME`, or `NAME` in a namespace of its own.
    pub fn parse(text: &str, namespace: &str) -> Key {
        match text.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => Key::new(namespace, text),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What all objects have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made, as RFC 3339, which sorts as text.
    pub creation_timestamp: String,
    /// Counts changes of the specification.
    pub generation: i64,
}

macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(missing_docs)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    };
}
pub(crate) use object;

object! {
    /// An Ingress.
    Ingress { metadata: Meta, spec: IngressSpec, }
}
object! {
    /// Its specification.
    IngressSpec {
        ingress_class_name: Option<String>,
        default_backend: Option<IngressBackend>,
        tls: Vec<IngressTls>,
        rules: Vec<IngressRule>,
    }
}
object! {
    /// The certificate of some hosts.
    IngressTls { hosts: Vec<String>, secret_name: String, }
}
object! {
    /// The paths of a host.
    IngressRule { host: String, http: Option<HttpRule>, }
}
object! {
    /// Paths.
    HttpRule { paths: Vec<HttpPath>, }
}
object! {
    /// A path and its backend.
    HttpPath { path: String, path_type: String, backend: IngressBackend, }
}
object! {
    /// A Service; anything else is not supported.
    IngressBackend { service: Option<ServiceRef>, resource: Option<Value>, }
}
object! {
    /// A Service and one of its ports.
    ServiceRef { name: String, port: PortRef, }
}
object! {
    /// A port by name or number.
    PortRef { name: String, number: Option<u16>, }
}
object! {
    /// An IngressClass.
    IngressClass { metadata: Meta, spec: IngressClassSpec, }
}
object! {
    /// Its specification.
    IngressClassSpec { controller: String, }
}
object! {
    /// A Service.
    Service { metadata: Meta, spec: ServiceSpec, status: ServiceStatus, }
}
object! {
    /// Its specification.
    ServiceSpec {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "clusterIP")]
        cluster_ip: String,
        external_name: String,
        #[serde(rename = "externalIPs")]
        external_ips: Vec<String>,
        ports: Vec<ServicePort>,
    }
}
object! {
    /// One of its ports.
    ServicePort {
        name: String,
        port: u16,
        protocol: String,
        app_protocol: String,
        target_port: Value,
    }
}
object! {
    /// Its status.
    ServiceStatus { load_balancer: LoadBalancer, }
}
object! {
    /// Addresses from outside.
    LoadBalancer { ingress: Vec<LoadBalancerIngress>, }
}
object! {
    /// One of them.
    LoadBalancerIngress { ip: String, hostname: String, }
}
object! {
    /// An EndpointSlice.
    EndpointSlice {
        metadata: Meta,
        address_type: String,
        endpoints: Vec<Endpoint>,
        ports: Vec<EndpointPort>,
    }
}
object! {
    /// One or more addresses of a pod.
    Endpoint { addresses: Vec<String>, conditions: EndpointConditions, }
}
object! {
    /// Whether it serves.
    EndpointConditions { ready: Option<bool>, serving: Option<bool>, terminating: Option<bool>, }
}
object! {
    /// A port of all endpoints of a slice.
    EndpointPort { name: String, port: Option<u16>, protocol: String, }
}
object! {
    /// A Secret; values are in base64.
    Secret {
        metadata: Meta,
        #[serde(rename = "type")]
        kind: String,
        data: BTreeMap<String, String>,
        string_data: BTreeMap<String, String>,
    }
}
object! {
    /// A ConfigMap.
    ConfigMap { metadata: Meta, data: BTreeMap<String, String>, }
}
object! {
    /// A Namespace.
    Namespace { metadata: Meta, }
}

impl Secret {
    /// The decoded value of a key.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        use base64::Engine;
        if let Some(text) = self.string_data.get(key) {
            return Some(text.as_bytes().to_vec());
        }
        let text: String = self.data.get(key)?.split_whitespace().collect();
        base64::engine::general_purpose::STANDARD.decode(text).ok()
    }

    /// Its keys.
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> =
            self.data.keys().chain(self.string_data.keys()).map(String::as_str).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// All objects.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Objects {
    pub ingresses: BTreeMap<Key, Ingress>,
    pub ingress_classes: BTreeMap<Key, IngressClass>,
    pub services: BTreeMap<Key, Service>,
    pub endpoint_slices: BTreeMap<Key, EndpointSlice>,
    pub secrets: BTreeMap<Key, Secret>,
    pub config_maps: BTreeMap<Key, ConfigMap>,
    pub namespaces: BTreeMap<Key, Namespace>,
    pub gateway_classes: BTreeMap<Key, GatewayClass>,
    pub gateways: BTreeMap<Key, Gateway>,
    pub http_routes: BTreeMap<Key, Route>,
    pub grpc_routes: BTreeMap<Key, Route>,
    pub tls_routes: BTreeMap<Key, L4Route>,
    pub tcp_routes: BTreeMap<Key, L4Route>,
    pub udp_routes: BTreeMap<Key, L4Route>,
    pub reference_grants: BTreeMap<Key, ReferenceGrant>,
    pub backend_tls_policies: BTreeMap<Key, BackendTlsPolicy>,
    /// Objects that could not be read, and why.
    pub malformed: BTreeMap<ObjectRef, String>,
}

/// Removes members that are null: they mean that a field is not set.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, v| !v.is_null());
            members.values_mut().for_each(strip_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

fn store<T: DeserializeOwned>(
    map: &mut BTreeMap<Key, T>,
    key: Key,
    value: Value,
) -> Result<(), String> {
    match serde_json::from_value(value) {
        Ok(object) => {
            map.insert(key, object);
            Ok(())
        }
        Err(error) => {
            // What it was before is no longer what its author wants.
            map.remove(&key);
            Err(error.to_string())
        }
    }
}

impl Objects {
    /// Reads files of YAML or JSON, in which lists of objects may stand. Kinds that are not needed
    /// are left out.
    ///
    /// # Errors
    /// The text is malformed.
    pub fn read_yaml(&mut self, text: &str) -> Result<(), String> {
        // As YAML 1.2: `n` and `on` are texts. The limits are for YAML of strangers, and a dump
        // of a large cluster exceeds them.
        let options = serde_saphyr::options! { strict_booleans: true, budget: None };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
            .map_err(|error| error.to_string())?;
        for document in documents {
            self.put_all(document);
        }
        Ok(())
    }

    fn put_all(&mut self, mut document: Value) {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        if let (true, Some(Value::Array(items))) =
            (is_list, document.get_mut("items").map(Value::take))
        {
            for item in items {
                self.put_all(item);
            }
        } else {
            self.put(document);
        }
    }

    /// Adds or replaces an object; `None` for kinds that are not needed.
    pub fn put(&mut self, mut value: Value) -> Option<ObjectRef> {
        let kind = Kind::of(value["apiVersion"].as_str()?, value["kind"].as_str()?)?;
        strip_nulls(&mut value);
        let meta = value.get_mut("metadata")?.as_object_mut()?;
        let name = meta.get("name")?.as_str()?.to_owned();
        let namespace = match kind.is_cluster_wide() {
            true => String::new(),
            false => {
                let namespace = meta.entry("namespace").or_insert_with(|| "default".into());
                namespace.as_str()?.to_owned()
            }
        };
        let object = ObjectRef { kind, namespace, name };
        let key = Key::new(&object.namespace, &object.name);
        let result = match kind {
            Kind::Ingress => store(&mut self.ingresses, key, value),
            Kind::IngressClass => store(&mut self.ingress_classes, key, value),
            Kind::Service => store(&mut self.services, key, value),
            Kind::EndpointSlice => store(&mut self.endpoint_slices, key, value),
            Kind::Secret => store(&mut self.secrets, key, value),
            Kind::ConfigMap => store(&mut self.config_maps, key, value),
            Kind::Namespace => store(&mut self.namespaces, key, value),
            Kind::GatewayClass => store(&mut self.gateway_classes, key, value),
            Kind::Gateway => store(&mut self.gateways, key, value),
            Kind::HttpRoute => store(&mut self.http_routes, key, value),
            Kind::GrpcRoute => store(&mut self.grpc_routes, key, value),
            Kind::TlsRoute => store(&mut self.tls_routes, key, value),
            Kind::TcpRoute => store(&mut self.tcp_routes, key, value),
            Kind::UdpRoute => store(&mut self.udp_routes, key, value),
            Kind::ReferenceGrant => store(&mut self.reference_grants, key, value),
            Kind::BackendTlsPolicy => store(&mut self.backend_tls_policies, key, value),
        };
        match result {
            Ok(()) => self.malformed.remove(&object),
            Err(error) => self.malformed.insert(object.clone(), error),
        };
        Some(object)
    }

    /// Removes an object.
    pub fn remove(&mut self, object: &ObjectRef) {
        let key = &Key::new(&object.namespace, &object.name);
        self.malformed.remove(object);
        match object.kind {
            Kind::Ingress => drop(self.ingresses.remove(key)),
            Kind::IngressClass => drop(self.ingress_classes.remove(key)),
            Kind::Service => drop(self.services.remove(key)),
            Kind::EndpointSlice => drop(self.endpoint_slices.remove(key)),
            Kind::Secret => drop(self.secrets.remove(key)),
            Kind::ConfigMap => drop(self.config_maps.remove(key)),
            Kind::Namespace => drop(self.namespaces.remove(key)),
            Kind::GatewayClass => drop(self.gateway_classes.remove(key)),
            Kind::Gateway => drop(self.gateways.remove(key)),
            Kind::HttpRoute => drop(self.http_routes.remove(key)),
            Kind::GrpcRoute => drop(self.grpc_routes.remove(key)),
            Kind::TlsRoute => drop(self.tls_routes.remove(key)),
            Kind::TcpRoute => drop(self.tcp_routes.remove(key)),
            Kind::UdpRoute => drop(self.udp_routes.remove(key)),
            Kind::ReferenceGrant => drop(self.reference_grants.remove(key)),
            Kind::BackendTlsPolicy => drop(self.backend_tls_policies.remove(key)),
        }
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: Kind) -> Vec<ObjectRef> {
        let keys: Vec<&Key> = match kind {
            Kind::Ingress => self.ingresses.keys().collect(),
            Kind::IngressClass => self.ingress_classes.keys().collect(),
            Kind::Service => self.services.keys().collect(),
            Kind::EndpointSlice => self.endpoint_slices.keys().collect(),
            Kind::Secret => self.secrets.keys().collect(),
            Kind::ConfigMap => self.config_maps.keys().collect(),
            Kind::Namespace => self.namespaces.keys().collect(),
            Kind::GatewayClass => self.gateway_classes.keys().collect(),
            Kind::Gateway => self.gateways.keys().collect(),
            Kind::HttpRoute => self.http_routes.keys().collect(),
            Kind::GrpcRoute => self.grpc_routes.keys().collect(),
            Kind::TlsRoute => self.tls_routes.keys().collect(),
            Kind::TcpRoute => self.tcp_routes.keys().collect(),
            Kind::UdpRoute => self.udp_routes.keys().collect(),
            Kind::ReferenceGrant => self.reference_grants.keys().collect(),
            Kind::BackendTlsPolicy => self.backend_tls_policies.keys().collect(),
        };
        let all = keys.into_iter();
        all.map(|key| ObjectRef::new(kind, &key.namespace, &key.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_documents_and_lists() {
        let text = "
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Service, metadata: {name: a, creationTimestamp: null}}
  - {apiVersion: v1, kind: Pod, metadata: {name: p}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: b, namespace: n}
spec: {rules: [{host: x.example, http: {paths: [{path: /, pathType: Prefix}]}}]}
---
apiVersion: v1
kind: Service
metadata: {name: bad}
spec: {ports: [{port: many}]}
";
        let mut objects = Objects::default();
        objects.read_yaml(text).unwrap();
        assert!(objects.services.contains_key(&Key::new("default", "a")));
        let ingress = &objects.ingresses[&Key::new("n", "b")];
        assert_eq!(ingress.spec.rules[0].host, "x.example");
        assert_eq!(objects.malformed.len(), 1);
        objects.remove(&ObjectRef::new(Kind::Ingress, "n", "b"));
        assert!(objects.ingresses.is_empty());
    }
}
