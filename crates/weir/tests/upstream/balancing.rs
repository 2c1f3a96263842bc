//! Upstreams with state shared by workers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use testkit::{Backend, Driver, PATIENCE, Port, Site, Weir, built_binary, listener, wait_until};

fn start(workers: usize, http: &str) -> Weir {
    Site::new(built_binary(), Driver::usual())
        .allow("exited on signal 9")
        .config(&format!("worker_processes {workers};\nevents {{}}\nhttp {{\n{http}\n}}\n"))
        .start()
}

/// A connection's request, as the server behind sees it.
fn taken(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut page = [0; 4096];
    assert!(stream.read(&mut page).unwrap() > 0);
    stream
}

fn statuses(weir: &Weir, n: usize) -> Vec<u16> {
    (0..n).map(|_| weir.get("/").status).collect()
}

#[test]
fn limits_hold_over_all_workers() {
    let (listener, port) = listener();
    let weir = start(
        3,
        &format!(
            "upstream u {{ zone u 64k; server 127.0.0.1:{port} max_conns=1; keepalive 0; }}
             server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://u; }} }}"
        ),
    );
    let mut client = weir.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut held = taken(&listener);
    assert_eq!(statuses(&weir, 12), [502; 12]);
    held.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(client.response().status, 200);
    // The connections of a dead worker are given back.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(held);
    let held = taken(&listener);
    assert_eq!(statuses(&weir, 1), [502]);
    let before = weir.workers();
    before.iter().for_each(|pid| weir.signal_to(*pid, "KILL"));
    wait_until("the change", || {
        let now = weir.workers();
        now.len() == 3 && now.iter().all(|pid| !before.contains(pid))
    });
    let mut client = weir.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(held);
    let mut again = taken(&listener);
    again.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert_eq!(client.response().status, 204);
}

#[test]
fn what_is_known_of_servers_outlives_a_reload() {
    let backend = Backend::start();
    let dead = Port::reserve();
    let config = |extra: &str| {
        format!(
            "worker_processes 2; events {{}} http {{
             upstream u {{ zone u 64k; {extra}
                 server 127.0.0.1:{} fail_timeout=100s; server 127.0.0.1:{}; }}
             upstream none {{ zone u; server 127.0.0.1:1 down; server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://u; }} }} }}",
            dead.number(),
            backend.port,
            backend.port,
        )
    };
    let mut weir = Site::new(built_binary(), Driver::usual()).config(&config("")).start();
    let failures = |weir: &Weir| weir.error_log().matches("connect() failed").count();
    assert_eq!(statuses(&weir, 10), [200; 10]);
    weir.wait_for_log("error.log", "connect() failed");
    assert_eq!(failures(&weir), 1, "one worker tells the other");
    weir.reload();
    assert_eq!(statuses(&weir, 10), [200; 10]);
    assert_eq!(failures(&weir), 1, "the same servers");
    weir.set_config(&config(&format!("server 127.0.0.1:{} backup;", backend.port)));
    weir.reload();
    assert_eq!(statuses(&weir, 10), [200; 10]);
    assert_eq!(failures(&weir), 1, "other servers beside it");
}

#[test]
fn requests_wait_in_a_queue() {
    let (listener, port) = listener();
    let weir = start(
        1,
        &format!(
            "upstream u {{ server 127.0.0.1:{port} max_conns=1; queue 1 timeout=5s; keepalive 0; }}
             upstream q {{ server 127.0.0.1:{port} down; queue 5 timeout=100ms; }}
             server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://u; }}
                       location /q {{ proxy_pass http://q; }} }}"
        ),
    );
    let ask = || {
        let mut client = weir.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut first = ask();
    let mut held = taken(&listener);
    let mut second = ask();
    wait_until("the change", || weir.get("/").status == 502);
    weir.wait_for_log("error.log", "upstream queue is full");
    held.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(first.response().status, 201);
    let mut held = taken(&listener);
    held.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(second.response().status, 202);
    assert_eq!(weir.get("/q").status, 502);
    weir.wait_for_log("error.log", "upstream queue timed out");
}

#[test]
fn what_configurations_are_told() {
    let http = "upstream u { * }\nserver { listen 127.0.0.1:%PORT0%; }";
    let cases = [
        ("zone u; server 127.0.0.1:1;", "zero size shared memory zone \"u\""),
        ("zone u 4k; server 127.0.0.1:1;", "zone \"u\" is too small"),
        ("zone u x; server 127.0.0.1:1;", "invalid zone size \"x\""),
        ("ip_hash; server 127.0.0.1:1 backup;", "does not support parameter \"backup\""),
        ("hash a; server 127.0.0.1:1 backup;", "does not support parameter \"backup\""),
        ("random two fast; server 127.0.0.1:1;", "invalid parameter \"fast\""),
        ("hash a b; server 127.0.0.1:1;", "invalid parameter \"b\""),
        ("least_time soon; server 127.0.0.1:1;", "invalid value \"soon\""),
        ("server 127.0.0.1:1 route=;", "route is empty"),
        ("queue x; server 127.0.0.1:1;", "invalid value \"x\" in \"queue\""),
        ("queue 1 time=1; server 127.0.0.1:1;", "invalid parameter \"time=1\""),
    ];
    testkit::refused(http, &cases);
    let twice = http.replacen('*', "ip_hash; random; server 127.0.0.1:1;", 1);
    let output = Site::new(built_binary(), Driver::usual()).http(&twice).run(&["-t"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("[warn] load balancing method redefined"));
}
