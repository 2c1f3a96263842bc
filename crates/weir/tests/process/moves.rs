//! Live connections move to the new workers at a reload and at an upgrade, so that old workers end
//! at once and no client notices.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::common::{BINARY, nice, stop};
use testkit::wait_until;
use testkit::{Conn, Daemon, Driver, Json, Site, Weir, is_alive, on_all_drivers, pattern, signal};

/// A server that opens a tunnel with each connection and sends back what it gets. After its
/// client's end it sends `end` and closes.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut buf = vec![0; 16 << 10];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buf[..1]) {
            Ok(1) => head.push(buf[0]),
            _ => return,
        }
    }
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\
                  X-Server: echo\r\n\r\n";
    let _ = stream.write_all(answer.as_bytes());
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
    let _ = stream.write_all(b"end");
}

const UPGRADE: &str = "Host: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

/// Opens a tunnel.
fn open(port: u16, path: &str) -> Conn {
    let mut conn = Conn::tcp(port);
    conn.send(format!("GET {path} HTTP/1.1\r\n{UPGRADE}"));
    let head = conn.read_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    conn
}

/// The configuration: an echo server behind `/`, two workers.
fn config(backend: u16, more: &str, in_server: &str) -> String {
    format!(
        "worker_processes 2;\npid logs/weir.pid;\nerror_log logs/error.log info;\nevents {{}}\n\
         http {{\n\
         log_format facts '$request_uri $status $bytes_sent $body_bytes_sent $connection_requests \
         $remote_addr $upstream_addr $upstream_status $upstream_http_x_server $request_id $mine \
         $upstream_bytes_sent $upstream_bytes_received $request_time';\n\
         access_log logs/access.log facts;\n\
         limit_conn_zone $server_port zone=c:64k;\n\
         map $arg_x $mine {{ default none; ~. \"x-$arg_x\"; }}\n\
         upstream group {{ server 127.0.0.1:{backend} max_conns=100; zone group 64k; }}\n{more}\n\
         server {{ listen 127.0.0.1:%PORT0%; {in_server}\n\
         location / {{ limit_conn c 8; proxy_pass http://group; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection Upgrade; }}\n\
         location = /status {{ stub_status json; access_log off; }}\n\
         location = /free {{ return 204; access_log off; }}\n\
         }}\n}}\n"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    Site::new(BINARY, driver).config(text).start()
}

fn status(weir: &Weir) -> Json {
    Json::parse(&weir.get("/status").text())
}

/// Waits until all that was given up is served.
fn settled(kind: &str, status: impl Fn() -> Json) {
    wait_until("the last receiver", || {
        let now = status();
        let count = |what: &str| now.number(&format!("handover.{kind}.{what}"));
        count("sent") == count("received")
    });
}

/// Waits until so many tunnels have moved in the present binary, each of them twice at least.
fn settled_at(port: u16, count: u64) {
    wait_until("all tunnels behind two moves", || {
        let mut conn = Conn::tcp(port);
        conn.send("GET /status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let now = Json::parse(&conn.response().text());
        let of = |what: &str| now.number(&format!("handover.tunnels.{what}"));
        of("moved") == count && of("received") >= 2 * count
    });
}

/// Reloads, and waits until the old workers have ended although their tunnels have not.
fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

#[test]
fn tunnels_outlive_their_workers() {
    on_all_drivers(|driver| {
        let backend = echo();
        let weir = start(driver, &config(backend, "", ""));
        let count = 8;
        let mut all: Vec<Conn> =
            (0..count).map(|i| open(weir.port(0), &format!("/t{i}?x={i}"))).collect();
        let opened = Instant::now();
        let mut sent = vec![0usize; count];
        for round in 0..5 {
            // Some messages are on their way while the tunnel moves.
            for (i, conn) in all.iter_mut().enumerate() {
                let message = pattern(1 + 3_000 * i, round);
                conn.send(&message);
                sent[i] += message.len();
                if round % 2 == 0 {
                    assert_eq!(conn.read_exact(message.len()), message);
                }
            }
            reload(&weir);
            for (i, conn) in all.iter_mut().enumerate() {
                if round % 2 != 0 {
                    let message = pattern(1 + 3_000 * i, round);
                    assert_eq!(conn.read_exact(message.len()), message);
                }
            }
        }
        settled("tunnels", || status(&weir));
        let now = status(&weir);
        // One that has not yet heard that it is to leave takes some, too.
        let sent_on = now.number("handover.tunnels.sent");
        assert!(sent_on >= 5 * count as u64, "{sent_on}");
        assert_eq!(now.number("handover.tunnels.moved"), count as u64);
        // The request for the status and the tunnels; no process has counted one twice. (The
        // others asked for the status.)
        wait_until("the ends of those", || {
            status(&weir).number("connections.active") == 1 + count as u64
        });
        let others = now.number("connections.accepted") - count as u64;
        assert_eq!(now.number("requests"), others + count as u64);
        // Each holds its place among those of its limit.
        let mut refused = Conn::tcp(weir.port(0));
        refused.send(format!("GET /refused HTTP/1.1\r\n{UPGRADE}"));
        assert_eq!(refused.response().status, 503);
        let lasted = opened.elapsed().as_secs_f64();
        let mut last = all.pop().unwrap();
        last.send("bye");
        assert_eq!(last.read_exact(3), b"bye");
        drop(last);
        wait_until("a free place", || {
            let mut conn = Conn::tcp(weir.port(0));
            conn.send(format!("GET /again HTTP/1.1\r\n{UPGRADE}"));
            conn.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 ")
        });
        drop(all);
        let log = weir.wait_for_count("access.log", " 101 ", count + 1);
        for (i, sent) in sent.iter().enumerate() {
            let lines: Vec<&str> =
                log.lines().filter(|l| l.starts_with(&format!("/t{i}?"))).collect();
            let [line] = lines[..] else { panic!("one line for each: {lines:?}") };
            let fields: Vec<&str> = line.split(' ').collect();
            let bytes = *sent as u64 + if i == count - 1 { 3 } else { 0 };
            let head = fields[2].parse::<u64>().unwrap() - fields[3].parse::<u64>().unwrap();
            assert!(head > 90, "the head is counted apart: {line}");
            assert_eq!(fields[3], bytes.to_string(), "{line}");
            assert_eq!(fields[4], "1", "{line}");
            assert_eq!(fields[5], "127.0.0.1", "{line}");
            assert_eq!(fields[6], format!("127.0.0.1:{backend}"), "{line}");
            assert_eq!(fields[7..9], ["101", "echo"], "{line}");
            assert_eq!(fields[9].len(), 32, "{line}");
            assert_eq!(fields[10], format!("x-{i}"), "{line}");
            // The whole time, over all processes; clocks are read once a turn.
            assert!(fields[13].parse::<f64>().unwrap() > lasted - 0.1, "{lasted} {line}");
        }
    });
}

/// Sends numbered messages through a tunnel and compares what comes back, until it is to stop.
struct Chatter {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Chatter {
    fn start(tunnels: Vec<Conn>) -> Chatter {
        let stop = Arc::new(AtomicBool::new(false));
        let chat = |(i, mut conn): (usize, Conn)| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let len = 1 + (n as usize * 7919 + i) % 20_000;
                    let mut message = n.to_be_bytes().to_vec();
                    message.extend_from_slice(&pattern(len, n as usize));
                    conn.send(&message);
                    assert_eq!(conn.read_exact(message.len()), message, "message {n} of {i}");
                    n += 1;
                }
                n
            })
        };
        let threads = tunnels.into_iter().enumerate().map(chat).collect();
        Chatter { stop, threads }
    }

    /// The messages of each tunnel. Every one came back.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("no byte is lost")).collect()
    }
}

#[test]
fn no_message_is_lost_over_reloads_and_an_upgrade() {
    on_all_drivers(|driver| {
        let text = config(echo(), "", "");
        let daemon = Daemon::start(Site::new(BINARY, driver).config(&text));
        let tunnels = (0..6).map(|i| open(daemon.port(0), &format!("/{i}"))).collect();
        let chatter = Chatter::start(tunnels);
        let children = |pid: u32| {
            let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let list = list.unwrap_or_default();
            list.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()).collect::<Vec<_>>()
        };
        let reload = |master: u32| {
            let old = children(master);
            signal(master, "HUP");
            wait_until("the old workers' end", || {
                let now = children(master);
                !now.is_empty() && now.iter().all(|pid| !old.contains(pid))
            });
        };
        for _ in 0..4 {
            reload(daemon.pid());
        }
        for _ in 0..2 {
            let (old, new) = daemon.upgrade();
            wait_until("the new workers", || !children(new).is_empty());
            signal(old, "QUIT");
            wait_until("the old binary's end", || !is_alive(old));
            reload(new);
            // They came from the old binary, and from the workers before the reload.
            settled_at(daemon.port(0), 6);
        }
        let counts = chatter.end();
        assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
    });
}

#[test]
fn an_upgrade_that_is_undone_brings_the_tunnels_back() {
    let text = config(echo(), "", "");
    let daemon = Daemon::start(Site::new(BINARY, Driver::usual()).config(&text));
    let chatter = Chatter::start((0..4).map(|i| open(daemon.port(0), &format!("/{i}"))).collect());
    let (old, new) = daemon.upgrade();
    signal(old, "WINCH");
    let workers = |master: u32| {
        let list = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace().filter(|pid| **pid != new.to_string()).count()
    };
    let noted = || daemon.log().contains("stop accepting connections");
    wait_until("the old workers' end", || noted() && workers(old) == 0);
    signal(old, "HUP");
    wait_until("the old binary's workers", || workers(old) == 2);
    signal(new, "QUIT");
    wait_until("the new binary's end", || !is_alive(new));
    let counts = chatter.end();
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
}

/// Bytes wait in both directions, because neither end reads.
#[test]
fn bytes_that_wait_move_along() {
    on_all_drivers(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = listener.local_addr().unwrap().port();
        let weir = start(driver, &config(backend, "", "proxy_read_timeout 1h;"));
        let mut client = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\n{UPGRADE}early").as_bytes()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut byte = [0];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            server.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let switch = "HTTP/1.1 101 X\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst";
        server.write_all(switch.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"first") {
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut early = [0; 5];
        server.read_exact(&mut early).unwrap();
        assert_eq!(&early, b"early");
        // As much as all buffers on the way take.
        let fill = |stream: &mut TcpStream, seed: usize| {
            stream.set_nonblocking(true).unwrap();
            let all = pattern(64 << 20, seed);
            let mut sent = 0;
            let mut idle = 0;
            while idle < 50 {
                match stream.write(&all[sent..]) {
                    Ok(n) => (sent, idle) = (sent + n, 0),
                    Err(_) => {
                        idle += 1;
                        std::thread::yield_now();
                    }
                }
            }
            stream.set_nonblocking(false).unwrap();
            all[..sent].to_vec()
        };
        let (down, up) = (fill(&mut server, 1), fill(&mut client, 2));
        reload(&weir);
        let drain = |mut stream: TcpStream, len: usize| {
            std::thread::spawn(move || {
                let mut all = vec![0; len];
                stream.read_exact(&mut all).expect("all bytes");
                (stream, all)
            })
        };
        let (down_len, up_len) = (down.len(), up.len());
        let (to_client, to_server) = (drain(client, down_len), drain(server, up_len));
        let ((client, got_down), (server, got_up)) =
            (to_client.join().unwrap(), to_server.join().unwrap());
        assert!(got_down == down && got_up == up);
        drop((client, server));
        assert_eq!(status(&weir).number("handover.tunnels.stayed.state"), 0);
    });
}

#[test]
fn a_tunnel_stays_where_it_cannot_move() {
    let backend = echo();
    let before = config(backend, "", "");
    let elsewhere = before.replace("location / {", "location /other {");
    let off = before.replace("listen", "handover off; listen");
    for (after, first, why) in
        [(&elsewhere, &before, "configuration"), (&off, &before, "off"), (&before, &off, "off")]
    {
        let mut weir = start(Driver::usual(), first);
        let mut conn = open(weir.port(0), "/stays");
        let old = weir.workers();
        weir.set_config(after);
        weir.reload();
        wait_until("the decision", || {
            status(&weir).number(&format!("handover.tunnels.stayed.{why}")) == 1
        });
        conn.send("as before");
        assert_eq!(conn.read_exact(9), b"as before");
        assert!(old.iter().any(|pid| is_alive(*pid)), "its worker serves it");
        drop(conn);
        weir.wait_until_left(&old);
        let log = weir.wait_for_count("access.log", "/stays 101 ", 1);
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

/// Where processors are scarce, workers that serve have them first.
#[test]
fn a_worker_has_a_lower_priority_while_its_connections_move() {
    let text = config(echo(), "", "").replace("events", "worker_priority 1;\nevents");
    let mut weir = start(Driver::usual(), &text);
    // A master that may not raise a priority lowers none. It may do what this process may; the
    // priority is the thread's own.
    let raise = || os::limits::set_priority(os::limits::priority(0)? - 1);
    let lower = if std::thread::spawn(raise).join().unwrap().is_ok() { 4 } else { 1 };
    let mut conn = open(weir.port(0), "/stays");
    let old = weir.workers();
    old.iter().for_each(|pid| stop(&weir, *pid));
    weir.set_config(&text.replace("location / {", "location /other {"));
    weir.reload();
    for pid in weir.workers() {
        assert_eq!(nice(pid), Some(if old.contains(&pid) { lower } else { 1 }));
    }
    old.iter().for_each(|pid| signal(*pid, "CONT"));
    wait_until("the decision", || {
        status(&weir).number("handover.tunnels.stayed.configuration") == 1
    });
    wait_until("the end of one and the other's priority", || {
        let alive: Vec<u32> = old.iter().copied().filter(|pid| is_alive(*pid)).collect();
        matches!(alive[..], [pid] if nice(pid) == Some(1))
    });
    conn.send("as before");
    assert_eq!(conn.read_exact(9), b"as before");
}

#[test]
fn a_reload_reports_the_moves() {
    // One of the old workers may take a connection of the other, if it does not know yet that it
    // leaves, too: the connection counts once.
    let text = config(echo(), "", "");
    let mut weir = start(Driver::usual(), &text);
    let command = |weir: &Weir, more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("reload").args(more).arg("-p").arg(weir.prefix());
        let output = command.args(["-c", "conf/weir.conf"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let tunnels: Vec<Conn> = (0..8).map(|i| open(weir.port(0), &format!("/{i}"))).collect();
    let told = command(&weir, &[]);
    assert!(told.contains("2 of 2 workers, generation 2; 8 connections moved\n"), "{told}");
    weir.set_config(&text.replace("location / {", "location /other {"));
    let told = command(&weir, &[]);
    let stay = "; 0 connections moved, 8 are still with the old workers (8 configuration)\n";
    assert!(told.contains(stay), "{told}");
    let old = weir.workers();
    drop(tunnels);
    weir.set_config(&text);
    let told = command(&weir, &["--json"]);
    assert!(told.contains("\"moved\":0"), "{told}");
    weir.wait_until_left(&old);
}

/// An echo server of bytes, behind `stream`. After its client's end it sends `end` and closes.
fn plain_echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut buf = vec![0; 16 << 10];
                while let Ok(n @ 1..) = stream.read(&mut buf) {
                    if stream.write_all(&buf[..n]).is_err() {
                        return;
                    }
                }
                let _ = stream.write_all(b"end");
            });
        }
    });
    port
}

fn stream_config(backend: u16, in_server: &str) -> String {
    format!(
        "worker_processes 2;\npid logs/weir.pid;\nerror_log logs/error.log info;\nevents {{}}\n\
         stream {{\n\
         log_format facts '$remote_addr $status $bytes_sent $bytes_received $upstream_addr \
         $upstream_bytes_sent $upstream_bytes_received $upstream_connect_time $mine $session_time';\n\
         access_log logs/access.log facts;\n\
         limit_conn_zone $server_port zone=c:64k;\n\
         map $remote_addr $mine {{ default x-$remote_addr; }}\n\
         upstream group {{ server 127.0.0.1:{backend} max_conns=100; zone group 64k; }}\n\
         server {{ listen 127.0.0.1:%PORT0%; limit_conn c 8; {in_server} proxy_pass group; }}\n\
         }}\n\
         http {{ server {{ listen 127.0.0.1:%PORT1%; access_log off;\n\
         location = /status {{ stub_status json; }} }} }}\n"
    )
}

fn stream_status(weir: &Weir) -> Json {
    let mut conn = Conn::tcp(weir.port(1));
    conn.send("GET /status HTTP/1.0\r\n\r\n");
    Json::parse(&conn.response().text())
}

#[test]
fn sessions_of_stream_outlive_their_workers() {
    on_all_drivers(|driver| {
        let backend = plain_echo();
        let weir = start(driver, &stream_config(backend, "proxy_half_close on;"));
        let count = 8;
        let mut all: Vec<Conn> = (0..count).map(|_| Conn::tcp(weir.port(0))).collect();
        let mut opened = Instant::now();
        let mut sent = vec![0usize; count];
        for round in 0..4 {
            for (i, conn) in all.iter_mut().enumerate() {
                let message = pattern(1 + 2_000 * i, round);
                conn.send(&message);
                sent[i] += message.len();
                if round % 2 == 0 {
                    assert_eq!(conn.read_exact(message.len()), message);
                }
            }
            // A session that has not reached its server yet does not move.
            wait_until("the servers", || stream_status(&weir).number("connections.active") == 9);
            if round == 0 {
                opened = Instant::now();
            }
            reload(&weir);
            for (i, conn) in all.iter_mut().enumerate() {
                if round % 2 != 0 {
                    let message = pattern(1 + 2_000 * i, round);
                    assert_eq!(conn.read_exact(message.len()), message);
                }
            }
        }
        settled("sessions", || stream_status(&weir));
        let now = stream_status(&weir);
        let sent_on = now.number("handover.sessions.sent");
        assert!(sent_on >= 4 * count as u64, "{sent_on}");
        assert_eq!(now.number("handover.sessions.moved"), count as u64);
        wait_until("the ends of requests for the status", || {
            stream_status(&weir).number("connections.active") == 1 + count as u64
        });
        // All places of the limit are taken.
        assert!(Conn::tcp(weir.port(0)).is_closed());
        let lasted = opened.elapsed().as_secs_f64();
        // The server's half is open, whichever process has forwarded the client's end.
        for (i, mut conn) in all.into_iter().enumerate() {
            conn.send("bye");
            conn.finish_sending();
            assert_eq!(conn.read_to_end(), b"byeend", "{i}");
        }
        let log = weir.wait_for_count("access.log", " 200 ", count);
        let mut found: Vec<_> = log
            .lines()
            .filter(|line| line.contains(" 200 "))
            .map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                let (down, up) =
                    (fields[2].parse::<usize>().unwrap(), fields[3].parse::<usize>().unwrap());
                assert_eq!(fields[0], "127.0.0.1", "{line}");
                assert_eq!(fields[4], format!("127.0.0.1:{backend}"), "{line}");
                assert_eq!(fields[5..7], [fields[3], fields[2]], "{line}");
                assert_eq!(fields[8], "x-127.0.0.1", "{line}");
                assert_eq!(up + 3, down, "{line}");
                let time: f64 = fields[9].parse().unwrap();
                assert!(time > lasted - 0.1, "the whole time, {lasted}: {line}");
                up
            })
            .collect();
        found.sort_unstable();
        let expected: Vec<usize> = sent.iter().map(|sent| sent + 3).collect();
        assert_eq!(found, expected);
    });
}

#[test]
fn a_half_closed_session_moves() {
    on_all_drivers(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = listener.local_addr().unwrap().port();
        let weir = start(driver, &stream_config(backend, "proxy_half_close on;"));
        let mut client = Conn::tcp(weir.port(0));
        client.send("all");
        client.finish_sending();
        let (mut server, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        server.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"all");
        server.write_all(b"one").unwrap();
        assert_eq!(client.read_exact(3), b"one");
        reload(&weir);
        server.write_all(b"two").unwrap();
        assert_eq!(client.read_exact(3), b"two");
        drop(server);
        assert!(client.is_closed());
        let log = weir.wait_for_count("access.log", " 200 6 3 ", 1);
        assert_eq!(log.lines().count(), 1, "{log}");
    });
}

#[test]
fn a_rate_goes_on_behind_a_move() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = listener.local_addr().unwrap().port();
    let rates = "proxy_download_rate 20k; proxy_upload_rate 20k;";
    let weir = start(Driver::Uring, &stream_config(backend, rates));
    let mut client = Conn::tcp(weir.port(0));
    let message = pattern(50_000, 3);
    client.send(&message);
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(&message).unwrap();
    let first = client.read_exact(1);
    reload(&weir);
    let mut got = vec![0; message.len()];
    server.read_exact(&mut got).unwrap();
    assert!(got == message);
    assert!([first, client.read_exact(message.len() - 1)].concat() == message);
}
