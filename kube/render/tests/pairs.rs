//! Pairs of objects and requests: the objects are rendered, the configuration is compared with a
//! golden file and tested by the server, and requests to the running server have to be answered
//! as the pair says.
//!
//! `WEIR_KUBE_BLESS=1` writes the golden files anew.

#![allow(clippy::unwrap_used, clippy::panic)] // that is how a test fails

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use common::{Echo, Folder, Reply, Server};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_kube_render::{Key, Objects, Options, Rendered, render};

/// Objects and requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct Pair {
    /// What is shown.
    name: String,
    /// Of the Ingress, without the prefix.
    annotations: BTreeMap<String, String>,
    /// Keys of the ConfigMap.
    config: BTreeMap<String, String>,
    /// Paths of the Ingress.
    paths: Vec<String>,
    path_type: Option<String>,
    /// The Service behind the paths.
    service: Option<String>,
    host: Option<String>,
    /// Whether the host has a certificate.
    tls: bool,
    /// Further objects.
    objects: Vec<Value>,
    /// Whether TLS is passed to backends by name.
    passthrough: bool,
    requests: Vec<Request>,
    /// Texts that the events have to contain; without any, there are no warnings.
    events: Vec<String>,
    /// Directives that the golden file has to contain.
    directives: Vec<String>,
}

/// A request and its answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct Request {
    /// Its path.
    get: String,
    method: Option<String>,
    host: Option<String>,
    tls: bool,
    /// The client shows a certificate.
    client_certificate: bool,
    fields: Vec<(String, String)>,
    body: Option<String>,
    /// Sent so often; the answer of the last one counts.
    times: Option<usize>,
    /// The client sends the cookies that it got, and has to stay with one backend.
    keep_cookies: bool,
    status: Option<u16>,
    /// Which backend answers.
    backend: Option<String>,
    /// The request line's target, as the backend sees it.
    target: Option<String>,
    /// Fields that the backend sees.
    sees: BTreeMap<String, String>,
    /// Fields that it does not see.
    misses: Vec<String>,
    /// Fields of the response: the value has to be contained.
    has: BTreeMap<String, String>,
    lacks: Vec<String>,
    contains: Option<String>,
}

/// What all pairs share.
struct World {
    folder: Folder,
    ports: BTreeMap<&'static str, u16>,
    certificate: (String, String),
    client_ca: String,
    echoes: Vec<Echo>,
}

const BACKENDS: [&str; 4] = ["echo", "canary", "auth", "other"];

impl World {
    fn new(name: &str) -> World {
        let folder = Folder::new(name);
        let certificate = common::certificate(&folder.0, "default.example", None);
        common::certificate(&folder.0, "client-ca", None);
        common::certificate(&folder.0, "client", Some("client-ca"));
        let client_ca = std::fs::read_to_string(folder.0.join("client-ca.crt")).unwrap();
        let echoes: Vec<Echo> = BACKENDS.into_iter().map(Echo::start).collect();
        let ports = BACKENDS.into_iter().zip(echoes.iter().map(|e| e.port)).collect();
        World { folder, ports, certificate, client_ca, echoes }
    }

    /// Ports and certificates that are the same in each run, for golden files.
    fn fixed(ports: [u16; 4]) -> World {
        let ports = BACKENDS.into_iter().zip(ports).collect();
        let pem =
            |label: &str| format!("-----BEGIN {label}-----\nMAMCAQE=\n-----END {label}-----\n");
        World {
            folder: Folder::new("fixed"),
            ports,
            certificate: (pem("CERTIFICATE"), pem("PRIVATE KEY")),
            client_ca: pem("CERTIFICATE"),
            echoes: Vec::new(),
        }
    }

    fn expand(&self, text: &str, host: &str) -> String {
        let mut text = text.replace("%HOST%", host);
        for (name, port) in &self.ports {
            text = text.replace(&format!("%{}%", name.to_uppercase()), &port.to_string());
        }
        text
    }

    fn expand_all(&self, value: &mut Value, host: &str) {
        match value {
            Value::String(text) => *text = self.expand(text, host),
            Value::Array(values) => values.iter_mut().for_each(|v| self.expand_all(v, host)),
            Value::Object(members) => members.values_mut().for_each(|v| self.expand_all(v, host)),
            _ => {}
        }
    }

    /// The objects of a pair in a namespace.
    fn objects(&self, pair: &Pair, namespace: &str, host: &str, out: &mut Objects) {
        for name in BACKENDS {
            service(out, namespace, name, &[self.ports[name]]);
        }
        service(out, namespace, "two", &[self.ports["echo"], self.ports["other"]]);
        service(out, namespace, "empty", &[]);
        let encode = |text: &str| json!(text);
        out.put(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "tls", "namespace": namespace },
            "stringData": {
                "tls.crt": encode(&self.certificate.0),
                "tls.key": encode(&self.certificate.1),
                "ca.crt": encode(&self.client_ca),
            },
        }));
        let annotations: BTreeMap<String, String> = pair
            .annotations
            .iter()
            .map(|(name, value)| {
                let name = format!("nginx.ingress.kubernetes.io/{name}");
                (name, self.expand(value, host))
            })
            .collect();
        let all = ["/".to_owned()];
        let paths = if pair.paths.is_empty() { &all[..] } else { &pair.paths };
        let kind = pair.path_type.as_deref().unwrap_or("Prefix");
        let service = pair.service.as_deref().unwrap_or("echo");
        let paths: Vec<Value> = paths
            .iter()
            .map(|path| {
                json!({ "path": path, "pathType": kind, "backend": {
                    "service": { "name": service, "port": { "number": 80 } } } })
            })
            .collect();
        let mut spec = json!({
            "ingressClassName": "nginx",
            "rules": [{ "host": host, "http": { "paths": paths } }],
        });
        if pair.tls {
            spec["tls"] = json!([{ "hosts": [host], "secretName": "tls" }]);
        }
        out.put(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {
                "name": "main", "namespace": namespace, "annotations": annotations,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": spec,
        }));
        for object in &pair.objects {
            let mut object = object.clone();
            self.expand_all(&mut object, host);
            if object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = json!(namespace);
            }
            if object["metadata"]["creationTimestamp"].is_null() {
                object["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
            }
            out.put(object);
        }
    }
}

fn service(out: &mut Objects, namespace: &str, name: &str, ports: &[u16]) {
    out.put(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "clusterIP": "127.0.0.1", "ports": [{ "name": "http", "port": 80 }] },
    }));
    for (i, port) in ports.iter().enumerate() {
        out.put(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{name}-{i}"), "namespace": namespace,
                "labels": { "kubernetes.io/service-name": name },
            },
            "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }],
            "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
        }));
    }
}

fn read(name: &str) -> Vec<Pair> {
    let path = folder().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pairs")
}

fn config_map(pair: &Pair, world: &World, host: &str, out: &mut Objects) {
    let data: BTreeMap<_, _> =
        pair.config.iter().map(|(k, v)| (k.clone(), world.expand(v, host))).collect();
    out.put(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "config", "namespace": "controller" },
        "data": data,
    }));
}

/// Snippets are allowed, and nothing goes to the terminal.
fn with_defaults(pair: &Pair) -> Pair {
    let mut pair = pair.clone();
    for (name, value) in [
        ("allow-snippet-annotations", "true"),
        ("proxy-real-ip-cidr", "127.0.0.0/8"),
        ("disable-ipv6", "true"),
        ("worker-processes", "1"),
        ("reuse-port", "false"),
        ("max-worker-connections", "256"),
    ] {
        pair.config.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    pair
}

fn options(folder: &Path, ports: [u16; 4]) -> Options {
    Options {
        http_port: ports[0],
        https_port: ports[1],
        ssl_proxy_port: ports[2],
        status: format!("127.0.0.1:{}", ports[3]),
        folder: folder.display().to_string(),
        temp: folder.join("temp").display().to_string(),
        mime_types: Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../conf/mime.types")
            .display()
            .to_string(),
        config_map: Some(Key::new("controller", "config")),
        tcp_services: Some(Key::new("controller", "tcp")),
        udp_services: Some(Key::new("controller", "udp")),
        resolvers: vec!["127.0.0.1".to_owned()],
        ..Options::default()
    }
}

/// What a pair changes in the configuration, as lines that are added and removed.
fn golden(pair: &Pair) -> (String, Rendered) {
    let world = World::fixed([8001, 8002, 8003, 8004]);
    let of = |pair: &Pair| {
        let mut objects = Objects::default();
        let host = pair.host.clone().unwrap_or_else(|| "echo.example".to_owned());
        world.objects(pair, "default", &host, &mut objects);
        config_map(&with_defaults(pair), &world, &host, &mut objects);
        let mut options = options(Path::new("/etc/weir"), [80, 443, 442, 10246]);
        options.mime_types = "/etc/weir/mime.types".to_owned();
        options.ssl_passthrough = pair.passthrough;
        render(&objects, &options, &BTreeMap::new())
    };
    let host = pair.host.clone();
    let base = of(&Pair { host, tls: pair.tls, ..Pair::default() });
    let rendered = of(pair);
    let count = |conf: &str| {
        let mut lines: BTreeMap<String, i32> = BTreeMap::new();
        for line in conf.lines().map(str::trim).filter(|line| *line != "}") {
            *lines.entry(line.to_owned()).or_default() += 1;
        }
        lines
    };
    let mut before = count(&base.conf);
    let mut out = format!("== {}\n", pair.name);
    // In the order of the configuration, each line as often as it is new.
    for line in rendered.conf.lines().map(str::trim).filter(|line| *line != "}") {
        let left = before.entry(line.to_owned()).or_default();
        *left -= 1;
        if *left < 0 {
            let _ = writeln!(out, "+ {line}");
        }
    }
    for line in base.conf.lines().map(str::trim).filter(|line| *line != "}") {
        let left = before.entry(line.to_owned()).or_default();
        if *left > 0 {
            *left -= 1;
            let _ = writeln!(out, "- {line}");
        }
    }
    for event in rendered.events.iter().filter(|e| e.warning) {
        let _ = writeln!(out, "! {} {}: {}", event.object, event.reason, event.message);
    }
    (out, rendered)
}

fn check_golden(name: &str, pairs: &[Pair]) {
    let mut all = String::new();
    for pair in pairs {
        let (text, rendered) = golden(pair);
        for directive in &pair.directives {
            assert!(
                rendered.conf.contains(directive.as_str()),
                "{}: no {directive} in\n{text}",
                pair.name
            );
        }
        let warnings: Vec<_> = rendered.events.iter().filter(|e| e.warning).collect();
        for wanted in &pair.events {
            let found = warnings.iter().any(|e| e.message.contains(wanted.as_str()));
            assert!(found, "{}: no event with {wanted:?} in {warnings:?}", pair.name);
        }
        assert!(
            !pair.events.is_empty() || warnings.is_empty(),
            "{}: unexpected {warnings:?}",
            pair.name
        );
        all.push_str(&text);
    }
    let path = folder().join(format!("{name}.golden"));
    if std::env::var_os("WEIR_KUBE_BLESS").is_some() {
        std::fs::write(&path, &all).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (got, kept) in all.lines().zip(kept.lines().chain(std::iter::repeat(""))) {
        assert_eq!(got, kept, "{}", path.display());
    }
    assert_eq!(all.lines().count(), kept.lines().count(), "{}", path.display());
}

/// Renders a group of pairs, starts the server, and sends their requests; returns what failed.
fn run(world: &World, weir: &Path, name: &str, group: &[(usize, &Pair)]) -> Vec<String> {
    let folder = world.folder.0.join(name);
    std::fs::create_dir_all(folder.join("temp")).unwrap();
    let ports = common::free_ports::<4>();
    let mut options = options(&folder, ports);
    let default = folder.join("default.pem");
    std::fs::write(&default, format!("{}{}", world.certificate.0, world.certificate.1)).unwrap();
    options.default_certificate_file = Some(default.display().to_string());
    options.ssl_passthrough = group.iter().any(|(_, p)| p.passthrough);
    let mut objects = Objects::default();
    let host = |(number, pair): &(usize, &Pair)| {
        pair.host.clone().unwrap_or_else(|| format!("p{number}.example"))
    };
    for entry in group {
        world.objects(entry.1, &format!("p{}", entry.0), &host(entry), &mut objects);
    }
    let first = group[0];
    config_map(&with_defaults(first.1), world, &host(&first), &mut objects);
    let rendered = render(&objects, &options, &BTreeMap::new());
    for (name, contents) in &rendered.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    let conf = folder.join("nginx.conf");
    std::fs::write(&conf, &rendered.conf).unwrap();
    if let Err(error) = common::test(weir, &conf) {
        let text = numbered(&rendered.conf, &error);
        return vec![format!("{name}: the configuration does not load: {error}\n{text}")];
    }
    let server = Server::start(weir, &conf);
    let mut failed = Vec::new();
    for entry in group {
        for (number, request) in entry.1.requests.iter().enumerate() {
            if let Err(why) = exchange(world, &host(entry), ports, request) {
                failed.push(format!("{} (request {}): {why}", entry.1.name, number + 1));
            }
        }
    }
    if !failed.is_empty() {
        failed.push(server.log());
        let _ = std::fs::write(format!("/tmp/weir-kube-failed-{name}.conf"), &rendered.conf);
    }
    failed
}

/// The lines around the one that an error names.
fn numbered(conf: &str, error: &str) -> String {
    let line = error.split(".conf:").nth(1).and_then(|rest| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<usize>().ok()
    });
    let line = line.unwrap_or(1);
    let lines = conf.lines().enumerate().skip(line.saturating_sub(6)).take(10);
    lines.map(|(i, text)| format!("{:5} {text}\n", i + 1)).collect()
}

fn exchange(world: &World, host: &str, ports: [u16; 4], request: &Request) -> Result<(), String> {
    let name = request.host.as_ref().map_or(host.to_owned(), |h| world.expand(h, host));
    let method = request.method.as_deref().unwrap_or("GET");
    let mut text =
        format!("{method} {} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n", request.get);
    for (field, value) in &request.fields {
        let _ = write!(text, "{field}: {}\r\n", world.expand(value, host));
    }
    let mut reply = Reply::default();
    let mut backends = std::collections::BTreeSet::new();
    let mut cookies = String::new();
    for _ in 0..request.times.unwrap_or(1) {
        let mut text = text.clone();
        if request.keep_cookies && !cookies.is_empty() {
            let _ = write!(text, "Cookie: {cookies}\r\n");
        }
        match &request.body {
            Some(body) => {
                let _ = write!(text, "Content-Length: {}\r\n\r\n{body}", body.len());
            }
            None => text.push_str("\r\n"),
        }
        reply = send(world, ports, &name, request, &text);
        backends.extend(reply.seen("backend"));
        if let Some(set) = reply.field("set-cookie") {
            let pairs = set.split(", ").filter_map(|c| c.split(';').next());
            cookies = pairs.filter(|c| c.contains('=')).collect::<Vec<_>>().join("; ");
        }
    }
    if request.keep_cookies && backends.len() != 1 {
        return Err(format!("answered by {backends:?}"));
    }
    compare(world, host, request, &reply)
        .map_err(|why| format!("{why}\n{}\n{}", reply.head, reply.body))
}

fn send(world: &World, ports: [u16; 4], name: &str, request: &Request, text: &str) -> Reply {
    if !request.tls {
        return common::ask(ports[0], text, "127.0.0.1");
    }
    let folder = &world.folder.0;
    let (certificate, key) = (folder.join("client.crt"), folder.join("client.key"));
    let client = request.client_certificate.then_some((&*certificate, &*key));
    common::ask_tls(ports[1], name.split(':').next().unwrap_or(name), text, client)
}

fn compare(world: &World, host: &str, request: &Request, reply: &Reply) -> Result<(), String> {
    let expand = |text: &String| world.expand(text, host);
    let status = request.status.unwrap_or(200);
    if reply.status != status {
        return Err(format!("status {} instead of {status}", reply.status));
    }
    if let Some(backend) = &request.backend
        && reply.seen("backend").as_ref() != Some(backend)
    {
        return Err(format!("not answered by {backend}"));
    }
    if let Some(target) = &request.target {
        let line = reply.body.lines().nth(2).unwrap_or_default();
        if line.split(' ').nth(1) != Some(&expand(target)) {
            return Err(format!("the backend saw {line:?}, not {target}"));
        }
    }
    for (name, value) in &request.sees {
        let (seen, value) = (reply.seen(name), expand(value));
        if seen.as_ref() != Some(&value) {
            return Err(format!("the backend saw {name}: {seen:?}, not {value:?}"));
        }
    }
    for name in &request.misses {
        if let Some(value) = reply.seen(name) {
            return Err(format!("the backend saw {name}: {value}"));
        }
    }
    for (name, value) in &request.has {
        let (got, value) = (reply.field(name), expand(value));
        if !got.as_ref().is_some_and(|got| got.contains(&value)) {
            return Err(format!("{name}: {got:?}, not {value:?}"));
        }
    }
    for name in &request.lacks {
        if let Some(value) = reply.field(name) {
            return Err(format!("unexpected {name}: {value}"));
        }
    }
    match &request.contains {
        Some(text) if !reply.body.contains(&expand(text)) => {
            Err(format!("no {text:?} in the body"))
        }
        _ => Ok(()),
    }
}

/// Pairs with keys of the ConfigMap get a server of their own; the others share one.
fn check(name: &str) {
    let pairs = read(name);
    check_golden(name, &pairs);
    let Some(weir) = common::weir() else {
        panic!("no weir: build it (cargo build -p weir), or name it in WEIR");
    };
    let world = World::new(name);
    let numbered: Vec<(usize, &Pair)> = pairs.iter().enumerate().collect();
    let (alone, together): (Vec<_>, Vec<_>) =
        numbered.into_iter().partition(|(_, p)| !p.config.is_empty() || p.passthrough);
    let mut groups: Vec<Vec<(usize, &Pair)>> = alone.into_iter().map(|p| vec![p]).collect();
    if !together.is_empty() {
        groups.push(together);
    }
    let mut failed = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        failed.extend(run(&world, &weir, &format!("{name}-{number}"), group));
    }
    assert!(world.echoes.iter().any(|e| !e.seen.lock().unwrap().is_empty()));
    let requests: usize = pairs.iter().map(|p| p.requests.len()).sum();
    println!("{name}: {} pairs, {requests} requests", pairs.len());
    assert!(failed.is_empty(), "{}", failed.join("\n---\n"));
}

macro_rules! files {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        /// Each annotation and each key occurs in a pair, so that none is in the table alone.
        #[test]
        fn every_annotation_and_key_has_a_pair() {
            let pairs: Vec<Pair> = [$(read(stringify!($name))),*].concat();
            let annotation = |name: &str| pairs.iter().any(|p| p.annotations.contains_key(name)
                || p.objects.iter().any(|o| {
                    o.to_string().contains(&format!("kubernetes.io/{name}\""))
                }));
            let key = |name: &str| pairs.iter().any(|p| p.config.contains_key(name));
            use weir_kube_render::{annotations::ANNOTATIONS, keys::{KEYS, Outcome}};
            let works = |o: Outcome| o == Outcome::Works;
            let missing: Vec<&str> = ANNOTATIONS
                .iter()
                .filter(|a| works(a.outcome) && !annotation(a.name))
                .map(|a| a.name)
                .chain(KEYS.iter().filter(|k| works(k.outcome) && !key(k.name)).map(|k| k.name))
                .collect();
            assert!(missing.is_empty(), "without a pair: {missing:?}");
        }
    };
}

files!(paths, backends, auth, responses, traffic, tls, snippets, refused, keys);
