//! Objects of the Gateway API.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::objects::{Meta, object};

object! {
    /// A GatewayClass.
    GatewayClass { metadata: Meta, spec: GatewayClassSpec, }
}
object! {
    /// Its specification.
    GatewayClassSpec { controller_name: String, parameters_ref: Option<Value>, }
}
object! {
    /// A Gateway.
    Gateway { metadata: Meta, spec: GatewaySpec, status: GatewayStatus, }
}
object! {
    /// Its status: what was written last.
    GatewayStatus { addresses: Vec<GatewayAddress>, }
}
object! {
    /// Its specification.
    GatewaySpec {
        gateway_class_name: String,
        listeners: Vec<Listener>,
        addresses: Vec<GatewayAddress>,
        tls: GatewayTls,
    }
}
object! {
    /// TLS of all its listeners, and to backends.
    GatewayTls { frontend: FrontendTls, backend: BackendTls, }
}
object! {
    /// Certificates of clients, for all ports and for some.
    FrontendTls { default: FrontendSettings, per_port: Vec<PortSettings>, }
}
object! {
    /// Those of one port.
    PortSettings { port: u16, tls: FrontendSettings, }
}
object! {
    /// How certificates of clients are verified.
    FrontendSettings { validation: Option<FrontendValidation>, }
}
object! {
    /// By which CA certificates, and whether others are let in, too.
    FrontendValidation { ca_certificate_refs: Vec<Ref>, mode: Option<String>, }
}
object! {
    /// The certificate that backends see.
    BackendTls { client_certificate_ref: Option<Ref>, }
}
object! {
    /// An address that a Gateway asks for.
    GatewayAddress {
        #[serde(rename = "type")]
        kind: Option<String>,
        value: String,
    }
}
object! {
    /// A port, a protocol and a name.
    Listener {
        name: String,
        hostname: Option<String>,
        port: u16,
        protocol: String,
        tls: Option<ListenerTls>,
        allowed_routes: AllowedRoutes,
    }
}
object! {
    /// TLS of a listener.
    ListenerTls { mode: Option<String>, certificate_refs: Vec<Ref>, }
}
object! {
    /// Which routes a listener takes.
    AllowedRoutes { namespaces: RouteNamespaces, kinds: Vec<RouteKind>, }
}
object! {
    /// From which namespaces.
    RouteNamespaces { from: Option<String>, selector: Selector, }
}
object! {
    /// Labels to have.
    Selector { match_labels: BTreeMap<String, String>, match_expressions: Vec<Expression>, }
}
object! {
    /// A condition for a label.
    Expression { key: String, operator: String, values: Vec<String>, }
}
object! {
    /// A kind of routes.
    RouteKind { group: Option<String>, kind: String, }
}
object! {
    /// A reference to an object.
    Ref {
        group: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: String,
        section_name: Option<String>,
        port: Option<u16>,
    }
}
object! {
    /// An HTTPRoute or a GRPCRoute.
    Route { metadata: Meta, spec: RouteSpec, }
}
object! {
    /// Its specification.
    RouteSpec { parent_refs: Vec<Ref>, hostnames: Vec<String>, rules: Vec<RouteRule>, }
}
object! {
    /// Matches, filters and backends.
    RouteRule {
        matches: Vec<RouteMatch>,
        filters: Vec<Filter>,
        backend_refs: Vec<BackendRef>,
        timeouts: Timeouts,
        retry: Option<Retry>,
        session_persistence: Option<SessionPersistence>,
    }
}
object! {
    /// What a request has to be. Of a GRPCRoute, `method` is an object.
    RouteMatch {
        path: Option<PathMatch>,
        headers: Vec<ValueMatch>,
        query_params: Vec<ValueMatch>,
        method: Option<Value>,
    }
}
object! {
    /// A path.
    PathMatch {
        #[serde(rename = "type")]
        kind: Option<String>,
        value: Option<String>,
    }
}
object! {
    /// A field or a parameter.
    ValueMatch {
        #[serde(rename = "type")]
        kind: Option<String>,
        name: String,
        value: String,
    }
}
object! {
    /// A change of a request or a response.
    Filter {
        #[serde(rename = "type")]
        kind: String,
        request_header_modifier: Option<HeaderModifier>,
        response_header_modifier: Option<HeaderModifier>,
        request_redirect: Option<Redirect>,
        #[serde(rename = "urlRewrite")]
        url_rewrite: Option<Redirect>,
        request_mirror: Option<Mirror>,
        cors: Option<Cors>,
    }
}
object! {
    /// Changes of fields.
    HeaderModifier { set: Vec<ValueMatch>, add: Vec<ValueMatch>, remove: Vec<String>, }
}
object! {
    /// A redirect, or a rewrite.
    Redirect {
        scheme: Option<String>,
        hostname: Option<String>,
        path: Option<PathChange>,
        port: Option<u16>,
        status_code: Option<u16>,
    }
}
object! {
    /// The new path.
    PathChange {
        #[serde(rename = "type")]
        kind: String,
        replace_full_path: Option<String>,
        replace_prefix_match: Option<String>,
    }
}
object! {
    /// Copies of requests.
    Mirror { backend_ref: BackendRef, percent: Option<u32>, fraction: Option<Fraction>, }
}
object! {
    /// A share.
    Fraction { numerator: u32, denominator: Option<u32>, }
}
object! {
    /// Cross-origin requests.
    Cors {
        allow_origins: Vec<String>,
        allow_credentials: Option<bool>,
        allow_methods: Vec<String>,
        allow_headers: Vec<String>,
        expose_headers: Vec<String>,
        max_age: Option<u64>,
    }
}
object! {
    /// A backend and its share.
    BackendRef {
        group: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: String,
        port: Option<u16>,
        weight: Option<u32>,
        filters: Vec<Filter>,
    }
}
object! {
    /// Timeouts of a rule.
    Timeouts { request: Option<String>, backend_request: Option<String>, }
}
object! {
    /// Retries of a rule.
    Retry { codes: Vec<u16>, attempts: Option<u32>, backoff: Option<String>, }
}
object! {
    /// Sessions of a rule.
    SessionPersistence {
        session_name: Option<String>,
        absolute_timeout: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
    }
}
object! {
    /// A TLSRoute, TCPRoute or UDPRoute.
    L4Route { metadata: Meta, spec: L4RouteSpec, }
}
object! {
    /// Its specification.
    L4RouteSpec { parent_refs: Vec<Ref>, hostnames: Vec<String>, rules: Vec<L4Rule>, }
}
object! {
    /// Backends.
    L4Rule { backend_refs: Vec<BackendRef>, }
}
object! {
    /// A ReferenceGrant.
    ReferenceGrant { metadata: Meta, spec: GrantSpec, }
}
object! {
    /// Its specification.
    GrantSpec { from: Vec<GrantFrom>, to: Vec<GrantTo>, }
}
object! {
    /// Who may refer.
    GrantFrom { group: String, kind: String, namespace: String, }
}
object! {
    /// To what.
    GrantTo { group: String, kind: String, name: Option<String>, }
}
object! {
    /// A BackendTLSPolicy.
    BackendTlsPolicy { metadata: Meta, spec: BackendTlsSpec, }
}
object! {
    /// Its specification.
    BackendTlsSpec { target_refs: Vec<Ref>, validation: Validation, }
}
object! {
    /// How a backend's certificate is verified.
    Validation {
        ca_certificate_refs: Vec<Ref>,
        hostname: String,
        #[serde(rename = "wellKnownCACertificates")]
        well_known_ca_certificates: Option<String>,
        subject_alt_names: Vec<Value>,
    }
}
