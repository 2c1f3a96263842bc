//! Logs to readers that do not read: a full pipe, a FIFO that nobody has opened, and a syslog
//! server that is slow.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{BINARY, SERVER, config};
use testkit::{Site, Weir, each_driver, wait_for};

/// `O_NONBLOCK` of Linux on every architecture that the server runs on.
const O_NONBLOCK: i32 = 0o4000;

/// Lets workers of another user open it.
fn share(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).expect("set the mode");
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("run mkfifo").success());
    share(path);
}

/// Both ends of a FIFO in one, which keep its content.
fn open_fifo(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(O_NONBLOCK).open(path).expect("open the FIFO")
}

fn fill(mut fifo: &File) {
    // Bytes alone, so that no line of a log fits in.
    while fifo.write(b"\n").is_ok() {}
}

/// Everything that the FIFO holds.
fn read_all(mut fifo: &File) -> String {
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match fifo.read(&mut part) {
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return String::from_utf8_lossy(&text).into_owned();
            }
            Err(e) => panic!("read the FIFO: {e}"),
        }
    }
}

fn replaced(weir: &Weir, worker: u32) {
    weir.signal_to(worker, "KILL");
    wait_for("a new worker", || {
        let workers = weir.workers();
        (workers.len() == 1 && !workers.contains(&worker)).then_some(())
    });
}

#[test]
fn a_full_pipe_holds_up_neither_the_master_nor_its_end() {
    each_driver(|driver| {
        let site = Site::new(BINARY, driver).allow("exited on signal 9");
        let path = site.prefix().join("logs/fifo");
        make_fifo(&path);
        let fifo = open_fifo(&path);
        fill(&fifo);
        let main = "error_log logs/error.log info; error_log logs/fifo info;";
        let mut weir = site.file("html/a.txt", "a").config(&config(1, main, SERVER)).start();
        assert_eq!(weir.get("/a.txt").status, 200);
        replaced(&weir, weir.workers()[0]);
        weir.wait_for_log("error.log", "logs/fifo\" are dropped: nothing reads them");
        weir.signal("USR1");
        weir.wait_for_log("error.log", "reopening logs");
        weir.reload();
        // With a reader the lines are there again.
        read_all(&fifo);
        weir.reload();
        weir.wait_for_log("error.log", "logs/fifo\" are written again: ");
        wait_for("new lines", || read_all(&fifo).contains("start worker process").then_some(()));
        fill(&fifo);
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
    });
}

#[test]
fn a_fifo_without_a_reader_is_opened_and_keeps_lines_for_one() {
    each_driver(|driver| {
        let site = Site::new(BINARY, driver);
        for name in ["access", "by-x"] {
            make_fifo(&site.prefix().join("logs").join(name));
        }
        let http = "log_format n $request_uri; access_log logs/access n; \
                    access_log logs/by-$arg_n n; server { listen 127.0.0.1:%PORT0%; root html; \
                    location / { try_files /a.txt =404; } }";
        let mut weir = site.file("html/a.txt", "a").config(&config(1, "", http)).start();
        assert_eq!(weir.get("/one?n=x").status, 200);
        weir.signal("USR1");
        weir.wait_for_log("error.log", "reopening logs");
        assert_eq!(weir.get("/two?n=x").status, 200);
        let fifo = open_fifo(&weir.prefix().join("logs/access"));
        let mut text = String::new();
        wait_for("the line", || {
            text += &read_all(&fifo);
            text.ends_with("/two?n=x\n").then_some(())
        });
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
    });
}

/// A server that logs to a syslog server whose socket the test reads when it likes.
fn to_syslog(driver: testkit::Driver, main: &str) -> (UnixDatagram, Weir) {
    let site = Site::new(BINARY, driver);
    let syslog = UnixDatagram::bind(site.prefix().join("syslog")).expect("bind the socket");
    share(&site.prefix().join("syslog"));
    syslog.set_read_timeout(Some(Duration::from_secs(10))).expect("set a limit");
    let http = "log_format n $request_uri; server { listen 127.0.0.1:%PORT0%; root html; \
                location / { access_log syslog:server=unix:%PREFIX%/syslog,nohostname n; \
                try_files /a.txt =404; } }";
    let weir = site.file("html/a.txt", "a").config(&config(1, main, http)).start();
    (syslog, weir)
}

fn ask(weir: &Weir, numbers: std::ops::Range<usize>) {
    let mut conn = weir.connect();
    for n in numbers {
        conn.send(format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(conn.response().status, 200);
    }
}

/// The number of the next line.
fn next(syslog: &UnixDatagram) -> usize {
    let mut line = [0; 256];
    let len = syslog.recv(&mut line).expect("a line");
    let line = String::from_utf8_lossy(&line[..len]).into_owned();
    line.rsplit_once("nginx: /").and_then(|(_, n)| n.parse().ok()).expect("a number")
}

#[test]
fn lines_wait_for_a_slow_syslog_server() {
    each_driver(|driver| {
        let (syslog, weir) = to_syslog(driver, "");
        ask(&weir, 0..300);
        assert!((0..300).all(|n| next(&syslog) == n));
        // It sends at once again.
        ask(&weir, 300..305);
        assert!((300..305).all(|n| next(&syslog) == n));
        assert!(!weir.error_log().contains("dropped"));
    });
}

#[test]
fn lines_that_a_syslog_server_does_not_take_are_counted() {
    each_driver(|driver| {
        let (syslog, weir) = to_syslog(driver, "log_queue_size 2k;");
        ask(&weir, 0..300);
        weir.wait_for_log("error.log", "/syslog\" are dropped: ");
        let mut got = vec![next(&syslog)];
        syslog.set_nonblocking(true).expect("let reads fail");
        let line = wait_for("the count", || {
            while let Ok(n) = syslog.recv(&mut [0; 256]) {
                got.push(n);
            }
            let log = weir.error_log();
            log.lines().find(|line| line.contains("are written again")).map(str::to_owned)
        });
        let dropped = line.rsplit_once(": ").and_then(|(_, n)| n.split(' ').next()?.parse().ok());
        while syslog.recv(&mut [0; 256]).is_ok() {
            got.push(0);
        }
        assert_eq!(got.len() + dropped.unwrap_or(0_usize), 300, "{line}");
    });
}

/// Standard output and error are sockets in some containers and under some supervisors. Linux does
/// not open them by name, as nginx tries to.
#[test]
fn standard_streams_that_are_sockets() {
    each_driver(|driver| {
        let folder = testkit::Folder::new("sockets");
        let port = testkit::Port::reserve();
        std::os::unix::fs::symlink("/dev/stdout", folder.join("access.log")).expect("link");
        let text = format!(
            "daemon off; pid weir.pid; error_log /dev/stderr notice; worker_processes 1;
             events {{ use {}; }}
             http {{ access_log access.log; access_log /dev/stdout; client_body_temp_path t;
                 proxy_temp_path t; server {{ listen 127.0.0.1:{}; return 200 ok; }} }}",
            driver.name(),
            port.number()
        );
        folder.write("nginx.conf", text);
        let (out, told) = UnixStream::pair().expect("a pair");
        let (err, told_err) = UnixStream::pair().expect("a pair");
        let child = Command::new(BINARY)
            .args(["-c", "nginx.conf", "-e", "/dev/stderr", "-p"])
            .arg(folder.path())
            .stdout(Stdio::from(OwnedFd::from(told)))
            .stderr(Stdio::from(OwnedFd::from(told_err)))
            .spawn();
        let mut child = child.expect("run weir");
        let mut errors = BufReader::new(err).lines().map_while(Result::ok);
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        assert!(errors.any(|line| line.contains("start worker process ")));
        let ask = |path: &str| {
            wait_for("the server", || TcpStream::connect(("127.0.0.1", port.number())).ok());
            let mut c = testkit::Conn::tcp(port.number());
            c.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            assert_eq!(c.response().text(), "ok");
        };
        ask("/first");
        assert!(lines.next().is_some_and(|line| line.contains("GET /first")));
        assert!(lines.next().is_some_and(|line| line.contains("GET /first")));
        testkit::signal(child.id(), "USR1");
        assert!(errors.any(|line| line.contains("reopening logs")));
        ask("/second");
        assert!(lines.next().is_some_and(|line| line.contains("GET /second")));
        testkit::signal(child.id(), "QUIT");
        assert!(child.wait().expect("it ends").success());
        assert!(errors.all(|line| !line.contains("emerg") && !line.contains("alert")));
    });
}
