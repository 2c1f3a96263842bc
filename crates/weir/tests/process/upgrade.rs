//! Changing the binary while it serves, and undoing the change.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use crate::common::{BINARY, SERVER, config, site};
use testkit::udp::{self, Echo};
use testkit::{Conn, Daemon, Driver, Folder, Site, is_alive, signal, wait_for};

fn read_pid(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A server in the background; `main` stands beside the `http` block.
fn start(main: &str, http: &str) -> Daemon {
    let main = format!("pid logs/weir.pid; error_log logs/error.log info; {main}");
    Daemon::start(site(2, &main, http))
}

fn get(daemon: &Daemon) -> Vec<u8> {
    let mut conn = Conn::tcp(daemon.port(0));
    conn.send("GET /a.txt HTTP/1.0\r\n\r\n");
    conn.response().body
}

#[test]
fn the_new_binary_takes_over() {
    let daemon =
        start("", &format!("{SERVER} server {{ listen unix:%PREFIX%/u.sock; root html; }}"));
    let (old, new) = daemon.upgrade();
    assert_eq!(daemon.old(), Some(old));
    assert_eq!(get(&daemon), b"hello");
    signal(old, "QUIT");
    wait_for("the old master's end", || (!is_alive(old)).then_some(()));
    wait_for("its pid file's end", || (daemon.old().is_none()).then_some(()));
    assert_eq!(daemon.pid(), new);
    assert_eq!(get(&daemon), b"hello");
    let socket = daemon.file("u.sock");
    assert!(socket.exists());
    let mut conn = Conn::unix(&socket);
    conn.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(conn.response().body, b"hello");
    assert!(daemon.log().contains("using inherited sockets from \""));
    // Once more: the new binary is the old one now.
    let (old, _) = daemon.upgrade();
    assert_eq!(old, new);
    signal(old, "QUIT");
    wait_for("the old master's end", || (!is_alive(old)).then_some(()));
    assert_eq!(get(&daemon), b"hello");
}

/// A server whose old master (the first number) lets its workers go, and has a new one.
fn retired() -> (Daemon, u32, u32) {
    let daemon = start("", SERVER);
    let (old, new) = daemon.upgrade();
    signal(old, "WINCH");
    // If the new binary ended first, the signal would send away the workers that have come back.
    wait_for("the signal's effect", || {
        daemon.log().contains("stop accepting connections").then_some(())
    });
    (daemon, old, new)
}

#[test]
fn the_old_binary_comes_back() {
    let (daemon, old, new) = retired();
    let workers = |master: u32| {
        let list = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace().filter(|pid| **pid != new.to_string()).count()
    };
    wait_for("the old workers' end", || (workers(old) == 0).then_some(()));
    assert_eq!(get(&daemon), b"hello");
    signal(old, "HUP");
    wait_for("the old workers' return", || (workers(old) == 2).then_some(()));
    signal(new, "QUIT");
    wait_for("the new master's end", || (!is_alive(new)).then_some(()));
    wait_for("the pid file's return", || daemon.is_led_by(old).then_some(()));
    assert!(daemon.old().is_none());
    assert_eq!(get(&daemon), b"hello");
    // The sockets are the old binary's to close again, and a reload is one again.
    signal(old, "HUP");
    wait_for("a reload", || (daemon.log().matches("reconfiguring").count() >= 3).then_some(()));
    wait_for("two workers", || (workers(old) == 2).then_some(()));
    assert_eq!(get(&daemon), b"hello");
}

#[test]
fn a_new_binary_that_ends_brings_the_workers_back() {
    let (daemon, old, new) = retired();
    signal(new, "TERM");
    wait_for("the pid file's return", || daemon.is_led_by(old).then_some(()));
    assert_eq!(get(&daemon), b"hello");
}

#[test]
fn two_upgrades_at_a_time_are_refused() {
    let daemon = start("", SERVER);
    let (old, new) = daemon.upgrade();
    for pid in [old, new] {
        let before = daemon.log().matches("the changing binary signal is ignored").count();
        signal(pid, "USR2");
        wait_for("a refusal", || {
            let now = daemon.log().matches("the changing binary signal is ignored").count();
            (now > before).then_some(())
        });
    }
    signal(new, "TERM");
    wait_for("the pid file's return", || daemon.is_led_by(old).then_some(()));
}

#[test]
fn a_binary_that_cannot_run_changes_nothing() {
    let site = site(1, "pid logs/weir.pid; error_log logs/error.log info;", SERVER);
    let copy = site.prefix().join("weir-copy");
    testkit::copy_program(Path::new(BINARY), &copy);
    let mut site = testkit::Site::new(&copy, testkit::Driver::Epoll).allow("execve() failed");
    let text = config(1, "", SERVER);
    site = site.file("html/a.txt", b"hello").config(&text);
    let weir = site.start();
    std::fs::remove_file(&copy).unwrap();
    weir.signal("USR2");
    weir.wait_for_log("error.log", "execve() failed while executing new binary process");
    weir.wait_for_log("error.log", "new binary process ");
    wait_for("the pid file's return", || {
        let pid = read_pid(&weir.prefix().join("logs/weir.pid"));
        (pid == Some(weir.pid())).then_some(())
    });
    assert_eq!(weir.get("/a.txt").body, b"hello");
}

/// nginx and this program hand each other their sockets in the same way.
#[test]
fn nginx_is_replaced_and_comes_back() {
    let nginx = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].map(Path::new);
    let Some(nginx) = nginx.into_iter().find(|path| path.exists()) else {
        eprintln!("nginx is not installed: not tried");
        return;
    };
    let folder = testkit::Folder::new("swap");
    let binary = folder.join("server");
    let put = |from: &Path| testkit::copy_program(from, &binary);
    put(nginx);
    let main = "pid logs/weir.pid; error_log logs/error.log info;";
    let mut site = testkit::Site::new(&binary, testkit::Driver::Epoll)
        .file("html/a.txt", b"hello")
        .config(&config(1, main, SERVER));
    let port = site.port(0);
    let pid_file = site.prefix().join("logs/weir.pid");
    let old_file = pid_file.with_extension("pid.oldbin");
    if !site.run(&[]).status.success() {
        eprintln!("this nginx does not run here: not tried");
        return;
    }
    let answers_as = |name: &str| {
        let mut conn = Conn::tcp(port);
        conn.send("GET /a.txt HTTP/1.0\r\n\r\n");
        let response = conn.response();
        assert_eq!(response.body, b"hello");
        assert!(response.header("Server").unwrap().starts_with(name));
    };
    let pid = || wait_for("the pid file", || read_pid(&pid_file));
    pid();
    answers_as("nginx/");
    for (next, name) in [(Path::new(BINARY), "weir/"), (nginx, "nginx/")] {
        let old = pid();
        put(next);
        signal(old, "USR2");
        wait_for("the new binary", || {
            (old_file.exists() && read_pid(&pid_file).is_some_and(|pid| pid != old)).then_some(())
        });
        signal(old, "QUIT");
        wait_for("the old master's end", || (!is_alive(old)).then_some(()));
        answers_as(name);
    }
    let last = pid();
    signal(last, "QUIT");
    wait_for("the server's end", || (!is_alive(last)).then_some(()));
}

/// Sessions stay where they are, with their sockets to the server, while both binaries serve and
/// when the old one leaves.
#[test]
fn sessions_over_udp_outlive_the_change() {
    let server = Echo::start("", 1);
    let to = server.port;
    let daemon = start(
        &format!(
            "stream {{ server {{ listen 127.0.0.1:%PORT1% udp; proxy_pass 127.0.0.1:{to}; }} }}"
        ),
        SERVER,
    );
    let port = daemon.port(1);
    let ask = |socket: &UdpSocket| assert_eq!(udp::ask(socket, b"x"), b"x");
    let clients: Vec<_> = (0..20).map(|_| udp::client(port)).collect();
    clients.iter().for_each(ask);
    let (old, _new) = daemon.upgrade();
    clients.iter().for_each(ask);
    signal(old, "QUIT");
    wait_for("the old workers' leave", || daemon.log().contains("go on here").then_some(()));
    for _ in 0..3 {
        clients.iter().for_each(ask);
    }
    let peers: HashSet<_> = server.peers().into_iter().collect();
    assert_eq!(peers.len(), 20, "a socket for each client");
    // Others are the new binary's.
    ask(&udp::client(port));
}

/// A program that runs the server with variables in its environment. It goes with the folder.
fn with_environment(folder: &Folder, variables: &str) -> PathBuf {
    let program = folder.join("run");
    let text = format!("#!/bin/sh\nexport {variables}\nexec {BINARY} \"$@\"\n");
    testkit::write_script(&program, &text);
    program
}

#[test]
fn the_environment_is_in_the_configuration_also_of_a_new_binary() {
    let folder = Folder::new("environment");
    let program = with_environment(&folder, "WEIR_T_WORKERS=3 WEIR_T_WORD='a;b c' WEIR_T_EMPTY=");
    let text = "worker_processes ${env:WEIR_T_WORKERS}; pid logs/weir.pid;
        error_log logs/error.log info; events {}
        http { server { listen ${env:WEIR_T_HOST:-127.0.0.1}:%PORT0%;
            location / { return 200 \"$uri ${env:WEIR_T_WORD}|${env:WEIR_T_EMPTY}|\"; } } }";
    let daemon = Daemon::start(Site::new(&program, Driver::usual()).config(text));
    assert_eq!(get(&daemon), b"/a.txt a;b c||");
    let (old, new) = daemon.upgrade();
    signal(old, "QUIT");
    wait_for("the old master's end", || (!is_alive(old)).then_some(()));
    assert_eq!(get(&daemon), b"/a.txt a;b c||");
    // A variable that is missing is told with its place, and the old configuration stays.
    let conf = daemon.file("conf/weir.conf");
    let text = std::fs::read_to_string(&conf).unwrap().replace("WEIR_T_WORD", "WEIR_T_NONE");
    std::fs::write(&conf, text).unwrap();
    signal(new, "HUP");
    let why =
        format!("the environment variable \"WEIR_T_NONE\" is not set in {}:4", conf.display());
    wait_for("the refusal", || daemon.log().contains(&why).then_some(()));
    assert_eq!(get(&daemon), b"/a.txt a;b c||");
    std::fs::write(daemon.file("logs/error.log"), "").unwrap();
}
