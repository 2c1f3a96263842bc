//! Connections over TLS move to the new workers at a reload: to clients, and to servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use testkit::certificates::KeyKind;
use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, pattern};

use crate::tls::{Client, Pair};

/// A server that sends back what it gets; `tunnels`: behind a response that opens a tunnel.
fn echo(tunnels: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(stream, tunnels));
        }
    });
    port
}

fn serve(mut stream: TcpStream, tunnels: bool) {
    let (mut head, mut buf) = (Vec::new(), vec![0; 16 << 10]);
    while tunnels && !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buf[..1]) {
            Ok(1) => head.push(buf[0]),
            _ => return,
        }
    }
    if tunnels {
        let answer = "HTTP/1.1 101 X\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
        let _ = stream.write_all(answer.as_bytes());
    }
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

/// Ports: 0 and 2 take clients, of tunnels and of `stream`. They reach the backend over a second
/// server block each, so that both ends of a session between the two move.
fn site(driver: Driver) -> Weir {
    site_and_text(driver).0
}

fn site_and_text(driver: Driver) -> (Weir, String) {
    let (tunnels, plain) = (echo(true), echo(false));
    let pair = Pair::own(KeyKind::P256, "a.example");
    let upgrade = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                   proxy_set_header Connection Upgrade;";
    let text = format!(
        "worker_processes 2;\nevents {{}}\n\
         http {{ ssl_certificate a.pem; ssl_certificate_key a.key;\n\
         log_format tls '$server_port $ssl_protocol $ssl_cipher $ssl_server_name $bytes_sent';\n\
         access_log logs/access.log tls; {upgrade}\n\
         server {{ listen 127.0.0.1:%PORT0% ssl; \
         location / {{ proxy_pass https://127.0.0.1:%PORT1%; }} }}\n\
         server {{ listen 127.0.0.1:%PORT1% ssl; access_log off; \
         location / {{ proxy_pass http://127.0.0.1:{tunnels}; }} }}\n\
         server {{ listen 127.0.0.1:%PORT4%; access_log off; \
         location / {{ stub_status json; }} }} }}\n\
         stream {{ ssl_certificate a.pem; ssl_certificate_key a.key;\n\
         log_format tls '$server_port $ssl_protocol $ssl_cipher $ssl_server_name $bytes_sent';\n\
         access_log logs/stream.log tls;\n\
         server {{ listen 127.0.0.1:%PORT2% ssl; proxy_ssl on; proxy_pass 127.0.0.1:%PORT3%; }}\n\
         server {{ listen 127.0.0.1:%PORT3% ssl; access_log off; \
         proxy_pass 127.0.0.1:{plain}; }} }}\n"
    );
    (pair.on(Site::new(built_binary(), driver), "a").config(&text).start(), text)
}

fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

const SUITES: [(&SupportedProtocolVersion, &str); 6] = [
    (&TLS13, "AES_128"),
    (&TLS13, "AES_256"),
    (&TLS13, "CHACHA20"),
    (&TLS12, "ECDSA_WITH_AES_128"),
    (&TLS12, "ECDSA_WITH_AES_256"),
    (&TLS12, "ECDSA_WITH_CHACHA20"),
];

#[test]
fn sessions_of_every_suite_outlive_their_workers() {
    each_driver(|driver| {
        let weir = site(driver);
        let client = |(version, suite): (&'static SupportedProtocolVersion, &str)| {
            Client::limited("a.example", version, suite)
        };
        let mut all: Vec<Conn> = Vec::new();
        for suite in SUITES {
            let mut tunnel = client(suite).connect(weir.port(0));
            tunnel
                .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
            assert!(tunnel.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
            all.push(tunnel);
            let mut session = client(suite).connect(weir.port(2));
            session.send("first");
            assert_eq!(session.read_exact(5), b"first");
            all.push(session);
        }
        for round in 0..4 {
            for (i, conn) in all.iter_mut().enumerate() {
                conn.send(pattern(1 + 7_000 * i, round));
            }
            reload(&weir);
            for (i, conn) in all.iter_mut().enumerate() {
                let message = pattern(1 + 7_000 * i, round);
                assert_eq!(conn.read_exact(message.len()), message, "{i} in {round}");
                // And behind the move, in both directions.
                conn.send("again");
                assert_eq!(conn.read_exact(5), b"again");
            }
        }
        drop(all);
        for log in ["access.log", "stream.log"] {
            let text = weir.wait_for_lines(log, SUITES.len());
            assert_eq!(text.lines().count(), SUITES.len(), "one line each: {text}");
            for version in ["TLSv1.3", "TLSv1.2"] {
                let lines = text.lines().filter(|line| line.contains(version));
                assert_eq!(lines.count(), 3, "{text}");
            }
            assert!(text.lines().all(|line| line.contains(" a.example ")), "{text}");
        }
    });
}

/// The logs of the new configuration ask for facts of the handshake that nothing has asked for
/// before.
#[test]
fn logs_of_the_new_configuration_have_the_facts_of_the_handshake() {
    each_driver(|driver| {
        let (mut weir, text) = site_and_text(driver);
        let client = Client::of("a.example");
        let mut tunnel = client.connect(weir.port(0));
        tunnel.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        assert!(tunnel.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
        let mut session = client.connect(weir.port(2));
        session.send("first");
        assert_eq!(session.read_exact(5), b"first");
        weir.set_config(&text.replace("$bytes_sent", "$ssl_curve $ssl_session_reused $ssl_sigalg"));
        reload(&weir);
        drop((tunnel, session));
        for log in ["access.log", "stream.log"] {
            let line = weir.wait_for_lines(log, 1);
            let fields: Vec<&str> = line.split_whitespace().collect();
            assert!(fields[4].starts_with("X25519"), "{line}");
            assert_eq!(fields[5..], [".", "ecdsa_secp256r1_sha256"], "{line}");
        }
    });
}

/// Records arrive in parts, and the client does not read while the connection moves.
#[test]
fn no_byte_is_lost_while_a_client_sends() {
    each_driver(|driver| {
        let weir = site(driver);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let chats: Vec<_> = SUITES
                .into_iter()
                .map(|(version, suite)| {
                    let (weir, stop) = (&weir, &stop);
                    scope.spawn(move || {
                        let client = Client::limited("a.example", version, suite);
                        let mut conn = client.connect(weir.port(2));
                        let mut n = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let message = pattern(1 + n * 7_919 % 50_000, n);
                            conn.send(&message);
                            assert!(conn.read_exact(message.len()) == message, "{suite} {n}");
                            n += 1;
                        }
                        n
                    })
                })
                .collect();
            for _ in 0..6 {
                reload(&weir);
            }
            stop.store(true, Ordering::Relaxed);
            for chat in chats {
                assert!(chat.join().unwrap() > 0);
            }
        });
    });
}

/// `openssl s_client`, whose commands are lines of one letter.
struct OpenSsl {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    told: BufReader<ChildStderr>,
}

impl OpenSsl {
    fn connect(port: u16) -> OpenSsl {
        let mut child = Command::new("openssl")
            .args(["s_client", "-tls1_3", "-servername", "a.example"])
            .args(["-connect", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let told = BufReader::new(child.stderr.take().unwrap());
        OpenSsl { child, input, output, told }
    }

    /// Sends a line, and waits until it comes back.
    fn talk(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).unwrap();
        wait_for_line(&mut self.output, text);
    }

    /// `k` takes new keys, `K` asks for the server's, too.
    fn change_keys(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).unwrap();
        wait_for_line(&mut self.told, "KEYUPDATE");
    }
}

fn wait_for_line(from: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while line.trim_end() != text {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0, "the end comes before {text}");
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn openssl_changes_keys_before_and_after_a_move() {
    let weir = site(Driver::usual());
    let mut client = OpenSsl::connect(weir.port(2));
    client.talk("first");
    for round in 0..3 {
        for command in ["k", "K", "K"] {
            client.change_keys(command);
            reload(&weir);
            client.change_keys(command);
            client.talk(&format!("text {round}{command}"));
        }
    }
}

/// A server that tells what it knows of its client, and two workers.
fn facts_site(driver: Driver, in_server: &str) -> (Weir, String) {
    let pair = Pair::own(KeyKind::P256, "a.example");
    let text = format!(
        "worker_processes 2;\nevents {{}}\n\
         http {{ ssl_certificate a.pem; ssl_certificate_key a.key; access_log off;\n\
         server {{ listen 127.0.0.1:%PORT0% ssl; }}\n\
         server {{ listen 127.0.0.1:%PORT0% ssl; server_name a.example; {in_server}\n\
         return 200 \"$connection_requests $connection $ssl_protocol $ssl_cipher $ssl_curve \
         $ssl_server_name $ssl_session_id $ssl_session_reused $ssl_alpn_protocol $ssl_ja4 \
         $ssl_client_verify $ssl_client_fingerprint $ssl_server_cert_fingerprint $ssl_sigalg\"; }}\n\
         server {{ listen 127.0.0.1:%PORT1%; location / {{ stub_status json; }} }} }}\n"
    );
    (pair.on(Site::new(built_binary(), driver), "a").config(&text).start(), text)
}

/// The facts in a response behind the number of requests, which is `count`.
fn facts(conn: &mut Conn, count: usize) -> String {
    conn.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let response = conn.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("keep-alive")));
    let text = response.text();
    text.strip_prefix(&format!("{count} ")).expect("the number of requests").to_owned()
}

#[test]
fn idle_connections_keep_the_facts_of_their_handshake() {
    each_driver(|driver| {
        let (weir, _) = facts_site(driver, "ssl_verify_client optional_no_ca;");
        let shown = Pair::own(KeyKind::P256, "client");
        let mut all: Vec<(Conn, Option<String>)> = Vec::new();
        for version in [&TLS12, &TLS13] {
            let with = Client::with("a.example", &[version], Some(&[&shown]));
            let without = Client::with("a.example", &[version], None);
            all.push((with.connect(weir.port(0)), None));
            all.push((without.connect(weir.port(0)), None));
        }
        for round in 1..=4 {
            for (conn, known) in &mut all {
                let now = facts(conn, round);
                assert!(now.contains(" a.example "), "{now}");
                assert_eq!(known.get_or_insert_with(|| now.clone()), &now);
            }
            reload(&weir);
        }
        let texts: Vec<&String> = all.iter().filter_map(|(_, known)| known.as_ref()).collect();
        assert!(texts[0].contains(" TLSv1.2 ") && texts[3].contains(" TLSv1.3 "), "{texts:?}");
        assert!(texts[0].contains(" FAILED:") && texts[1].contains(" NONE "), "{texts:?}");
    });
}

/// A client that was not asked for its certificate does not come into a server that wants it.
#[test]
fn an_idle_connection_stays_where_another_handshake_is_needed() {
    let (mut weir, text) = facts_site(Driver::usual(), "");
    let mut conn = Client::of("a.example").connect(weir.port(0));
    facts(&mut conn, 1);
    let old = weir.workers();
    weir.set_config(
        &text.replace(" server_name", " ssl_verify_client optional_no_ca; server_name"),
    );
    weir.reload();
    testkit::wait_until("the decision", || {
        let mut asks = Conn::tcp(weir.port(1));
        asks.send("GET / HTTP/1.0\r\n\r\n");
        let status = testkit::Json::parse(&asks.response().text());
        status.number("handover.idle.stayed.configuration") == 1
    });
    assert!(conn.is_closed());
    weir.wait_until_left(&old);
}
