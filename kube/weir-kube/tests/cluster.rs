//! `weir-kube run` against a small API server, with the real server under it.

#![allow(clippy::unwrap_used, clippy::panic)] // that is how a test fails

#[path = "../../render/tests/common/mod.rs"]
#[allow(dead_code)]
mod common;
mod fake;

use std::process::{Child, Command, Stdio};

use common::{Echo, Folder, ask};
use fake::Fake;
use serde_json::{Value, json};

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1";

/// The controller with its server.
struct Controller {
    child: Child,
    http: u16,
    health: u16,
    folder: Folder,
}

impl Controller {
    fn start(fake: &Fake, name: &str, more: &[&str]) -> Controller {
        let weir = common::weir().expect("no weir: build it, or name it in WEIR");
        let folder = Folder::new(name);
        let [http, https, status, health] = common::free_ports::<4>();
        let at = |sub: &str| folder.0.join(sub).display().to_string();
        let mime = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/mime.types");
        let child = Command::new(env!("CARGO_BIN_EXE_weir-kube"))
            .arg("run")
            .arg(format!("--apiserver-host=http://127.0.0.1:{}", fake.port))
            .arg(format!("--weir={}", weir.display()))
            .arg(format!("--folder={}", at("conf")))
            .arg(format!("--temp-folder={}", at("temp")))
            .arg(format!("--http-port={http}"))
            .arg(format!("--https-port={https}"))
            .arg(format!("--status-address=127.0.0.1:{status}"))
            .arg(format!("--health-address=127.0.0.1:{health}"))
            .arg(format!("--mime-types={mime}"))
            .arg("--configmap=default/config")
            .arg("--publish-status-address=192.0.2.1")
            .args(["--sync-period-ms=20", "--resolver=127.0.0.1"])
            .args(more)
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Controller { child, http, health, folder }
    }

    fn get(&self, host: &str, path: &str) -> common::Reply {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(self.http, &request, "127.0.0.1")
    }

    /// Waits until a page is as wanted.
    fn until(&self, host: &str, path: &str, wanted: impl Fn(&common::Reply) -> bool) {
        loop {
            if std::net::TcpStream::connect(("127.0.0.1", self.http)).is_ok()
                && wanted(&self.get(host, path))
            {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until a metric is as wanted: it is counted right after the server has the change.
    fn until_metric(&self, name: &str, wanted: impl Fn(f64) -> bool) {
        while !wanted(self.metric(name)) {
            std::thread::yield_now();
        }
    }

    fn metric(&self, name: &str) -> f64 {
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        let reply = ask(self.health, request, "127.0.0.1");
        let line = reply.body.lines().find(|l| l.starts_with(&format!("{name} ")));
        line.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or(f64::NAN)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

fn config(fake: &Fake) {
    fake.put(
        "/api/v1/namespaces/default/configmaps",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config" },
            "data": { "worker-processes": "1", "disable-ipv6": "true", "reuse-port": "false",
                "allow-snippet-annotations": "true", "max-worker-connections": "256",
            "disable-access-log": "true", "error-log-level": "warn" },
        }),
    );
}

fn service(fake: &Fake, name: &str) {
    fake.put(
        SERVICES,
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "clusterIP": "10.0.0.1", "ports": [{ "name": "http", "port": 80 }] },
        }),
    );
}

fn endpoints(fake: &Fake, service: &str, ports: &[u16]) {
    for slot in 0..2 {
        let name = format!("{service}-{slot}");
        let Some(port) = ports.get(slot) else {
            fake.delete(SLICES, &name);
            continue;
        };
        fake.put(
            SLICES,
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
                "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }],
                "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
            }),
        );
    }
}

fn ingress(name: &str, host: &str, service: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "ingressClassName": "nginx", "rules": [{ "host": host, "http": { "paths": [
            { "path": "/", "pathType": "Prefix", "backend": {
                "service": { "name": service, "port": { "number": 80 } } } }] } }] },
    })
}

fn is_from(name: &'static str) -> impl Fn(&common::Reply) -> bool {
    move |reply| reply.seen("backend").as_deref() == Some(name)
}

/// Routes come and go; endpoints change without a reload; statuses are written.
#[test]
fn serves_what_the_cluster_has() {
    let (one, two) = (Echo::start("one"), Echo::start("two"));
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[one.port]);
    fake.put(INGRESSES, ingress("web", "web.example", "web", json!({})));
    let controller = Controller::start(&fake, "serves", &[]);
    controller.until("web.example", "/", is_from("one"));
    let status = fake.until(INGRESSES, "web", |o| !o["status"]["loadBalancer"].is_null());
    assert_eq!(status["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");

    // A status that is written brings the controller an event, and no reload.
    let reloads = controller.metric("weir_kube_reloads_total");
    endpoints(&fake, "web", &[two.port]);
    controller.until("web.example", "/", is_from("two"));
    endpoints(&fake, "web", &[]);
    controller.until("web.example", "/", |r| r.status == 503);
    endpoints(&fake, "web", &[one.port, two.port]);
    controller.until("web.example", "/", is_from("one"));
    controller.until("web.example", "/", is_from("two"));
    assert_eq!(controller.metric("weir_kube_reloads_total"), reloads, "endpoints do not reload");
    controller.until_metric("weir_kube_endpoint_changes_total", |n| n >= 4.0);

    fake.put(INGRESSES, ingress("more", "more.example", "web", json!({})));
    controller.until("more.example", "/", |r| r.status == 200);
    fake.delete(INGRESSES, "more");
    controller.until("more.example", "/", |r| r.status == 404);
    controller.until_metric("weir_kube_reloads_total", |n| n > reloads);
}

/// A snippet that does not load refuses its own object, and the others are served.
#[test]
fn a_snippet_that_does_not_load_refuses_its_object_alone() {
    let echo = Echo::start("echo");
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[echo.port]);
    let snippet = |text: &str| json!({ "nginx.ingress.kubernetes.io/configuration-snippet": text });
    fake.put(INGRESSES, ingress("bad", "bad.example", "web", snippet("no_such_directive x;")));
    fake.put(INGRESSES, ingress("good", "good.example", "web", snippet("add_header X-Good yes;")));
    let controller = Controller::start(&fake, "snippet", &[]);
    controller.until("good.example", "/", is_from("echo"));
    assert_eq!(controller.get("bad.example", "/").status, 404);
    let event =
        fake.until_any(EVENTS, |e| e["type"] == "Warning" && e["involvedObject"]["name"] == "bad");
    assert!(event["message"].as_str().unwrap().contains("no_such_directive"), "{event}");
    controller.until_metric("weir_kube_objects_refused", |n| n == 1.0);

    fake.put(INGRESSES, ingress("bad", "bad.example", "web", snippet("add_header X-Now good;")));
    controller.until("bad.example", "/", is_from("echo"));
    controller.until_metric("weir_kube_objects_refused", |n| n == 0.0);
}

/// The server's file may be one that was refused when the controller is told to end.
#[test]
fn ends_a_server_whose_file_does_not_load() {
    let echo = Echo::start("echo");
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[echo.port]);
    fake.put(INGRESSES, ingress("web", "web.example", "web", json!({})));
    let mut controller = Controller::start(&fake, "quit", &[]);
    controller.until("web.example", "/", is_from("echo"));
    std::fs::write(controller.folder.0.join("conf/nginx.conf"), "no_such_directive x;").unwrap();
    let pid = controller.child.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    let began = std::time::Instant::now();
    while controller.child.try_wait().unwrap().is_none() {
        if began.elapsed() > std::time::Duration::from_secs(30) {
            controller.child.kill().unwrap();
            panic!("it waits for a server that was not told");
        }
        std::thread::yield_now();
    }
    assert!(std::net::TcpStream::connect(("127.0.0.1", controller.http)).is_err());
}

/// Changes during an interruption are seen after it, whether versions expired or the API server
/// was away; meanwhile the last configuration serves.
#[test]
fn goes_on_after_interruptions() {
    let echo = Echo::start("echo");
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[echo.port]);
    fake.put(INGRESSES, ingress("first", "first.example", "web", json!({})));
    let controller = Controller::start(&fake, "interruptions", &[]);
    controller.until("first.example", "/", is_from("echo"));

    fake.delete(INGRESSES, "first");
    fake.put(INGRESSES, ingress("second", "second.example", "web", json!({})));
    fake.expire();
    controller.until("second.example", "/", is_from("echo"));
    controller.until("first.example", "/", |r| r.status == 404);

    fake.set_away(true);
    assert_eq!(controller.get("second.example", "/").status, 200);
    fake.put(INGRESSES, ingress("third", "third.example", "web", json!({})));
    fake.set_away(false);
    controller.until("third.example", "/", is_from("echo"));
}

/// Both controllers serve, and one of them writes.
#[test]
fn one_of_two_controllers_writes_statuses() {
    let echo = Echo::start("echo");
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[echo.port]);
    let one = Controller::start(&fake, "leader-one", &[]);
    fake.until(
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "weir-kube-leader",
        |_| true,
    );
    let two = Controller::start(&fake, "leader-two", &[]);
    fake.put(INGRESSES, ingress("web", "web.example", "web", json!({})));
    one.until("web.example", "/", is_from("echo"));
    two.until("web.example", "/", is_from("echo"));
    fake.until(INGRESSES, "web", |o| !o["status"]["loadBalancer"].is_null());
    one.until_metric("weir_kube_leader", |n| n == 1.0);
    assert_eq!(two.metric("weir_kube_leader"), 0.0);
    let writes = fake.writes();
    let statuses = writes.iter().filter(|w| w.ends_with("ingresses/web/status")).count();
    assert_eq!(statuses, 1, "{writes:?}");
}

/// A Gateway and a route: served, with conditions that have times.
#[test]
fn serves_a_gateway() {
    let echo = Echo::start("echo");
    let fake = Fake::start();
    config(&fake);
    service(&fake, "web");
    endpoints(&fake, "web", &[echo.port]);
    let [port] = common::free_ports::<1>();
    fake.put(
        &format!("{GATEWAY}/gatewayclasses"),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "weir", "generation": 1 },
            "spec": { "controllerName": "weir.dev/gateway-controller" },
        }),
    );
    fake.put(
        &format!("{GATEWAY}/namespaces/default/gateways"),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "main", "generation": 1 },
            "spec": { "gatewayClassName": "weir", "listeners": [
                { "name": "http", "port": port, "protocol": "HTTP" }] },
        }),
    );
    let routes = format!("{GATEWAY}/namespaces/default/httproutes");
    fake.put(
        &routes,
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": "route", "generation": 3 },
            "spec": { "parentRefs": [{ "name": "main" }], "rules": [
                { "backendRefs": [{ "name": "web", "port": 80 }] }] },
        }),
    );
    let controller = Controller::start(&fake, "gateway", &[]);
    let route = fake.until(&routes, "route", |o| !o["status"]["parents"].is_null());
    let condition = &route["status"]["parents"][0]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Accepted"), &json!("True")));
    assert_eq!(condition["observedGeneration"], 3);
    assert!(condition["lastTransitionTime"].is_string());
    let gateways = format!("{GATEWAY}/namespaces/default/gateways");
    let gateway = fake.until(&gateways, "main", |o| !o["status"]["listeners"].is_null());
    assert_eq!(gateway["status"]["listeners"][0]["attachedRoutes"], 1);
    assert_eq!(gateway["status"]["addresses"][0]["value"], "192.0.2.1");
    let request = "GET /x HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
    assert_eq!(ask(port, request, "127.0.0.1").seen("backend").as_deref(), Some("echo"));
    drop(controller);
}
