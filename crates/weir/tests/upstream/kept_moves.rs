//! Idle connections to servers go to the new workers at a reload and at a change of the binary.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{
    Conn, Daemon, Driver, Json, Site, Weir, built_binary, each_driver, is_alive, listener, signal,
    wait_until,
};

/// A server that answers with the number of the connection and the requests on it.
struct Server {
    port: u16,
    open: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Server {
        let (listener, port) = listener();
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        std::thread::spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                let (stream, open) = (stream.expect("a connection"), counted.clone());
                open.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    serve(stream, number);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Server { port, open }
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, number: usize) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    let mut requests = 0;
    while let Ok(1) = stream.read(&mut byte) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        requests += 1;
        head.clear();
        let body = format!("{number} {requests}");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// One worker, so that it has all connections.
fn config(servers: &[&Server], in_upstream: &str) -> String {
    let line = |server: &&Server| format!("server 127.0.0.1:{};", server.port);
    let servers: String = servers.iter().map(line).collect();
    format!(
        "worker_processes 1; pid logs/weir.pid; error_log logs/error.log info; events {{}}
         http {{ access_log off;
             upstream behind {{ {servers} {in_upstream} }}
             server {{ listen 127.0.0.1:%PORT0%;
                 location /a {{ proxy_pass http://behind; }}
                 location /b {{ proxy_pass http://behind; }}
                 location = /status {{ stub_status json; }} }} }}"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    Site::new(built_binary(), driver).config(text).start()
}

fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

fn of_status(weir: &Weir, what: &str) -> u64 {
    Json::parse(&weir.get("/status").text()).number(&format!("handover.upstream.{what}"))
}

#[test]
fn idle_connections_to_servers_outlive_their_workers() {
    each_driver(|driver| {
        let server = Server::start();
        let weir = start(driver, &config(&[&server], ""));
        for round in 1..=4 {
            // By default a connection belongs to its location.
            weir.gives(&[("/a", &format!("1 {round}")), ("/b", &format!("2 {round}"))]);
            reload(&weir);
        }
        wait_until("the last receiver", || of_status(&weir, "received") == 2 * 4);
        assert_eq!((of_status(&weir, "sent"), of_status(&weir, "moved")), (2 * 4, 2));
        assert_eq!(server.open(), 2);
    });
}

#[test]
fn shared_connections_outlive_the_queue_they_are_in() {
    each_driver(|driver| {
        let server = Server::start();
        let weir = start(driver, &config(&[&server], "keepalive 8 shared;"));
        // Two at a time: one stays with the worker, the other one is for all of them.
        let two = || {
            let mut both = [weir.connect(), weir.connect()];
            both.iter_mut().for_each(|c| c.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n"));
            both.map(|mut c| c.response().text())
        };
        let mut most = 0;
        for _ in 0..4 {
            two();
            most = most.max(server.open());
            reload(&weir);
        }
        let used = two().map(|text| text.split(' ').next().unwrap().parse::<usize>().unwrap());
        assert!(used.iter().all(|number| *number <= most), "{used:?} of {most}");
        assert!(server.open() <= 2, "{}", server.open());
    });
}

#[test]
fn a_new_binary_has_them_too() {
    let server = Server::start();
    let text = config(&[&server], "keepalive_requests 4;");
    let daemon = Daemon::start(Site::new(built_binary(), Driver::usual()).config(&text));
    let get = || {
        let mut conn = Conn::tcp(daemon.port(0));
        conn.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        conn.response().text()
    };
    assert_eq!(get(), "1 1");
    for requests in 2..=3 {
        let (old, _) = daemon.upgrade();
        wait_until("the new worker", || {
            daemon.log().matches("start worker process").count() >= requests
        });
        signal(old, "QUIT");
        wait_until("the old binary's end", || !is_alive(old));
        assert_eq!(get(), format!("1 {requests}"));
    }
    // Its requests are counted over all binaries.
    assert_eq!([get(), get()], ["1 4", "2 1"]);
}

#[test]
fn a_connection_without_a_place_is_closed() {
    each_driver(|driver| {
        let (one, other) = (Server::start(), Server::start());
        let mut weir = start(driver, &config(&[&one], ""));
        weir.gives(&[("/a", "1 1")]);
        // The new configuration has another server in the same group.
        weir.set_config(&config(&[&other], ""));
        reload(&weir);
        wait_until("its end", || one.open() == 0);
        assert_eq!(of_status(&weir, "stayed.configuration"), 1);
        weir.gives(&[("/a", "1 1")]);
        // The same server under another address of our own.
        let bound =
            config(&[&other], "").replace("location /a {", "location /a { proxy_bind 127.0.0.1;");
        weir.set_config(&bound);
        reload(&weir);
        weir.gives(&[("/a", "2 1")]);
        // Without a pool nobody keeps it.
        weir.set_config(&config(&[&other], "keepalive 0;"));
        reload(&weir);
        wait_until("the end of both", || other.open() == 0);
    });
}

#[test]
fn another_server_does_not_get_them() {
    each_driver(|driver| {
        let server = Server::start();
        let config = |names: &[&str]| {
            let server_of = |name: &&str| {
                format!(
                    "server {{ listen 127.0.0.1:%PORT0%; server_name {name};
                         location / {{ proxy_pass http://behind; }}
                         location = /status {{ stub_status json; }} }}"
                )
            };
            let servers: String = names.iter().map(server_of).collect();
            format!(
                "worker_processes 1; pid logs/weir.pid; error_log logs/error.log info; events {{}}
                 http {{ access_log off; upstream behind {{ server 127.0.0.1:{}; }} {servers} }}",
                server.port
            )
        };
        let mut weir = start(driver, &config(&["old"]));
        let get = |weir: &Weir, host: &str| {
            let mut conn = weir.connect();
            conn.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
            conn.response().text()
        };
        assert_eq!(get(&weir, "old"), "1 1");
        // Locations of the same name now stand before and behind that of the connection.
        weir.set_config(&config(&["before", "old", "behind"]));
        reload(&weir);
        wait_until("the receiver", || of_status(&weir, "received") == 1);
        assert_eq!(get(&weir, "before"), "2 1");
        assert_eq!(get(&weir, "behind"), "3 1");
        assert_eq!(get(&weir, "old"), "1 2");
        // The server is gone, and its connection with it.
        weir.set_config(&config(&["before", "behind"]));
        reload(&weir);
        wait_until("the end of one", || server.open() == 2);
        assert_eq!(get(&weir, "behind"), "3 2");
        assert_eq!(of_status(&weir, "stayed.configuration"), 1);
    });
}

#[test]
fn a_pool_without_room_refuses_them() {
    each_driver(|driver| {
        let server = Server::start();
        let mut weir = start(driver, &config(&[&server], ""));
        weir.gives(&[("/a", "1 1"), ("/b", "2 1")]);
        weir.set_config(&config(&[&server], "keepalive 1;"));
        reload(&weir);
        wait_until("the end of one", || server.open() == 1);
        let counts = ["sent", "moved", "received", "stayed.receiver"];
        assert_eq!(counts.map(|what| of_status(&weir, what)), [1; 4]);
    });
}
