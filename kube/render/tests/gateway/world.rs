//! A server for objects of the Gateway API.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_kube_render::gateway::Pool;
use weir_kube_render::{Objects, Options, Rendered, render};

use crate::common::{Echo, Folder, Reply, Server, ask, free_ports, test, weir};

const BACKENDS: [&str; 3] = ["v1", "v2", "v3"];

/// Objects that most tests share: three Services, a class, a Gateway with one listener.
fn base(ports: &[u16], listen: u16) -> Vec<Value> {
    let mut out = vec![
        gateway(
            "gateway",
            &json!([{ "name": "http", "port": listen, "protocol": "HTTP",
            "allowedRoutes": { "namespaces": { "from": "Same" } } }]),
        ),
        json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "weir", "generation": 1 },
            "spec": { "controllerName": "weir.dev/gateway-controller" } }),
    ];
    for (name, port) in BACKENDS.iter().zip(ports) {
        out.extend(service("default", name, *port, ""));
    }
    out
}

pub fn gateway(name: &str, listeners: &Value) -> Value {
    json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": name, "namespace": "default", "generation": 1 },
        "spec": { "gatewayClassName": "weir", "listeners": listeners } })
}

pub fn service(namespace: &str, name: &str, port: u16, protocol: &str) -> [Value; 2] {
    [
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name,
            "namespace": namespace },
            "spec": { "ports": [{ "name": "p", "port": 8080, "appProtocol": protocol }] } }),
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": namespace,
                "labels": { "kubernetes.io/service-name": name } },
            "endpoints": [{ "addresses": ["127.0.0.1"] }],
            "ports": [{ "name": "p", "port": port, "protocol": "TCP" }] }),
    ]
}

pub fn route(name: &str, hostnames: &[&str], rules: &Value) -> Value {
    json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": name, "namespace": "default", "generation": 1 },
        "spec": { "parentRefs": [{ "name": "gateway" }], "hostnames": hostnames, "rules": rules } })
}

pub fn to(name: &str) -> Value {
    json!([{ "name": name, "port": 8080 }])
}

/// A running server for objects.
pub struct World {
    pub port: u16,
    pub https: u16,
    pub rendered: Rendered,
    _server: Server,
    _folder: Folder,
    pub echoes: Vec<Echo>,
}

impl World {
    pub fn start(name: &str, more: impl FnOnce(u16, &[u16]) -> Vec<Value>) -> World {
        World::with(name, "", more)
    }

    /// The same with addresses for Gateways.
    pub fn with(
        name: &str,
        addresses: &str,
        more: impl FnOnce(u16, &[u16]) -> Vec<Value>,
    ) -> World {
        let program = weir().expect("no weir: build it, or name it in WEIR");
        let folder = Folder::new(name);
        let [http, port, https, status] = free_ports::<4>();
        let echoes: Vec<Echo> = BACKENDS.into_iter().map(Echo::start).collect();
        let ports: Vec<u16> = echoes.iter().map(|e| e.port).collect();
        let mut objects = Objects::default();
        let mut all = base(&ports, port);
        all.extend(more(https, &ports));
        all.into_iter().for_each(|o| drop(objects.put(o)));
        objects.put(json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "config", "namespace": "c" },
            "data": { "worker-processes": "1", "disable-ipv6": "true", "reuse-port": "false",
                "max-worker-connections": "256" } }));
        let options = Options {
            http_port: http,
            status: format!("127.0.0.1:{status}"),
            folder: folder.0.display().to_string(),
            temp: folder.0.join("temp").display().to_string(),
            mime_types: concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/mime.types").to_owned(),
            config_map: Some(weir_kube_render::Key::new("c", "config")),
            https_port: free_ports::<1>()[0],
            gateway_addresses: Pool::parse(addresses).unwrap(),
            ..Options::default()
        };
        std::fs::create_dir_all(folder.0.join("temp")).unwrap();
        let rendered = render(&objects, &options, &BTreeMap::new());
        for (name, contents) in &rendered.files {
            let path = folder.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
        let conf = folder.0.join("nginx.conf");
        std::fs::write(&conf, &rendered.conf).unwrap();
        if let Err(error) = test(&program, &conf) {
            panic!("{error}\n{}", rendered.conf);
        }
        let server = Server::start(&program, &conf);
        World { port, https, rendered, _server: server, _folder: folder, echoes }
    }

    pub fn ask(&self, method: &str, host: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        ask(self.port, &(text + "\r\n"), "127.0.0.1")
    }

    /// Whom a request goes to: a backend, or a status.
    #[track_caller]
    pub fn goes(&self, method: &str, host: &str, path: &str, fields: &[(&str, &str)], to: &str) {
        let reply = self.ask(method, host, path, fields);
        let got = reply.seen("backend").unwrap_or_else(|| reply.status.to_string());
        assert_eq!(got, to, "{method} {host}{path} {fields:?}\n{}", self.rendered.conf);
    }

    pub fn status(&self, kind: &str, name: &str) -> Value {
        let found = self
            .rendered
            .statuses
            .iter()
            .find(|s| s.object.kind.names().2 == kind && s.object.name == name);
        found.unwrap_or_else(|| panic!("no status of {kind} {name}")).status.clone()
    }

    #[track_caller]
    pub fn condition(&self, name: &str, kind: &str, wanted: (&str, &str)) {
        let status = self.status("HTTPRoute", name);
        let all = status["parents"][0]["conditions"].as_array().unwrap().clone();
        let one = all.iter().find(|c| c["type"] == kind).unwrap();
        assert_eq!(
            (one["status"].as_str(), one["reason"].as_str()),
            (Some(wanted.0), Some(wanted.1)),
            "{name}"
        );
    }
}
