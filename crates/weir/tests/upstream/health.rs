//! Health checks, and the API that shows and changes servers.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{Backend, Driver, Port, Site, Weir, built_binary, each_driver, listener, wait_until};

/// A server with a status that can be changed; it counts the checks, and closes after each answer.
struct Patient {
    port: u16,
    status: Arc<AtomicU16>,
    checks: Arc<AtomicUsize>,
}

fn patient(status: u16) -> Patient {
    let (listener, port) = listener();
    let (status, checks) = (Arc::new(AtomicU16::new(status)), Arc::new(AtomicUsize::new(0)));
    let p = Patient { port, status: status.clone(), checks: checks.clone() };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut s, mut page) = (stream.unwrap(), [0; 4096]);
            let n = s.read(&mut page).unwrap_or(0);
            let asked = String::from_utf8_lossy(&page[..n]).into_owned();
            let check = asked.starts_with("GET /check ");
            checks.fetch_add(usize::from(check), Ordering::Relaxed);
            let code = if check { status.load(Ordering::Relaxed) } else { 200 };
            let body = format!("it is {code}");
            let head = format!("HTTP/1.1 {code} X\r\nContent-Length: {}\r\n", body.len());
            let _ = s.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
        }
    });
    p
}

#[test]
fn servers_that_are_not_well_are_not_asked() {
    each_driver(|driver| {
        let p = patient(500);
        let config = format!(
            "worker_processes 2; events {{}} http {{
             match well {{ status 200-299; body ~ 'is 2'; header Content-Length; }}
             upstream u {{ zone u 64k; server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://u;
                 health_check uri=/check interval=50ms fails=2 passes=2 mandatory persistent
                     match=well; }} }} }}",
            p.port
        );
        let weir = Site::new(built_binary(), driver).config(&config).start();
        let status = || weir.get("/").status;
        assert_eq!(status(), 502, "nobody is asked before the first check");
        weir.wait_for_log("error.log", "in upstream \"u\" is unhealthy: the status does not match");
        assert_eq!(status(), 502);
        p.status.store(201, Ordering::Relaxed);
        weir.wait_for_log("error.log", "in upstream \"u\" is healthy");
        wait_until("the change", || status() == 200);
        weir.reload();
        assert_eq!(status(), 200, "a reload knows");
        p.status.store(302, Ordering::Relaxed);
        wait_until("the change", || status() == 502);
        // One worker asks for both.
        let (before, began) = (p.checks.load(Ordering::Relaxed), Instant::now());
        wait_until("ten checks", || p.checks.load(Ordering::Relaxed) >= before + 10);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(9 * 50 - 25), "ten checks in {took:?}");
    });
}

/// A server of checks that answers every request with the same bytes, two over each connection,
/// which it closes then without a word. It counts connections and requests.
struct Scripted {
    port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// With an empty answer the server stays silent.
fn scripted(answer: &'static [u8], per_connection: usize) -> Scripted {
    let (listener, port) = listener();
    let counts = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let s = Scripted { port, connections: counts.0.clone(), requests: counts.1.clone() };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counts, mut page) = (stream.unwrap(), counts.clone(), [0; 4096]);
            counts.0.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                for _ in 0..per_connection {
                    match stream.read(&mut page) {
                        Ok(0) | Err(_) => return,
                        Ok(_) => counts.1.fetch_add(1, Ordering::Relaxed),
                    };
                    if answer.is_empty() {
                        let _ = stream.read_to_end(&mut Vec::new());
                    }
                    let _ = stream.write_all(answer);
                }
            });
        }
    });
    s
}

#[test]
fn connections_of_checks_are_used_again() {
    each_driver(|driver| {
        let answer =
            b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nwe\r\n2\r\nll\r\n0\r\n\r\n";
        let (kept, single) = (scripted(answer, 2), scripted(answer, 2));
        let config = format!(
            "events {{}} http {{ match well {{ status 200; body ~ '^well$'; }}
             upstream u {{ zone u 64k; server 127.0.0.1:{}; }}
             upstream v {{ zone v 64k; server 127.0.0.1:1; }}
             server {{ listen 127.0.0.1:%PORT0%;
                 location / {{ proxy_pass http://u;
                     health_check interval=20ms keepalive_time=1h match=well mandatory; }}
                 location /v {{ proxy_pass http://v;
                     health_check interval=20ms match=well mandatory port={}; }} }} }}",
            kept.port, single.port
        );
        let weir = Site::new(built_binary(), driver).config(&config).start();
        let counts = |s: &Scripted| {
            // Requests first: a connection may be made in between.
            let requests = s.requests.load(Ordering::Relaxed);
            (s.connections.load(Ordering::Relaxed), requests)
        };
        wait_until("checks", || kept.requests.load(Ordering::Relaxed) >= 9);
        wait_until("checks", || single.requests.load(Ordering::Relaxed) >= 9);
        let (connections, requests) = counts(&kept);
        assert!(connections <= requests / 2 + 2, "{connections} for {requests} requests");
        let (connections, requests) = counts(&single);
        assert!(connections >= requests, "{connections} for {requests} requests");
        weir.wait_for_log("error.log", "in upstream \"u\" is healthy");
        weir.wait_for_log("error.log", "in upstream \"v\" is healthy");
        assert!(!weir.stop_and_read("error.log").contains("is unhealthy"));
    });
}

#[test]
fn a_failed_check_says_why() {
    each_driver(|driver| {
        let dead = Port::reserve();
        let long = Box::leak([&b"HTTP/1.1 200 X\r\nA: "[..], &[b'x'; 300_000]].concat().into());
        let cases: &[(&'static [u8], &str)] = &[
            (b"220 mail\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 200 X\r\n", "the connection was closed"),
            (long, "the connection was closed"),
            (b"", "recv() failed (timed out)"),
            (b"HTTP/1.1 404 X\r\n\r\nwell", "the status does not match"),
            (b"HTTP/1.1 200 X\r\n\r\nwell", "a header does not match"),
            (b"HTTP/1.1 200 X\r\nA: b\r\n\r\nill", "the body does not match"),
            (b"HTTP/1.1 200 X\r\nA: b\r\nContent-Length: 9\r\n\r\nwel", "the body does not match"),
        ];
        let refused = (dead.number(), "connect() failed (111: Connection refused)");
        let served = cases.iter().map(|(answer, why)| (scripted(answer, 1).port, *why));
        let all: Vec<(u16, &str)> = served.chain([refused]).collect();
        let (mut upstreams, mut locations) = (String::new(), String::new());
        for (port, _) in &all {
            upstreams +=
                &format!("upstream u{port} {{ zone u{port} 64k; server 127.0.0.1:{port}; }}\n");
            locations += &format!(
                "location /{port} {{ proxy_pass http://u{port}; proxy_read_timeout 300ms;
                 health_check match=well interval=100ms; }}\n"
            );
        }
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                "match well {{ status 200; header A = b; body ~ well; }} {upstreams}
                 server {{ listen 127.0.0.1:%PORT0%; {locations} }}"
            ))
            .start();
        for (port, why) in all {
            let line = format!("in upstream \"u{port}\" is unhealthy: {why}");
            weir.wait_for_log("error.log", &line);
        }
    });
}

fn body(weir: &Weir, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut c = weir.connect();
    let len = body.len();
    c.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}"));
    let response = c.response_to(method);
    (response.status, response.text())
}

#[test]
fn servers_are_changed_by_the_api() {
    let (b, other) = (Backend::start(), Backend::start());
    let dead = Port::reserve();
    // The workers must be able to write the upstream's file: they stay who they are.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if is_root { "user root;" } else { "" };
    let config = format!(
        "{user} worker_processes 2; events {{}} http {{
         resolver 127.0.0.1:{} status_zone=names;
         upstream u {{ zone u 64k; state servers.conf; }}
         upstream fixed {{ server 127.0.0.1:{}; }}
         server {{ listen 127.0.0.1:%PORT0%;
             location / {{ proxy_pass http://u; add_header X-To $upstream_addr always; }}
             location /api {{ api write=on; }}
             location /look {{ api; }}
             location /closed {{ api write=on; deny all; }} }} }}",
        dead.number(),
        b.port
    );
    let weir = Site::new(built_binary(), Driver::usual()).config(&config).start();
    let api = |method: &str, path: &str, text: &str| {
        body(&weir, method, &format!("/api/9/http/upstreams{path}"), text)
    };
    assert_eq!(weir.get("/").status, 502);
    assert_eq!(api("GET", "/u/servers", "").1, "[]\n");
    let server = format!("{{\"server\":\"127.0.0.1:{}\",\"weight\":2}}", b.port);
    let (status, text) = api("POST", "/u/servers", &server);
    assert_eq!(status, 201, "{text}");
    assert!(text.contains("\"weight\":2"), "{text}");
    let id = text.split("\"id\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
    // Both workers know.
    assert!((0..8).all(|_| weir.get("/").status == 200));
    let one = format!("/u/servers/{id}");
    assert_eq!(api("PATCH", &one, "{\"down\":true,\"max_conns\":7}").0, 200);
    assert!((0..8).all(|_| weir.get("/").status == 502));
    assert!(api("GET", &one, "").1.contains("\"max_conns\":7"));
    assert_eq!(api("PATCH", &one, "{\"down\":false}").0, 200);
    assert!((0..8).all(|_| weir.get("/").status == 200));
    let shown = api("GET", "/u", "").1;
    assert!(shown.contains("\"state\":\"up\"") && shown.contains("\"requests\":"), "{shown}");
    // Changes outlive a reload.
    weir.reload();
    assert!((0..4).all(|_| weir.get("/").status == 200));
    let list = api("GET", "/u/servers", "").1;
    assert!(list.contains("\"max_conns\":7") && list.contains("\"weight\":2"), "{list}");
    let second = format!("{{\"server\":\"127.0.0.1:{}\",\"backup\":true}}", other.port);
    assert_eq!(api("POST", "/u/servers", &second).0, 201);
    let id = list.split("\"id\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
    assert_eq!(api("DELETE", &format!("/u/servers/{id}"), "").0, 200);
    let to = format!("127.0.0.1:{}", other.port);
    for _ in 0..4 {
        assert_eq!(weir.get("/").header("X-To"), Some(to.as_str()));
    }
    for (method, path, text, status) in [
        ("POST", "/u/servers", "{", 415),
        ("POST", "/fixed/servers", "{\"server\":\"127.0.0.1:1\"}", 400),
        ("POST", "/none/servers", "{}", 404),
        ("DELETE", "/u/servers/99", "", 404),
        ("DELETE", "/u/servers/x", "", 400),
        ("PATCH", "/u/servers", "{}", 405),
        ("PUT", "/u/servers", "{}", 405),
        ("GET", "/u/servers/99", "", 404),
    ] {
        let (got, text) = api(method, path, text);
        assert_eq!(got, status, "{method} {path}: {text}");
        assert!(text.starts_with("{\"error\":{\"status\":"), "{text}");
    }
    let post = |path: &str| body(&weir, "POST", path, &server).0;
    assert_eq!(post("/look/http/upstreams/u/servers"), 405);
    assert_eq!(post("/closed/http/upstreams/u/servers"), 403);
    let names = weir.get("/look/resolvers").text();
    assert!(names.contains("\"names\":{\"requests\":{\"name\":0,"), "{names}");
    assert!(weir.get("/look/http/upstreams").text().contains("\"fixed\":{\"peers\":["));
}

/// A worker that leaves may have such a request before it: the new ones are to know what it did.
#[test]
fn a_change_in_the_middle_of_a_reload_is_kept() {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if is_root { "user root;" } else { "" };
    each_driver(|driver| {
        let (b, dead) = (Backend::start(), Port::reserve());
        let weir = Site::new(built_binary(), driver)
            .config(&format!(
                "{user} events {{}} http {{
                 upstream u {{ zone u 64k; state servers.conf; }}
                 server {{ listen 127.0.0.1:%PORT0%;
                     location / {{ proxy_pass http://u; }}
                     location /api {{ api write=on; }} }} }}"
            ))
            .start();
        let servers = "/api/9/http/upstreams/u/servers";
        let line = |port: u16| format!("{{\"server\":\"127.0.0.1:{port}\"}}");
        let (status, text) = body(&weir, "POST", servers, &line(dead.number()));
        assert_eq!(status, 201, "{text}");
        let id = text.split("\"id\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
        let mut leaving = weir.connect();
        leaving.send(format!(
            "POST {servers} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            line(b.port).len()
        ));
        // A worker has it.
        assert!(leaving.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 100"));
        let before = weir.workers();
        weir.reload();
        assert_eq!(body(&weir, "DELETE", &format!("{servers}/{id}"), "").0, 200);
        leaving.send(line(b.port));
        assert_eq!(leaving.response_to("POST").status, 201);
        weir.wait_until_left(&before);
        assert_eq!(weir.get("/").status, 200);
        let list = weir.get(servers).text();
        assert!(list.contains(&b.port.to_string()), "{list}");
        assert_eq!(list.matches("\"id\"").count(), 1, "{list}");
        let file = weir.prefix().join("conf/servers.conf");
        let file = std::fs::read_to_string(file).expect("the file");
        assert!(file.ends_with(&format!("\nserver 127.0.0.1:{};\n", b.port)), "{file}");
    });
}

#[test]
fn what_configurations_are_told() {
    let refused = |upstream: &str, location: &str| {
        let site = Site::new(built_binary(), Driver::usual()).http(&format!(
            "match m {{ status 200; }}
             upstream u {{ {upstream} }} server {{ listen 127.0.0.1:%PORT0%;
             location / {{ proxy_pass http://u; {location} }} }}"
        ));
        String::from_utf8_lossy(&site.run(&["-t"]).stderr).into_owned()
    };
    let zone = "zone u 64k; server 127.0.0.1:1;";
    for (upstream, location, message) in [
        ("server 127.0.0.1:1;", "health_check;", "requires upstream \"u\" to be in shared memory"),
        (zone, "health_check match=none;", "match \"none\" not found"),
        (zone, "health_check interval=x;", "invalid parameter \"interval=x\""),
        (zone, "health_check uri=a;", "invalid parameter \"uri=a\""),
        (
            zone,
            "health_check type=grpc;",
            "\"health_check\" beside \"proxy_pass\" requires \"grpc_pass\"",
        ),
        (zone, "health_check grpc_status=12;", "require \"type=grpc\""),
        (zone, "health_check persistent;", "is a parameter of \"mandatory\""),
        (zone, "location /n { health_check; }", "requires that its location passes requests to an"),
        (zone, "location /v { health_check; proxy_pass http://$arg_a; }", "without variables in"),
        (zone, "location /f { fastcgi_pass u; health_check; }", "requires \"type=tcp\""),
        (zone, "location /m { set $memcached_key a; memcached_pass u; health_check; }", "type=tcp"),
        (zone, "api read=on;", "invalid parameter \"read=on\""),
        ("state s; server 127.0.0.1:1;", "", "is incompatible with \"state\""),
        ("state s;", "", "\"state\" requires a zone in upstream \"u\""),
    ] {
        let output = refused(upstream, location);
        assert!(output.contains(message), "{upstream} {location}: {output}");
    }
}

/// Health checks over HTTP/2: gRPC's call, and a request to a server that speaks nothing older.
#[test]
fn servers_are_checked_by_what_they_speak() {
    use testkit::h2::{Reply, origin};
    each_driver(|driver| {
        let served = Arc::new(AtomicUsize::new(2));
        let status = served.clone();
        let origin = origin(move |request, _| match request.path() {
            "/grpc.health.v1.Health/Check" => {
                assert_eq!(request.body, b"\0\0\0\0\x05\x0a\x03a.B");
                assert_eq!(request.field("te"), Some("trailers"));
                let message = [0, 0, 0, 0, 2, 8, status.load(Ordering::Relaxed) as u8];
                Reply::of(message).trailer("grpc-status", "0")
            }
            "/check" => Reply::of("well"),
            _ => Reply::of("answer").trailer("grpc-status", "0"),
        });
        let config = format!(
            "worker_processes 1; events {{}} http {{
             match well {{ status 200; body ~ well; }}
             upstream g {{ zone g 64k; server 127.0.0.1:{0}; }}
             upstream h {{ zone h 64k; server 127.0.0.1:{0}; }}
             upstream old {{ zone old 64k; server 127.0.0.1:{0}; }}
             server {{ listen 127.0.0.1:%PORT0%; proxy_http_version 2;
                 location / {{ grpc_pass g; health_check type=grpc grpc_service=a.B
                                                         interval=50ms mandatory; }}
                 location /h {{ proxy_pass http://h;
                                health_check uri=/check match=well interval=50ms mandatory; }}
                 location /old {{ grpc_pass old; health_check type=grpc grpc_service=a.B
                                  grpc_status=12 interval=50ms mandatory; }} }} }}",
            origin.port
        );
        let weir = Site::new(built_binary(), driver).config(&config).start();
        weir.wait_for_log("error.log", "in upstream \"g\" is unhealthy: serving status 2");
        weir.wait_for_log("error.log", "in upstream \"old\" is unhealthy: grpc-status 0");
        wait_until("the first check", || weir.get("/h").status == 200);
        assert_eq!((weir.get("/").status, weir.get("/old").status), (502, 502));
        served.store(1, Ordering::Relaxed);
        wait_until("the change", || weir.get("/").status == 200);
    });
}
