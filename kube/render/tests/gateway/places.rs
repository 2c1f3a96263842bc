//! Where Gateways listen, for which names, and for whom: addresses, isolation, TLS that ends,
//! certificates of clients and for backends.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{self, Folder, ask, ask_tls, certificate};
use crate::world::{World, gateway, route, service, to};

/// A route of some listener of a Gateway.
fn route_of(name: &str, gateway: &str, listener: &str, hosts: &[&str], backend: &str) -> Value {
    let mut route = route(name, hosts, &json!([{ "backendRefs": to(backend) }]));
    route["spec"]["parentRefs"] = match listener {
        "" => json!([{ "name": gateway }]),
        _ => json!([{ "name": gateway, "sectionName": listener }]),
    };
    route
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

fn secret(name: &str, (certificate, key): &(String, String)) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "stringData": { "tls.crt": certificate, "tls.key": key } })
}

fn config_map(name: &str, ca: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "ca.crt": ca } })
}

/// The status and the reason of a condition.
fn condition(status: &Value, kind: &str) -> String {
    let all = status["conditions"].as_array().unwrap();
    let one = all.iter().find(|c| c["type"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
}

#[test]
fn each_gateway_has_an_address_of_its_own() {
    let [port] = common::free_ports::<1>();
    let http = json!([{ "name": "http", "port": port, "protocol": "HTTP" }]);
    let world = World::with("gw-pool", "127.80.0.1-127.80.0.3", |_, _| {
        let mut kept = gateway("kept", &http);
        kept["status"] = json!({ "addresses": [{ "value": "127.80.0.3" }] });
        let mut outside = gateway("outside", &http);
        outside["spec"]["addresses"] = json!([{ "value": "127.80.0.9" }]);
        let mut named = gateway("named", &http);
        named["spec"]["addresses"] = json!([{ "type": "Hostname", "value": "a.example" }]);
        vec![
            gateway("free", &http),
            kept,
            outside,
            named,
            // "gateway" of all tests has the first address, "free" the second.
            gateway("late", &http),
            route_of("a", "free", "", &[], "v1"),
            route_of("b", "kept", "", &[], "v2"),
            route_of("c", "outside", "", &[], "v3"),
        ]
    });
    let whom = |ip: &str| ask(port, &get("x.example"), ip).seen("backend");
    let conf = &world.rendered.conf;
    let of = |name: &str| world.status("Gateway", name)["addresses"][0]["value"].clone();
    let (free, kept) = (of("free"), of("kept"));
    assert_eq!(kept, "127.80.0.3");
    assert_eq!(whom(free.as_str().unwrap()).as_deref(), Some("v1"), "{conf}");
    assert_eq!(whom("127.80.0.3").as_deref(), Some("v2"), "{conf}");
    let programmed = |name: &str| condition(&world.status("Gateway", name), "Programmed");
    assert_eq!(programmed("outside"), "False AddressNotUsable");
    assert_eq!(programmed("late"), "False AddressNotAssigned");
    assert_eq!(
        condition(&world.status("Gateway", "named"), "Accepted"),
        "False UnsupportedAddress"
    );
    assert!(!conf.contains("127.80.0.9"), "{conf}");
}

#[test]
fn requests_belong_to_the_most_specific_listener() {
    let [port] = common::free_ports::<1>();
    let world = World::start("gw-isolated", |_, _| {
        let listener = |name: &str, host: Option<&str>| {
            let mut l = json!({ "name": name, "port": port, "protocol": "HTTP" });
            if let Some(host) = host {
                l["hostname"] = json!(host);
            }
            l
        };
        vec![
            gateway(
                "parts",
                &json!([
                    listener("all", None),
                    listener("wide", Some("*.example.com")),
                    listener("exact", Some("a.example.com")),
                ]),
            ),
            // These names are of other listeners, so the route has none of their requests.
            route_of("all", "parts", "all", &["b.example.com", "a.example.com", "x.org"], "v1"),
            route_of("wide", "parts", "wide", &["c.example.com", "a.example.com"], "v2"),
            route_of("exact", "parts", "exact", &[], "v3"),
        ]
    });
    for (host, wanted) in [
        ("x.org", "v1"),
        ("b.example.com", "404"),
        ("c.example.com", "v2"),
        ("a.example.com", "v3"),
        ("y.org", "404"),
    ] {
        let reply = ask(port, &get(host), "127.0.0.1");
        let got = reply.seen("backend").unwrap_or_else(|| reply.status.to_string());
        assert_eq!(got, wanted, "{host}\n{}", world.rendered.conf);
    }
}

/// The objects of a Gateway with two HTTPS listeners, `tls` its own settings.
fn https(port: u16, server: &(String, String), tls: &Value) -> Vec<Value> {
    let listener = |name: &str, host: &str| {
        json!({ "name": name, "hostname": host, "port": port, "protocol": "HTTPS",
            "tls": { "certificateRefs": [{ "name": "cert" }] } })
    };
    let mut all =
        gateway("tls", &json!([listener("a", "a.example"), listener("b", "*.b.example")]));
    all["spec"]["tls"] = tls.clone();
    vec![
        secret("cert", server),
        all,
        route_of("a", "tls", "a", &[], "v1"),
        route_of("b", "tls", "b", &[], "v2"),
    ]
}

#[test]
fn a_request_for_another_listener_of_a_connection_is_misdirected() {
    let folder = Folder::new("gw-421-keys");
    let server = certificate(&folder.0, "a.example", None);
    let world = World::start("gw-421", |port, _| https(port, &server, &json!({})));
    for (sni, host, wanted) in [
        ("a.example", "a.example", "v1"),
        ("a.example", "x.b.example", "421"),
        ("x.b.example", "y.b.example", "v2"),
        ("x.b.example", "a.example", "421"),
        // No listener has this name: there is no connection.
        ("unknown.example", "a.example", "0"),
    ] {
        let reply = ask_tls(world.https, sni, &get(host), None);
        let got = reply.seen("backend").unwrap_or_else(|| reply.status.to_string());
        assert_eq!(got, wanted, "{sni} {host}\n{}", world.rendered.conf);
    }
}

#[test]
fn certificates_of_clients_are_verified() {
    let folder = Folder::new("gw-clients-keys");
    let server = certificate(&folder.0, "a.example", None);
    let (ca, _) = certificate(&folder.0, "clients-ca", None);
    certificate(&folder.0, "good", Some("clients-ca"));
    // Another CA with the same name: only the signature tells them apart.
    let other = Folder::new("gw-clients-other");
    certificate(&other.0, "clients-ca", None);
    certificate(&other.0, "bad", Some("clients-ca"));
    let at = |name: &str| folder.0.join(name);
    let settings = |mode: &str, name: &str| {
        json!({ "frontend": { "default": { "validation": {
            "mode": mode, "caCertificateRefs": [{ "kind": "ConfigMap", "name": name }] } } } })
    };
    let start = |name: &str, tls: &Value| {
        World::start(name, |port, _| {
            let mut all = https(port, &server, tls);
            all.push(config_map("clients", &ca));
            all
        })
    };
    let ask = |world: &World, client: Option<(&Path, &Path)>| {
        ask_tls(world.https, "a.example", &get("a.example"), client).seen("backend")
    };
    let good = (at("good.crt"), at("good.key"));
    let bad = (other.0.join("bad.crt"), other.0.join("bad.key"));
    let good = Some((good.0.as_path(), good.1.as_path()));
    let bad = Some((bad.0.as_path(), bad.1.as_path()));

    let world = start("gw-clients", &settings("AllowValidOnly", "clients"));
    assert_eq!(ask(&world, good).as_deref(), Some("v1"), "{}", world.rendered.conf);
    assert_eq!((ask(&world, bad), ask(&world, None)), (None, None));

    let world = start("gw-clients-any", &settings("AllowInsecureFallback", "clients"));
    for client in [good, bad, None] {
        assert_eq!(ask(&world, client).as_deref(), Some("v1"), "{}", world.rendered.conf);
    }
    let kind = "InsecureFrontendValidationMode";
    assert_eq!(condition(&world.status("Gateway", "tls"), kind), "True ConfigurationChanged");

    // Without a CA, nobody could be verified: the listener does not serve.
    let world = start("gw-clients-none", &settings("AllowValidOnly", "missing"));
    let status = world.status("Gateway", "tls")["listeners"][0].clone();
    assert_eq!(condition(&status, "Accepted"), "False NoValidCACertificate");
    assert_eq!(condition(&status, "ResolvedRefs"), "False InvalidCACertificateRef");
    assert!(!world.rendered.conf.contains("a.example"), "{}", world.rendered.conf);
}

#[test]
fn backends_see_the_certificate_of_the_gateway() {
    let folder = Folder::new("gw-backend-keys");
    let client = certificate(&folder.0, "client", None);
    let (ca, _) = certificate(&folder.0, "backend-ca", None);
    let policy = |name: &str, service: &str, created: &str, more: Value| {
        let mut validation = json!({ "hostname": "backend.example",
            "caCertificateRefs": [{ "kind": "ConfigMap", "name": "ca" }] });
        validation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "targetRefs": [{ "group": "", "kind": "Service", "name": service }],
                "validation": validation } })
    };
    let [port] = common::free_ports::<1>();
    let world = World::start("gw-backend", |_, ports| {
        let http = json!([{ "name": "http", "port": port, "protocol": "HTTP" }]);
        let mut with = gateway("with", &http);
        with["spec"]["tls"] = json!({ "backend": { "clientCertificateRef": { "kind": "Secret", "name": "client" } } });
        let mut without = gateway("without", &http);
        without["spec"]["tls"] =
            json!({ "backend": { "clientCertificateRef": { "kind": "Secret", "name": "none" } } });
        let mut all = vec![secret("client", &client), config_map("ca", &ca), with, without];
        all.extend(service("default", "secure", ports[0], ""));
        all.extend(service("default", "names", ports[0], ""));
        all.push(policy("first", "secure", "2026-01-01T00:00:00Z", json!({})));
        all.push(policy("second", "secure", "2026-01-02T00:00:00Z", json!({})));
        let san = json!({ "subjectAltNames": [{ "type": "Hostname", "hostname": "x.example" }] });
        all.push(policy("names", "names", "2026-01-01T00:00:00Z", san));
        all.push(route_of("secure", "with", "", &["a.example"], "secure"));
        all.push(route_of("names", "with", "", &["b.example"], "names"));
        all
    });
    let conf = &world.rendered.conf;
    assert!(conf.contains("proxy_ssl_certificate ") && conf.contains("proxy_ssl_certificate_key "));
    let of = |name: &str| condition(&world.status("Gateway", name), "ResolvedRefs");
    assert_eq!(of("with"), "True ResolvedRefs");
    assert_eq!(of("without"), "False InvalidClientCertificateRef");
    let of = |name: &str| {
        let status = world.status("BackendTLSPolicy", name);
        assert_eq!(status["ancestors"][0]["ancestorRef"]["name"], "with");
        condition(&status["ancestors"][0], "Accepted")
    };
    assert_eq!(of("first"), "True Accepted");
    assert_eq!(of("second"), "False Conflicted");
    // Names that are not verified must not be taken for verified ones.
    assert_eq!(of("names"), "False Invalid");
    assert_eq!(ask(port, &get("b.example"), "127.0.0.1").status, 500, "{conf}");
}

#[test]
fn tls_routes_end_tls_or_pass_it_on() {
    let folder = Folder::new("gw-ends-keys");
    let server = certificate(&folder.0, "end.example", None);
    let [mixed, alone] = common::free_ports::<2>();
    let world = World::start("gw-ends", |https, _| {
        let ends = |name: &str, port: u16| {
            json!({ "name": name, "hostname": "end.example", "port": port, "protocol": "TLS",
                "tls": { "mode": "Terminate", "certificateRefs": [{ "name": "cert" }] } })
        };
        let tls_route = |name: &str, hosts: &Value, backend: &str| {
            json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "TLSRoute",
                "metadata": { "name": name }, "spec": { "parentRefs": [{ "name": "l4" }],
                    "hostnames": hosts, "rules": [{ "backendRefs": to(backend) }] } })
        };
        let mut all = https_server(https, &server);
        all.extend(service("default", "https", https, ""));
        all.push(gateway(
            "l4",
            &json!([
                ends("mixed", mixed),
                { "name": "pass", "hostname": "pass.example", "port": mixed, "protocol": "TLS",
                    "tls": { "mode": "Passthrough" } },
                ends("alone", alone),
            ]),
        ));
        all.push(tls_route("end", &json!(["end.example"]), "v1"));
        all.push(tls_route("pass", &json!(["pass.example"]), "https"));
        all
    });
    for (port, sni, wanted) in [
        (mixed, "end.example", Some("v1")),
        (mixed, "pass.example", Some("v3")),
        (mixed, "other.example", None),
        (alone, "end.example", Some("v1")),
        (alone, "pass.example", None),
    ] {
        let got = ask_tls(port, sni, &get("pass.example"), None).seen("backend");
        assert_eq!(got.as_deref(), wanted, "{sni}\n{}", world.rendered.conf);
    }
}

/// An HTTPS listener to which TLS can be passed on.
fn https_server(port: u16, server: &(String, String)) -> Vec<Value> {
    vec![
        secret("cert", server),
        gateway(
            "end",
            &json!([{ "name": "https", "port": port, "protocol": "HTTPS",
                "tls": { "certificateRefs": [{ "name": "cert" }] } }]),
        ),
        route_of("behind", "end", "", &["pass.example"], "v3"),
    ]
}

#[test]
fn a_name_belongs_to_one_gateway() {
    let folder = Folder::new("gw-owners-keys");
    let (ca, _) = certificate(&folder.0, "clients-ca", None);
    certificate(&folder.0, "good", Some("clients-ca"));
    let victim = certificate(&folder.0, "secure.example", None);
    let tenant = certificate(&folder.0, "tenant.example", None);
    let world = World::start("gw-owners", |port, _| {
        let https = |host: Option<&str>, secret: &str| {
            let mut l = json!({ "name": "https", "port": port, "protocol": "HTTPS",
                "tls": { "certificateRefs": [{ "name": secret }] } });
            if let Some(host) = host {
                l["hostname"] = json!(host);
            }
            json!([l])
        };
        let mut older = gateway("older", &https(None, "tenant"));
        older["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut newer = gateway("newer", &https(Some("secure.example"), "victim"));
        newer["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        newer["spec"]["tls"] = json!({ "frontend": { "default": { "validation": {
            "caCertificateRefs": [{ "kind": "ConfigMap", "name": "clients" }] } } } });
        let mut same = gateway("same", &https(Some("secure.example"), "tenant"));
        same["metadata"]["creationTimestamp"] = json!("2026-01-03T00:00:00Z");
        vec![
            secret("victim", &victim),
            secret("tenant", &tenant),
            config_map("clients", &ca),
            older,
            newer,
            same,
            route_of("theirs", "older", "", &["secure.example", "tenant.example"], "v1"),
            route_of("ours", "newer", "", &[], "v2"),
            route_of("late", "same", "", &[], "v3"),
        ]
    });
    let at = |name: &str| folder.0.join(name);
    let (certificate, key) = (at("good.crt"), at("good.key"));
    let good = Some((certificate.as_path(), key.as_path()));
    let ask = |sni: &str, host: &str, client| {
        ask_tls(world.https, sni, &get(host), client).seen("backend").unwrap_or_default()
    };
    let conf = &world.rendered.conf;
    assert_eq!(ask("tenant.example", "tenant.example", None), "v1", "{conf}");
    assert_eq!(ask("secure.example", "secure.example", good), "v2", "{conf}");
    assert_eq!(ask("secure.example", "secure.example", None), "", "{conf}");
    // A connection that was accepted for another name has not shown a certificate.
    assert_eq!(ask("tenant.example", "secure.example", None), "", "{conf}");
    assert_eq!(ask("other.example", "secure.example", good), "", "{conf}");
    let status = world.status("Gateway", "same")["listeners"][0].clone();
    assert_eq!(condition(&status, "Conflicted"), "True HostnameConflict");
    let told = world.rendered.events.iter().find(|e| e.object.name == "older");
    assert!(told.is_some_and(|e| e.message.contains("newer")), "{:?}", world.rendered.events);
}

#[test]
fn hosts_may_have_the_names_of_words() {
    let folder = Folder::new("gw-words-keys");
    let server = certificate(&folder.0, "include", None);
    let world = World::start("gw-words", |port, _| {
        let listener = |name: &str, host: &str| {
            json!({ "name": name, "hostname": host, "port": port, "protocol": "HTTPS",
                "tls": { "certificateRefs": [{ "name": "cert" }] } })
        };
        vec![
            secret("cert", &server),
            gateway("words", &json!([listener("a", "include"), listener("b", "default")])),
            route_of("a", "words", "a", &[], "v1"),
            route_of("b", "words", "b", &[], "v2"),
        ]
    });
    for (name, wanted) in [("include", "v1"), ("default", "v2")] {
        let reply = ask_tls(world.https, name, &get(name), None);
        assert_eq!(reply.seen("backend").as_deref(), Some(wanted), "{}", world.rendered.conf);
    }
}

#[test]
fn ports_and_addresses_of_others_are_refused() {
    let world = World::start("gw-refused", |_, _| {
        let l = |port: u16, protocol: &str| json!([{ "name": "l", "port": port, "protocol": protocol }]);
        let mut foreign = gateway("foreign", &l(1234, "HTTP"));
        foreign["spec"]["addresses"] = json!([{ "value": "203.0.113.9" }]);
        vec![
            foreign,
            gateway("proxy", &l(442, "TCP")),
            gateway("one", &l(2345, "TCP")),
            gateway("two", &l(2345, "TCP")),
        ]
    });
    let programmed = condition(&world.status("Gateway", "foreign"), "Programmed");
    assert_eq!(programmed, "False AddressNotUsable");
    let of = |name: &str| {
        let status = world.status("Gateway", name)["listeners"][0].clone();
        condition(&status, "Accepted")
    };
    assert_eq!(of("proxy"), "False PortUnavailable");
    assert_eq!(
        (of("one").as_str(), of("two").as_str()),
        ("True Accepted", "False HostnameConflict")
    );
    assert!(!world.rendered.conf.contains("203.0.113.9"), "{}", world.rendered.conf);
}
