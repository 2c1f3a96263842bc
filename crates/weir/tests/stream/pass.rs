//! Connections that `stream` passes to other sockets: of `http` and its own, in plain text and
//! under TLS, with bytes that were read already.

use crate::stream_site::securing;
use testkit::certificates::KeyKind;
use testkit::{Conn, Driver, Pair, Site, Weir, built_binary, each_site, udp, wait_until};

/// A site with certificates, an `http` block and a `stream` block.
fn site(driver: Driver, http: &str, stream: &str) -> Site {
    let pair = Pair::own_of(KeyKind::P256, &["one.example", "two.example"]);
    pair.on(Site::new(built_binary(), driver), "one").config(&format!(
        "worker_processes 1; events {{ }}
         http {{ access_log logs/http.log; ssl_certificate one.pem; ssl_certificate_key one.key;
         log_format all '$request_uri $remote_addr $server_port $proxy_protocol_addr';
         {http} }}
         stream {{ log_format all '$status $server_port'; access_log logs/access.log all;
         ssl_certificate one.pem; ssl_certificate_key one.key; {stream} }}"
    ))
}

const ANSWER: &str = "return 200 '$scheme $server_port $remote_addr $proxy_protocol_addr \
                      $ssl_server_name $host\n';";

fn plain(driver: Driver) -> Weir {
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT0%; {ANSWER} }}
         server {{ listen *:%PORT1%; {ANSWER} }}
         server {{ listen 127.0.0.1:%PORT2% proxy_protocol; {ANSWER} }}
         server {{ listen unix:%PREFIX%/socket; {ANSWER} }}"
    );
    let stream = "limit_conn_zone $binary_remote_addr zone=all:64k;
         map $server_port $to { %PORT3% 127.0.0.1:%PORT0%; %PORT4% 127.0.0.1:%PORT1%;
             %PORT5% 127.0.0.1:%PORT2%; %PORT6% unix:%PREFIX%/socket; %PORT7% 127.0.0.1:%PORT4%; }
         server { listen 127.0.0.1:%PORT3%; limit_conn all 1; pass 127.0.0.1:%PORT0%; }
         server { listen 127.0.0.1:%PORT4%; listen 127.0.0.1:%PORT5%; listen 127.0.0.1:%PORT6%;
             listen 127.0.0.1:%PORT7%; pass $to; }
         server { listen 127.0.0.1:%PORT8% proxy_protocol; pass 127.0.0.1:%PORT0%; }";
    site(driver, &http, stream).start()
}

/// The answer to a request on a connection that stays.
fn get(c: &mut Conn, path: &str) -> String {
    c.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    c.response().text()
}

#[test]
fn connections_are_served_as_by_the_other_socket() {
    each_site(plain, |weir| {
        let port = |n| weir.port(n);
        for (at, to) in [(3, 0), (4, 1), (7, 1)] {
            let mut c = Conn::tcp(port(at));
            for _ in 0..2 {
                assert_eq!(get(&mut c, "/a"), format!("http {} 127.0.0.1   h\n", port(to)));
            }
        }
        let mut unix = Conn::tcp(port(6));
        assert!(get(&mut unix, "/").starts_with("http  127.0.0.1"));
        for at in [5, 8] {
            let mut c = Conn::tcp(port(at));
            c.send("PROXY TCP4 192.0.2.7 192.0.2.8 7 8\r\n");
            let to = if at == 5 { port(2) } else { port(0) };
            assert_eq!(get(&mut c, "/"), format!("http {to} 127.0.0.1 192.0.2.7  h\n"));
        }
        // Whoever serves a connection logs it.
        weir.wait_for_lines("http.log", 9);
        assert_eq!(weir.stop_and_read("access.log"), "");
    });
}

#[test]
fn limits_count_a_connection_to_its_end() {
    each_site(plain, |weir| {
        let mut first = Conn::tcp(weir.port(3));
        get(&mut first, "/");
        assert!(Conn::tcp(weir.port(3)).is_closed());
        weir.wait_for_log("access.log", &format!("503 {}", weir.port(3)));
        get(&mut first, "/");
        drop(first);
        wait_until("room for another", || {
            let mut c = Conn::tcp(weir.port(3));
            // A connection that was refused may be reset under the request.
            let _ = c.try_send("GET / HTTP/1.0\r\n\r\n");
            c.read_some().is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
        });
    });
}

/// Clients that speak TLS stand in the same configuration: they pass plain bytes on under TLS.
fn secured(driver: Driver) -> Weir {
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT0% ssl; {ANSWER} }}
         server {{ listen 127.0.0.1:%PORT1%; {ANSWER} }}"
    );
    let stream = [
        "map $ssl_preread_server_name $to { one.example 127.0.0.1:%PORT0%;
             two.example 127.0.0.1:%PORT3%; }
         server { listen 127.0.0.1:%PORT2%; ssl_preread on; pass $to; }
         server { listen 127.0.0.1:%PORT3% ssl; return '$ssl_server_name\n'; }
         server { listen 127.0.0.1:%PORT4% ssl; pass 127.0.0.1:%PORT1%; }
         server { listen 127.0.0.1:%PORT5% ssl; pass 127.0.0.1:%PORT0%; }"
            .to_owned(),
        securing(6, 2, "one", ""),
        securing(7, 2, "two", ""),
        securing(8, 4, "one", ""),
        securing(9, 5, "one", ""),
    ];
    site(driver, &http, &stream.concat()).start()
}

#[test]
fn tls_is_passed_on_by_its_name_or_ended_before() {
    each_site(secured, |weir| {
        let port = |n| weir.port(n);
        let passed = get(&mut Conn::tcp(port(6)), "/");
        assert_eq!(passed, format!("https {} 127.0.0.1  one.example h\n", port(0)));
        assert_eq!(Conn::tcp(port(7)).read_to_end(), b"two.example\n");
        let mut ended = Conn::tcp(port(8));
        for _ in 0..2 {
            let text = format!("https {} 127.0.0.1  one.example h\n", port(1));
            assert_eq!(get(&mut ended, "/"), text);
        }
        assert!(Conn::tcp(port(9)).is_closed());
        weir.wait_for_log("error.log", "TLS with the client was ended here, and \"127.0.0.1:");
    });
}

fn faulty(driver: Driver) -> Weir {
    site(
        driver,
        "server { listen 127.0.0.1:%PORT0%; }",
        "server { listen 127.0.0.1:%PORT1%; pass 127.0.0.1:%PORT2%; }
         server { listen 127.0.0.1:%PORT2%; pass 127.0.0.1:%PORT1%; }
         server { listen 127.0.0.1:%PORT3%; pass 127.0.0.1:1; }
         server { listen 127.0.0.1:%PORT4%; pass $empty:%PORT0%; set $empty ''; }
         server { listen 127.0.0.1:%PORT5% udp; pass 127.0.0.1:%PORT0%; }",
    )
    .start()
}

#[test]
fn what_cannot_be_passed_is_told() {
    each_site(faulty, |weir| {
        for (at, line, status) in [
            (1, "stream pass cycle", 500),
            (3, "port not found for \"127.0.0.1:1\"", 200),
            (4, "no host in pass \":", 500),
        ] {
            assert!(Conn::tcp(weir.port(at)).is_closed());
            weir.wait_for_log("error.log", line);
            weir.wait_for_log("access.log", &status.to_string());
        }
        udp::client(weir.port(5)).send(b"x").unwrap();
        weir.wait_for_log("error.log", "cannot pass udp connection");
    });
}

#[test]
fn what_is_refused() {
    let listen = "listen 127.0.0.1:%PORT0%;";
    for (text, message) in [
        ("pass 127.0.0.1;", "\"pass\" directive has no port in \"127.0.0.1\" in "),
        ("pass localhost:1;", "\"pass\" directive has no addresses in \"localhost:1\""),
        ("pass 127.0.0.1:x;", "\"pass\" directive has invalid port in \"127.0.0.1:x\""),
        ("pass 127.0.0.1:1; pass 127.0.0.1:1;", "\"pass\" directive is duplicate"),
    ] {
        let server = format!("server {{ {listen} {text} }}");
        site(Driver::usual(), "", &server).is_refused(message);
    }
}

/// A worker that leaves while it waits for the hello still passes the connection on.
#[test]
fn a_leaving_worker_passes_on_what_it_has_accepted() {
    let start = |driver| {
        let http = "server { listen 127.0.0.1:%PORT0%; return 200 passed; }";
        let stream = "server { listen 127.0.0.1:%PORT1%; ssl_preread on; preread_timeout 60s;
             pass 127.0.0.1:%PORT0%; }";
        site(driver, http, stream).start()
    };
    each_site(start, |weir| {
        let mut c = Conn::tcp(weir.port(1));
        // The first bytes of what might be a hello.
        c.send([0x16]);
        weir.wait_for_log("error.log", "connected to 127.0.0.1:");
        weir.reload();
        weir.wait_for_log("error.log", "gracefully shutting down");
        // It is none, and no request either: HTTP says so.
        c.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let answer = String::from_utf8_lossy(&c.read_to_end()).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    });
}
