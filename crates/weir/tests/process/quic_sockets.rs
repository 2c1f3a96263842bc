//! The sockets of `listen … quic`: one for each worker, the same over reloads, the death of a
//! worker and an upgrade of the binary.

use std::collections::HashMap;
use std::fs;

use crate::common::{BINARY, config, site};
use testkit::{Conn, Daemon, Weir, is_alive, signal, wait_for};

/// TCP and UDP of one port, and pages elsewhere.
const QUIC: &str = "ssl_reject_handshake on; server { listen 127.0.0.1:%PORT1% ssl; \
                    listen 127.0.0.1:%PORT1% quic; } \
                    server { listen 127.0.0.1:%PORT0%; root html; }";

/// The inodes of the UDP sockets of a port, in the order of the table.
fn sockets(port: u16) -> Vec<u64> {
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let own = format!(":{port:04X}");
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|line| line[1].ends_with(&own)).map(|line| line[9].parse().unwrap()).collect()
}

/// Those of them that a process has.
fn sockets_of(pid: u32, port: u16) -> Vec<u64> {
    let all = sockets(port);
    let Ok(list) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = list.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inodes = links.filter_map(|link| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    let mut own: Vec<u64> = inodes.filter(|inode| all.contains(inode)).collect();
    own.sort_unstable();
    own
}

/// The socket of each worker, by process id: workers are started in the order of their numbers.
fn by_worker(workers: &[u32], port: u16) -> Vec<u64> {
    let mut workers = workers.to_vec();
    workers.sort_unstable();
    let one = |pid: u32| {
        wait_for("a worker with one socket", || match sockets_of(pid, port)[..] {
            [socket] => Some(socket),
            _ => None,
        })
    };
    workers.into_iter().map(one).collect()
}

fn reload(weir: &mut Weir, workers: usize) -> Vec<u64> {
    weir.set_config(&config(workers, "", QUIC));
    let before = weir.workers();
    weir.reload();
    weir.wait_until_left(&before);
    assert_eq!(weir.workers().len(), workers);
    by_worker(&weir.workers(), weir.port(1))
}

#[test]
fn a_worker_s_socket_is_the_same_in_each_configuration() {
    let mut weir = site(3, "", QUIC).start();
    let port = weir.port(1);
    let three = by_worker(&weir.workers(), port);
    assert!(three.iter().collect::<std::collections::HashSet<_>>().len() == 3, "{three:?}");
    assert_eq!(reload(&mut weir, 3), three);
    assert_eq!(reload(&mut weir, 2), three[..2]);
    assert_eq!(sockets(port).len(), 3, "the third one is kept");
    let four = reload(&mut weir, 4);
    assert_eq!((&four[..3], sockets(port).len()), (&three[..], 4));
    // Another address is none of theirs, and theirs closes with the directive.
    let plain = "server { listen 127.0.0.1:%PORT0%; root html; }";
    weir.set_config(&config(2, "", plain));
    let before = weir.workers();
    weir.reload();
    weir.wait_until_left(&before);
    wait_for("the sockets' end", || sockets(port).is_empty().then_some(()));
}

#[test]
fn a_worker_that_is_started_again_has_the_socket_of_the_one_before() {
    let weir = site(3, "", QUIC).allow("exited on signal 9").start();
    let port = weir.port(1);
    let before: HashMap<u32, u64> =
        weir.workers().into_iter().zip(by_worker(&weir.workers(), port)).collect();
    let (&dead, &socket) = before.iter().next().unwrap();
    weir.signal_to(dead, "KILL");
    let new = wait_for("another worker", || {
        let workers = weir.workers();
        let new = workers.iter().find(|pid| !before.contains_key(pid)).copied();
        new.filter(|_| workers.len() == 3)
    });
    assert_eq!(by_worker(&[new], port), [socket]);
}

#[test]
fn a_new_binary_has_the_sockets_of_the_old_one() {
    let main = "pid logs/weir.pid; error_log logs/error.log info;";
    let daemon = Daemon::start(site(3, main, QUIC));
    let (page, port) = (daemon.port(0), daemon.port(1));
    let workers = |master: u32, count: usize| {
        wait_for("workers", || {
            let list = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
            let list: Vec<u32> = list.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            (list.len() == count).then_some(list)
        })
    };
    let three = by_worker(&workers(daemon.pid(), 3), port);
    let (old, new) = daemon.upgrade();
    assert_eq!(by_worker(&workers(new, 3), port), three);
    // With the relays of the old workers, beside those of its own ones.
    let count = |pid: u32| {
        let list = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = list.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    wait_for("the relays", || (count(new) == count(old) + 3).then_some(()));
    signal(old, "QUIT");
    wait_for("the old master's end", || (!is_alive(old)).then_some(()));
    assert_eq!(sockets(port).len(), 3);
    let mut conn = Conn::tcp(page);
    conn.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(conn.response().body, b"hello");
    signal(new, "QUIT");
    wait_for("the end", || sockets(port).is_empty().then_some(()));
    let pid_file = daemon.file("logs/weir.pid");
    wait_for("the pid file's end", || (!pid_file.exists()).then_some(()));
}

#[test]
fn errors_of_quic_addresses() {
    let refused = |http: &str, main: &str, message: &str| {
        let out = site(2, main, http).run(&["-t"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(message), "{said}");
    };
    let m = "\"listen\" directive \"ssl\" parameter is incompatible with \"quic\"";
    refused("server { listen 127.0.0.1:%PORT0% quic ssl; }", "", m);
    let m = "no \"ssl_certificate\" is defined for the \"listen ... quic\" directive";
    refused("server { listen 127.0.0.1:%PORT0% quic; }", "", m);
    let twice = "ssl_reject_handshake on; server { listen 127.0.0.1:%PORT0% quic; \
                 listen 127.0.0.1:%PORT0% quic reuseport; }";
    refused(twice, "", "a duplicate listen 127.0.0.1:");
    let stream = "stream { server { listen 127.0.0.1:%PORT1% udp; return x; } }";
    refused(QUIC, stream, "failed (98: Address already in use)");
    let options = "ssl_reject_handshake on; \
                   server { listen 127.0.0.1:%PORT0% quic default_server rcvbuf=1m reuseport; } \
                   server { listen 127.0.0.1:%PORT0% quic; listen 127.0.0.1:%PORT0% ssl; }";
    let out = testkit::Site::new(BINARY, testkit::Driver::usual())
        .config(&config(2, "", options))
        .run(&["-t"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
