//! Idle connections of HTTP/1 move to the new workers, too: no client sees the end of a connection
//! that it is about to use.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::BINARY;
use testkit::{
    Conn, Daemon, Driver, Json, Site, Weir, each_driver, is_alive, on_all_drivers, signal,
    wait_until,
};

/// Each response tells the connection's facts.
const FACTS: &str = "$connection $connection_requests $remote_addr $proxy_protocol_addr $uri";

fn config(more: &str, in_server: &str) -> String {
    format!(
        "worker_processes 2;\npid logs/weir.pid;\nerror_log logs/error.log info;\nevents {{}}\n\
         http {{ access_log logs/access.log; {more}\n\
         server {{ listen 127.0.0.1:%PORT0%; {in_server}\n\
         location / {{ return 200 \"{FACTS}\"; }}\n\
         location = /status {{ stub_status json; access_log off; }}\n\
         }}\n}}\n"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    Site::new(BINARY, driver).config(text).start()
}

fn status(weir: &Weir) -> Json {
    Json::parse(&weir.get("/status").text())
}

/// Reloads, and waits until the old workers have ended although the connections have not.
fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

fn ask(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// A response over a connection that goes on; its facts.
fn kept(conn: &mut Conn) -> Vec<String> {
    let response = conn.response();
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("connection"), Some("keep-alive"));
    response.text().split(' ').map(str::to_owned).collect()
}

#[test]
fn idle_connections_outlive_their_workers() {
    on_all_drivers(|driver| {
        let weir = start(driver, &config("", ""));
        // Some have sent nothing yet.
        let mut all: Vec<(Conn, String, usize)> =
            (0..6).map(|_| (weir.connect(), String::new(), 0)).collect();
        wait_until("all", || status(&weir).number("connections.active") == 7);
        for round in 0..4 {
            for (conn, number, requests) in all.iter_mut().skip(2 * usize::from(round == 0)) {
                conn.send(ask("/x"));
                *requests += 1;
                let facts = kept(conn);
                if number.is_empty() {
                    number.clone_from(&facts[0]);
                }
                assert_eq!(facts, [number.as_str(), &requests.to_string(), "127.0.0.1", "", "/x"]);
            }
            reload(&weir);
        }
        wait_until("the last receiver", || {
            let now = status(&weir);
            let of = |what: &str| now.number(&format!("handover.idle.{what}"));
            of("moved") == 6 && of("sent") >= 4 * 6 && of("sent") == of("received")
        });
        wait_until("the ends of others", || status(&weir).number("connections.active") == 7);
        // No connection was accepted twice: those that asked for the status were others.
        let now = status(&weir);
        let requests: usize = all.iter().map(|(_, _, requests)| requests).sum();
        assert_eq!(
            now.number("requests") - requests as u64,
            now.number("connections.accepted") - 6
        );
    });
}

#[test]
fn requests_of_one_connection_are_answered_over_reloads_and_an_upgrade() {
    each_driver(|driver| {
        let daemon = Daemon::start(Site::new(BINARY, driver).config(&config("", "")));
        let port = daemon.port(0);
        let (stop, reconnects) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (stop, reconnects) = (&stop, &reconnects);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|i| {
                    scope.spawn(move || {
                        let (mut conn, mut done) = (Conn::tcp(port), 0);
                        while !stop.load(Ordering::Relaxed) {
                            // Several at once: some wait in a buffer while the connection moves.
                            let paths: Vec<String> =
                                (0..1 + done % 4).map(|n| format!("/{i}/{done}/{n}")).collect();
                            conn.send(paths.iter().map(|path| ask(path)).collect::<String>());
                            for path in &paths {
                                let response = conn.response();
                                assert_eq!(response.status, 200);
                                assert!(response.text().ends_with(&format!(" {path}")));
                                // Until a receiver has answered, a response is the last one.
                                if response.header("connection") == Some("close") {
                                    reconnects.fetch_add(1, Ordering::Relaxed);
                                    conn = Conn::tcp(port);
                                    break;
                                }
                            }
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            let children = |pid: u32| {
                let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
                let list = list.unwrap_or_default();
                list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
            };
            let reload = |master: u32| {
                let old = children(master);
                signal(master, "HUP");
                wait_until("the old workers' end", || {
                    let now = children(master);
                    !now.is_empty() && now.iter().all(|pid| !old.contains(pid))
                });
            };
            (0..4).for_each(|_| reload(daemon.pid()));
            let (old, new) = daemon.upgrade();
            wait_until("the new workers", || !children(new).is_empty());
            signal(old, "QUIT");
            wait_until("the old binary's end", || !is_alive(old));
            reload(new);
            stop.store(true, Ordering::Relaxed);
            let all: Vec<usize> = clients.into_iter().map(|c| c.join().expect("all")).collect();
            assert!(all.iter().all(|done| *done > 0), "{all:?}");
        });
    });
}

/// The connection moves behind the response to a request that has begun.
#[test]
fn a_connection_moves_when_its_request_is_answered() {
    each_driver(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let slow = format!("location /slow {{ proxy_pass http://127.0.0.1:{port}; }}");
        let text = config("", &slow).replace("worker_processes 2", "worker_processes 1");
        let weir = start(driver, &text);
        let old = weir.workers();
        let mut idle = weir.connect();
        idle.send(ask("/"));
        kept(&mut idle);
        let mut waits = weir.connect();
        waits.send(ask("/slow"));
        let (mut server, _) = listener.accept().unwrap();
        let mut partial = weir.connect();
        partial.send("GET /later HT");
        wait_until("the part", || status(&weir).number("connections.reading") == 1);
        weir.reload();
        wait_until("a receiver", || status(&weir).number("handover.idle.moved") == 1);
        server.read_exact(&mut [0]).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        server.write_all(answer.as_bytes()).unwrap();
        partial.send("TP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(kept(&mut waits), ["ok"]);
        assert_eq!(kept(&mut partial)[4], "/later");
        weir.wait_until_left(&old);
        for conn in [&mut waits, &mut partial] {
            conn.send(ask("/next"));
            assert_eq!(kept(conn)[1], "2");
        }
    });
}

#[test]
fn limits_of_a_connection_go_on_behind_a_move() {
    each_driver(|driver| {
        let weir = start(driver, &config("keepalive_requests 3;", ""));
        let mut conn = weir.connect();
        for number in ["1", "2"] {
            conn.send(ask("/"));
            assert_eq!(kept(&mut conn)[1], number);
            reload(&weir);
        }
        conn.send(ask("/"));
        let last = conn.response();
        assert_eq!(last.header("connection"), Some("close"), "the third of three");
        assert!(conn.is_closed());
    });
    // Seconds that have passed before the move count.
    let weir = start(Driver::usual(), &config("keepalive_timeout 3s;", ""));
    let mut conn = weir.connect();
    conn.send(ask("/"));
    kept(&mut conn);
    reload(&weir);
    assert!(conn.is_closed(), "nothing comes: it is closed in the new worker");
}

#[test]
fn facts_of_the_proxy_protocol_move_along() {
    each_driver(|driver| {
        let text = config("", "real_ip_header proxy_protocol; set_real_ip_from 127.0.0.1;");
        let text = text.replace("%PORT0%;", "%PORT0%; listen 127.0.0.1:%PORT1% proxy_protocol;");
        let weir = start(driver, &text);
        let mut conn = Conn::tcp(weir.port(1));
        conn.send("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n");
        for number in ["1", "2", "3"] {
            conn.send(ask("/"));
            assert_eq!(kept(&mut conn)[1..4], [number, "192.0.2.7", "192.0.2.7"]);
            reload(&weir);
        }
    });
}

#[test]
fn connections_over_unix_sockets_move() {
    each_driver(|driver| {
        let text = config("", "").replace("%PORT0%;", "%PORT0%; listen unix:%PREFIX%/logs/a.sock;");
        let weir = start(driver, &text);
        let mut conn = Conn::unix(&weir.prefix().join("logs/a.sock"));
        for number in ["1", "2"] {
            conn.send(ask("/"));
            assert_eq!(kept(&mut conn)[1..3], [number, "unix:"]);
            reload(&weir);
        }
    });
}

/// A configuration that does not want them closes them as before, after two seconds.
#[test]
fn an_idle_connection_stays_where_it_cannot_move() {
    let before = config("", "");
    let off = before.replace("listen", "handover off; listen");
    for (after, first) in [(&off, &before), (&before, &off)] {
        let mut weir = start(Driver::usual(), first);
        let mut conn = weir.connect();
        conn.send(ask("/"));
        kept(&mut conn);
        let old = weir.workers();
        weir.set_config(after);
        weir.reload();
        wait_until("the decision", || status(&weir).number("handover.idle.stayed.off") == 1);
        // A request that was on its way is answered as the last one.
        conn.send(ask("/last"));
        let last = conn.response();
        assert_eq!((last.status, last.header("connection")), (200, Some("close")));
        assert!(conn.is_closed());
        weir.wait_until_left(&old);
    }
}

/// Connections that came from other workers are shed like those that were accepted here.
#[test]
fn moved_connections_make_room() {
    each_driver(|driver| {
        let text = config("", "").replace("worker_processes 2", "worker_processes 1");
        let text = text.replace("events {}", "events { worker_connections 32; }");
        let weir = start(driver, &text);
        let mut old: Vec<Conn> = (0..10).map(|_| weir.connect()).collect();
        for conn in &mut old {
            conn.send(ask("/old"));
            kept(conn);
        }
        reload(&weir);
        let mut new: Vec<Conn> = Vec::new();
        for _ in 0..40 {
            let mut conn = weir.connect();
            conn.send(ask("/new"));
            assert_eq!(conn.response().status, 200);
            new.push(conn);
        }
        assert!(old.iter_mut().all(Conn::is_closed), "the longest idle ones have made room");
    });
}

/// The echo of a tunnel by hand.
fn tunnel(listener: &TcpListener) -> TcpStream {
    let (mut server, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let answer = "HTTP/1.1 101 X\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
    server.write_all(answer.as_bytes()).unwrap();
    server
}

const UPGRADE: &str = "GET /t HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// A server behind `/t`, in a zone of the status.
fn with_tunnels(listener: &TcpListener) -> String {
    let port = listener.local_addr().unwrap().port();
    config(
        "",
        &format!(
            "status_zone z; location /api {{ api; access_log off; }}\n\
             location /t {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1;\n\
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection Upgrade; }}"
        ),
    )
}

#[test]
fn a_tunnel_of_a_client_without_a_name_moves() {
    each_driver(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = with_tunnels(&listener)
            .replace("%PORT0%;", "%PORT0%; listen unix:%PREFIX%/logs/a.sock;");
        let weir = start(driver, &text);
        let mut client = UnixStream::connect(weir.prefix().join("logs/a.sock")).unwrap();
        client.write_all(UPGRADE.as_bytes()).unwrap();
        let mut server = tunnel(&listener);
        reload(&weir);
        server.write_all(b"down").unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"down") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            got.push(byte[0]);
        }
        client.write_all(b"up").unwrap();
        let mut up = [0; 2];
        server.read_exact(&mut up).unwrap();
        assert_eq!(&up, b"up");
    });
}

/// What modules have begun for a request ends in its old worker, and goes on in the new one.
#[test]
fn a_request_that_moves_counts_once_in_its_zone() {
    each_driver(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let weir = start(driver, &with_tunnels(&listener));
        let mut client = weir.connect();
        client.send(UPGRADE);
        let _server = tunnel(&listener);
        client.read_until(b"\r\n\r\n");
        let zone = |what: &str| {
            let all = Json::parse(&weir.get("/api/9/http/server_zones").text());
            all.number(&format!("z.{what}"))
        };
        for _ in 0..3 {
            reload(&weir);
            // The question itself is in progress.
            wait_until("its place", || zone("processing") == 2);
        }
        let before = zone("responses.1xx");
        drop(client);
        wait_until("its end", || zone("processing") == 1);
        assert_eq!((before, zone("responses.1xx")), (0, 1));
    });
}

/// The place among the connections of a limit of `stream` is held until the tunnel ends.
#[test]
fn a_tunnel_that_stream_has_passed_on_keeps_its_place() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = with_tunnels(&listener);
    let stream = "stream { limit_conn_zone $server_port zone=s:64k; server { \
                  listen 127.0.0.1:%PORT1%; limit_conn s 1; pass 127.0.0.1:%PORT0%; } }\n";
    let weir = start(Driver::usual(), &format!("{text}{stream}"));
    let mut client = Conn::tcp(weir.port(1));
    client.send(UPGRADE);
    let mut server = tunnel(&listener);
    client.read_until(b"\r\n\r\n");
    weir.reload();
    wait_until("the decision", || status(&weir).number("handover.tunnels.stayed.state") == 1);
    assert!(Conn::tcp(weir.port(1)).is_closed(), "its place is taken");
    server.write_all(b"on").unwrap();
    assert_eq!(client.read_exact(2), b"on");
    drop((client, server));
    wait_until("a free place", || {
        let mut conn = Conn::tcp(weir.port(1));
        conn.try_send(ask("/free")).is_ok() && conn.read_some().is_ok_and(|some| !some.is_empty())
    });
}

/// Workers that hang take nothing, and nothing is lost by that.
#[test]
fn receivers_that_hang_lose_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let daemon = Daemon::start(Site::new(BINARY, Driver::usual()).config(&with_tunnels(&listener)));
    let mut client = Conn::tcp(daemon.port(0));
    client.send(UPGRADE);
    let mut server = tunnel(&listener);
    client.read_until(b"\r\n\r\n");
    let mut echo = |text: &str| {
        server.write_all(text.as_bytes()).unwrap();
        assert_eq!(client.read_exact(text.len()), text.as_bytes());
    };
    let (old, new) = daemon.upgrade();
    let children = |pid: u32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>()
    };
    wait_until("the new workers", || children(new).len() == 2);
    let stopped = children(new);
    stopped.iter().for_each(|pid| signal(*pid, "STOP"));
    signal(old, "QUIT");
    wait_until("the leave", || daemon.log().contains("gracefully shutting down"));
    echo("while nobody takes it");
    stopped.iter().for_each(|pid| signal(*pid, "CONT"));
    wait_until("the old binary's end", || !is_alive(old));
    echo("in the new binary");
}
