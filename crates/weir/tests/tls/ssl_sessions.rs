//! TLS sessions over real connections: resumed by every worker and after reloads, and never by
//! another server.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use rustls::HandshakeKind::{Full, Resumed};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, SupportedProtocolVersion};
use testkit::certificates::KeyKind;
use testkit::{AnyCertificate, Driver, Pair, Site, Weir, built_binary, each_driver};

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A client with no session yet; it offers those of a name at every port.
fn client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(64);
    Arc::new(config)
}

/// Makes a connection and a request. The kind of the handshake, and the body of the answer, behind
/// which the server has to say that no more follows.
fn ask(client: &Arc<ClientConfig>, port: u16) -> (HandshakeKind, String) {
    let (tls, body) = asked(client, port);
    (tls.handshake_kind().unwrap(), body)
}

/// The same with the whole connection.
fn asked(client: &Arc<ClientConfig>, port: u16) -> (ClientConnection, String) {
    let name = ServerName::try_from("a.example").unwrap();
    let mut tls = ClientConnection::new(client.clone(), name).unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    (tls, body.to_owned())
}

fn kind(client: &Arc<ClientConfig>, port: u16) -> HandshakeKind {
    ask(client, port).0
}

/// A site with the certificates `one`, `two` and `three` and their keys, and a file for tickets.
fn site(driver: Driver, workers: usize, http: &str) -> Weir {
    let mut site = Site::new(built_binary(), driver).file("conf/tickets", [7; 80]);
    for name in ["one", "two", "three"] {
        let pair = Pair::own(KeyKind::P256, "a.example");
        site = site.file(&format!("conf/{name}.pem"), pair.pem());
        site = site.file(&format!("conf/{name}.key"), pair.key.pem());
    }
    let config = format!(
        "worker_processes {workers};\nevents {{}}\nhttp {{\n\
         ssl_certificate one.pem; ssl_certificate_key one.key;\n{http}\n}}\n"
    );
    site.config(&config).start()
}

#[test]
fn every_worker_resumes_and_so_does_the_next_configuration() {
    each_driver(|driver| {
        let weir = site(
            driver,
            2,
            "server {
                listen 127.0.0.1:%PORT0% ssl;
                return 200 $pid;
            }
            server {
                listen 127.0.0.1:%PORT1% ssl;
                ssl_session_ticket_key tickets;
                return 200 $pid;
            }
            server {
                listen 127.0.0.1:%PORT2% ssl;
                ssl_session_tickets off;
                ssl_session_cache shared:sessions:1m;
                return 200 $pid;
            }
            server {
                listen 127.0.0.1:%PORT3% ssl;
                ssl_session_cache shared:sessions:1m;
                return 200 $pid;
            }",
        );
        let clients: Vec<_> =
            (0..4).flat_map(|n| BOTH.map(|version| (n, weir.port(n), client(version)))).collect();
        for (n, port, client) in &clients {
            assert_eq!(kind(client, *port), Full, "server {n}");
        }
        for generation in 0..3 {
            for (n, port, client) in &clients {
                let mut workers = HashSet::new();
                for _ in 0..500 {
                    let (kind, pid) = ask(client, *port);
                    assert_eq!(kind, Resumed, "server {n}, generation {generation}");
                    workers.insert(pid);
                    if workers.len() == 2 {
                        break;
                    }
                }
                assert_eq!(workers.len(), 2, "server {n}, generation {generation}");
            }
            weir.reload();
        }
    });
}

#[test]
fn a_session_of_one_server_is_resumed_by_no_other() {
    each_driver(|driver| {
        // All with the same keys and the same zone.
        for sessions in [
            "",
            "ssl_session_ticket_key tickets;",
            "ssl_session_tickets off; ssl_session_cache shared:sessions:1m;",
        ] {
            let server = |n: usize, own: &str| {
                format!(
                    "server {{ listen 127.0.0.1:%PORT{n}% ssl; {sessions} {own} return 200 x; }}\n"
                )
            };
            let others = [
                "ssl_certificate two.pem; ssl_certificate_key two.key;",
                "ssl_verify_client optional; ssl_client_certificate two.pem;",
                "ssl_verify_client optional; ssl_client_certificate three.pem;",
                "ssl_verify_client optional; ssl_client_certificate two.pem; ssl_verify_depth 3;",
                "ssl_verify_client optional_no_ca; ssl_client_certificate two.pem;",
            ];
            let mut http = server(0, "") + &server(1, "");
            for (n, own) in others.iter().enumerate() {
                http.push_str(&server(n + 2, own));
            }
            let weir = site(driver, 1, &http);
            for version in BOTH {
                let alike = client(version);
                assert_eq!(kind(&alike, weir.port(0)), Full);
                assert_eq!(kind(&alike, weir.port(1)), Resumed, "{sessions}");
                for from in 0..others.len() + 2 {
                    for to in (2..others.len() + 2).filter(|to| *to != from) {
                        let client = client(version);
                        assert_eq!(kind(&client, weir.port(from)), Full);
                        let kind = kind(&client, weir.port(to));
                        assert_eq!(kind, Full, "{sessions} from {from} to {to}");
                    }
                }
            }
        }
    });
}

#[test]
fn sessions_end_with_their_time() {
    each_driver(|driver| {
        let weir = site(
            driver,
            1,
            "ssl_session_timeout 0;
            server { listen 127.0.0.1:%PORT0% ssl; return 200 x; }
            server {
                listen 127.0.0.1:%PORT1% ssl;
                ssl_session_tickets off;
                ssl_session_cache shared:sessions:1m;
                return 200 x;
            }
            server {
                listen 127.0.0.1:%PORT2% ssl;
                ssl_session_tickets off;
                ssl_session_timeout 1h;
                return 200 x;
            }",
        );
        for version in BOTH {
            for n in 0..3 {
                let client = client(version);
                let kinds = [0; 3].map(|_| kind(&client, weir.port(n)));
                assert_eq!(kinds, [Full; 3], "server {n}");
            }
        }
    });
}

/// A store that notes the lifetimes of sessions, which the library tells by the debug form alone.
#[derive(Debug, Default)]
struct Lifetimes(Mutex<Vec<String>>);

impl Lifetimes {
    fn note(&self, session: &impl std::fmt::Debug) {
        let text = format!("{session:?}");
        let lifetime = text.split("lifetime_secs: ").nth(1).and_then(|rest| rest.split(',').next());
        self.0.lock().unwrap().push(lifetime.unwrap().to_owned());
    }
}

impl ClientSessionStore for Lifetimes {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.note(&session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.note(&session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

#[test]
fn clients_are_told_how_long_sessions_last() {
    each_driver(|driver| {
        let server = |port: usize, rest: &str| {
            format!("server {{ listen 127.0.0.1:%PORT{port}% ssl; {rest} return 200 x; }}\n")
        };
        let kept = "ssl_session_tickets off; ssl_session_cache";
        let servers = [
            server(0, ""),
            server(1, "ssl_session_timeout 77s;"),
            server(2, &format!("{kept} shared:s:1m;")),
            server(3, &format!("{kept} shared:s:1m; ssl_session_timeout 77s;")),
            server(4, &format!("{kept} builtin; ssl_session_timeout 77s;")),
            server(5, &format!("{kept} shared:s:1m; ssl_session_timeout 30d;")),
            server(6, &format!("{kept} none;")),
        ];
        let weir = site(driver, 1, &servers.concat());
        let told = |version, port| {
            let store = Arc::new(Lifetimes::default());
            let mut config = (*client(version)).clone();
            config.resumption = Resumption::store(store.clone());
            ask(&Arc::new(config), weir.port(port));
            store.0.lock().unwrap().clone()
        };
        for (port, lifetime) in [(0, "300"), (1, "77"), (2, "300"), (3, "77"), (4, "77")] {
            assert_eq!(told(&TLS13, port), [lifetime; 2], "server {port}");
        }
        assert_eq!(told(&TLS13, 5), ["604800"; 2], "the longest of TLS 1.3");
        assert!(told(&TLS13, 6).is_empty());
        assert_eq!((told(&TLS12, 0), told(&TLS12, 1)), (vec!["300".into()], vec!["77".into()]));
    });
}

#[test]
fn a_resumed_session_gets_one_ticket() {
    each_driver(|driver| {
        let weir = site(
            driver,
            1,
            "server { listen 127.0.0.1:%PORT0% ssl; return 200 x; }
            server {
                listen 127.0.0.1:%PORT1% ssl;
                ssl_session_tickets off;
                ssl_session_cache shared:sessions:1m;
                return 200 x;
            }
            server {
                listen 127.0.0.1:%PORT2% ssl;
                ssl_conf_command NumTickets 4;
                return 200 x;
            }",
        );
        for (n, tickets) in [(0, 2), (1, 2), (2, 4)] {
            let client = client(&TLS13);
            for expected in [(Full, tickets), (Resumed, 1), (Resumed, 1)] {
                let (tls, _) = asked(&client, weir.port(n));
                let met = (tls.handshake_kind().unwrap(), tls.tls13_tickets_received());
                assert_eq!(met, expected, "server {n}");
            }
        }
    });
}

/// A client sends early data to a server of the name whose ticket it has, and meets another one,
/// which passes over the data and does the handshake.
#[test]
fn early_data_for_another_server_is_passed_over() {
    each_driver(|driver| {
        let server = |port: usize, name: &str, rest: &str| {
            format!(
                "server {{ listen 127.0.0.1:%PORT{port}% ssl; {rest} ssl_certificate {name}.pem;
                ssl_certificate_key {name}.key; location / {{ return 200 {name}; }} }}\n"
            )
        };
        let weir = site(
            driver,
            1,
            &(server(0, "one", "ssl_session_cache shared:s:1m; ssl_early_data on;")
                + &server(1, "two", "")
                + &server(2, "three", "ssl_session_cache shared:t:1m; ssl_early_data on;")),
        );
        let mut config = (*client(&TLS13)).clone();
        config.enable_early_data = true;
        let client = Arc::new(config);
        // With and without the end of the data in the hello's segment.
        let others = [(1, "two"), (2, "three")];
        for (len, (port, other)) in [100, 16_384].into_iter().flat_map(|n| others.map(|o| (n, o))) {
            assert_eq!(ask(&client, weir.port(0)).1, "one");
            let name = ServerName::try_from("a.example").unwrap();
            let mut tls = ClientConnection::new(client.clone(), name).unwrap();
            let early = vec![b'x'; len];
            assert_eq!(tls.early_data().expect("a ticket").write(&early).unwrap(), len);
            let mut socket = TcpStream::connect(("127.0.0.1", weir.port(port))).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with(&format!("\r\n\r\n{other}")), "{answer}");
            assert!(!tls.is_early_data_accepted());
        }
    });
}
