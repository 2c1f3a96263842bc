//! Reload: its effects, and that a faulty configuration changes nothing.

use std::net::TcpStream;

use crate::common::{SERVER, config, site};
use crate::load::Clients;
use testkit::{Weir, wait_for, wait_until};

const LOG: &str = "error_log logs/error.log info;";

/// Requests a reload that is refused, and checks that nothing has changed.
fn refused(weir: &Weir, message: &str) {
    let workers = weir.workers();
    weir.signal("HUP");
    weir.wait_for_log("error.log", message);
    assert_eq!(weir.get("/a.txt").body, b"hello");
    assert_eq!(weir.workers(), workers);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let start = format!("{LOG} pid logs/weir.pid;");
    let mut weir = site(1, &start, SERVER).allow("[emerg]").start();
    let with = |main: &str, http: &str| config(1, main, http);

    weir.set_config(&with("", "nonsense;"));
    refused(&weir, "unknown directive \"nonsense\" in ");
    weir.set_config(&with("error_log no/such/folder.log;", SERVER));
    refused(&weir, "folder.log\" failed (2: No such file or directory)");
    weir.set_config(&with("", "server { listen 192.0.2.77:80; }"));
    refused(&weir, "bind() to 192.0.2.77:80 failed (99: Cannot assign requested address)");
    weir.set_config(&with("", ""));
    refused(&weir, "no longer listens on any address");
    weir.set_config(&with("pid no/such/folder.pid;", SERVER));
    refused(&weir, "folder.pid\" failed (2: No such file or directory)");
    assert!(weir.prefix().join("logs/weir.pid").exists());
    std::fs::remove_file(weir.prefix().join("conf/weir.conf")).unwrap();
    refused(&weir, "weir.conf\" failed (2: No such file or directory)");

    weir.set_config(&with(LOG, SERVER));
    weir.reload();
    assert_eq!(weir.get("/a.txt").body, b"hello");
}

#[test]
fn workers_that_cannot_begin_bring_the_old_configuration_back() {
    let mut weir = site(1, "", SERVER).allow("").start();
    let workers = weir.workers();
    weir.set_config(&config(2, "working_directory /no/such/folder;", SERVER));
    weir.signal("HUP");
    weir.wait_for_log("error.log", "none of the new workers could start: the old configuration");
    assert_eq!(weir.workers(), workers);
    assert_eq!(weir.get("/a.txt").body, b"hello");
    // The workers that run are watched over as before.
    weir.signal_to(workers[0], "KILL");
    wait_for("another worker", || {
        let now = weir.workers();
        (now.len() == 1 && now != workers).then_some(())
    });
    assert_eq!(weir.get("/a.txt").body, b"hello");
}

#[test]
fn addresses_come_and_go() {
    let both = "server { listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT1%; root html; }";
    let mut weir = site(1, "", both).start();
    weir.set_config(&config(
        1,
        "",
        "server { listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT2%; root html; }",
    ));
    let old = weir.workers()[0];
    weir.reload();
    let (gone, new) = (weir.port(1), weir.port(2));
    wait_for("the old worker's end", || (!weir.workers().contains(&old)).then_some(()));
    assert!(TcpStream::connect(("127.0.0.1", gone)).is_err());
    assert!(TcpStream::connect(("127.0.0.1", new)).is_ok());
    assert_eq!(weir.get("/a.txt").body, b"hello");
}

#[test]
fn socket_files_are_removed_with_their_addresses() {
    let mut weir = site(
        1,
        &format!("{LOG} pid logs/weir.pid;"),
        "server { listen 127.0.0.1:%PORT0%; listen unix:%PREFIX%/a.sock; \
         listen unix:%PREFIX%/b.sock; root html; }",
    )
    .start();
    let (a, b) = (weir.prefix().join("a.sock"), weir.prefix().join("b.sock"));
    assert!(a.exists() && b.exists());
    weir.set_config(&config(
        1,
        &format!("{LOG} pid logs/other.pid;"),
        "server { listen 127.0.0.1:%PORT0%; listen unix:%PREFIX%/a.sock; root html; }",
    ));
    weir.reload();
    wait_for("the file's end", || (!b.exists()).then_some(()));
    assert!(a.exists());
    let mut conn = testkit::Conn::unix(&a);
    conn.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(conn.response().body, b"hello");
    assert!(weir.prefix().join("logs/other.pid").exists());
    assert!(!weir.prefix().join("logs/weir.pid").exists());
    weir.signal("TERM");
    weir.wait_for_end();
    assert!(!a.exists());
}

#[test]
fn a_stale_socket_file_is_no_obstacle() {
    let site =
        site(1, "", "server { listen 127.0.0.1:%PORT0%; listen unix:%PREFIX%/a.sock; root html; }");
    let path = site.prefix().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let weir = site.start();
    weir.wait_for_log("error.log", "deleting stale socket ");
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
}

#[test]
fn fewer_workers_lose_no_connection() {
    let own = "server { listen 127.0.0.1:%PORT0% reuseport; root html; }";
    let mut weir = site(4, "", own).start();
    let clients = Clients::start(weir.port(0), 4);
    for workers in [1, 3, 2, 4, 1, 2] {
        weir.set_config(&config(workers, "", own));
        weir.reload();
        wait_for("the old workers' end", || (weir.workers().len() == workers).then_some(()));
    }
    assert!(clients.finish() > 50);
}

#[test]
fn reuseport_comes_and_goes() {
    let mut weir = site(2, "", SERVER).start();
    let clients = Clients::start(weir.port(0), 2);
    for option in ["reuseport", "", "reuseport backlog=64", "deferred", ""] {
        let http = format!("server {{ listen 127.0.0.1:%PORT0% {option}; root html; }}");
        weir.set_config(&config(2, "", &http));
        weir.reload();
        wait_for("the old workers' end", || (weir.workers().len() == 2).then_some(()));
    }
    assert!(clients.finish() > 20);
}

#[test]
fn a_storm_of_reloads_fails_no_request_and_leaves_nothing() {
    let mut weir = site(2, "", SERVER).start();
    let clients = Clients::start(weir.port(0), 2);
    let pause = |ms| std::thread::sleep(std::time::Duration::from_millis(ms));
    let has_two = |weir: &Weir| weir.workers().len() == 2;
    weir.reload();
    wait_until("two workers", || has_two(&weir));
    // The master closes what it has of a worker when it has learned of its end.
    let looks = (0..10).map(|_| (pause(50), weir.open_descriptors(weir.pid())).1);
    let before = looks.min().unwrap();
    for _ in 0..10 {
        weir.signal("HUP");
        pause(50);
    }
    wait_until("two workers, and nothing left of others", || {
        has_two(&weir) && weir.open_descriptors(weir.pid()) <= before
    });
    assert!(clients.finish() > 20);
    weir.signal("TERM");
    weir.wait_for_end();
}
