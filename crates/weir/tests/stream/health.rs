//! Active checks of the servers of `stream`: over TCP, UDP and TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::certificates::KeyKind;
use testkit::{
    Driver, Pair, Scripted, Site, Weir, built_binary, each_driver, listener, udp, wait_until,
};

fn site(driver: Driver, stream: &str) -> Site {
    Site::new(built_binary(), driver)
        .config(&format!("worker_processes 2; events {{ }} stream {{ {stream} }}"))
}

/// A server that answers a line `PING` with `answer` while it is well, and others with themselves.
fn patient(answer: &'static str) -> (Scripted, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(true));
    let state = well.clone();
    let server = Scripted::start(move |mut stream, _| {
        let mut page = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut page) {
            let text = match (&page[..n] == b"PING\r\n", state.load(Ordering::Relaxed)) {
                (true, true) => answer.as_bytes(),
                (true, false) => b"-LOADING\r\n",
                (false, _) => &page[..n],
            };
            // In two parts: what is expected need not come at once.
            let (first, second) = text.split_at(text.len() / 2);
            if stream.write_all(first).and_then(|()| stream.write_all(second)).is_err() {
                return;
            }
        }
    });
    (server, well)
}

/// The answer to a session that sends `x`; empty where no server is there for it.
fn session(weir: &Weir) -> String {
    let mut c = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
    let mut said = Vec::new();
    // A session without a server may be closed before.
    let _ = c.write_all(b"x").and_then(|()| c.shutdown(Shutdown::Write));
    let _ = c.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

#[test]
fn servers_are_asked_what_they_should_say() {
    each_driver(|driver| {
        let (server, well) = patient("+PONG\r\n");
        let weir = site(
            driver,
            &format!(
                "match redis {{ send 'PING\\r\\n'; expect ~ '^\\+PONG'; }}
                 upstream u {{ zone u 64k; server 127.0.0.1:{}; }}
                 server {{ listen 127.0.0.1:%PORT0%; proxy_pass u; health_check_timeout 300ms;
                     health_check interval=50ms match=redis mandatory; }}",
                server.port
            ),
        )
        .start();
        wait_until("the first check", || session(&weir) == "x");
        well.store(false, Ordering::Relaxed);
        weir.wait_for_log("error.log", "in upstream \"u\" is unhealthy: the answer does not match");
        wait_until("its effect", || session(&weir).is_empty());
        well.store(true, Ordering::Relaxed);
        wait_until("its return", || session(&weir) == "x");
    });
}

#[test]
fn without_a_match_connecting_is_enough() {
    each_driver(|driver| {
        let (listener, port) = listener();
        let weir = site(
            driver,
            &format!(
                "upstream u {{ zone u 64k; server 127.0.0.1:{port}; server 127.0.0.1:1 down; }}
                 server {{ listen 127.0.0.1:%PORT0%; proxy_pass u; proxy_protocol on;
                     health_check interval=50ms fails=2 passes=2; }}"
            ),
        )
        .start();
        // A server that expects a header gets one of no client.
        let mut first = String::new();
        listener.accept().unwrap().0.read_to_string(&mut first).unwrap();
        assert_eq!(first, "PROXY UNKNOWN\r\n");
        drop(listener);
        weir.wait_for_log("error.log", "is unhealthy: connect() failed (111: Connection refused)");
        let _back = testkit::listen(port);
        weir.wait_for_log("error.log", "is healthy");
    });
}

/// A server over UDP that answers `ping` with `pong` while it is well, except to each first one.
fn answering(socket: UdpSocket) -> Arc<AtomicBool> {
    let well = Arc::new(AtomicBool::new(true));
    let state = well.clone();
    std::thread::spawn(move || {
        let (mut page, mut asked) = ([0; 2048], std::collections::HashSet::new());
        while let Ok((n, from)) = socket.recv_from(&mut page) {
            if !asked.insert(from) && state.load(Ordering::Relaxed) {
                let _ = socket.send_to(if &page[..n] == b"ping" { b"pong" } else { b"what" }, from);
            }
        }
    });
    well
}

#[test]
fn datagrams_are_answered_or_refused() {
    each_driver(|driver| {
        let (first, second) = (udp::socket(), udp::socket());
        let (first_port, second_port) = (udp::port(&first), udp::port(&second));
        let well = answering(first);
        let weir = site(
            driver,
            &format!(
                "match pong {{ send ping; expect pong; }}
                 upstream a {{ zone a 64k; server 127.0.0.1:{first_port}; }}
                 upstream b {{ zone b 64k; server 127.0.0.1:{second_port}; }}
                 server {{ listen 127.0.0.1:%PORT0% udp; proxy_pass a; health_check_timeout 600ms;
                     health_check udp interval=50ms match=pong; }}
                 server {{ listen 127.0.0.1:%PORT1% udp; proxy_pass b;
                     health_check udp interval=50ms; }}"
            ),
        )
        .start();
        // A question that got lost is asked again: the first of each check is.
        std::thread::sleep(Duration::from_millis(700));
        assert!(!weir.log("error.log").contains("is unhealthy"));
        well.store(false, Ordering::Relaxed);
        weir.wait_for_log("error.log", "in upstream \"a\" is unhealthy: no answer");
        well.store(true, Ordering::Relaxed);
        weir.wait_for_log("error.log", "in upstream \"a\" is healthy");
        // The other one answers nothing, and is well as long as it listens.
        drop(second);
        weir.wait_for_log("error.log", "in upstream \"b\" is unhealthy: recv() failed (111: ");
        let _back = testkit::bind_datagrams(second_port);
        weir.wait_for_log("error.log", "in upstream \"b\" is healthy");
    });
}

#[test]
fn checks_speak_tls_where_sessions_do() {
    each_driver(|driver| {
        let site = site(
            driver,
            "match hello { expect 'hello one.example'; }
             upstream u { zone u 64k; server 127.0.0.1:%PORT1%; }
             upstream v { zone v 64k; server 127.0.0.1:%PORT2%; }
             server { listen 127.0.0.1:%PORT0%; proxy_pass u; proxy_ssl on;
                 proxy_ssl_server_name on; proxy_ssl_name one.example; proxy_ssl_verify on;
                 proxy_ssl_trusted_certificate one.pem;
                 health_check interval=50ms match=hello mandatory; }
             server { listen 127.0.0.1:%PORT3%; proxy_pass v; proxy_ssl on;
                 health_check interval=50ms; }
             server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate one.pem;
                 ssl_certificate_key one.key; return 'hello $ssl_server_name'; }
             server { listen 127.0.0.1:%PORT2%; return plain; }",
        );
        let weir = Pair::own(KeyKind::P256, "one.example").on(site, "one").start();
        wait_until("the first check", || session(&weir) == "hello one.example");
        weir.wait_for_log("error.log", "in upstream \"v\" is unhealthy: ");
    });
}

#[test]
fn what_is_refused() {
    let listen = "listen 127.0.0.1:%PORT0%;";
    let group = "upstream u { server 127.0.0.1:1; } upstream z { zone z 64k; server 127.0.0.1:1; }";
    for (text, message) in [
        (
            "proxy_pass u; health_check;",
            "health_check requires upstream \"u\" to be in shared memory",
        ),
        ("proxy_pass z; health_check match=x;", "match \"x\" not found"),
        ("proxy_pass z; health_check uri=/;", "invalid parameter \"uri=/\""),
        (
            "proxy_pass z; health_check keepalive_time=1s;",
            "invalid parameter \"keepalive_time=1s\"",
        ),
        (
            "proxy_pass z; health_check persistent;",
            "\"persistent\" is a parameter of \"mandatory\"",
        ),
        ("proxy_pass z; health_check; health_check;", "\"health_check\" directive is duplicate"),
        ("return x; health_check;", "\"health_check\" requires that its server passes sessions"),
        ("proxy_pass $x; set $x z; health_check;", "\"health_check\" requires that its server"),
    ] {
        site(Driver::usual(), &format!("{group} server {{ {listen} {text} }}")).is_refused(message);
    }
    let twice = "match a { send x; } match a { send x; }";
    site(Driver::usual(), twice).is_refused("duplicate match \"a\"");
}
