//! Kubernetes objects into a configuration for Weir.
//!
//! [`render`] is a pure function: from the objects of a cluster to an `nginx.conf`, the servers of
//! its upstreams, files (certificates, passwords), statuses and events. The program `weir-kube`
//! is a loop around it.
//!
//! ```
//! let mut objects = weir_kube_render::Objects::default();
//! objects.read_yaml("{apiVersion: v1, kind: Service, metadata: {name: web}}").unwrap();
//! let rendered = weir_kube_render::render(&objects, &Default::default(), &Default::default());
//! assert!(rendered.conf.contains("worker_processes"));
//! ```

#![forbid(unsafe_code)]

pub mod annotations;
pub mod check;
pub mod conf;
mod cx;
pub mod docs;
pub mod gateway;
mod global;
mod ingress;
pub mod keys;
mod layer4;
pub mod objects;
pub mod snippet;
mod upstreams;

use std::collections::BTreeMap;

use serde_json::Value;

pub use objects::{Key, Kind, ObjectRef, Objects};
pub use upstreams::{Server, Upstream};

use cx::Cx;

/// What a cluster's administrator sets, apart from the ConfigMap.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port of HTTP.
    pub http_port: u16,
    /// The port of HTTPS.
    pub https_port: u16,
    /// The local port of HTTPS behind the one that looks at names, with SSL passthrough.
    pub ssl_proxy_port: u16,
    /// The local address of the API, metrics and health.
    pub status: String,
    /// The folder that [`Rendered::files`] are below.
    pub folder: String,
    /// The folder of temporary files and caches.
    pub temp: String,
    /// The file of MIME types.
    pub mime_types: String,
    /// The prefix of annotations.
    pub annotations_prefix: String,
    /// The `controller` of IngressClasses that are served.
    pub controller_class: Vec<String>,
    /// The IngressClass that is served also where no such object exists.
    pub ingress_class: String,
    /// Serves Ingresses without a class, too.
    pub watch_ingress_without_class: bool,
    /// The ConfigMap with the keys.
    pub config_map: Option<Key>,
    /// The ConfigMap of TCP services.
    pub tcp_services: Option<Key>,
    /// The ConfigMap of UDP services.
    pub udp_services: Option<Key>,
    /// The Service that answers what no Ingress does.
    pub default_backend: Option<Key>,
    /// The Secret of hosts without a certificate.
    pub default_certificate: Option<Key>,
    /// The file of that certificate and its key, where there is no Secret.
    pub default_certificate_file: Option<String>,
    /// Hands TLS connections to backends by their name.
    pub ssl_passthrough: bool,
    /// Refuses Services of type ExternalName.
    pub disable_external_name: bool,
    /// Refuses Ingresses without a host.
    pub disable_catch_all: bool,
    /// DNS servers for external names.
    pub resolvers: Vec<String>,
    /// Databases for `use-geoip2`: files below `/etc/ingress-controller/geoip`.
    pub geoip_databases: Vec<String>,
    /// `controllerName` of GatewayClasses that are served.
    pub gateway_controller: String,
    /// Addresses of the pod for Gateways that name none, one each; without any, they share all.
    pub gateway_addresses: gateway::Pool,
    /// The addresses that statuses show.
    pub addresses: Vec<String>,
    /// The path of the health check on the ports of HTTP.
    pub healthz_path: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            http_port: 80,
            https_port: 443,
            ssl_proxy_port: 442,
            status: "127.0.0.1:10246".to_owned(),
            folder: "/etc/weir".to_owned(),
            temp: "/tmp/weir".to_owned(),
            mime_types: "/etc/weir/mime.types".to_owned(),
            annotations_prefix: "nginx.ingress.kubernetes.io".to_owned(),
            controller_class: vec![
                "k8s.io/ingress-nginx".to_owned(),
                "weir.dev/ingress-controller".to_owned(),
            ],
            ingress_class: "nginx".to_owned(),
            watch_ingress_without_class: false,
            config_map: None,
            tcp_services: None,
            udp_services: None,
            default_backend: None,
            default_certificate: None,
            default_certificate_file: None,
            ssl_passthrough: false,
            disable_external_name: false,
            disable_catch_all: false,
            resolvers: Vec::new(),
            geoip_databases: Vec::new(),
            gateway_controller: "weir.dev/gateway-controller".to_owned(),
            gateway_addresses: gateway::Pool::default(),
            addresses: Vec::new(),
            healthz_path: "/healthz".to_owned(),
        }
    }
}

/// Objects that a test of the configuration has refused, and the server's message. They are left
/// out, so that the others can be served.
pub type Refused = BTreeMap<ObjectRef, String>;

/// Something for an object's list of events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The object.
    pub object: ObjectRef,
    /// Whether it is a warning.
    pub warning: bool,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The object.
    pub object: ObjectRef,
    /// The members of `status`.
    pub status: Value,
}

/// All that follows from the objects.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    /// The configuration.
    pub conf: String,
    /// Of the configuration without the servers of upstreams, which the API changes.
    pub shape: conf::Shape,
    /// The servers of the upstreams of `http`.
    pub upstreams: BTreeMap<String, Vec<Server>>,
    /// The servers of the upstreams of `stream`.
    pub stream_upstreams: BTreeMap<String, Vec<Server>>,
    /// Files by their path below [`Options::folder`]. Their names change with their contents.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Statuses.
    pub statuses: Vec<Status>,
    /// Events.
    pub events: Vec<Event>,
    /// The object of each line of the configuration, by index.
    owners: Vec<Option<conf::Owner>>,
    /// The objects that lines come from.
    owning: Vec<ObjectRef>,
}

impl Rendered {
    /// The object that a line of the configuration comes from, from line 1.
    pub fn owner_of_line(&self, line: usize) -> Option<&ObjectRef> {
        let owner = self.owners.get(line.checked_sub(1)?)?.as_ref()?;
        self.owning.get(*owner as usize)
    }

    /// The object to refuse because of a message of a test of the configuration: the owner of the
    /// line, or of the file, that the message names.
    pub fn culprit(&self, message: &str) -> Option<&ObjectRef> {
        let by_line = message.match_indices(".conf:").find_map(|(at, found)| {
            let digits = message[at + found.len()..].bytes().take_while(u8::is_ascii_digit).count();
            let from = at + found.len();
            self.owner_of_line(message[from..from + digits].parse().ok()?)
        });
        let by_address = || {
            let address = message.split("bind() to ").nth(1)?.split(' ').next()?;
            let listens =
                |line: &str| line.trim().trim_end_matches(';').split(' ').nth(1) == Some(address);
            let listens = |line: &str| line.trim_start().starts_with("listen ") && listens(line);
            self.owner_of_line(self.conf.lines().position(listens)? + 1)
        };
        by_line.or_else(by_address).or_else(|| {
            let named = self.files.keys().find(|name| message.contains(name.as_str()))?;
            let line = self.conf.lines().position(|line| line.contains(named.as_str()))?;
            self.owner_of_line(line + 1)
        })
    }
}

/// Renders objects.
pub fn render(objects: &Objects, options: &Options, refused: &Refused) -> Rendered {
    let mut cx = Cx::new(objects, options, refused);
    let servers = ingress::servers(&mut cx);
    let gateways = gateway::servers(&mut cx);
    layer4::services(&mut cx);
    let root = global::assemble(&mut cx, servers, gateways);
    let written = conf::write(&root);
    let servers = |all: &BTreeMap<String, Upstream>| {
        all.iter().map(|(name, u)| (name.clone(), u.effective_servers())).collect()
    };
    cx.events.sort();
    cx.events.dedup();
    Rendered {
        upstreams: servers(&cx.upstreams),
        stream_upstreams: servers(&cx.stream_upstreams),
        conf: written.text,
        shape: written.shape,
        files: std::mem::take(&mut cx.files),
        statuses: std::mem::take(&mut cx.statuses),
        events: std::mem::take(&mut cx.events),
        owners: written.owners,
        owning: std::mem::take(&mut cx.owners),
    }
}
