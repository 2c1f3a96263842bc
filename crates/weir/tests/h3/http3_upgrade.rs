//! Connections over HTTP/3 while the binary is changed.

use testkit::certificates::KeyKind;
use testkit::h3::Client;
use testkit::{Daemon, Pair, Site, built_binary, is_alive, on_all_drivers, signal, wait_for};

const LEN: usize = 40_000;

#[test]
fn responses_and_connections_outlive_an_upgrade() {
    on_all_drivers(|driver| {
        let site = Pair::own(KeyKind::P256, "localhost").on(Site::new(built_binary(), driver), "a");
        let site = site.file("html/slow", "slow ".repeat(LEN / 5)).config(
            "worker_processes 2; pid logs/weir.pid; error_log logs/error.log info; events {}
             http { ssl_certificate a.pem; ssl_certificate_key a.key;
                 server { listen 127.0.0.1:%PORT0% quic; root html;
                     location /slow { limit_rate 8k; }
                     location /pid { return 200 $pid; } } }",
        );
        let daemon = Daemon::start(site);
        let port = daemon.port(0);
        let connect = |count| (0..count).map(|_| Client::connect(port, "localhost"));
        let mut early: Vec<_> = connect(4).collect();
        let (mut ids, mut workers) = (Vec::new(), Vec::new());
        for c in &mut early {
            workers.push(c.get("/pid").body);
            let id = c.begin_with("GET", "/slow", &[]);
            c.quic().finish(id);
            c.response_until(id, |r| r.status == 200);
            ids.push(id);
        }
        let (old, new) = daemon.upgrade();
        // Both binaries serve now. A connection stays where it is, whose socket ever its datagrams
        // come to.
        for (c, pid) in early.iter_mut().zip(&workers) {
            assert!(&c.get("/pid").body == pid);
        }
        let mut between: Vec<_> = connect(4).map(|mut c| (c.get("/pid").body, c)).collect();
        signal(old, "QUIT");
        for (c, id) in early.iter_mut().zip(ids) {
            assert!(c.response(id).body == "slow ".repeat(LEN / 5).as_bytes());
        }
        wait_for("the old server's end", || {
            // Clients acknowledge what they have got.
            early
                .iter_mut()
                .chain(between.iter_mut().map(|(_, c)| c))
                .for_each(|c| c.quic().turn());
            (!is_alive(old)).then_some(())
        });
        for mut c in connect(4) {
            assert!(!workers.contains(&c.get("/pid").body));
        }
        let is_new = |pid: &[u8]| {
            let pid = String::from_utf8_lossy(pid);
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{new}"))
        };
        for (pid, mut c) in between.into_iter().filter(|(pid, _)| is_new(pid)) {
            assert!(c.get("/pid").body == pid);
        }
    });
}
