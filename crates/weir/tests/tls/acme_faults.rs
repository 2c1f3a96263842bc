//! ACME when things go wrong: kills, several hosts, servers that are away or lie, folders that
//! cannot be written.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::acme_site::{
    self, HTTP, STATUS, Shared, acme_process, certificate, config, is_locked, try_certificate,
    with_pebble,
};
use crate::tls::{Client, Pair};
use testkit::certificates::KeyKind;
use testkit::pebble::{Pebble, Settings};
use testkit::{
    Driver, Scripted, Site, StallingFolder, built_binary, each_driver, wait_for, wait_until,
};

/// A server under TLS with a certificate of the issuer `one`.
fn server(names: &str) -> String {
    acme_site::server(names, "one")
}

/// The issuer `one`, whose server is pebble.
fn issuer(pebble: &Pebble, folder: &Path) -> String {
    acme_site::issuer(pebble, "one", folder, "")
}

/// The same at a server that is none.
fn false_issuer(liar: &Scripted, folder: &Path) -> String {
    let uri = format!("http://127.0.0.1:{}/dir", liar.port);
    acme_site::issuer_at(&uri, "one", folder, "ssl_verify off;")
}

#[test]
fn two_hosts_make_one_order_and_both_serve_it() {
    each_driver(|driver| {
        let mut second = Site::new(built_binary(), driver);
        // The validator comes to the host that follows, or to the one that leads.
        let pebble = Pebble::start(Settings::new(second.port(0), second.port(1)));
        let folder = Shared::new(&format!("hosts-{}", driver.name()));
        let http = issuer(&pebble, &folder.0) + HTTP;
        let text = config(pebble.dns_port(), &(http + &server("a.test")));
        // Neither leads before both serve: the lock is held until then.
        let lock = folder.0.join(".one.lock");
        fs::create_dir(&folder.0).unwrap();
        fs::write(&lock, "").unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o666)).unwrap();
        let mut holder = Command::new("flock");
        let mut holder = holder.arg(&lock).arg("cat").stdin(Stdio::piped()).spawn().unwrap();
        wait_until("the lock to be held", || is_locked(&lock, None));
        let first = Site::new(built_binary(), driver).config(&text).start();
        let second = second.config(&text).start();
        for weir in [&first, &second] {
            wait_for("the acme process", || acme_process(weir));
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
        // Both serve it within two seconds.
        let mut since = None;
        let (own, other) = wait_for("a certificate at both hosts", || {
            let [own, other] = [&first, &second].map(|weir| try_certificate(weir, "a.test"));
            if own.is_some() || other.is_some() {
                since.get_or_insert_with(Instant::now);
            }
            own.zip(other)
        });
        let between = since.unwrap().elapsed();
        println!("{} ms between the hosts", between.as_millis());
        assert!(between < Duration::from_secs(2), "{between:?}");
        assert_eq!(own, other);
        assert_eq!(pebble.orders(), 1);
        // The leader goes; the other one leads.
        drop(first);
        let acme = wait_for("the acme process", || acme_process(&second));
        wait_until("the other host to lead", || is_locked(&lock, Some(acme)));
        assert_eq!(certificate(&second, "a.test"), own);
    });
}

/// A server that gives each request the next of these answers, the last one for ever.
fn liar(answers: Vec<String>) -> Scripted {
    Scripted::start(move |mut stream, n| {
        let _ = testkit::read_until(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n"));
        let answer = &answers[n.min(answers.len() - 1)];
        let _ = stream.write_all(answer.as_bytes());
    })
}

fn answer(status: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}

/// The line about a handshake without a certificate.
const TOLD: &str = "handshakes fail: reading the directory: ";

#[test]
fn a_directory_that_lies_is_asked_as_seldom_as_one_that_is_away() {
    let deep = "[".repeat(50_000);
    let moved = "Location: /dir\r\n";
    let cases = [
        (answer("500 No", "", ""), "error (status 500)"),
        (answer("200 OK", "", "<html>"), "the server sent no JSON object"),
        (answer("200 OK", "", "{}"), "the server sent no directory"),
        (answer("200 OK", "", &deep), "the server sent no JSON object"),
        (answer("302 Moved", moved, ""), "too many redirects"),
        (answer("503 Busy", "Retry-After: 7200\r\n", ""), "next attempt in 7"),
        ("SSH-2.0-x\r\n".to_owned(), "acme: reading the directory: "),
        (String::new(), "the connection was closed"),
    ];
    for (answer, message) in cases {
        let liar = liar(vec![answer]);
        let folder = Shared::new("liar");
        let http = false_issuer(&liar, &folder.0);
        let text = config(1, &(http + HTTP + STATUS + &server("a.test")));
        let mut weir = Site::new(built_binary(), Driver::usual()).config(&text).start();
        weir.wait_for_log("error.log", message);
        wait_until("the back-off on disk", || folder.state("account.state").contains("failures"));
        let asked = liar.connections();
        // A server in a crash loop spends nothing.
        for _ in 0..3 {
            weir.restart();
            // A handshake before that would use up the minute's line for a state that is not known.
            wait_until("the state to be told", || {
                let mut conn = testkit::Conn::tcp(weir.port(2));
                conn.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                conn.response().text().contains("\"state\":\"reading the directory: ")
            });
            let told = weir.log("error.log").matches(TOLD).count();
            assert!(try_certificate(&weir, "a.test").is_none());
            weir.wait_for_count("error.log", TOLD, told + 1);
        }
        assert_eq!(liar.connections(), asked, "{message}");
        // One line in a minute and worker.
        let log = weir.stop_and_read("error.log");
        let warned = log.matches("handshakes fail").count();
        assert!(warned <= 8, "{warned} warnings");
    }
}

#[test]
fn a_directory_comes_back_and_service_goes_on_meanwhile() {
    let mut site = Site::new(built_binary(), Driver::usual());
    let mut settings = Settings::new(site.port(0), site.port(1));
    settings.validity_s = 6;
    let mut pebble = Pebble::start(settings);
    let folder = Shared::new("away");
    let http = issuer(&pebble, &folder.0) + HTTP;
    let text = config(pebble.dns_port(), &(http + &server("a.test")));
    let weir = site.config(&text).start();
    let first = certificate(&weir, "a.test");
    pebble.end();
    weir.wait_for_log("error.log", "next attempt in");
    // It has expired by now, or does soon: it is all there is.
    assert_eq!(certificate(&weir, "a.test"), first);
    let progress = folder.state("account.state") + &folder.state(".state");
    assert!(progress.contains("\"failures\":1"), "{progress}");
}

#[test]
fn a_folder_that_cannot_be_written_is_told_of_once() {
    let mut site = Site::new(built_binary(), Driver::usual());
    let pebble = Pebble::start(Settings::new(site.port(0), site.port(1)));
    // Below a file: for every user.
    let folder = site.prefix().join("state");
    let http = issuer(&pebble, &folder) + HTTP;
    let text = config(pebble.dns_port(), &(http + &server("a.test")));
    let site = site.config(&text);
    let weir = site.allow("acme process").start();
    let first = certificate(&weir, "a.test");
    // Nothing is written any more: the times of the renewal and of the next question are there.
    wait_until("the last file", || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let states = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        states.into_iter().any(|text| text.contains("\"renew\":1") && text.contains("\"check\":1"))
    });
    let pid = wait_for("the acme process", || acme_process(&weir));
    // It may be writing still: a stopped one is not.
    weir.signal_to(pid, "STOP");
    wait_until("it is stopped", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "").unwrap();
    weir.signal_to(pid, "KILL");
    wait_until("another acme process", || acme_process(&weir).is_some_and(|new| new != pid));
    // Its successor has what the zone shows, and what it cannot write stays in memory.
    weir.wait_for_log("error.log", "is kept in memory alone");
    assert!(try_certificate(&weir, "a.test").is_some());
    let log = weir.stop_and_read("error.log");
    assert_eq!(log.matches("is kept in memory alone").count(), 1, "{log}");
    drop(first);
}

/// A disk without room: a new certificate is served from memory, the files stay those of the one
/// before, and the new one's are written once there is room again.
#[test]
fn a_full_disk_delays_files_alone() {
    const NO_SPACE: i32 = 28;
    let (site, pebble) = with_pebble(Driver::usual(), |settings| settings.validity_s = 12);
    let path = site.prefix().join("disk");
    let Some(disk) = StallingFolder::try_mount(&path, Vec::new()) else { return };
    let http = issuer(&pebble, &path.join("state")) + HTTP;
    let text = config(pebble.dns_port(), &(http + &server("a.test")));
    let weir = site.config(&text).start();
    let first = certificate(&weir, "a.test");
    let files = || {
        let of = |end: &str| {
            let all = disk.files("state").into_iter();
            all.filter(|name| name.ends_with(end))
                .map(|name| disk.content(&name))
                .collect::<Vec<_>>()
        };
        (of(".test-c9b2d5b8d7a0b9e3.crt"), of(".test-c9b2d5b8d7a0b9e3.key"))
    };
    wait_until("files", || files().0.len() == 1 && files().1.len() == 1);
    disk.break_writes(Some(NO_SPACE));
    let before = files();
    wait_until("another certificate", || certificate(&weir, "a.test") != first);
    assert_eq!(files(), before);
    disk.break_writes(None);
    wait_until("its files", || files().0 != before.0 && files().1 != before.1);
    let told = weir.wait_for_log("error.log", "can be written again");
    assert!(told.contains("[notice]"), "{told}");
    let log = weir.stop_and_read("error.log");
    assert_eq!(log.matches("is kept in memory alone").count(), 1, "{log}");
}

/// A certificate for another key, from a server that is otherwise pebble, is no certificate: the
/// folder of one that was broken is left alone.
#[test]
fn a_broken_pair_in_the_folder_is_ordered_anew() {
    let mut site = Site::new(built_binary(), Driver::usual());
    let pebble = Pebble::start(Settings::new(site.port(0), site.port(1)));
    let folder = Shared::new("pair");
    let http = issuer(&pebble, &folder.0) + HTTP;
    let text = config(pebble.dns_port(), &(http + &server("a.test")));
    let mut weir = site.config(&text).start();
    let first = certificate(&weir, "a.test");
    let entries = fs::read_dir(&folder.0).unwrap().flatten().map(|e| e.path());
    let path = entries.into_iter().find(|p| p.to_string_lossy().ends_with(".crt")).unwrap();
    fs::write(&path, Pair::own(KeyKind::P256, "a.test").pem()).unwrap();
    weir.restart();
    weir.wait_for_log("error.log", "key values mismatch");
    assert_ne!(certificate(&weir, "a.test"), first);
    assert_eq!(pebble.orders(), 2);
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

/// Handshakes for a certificate that is not there cost no time and no lines of the log.
#[test]
fn handshakes_before_the_first_certificate_are_refused() {
    let liar = liar(vec![answer("500 No", "", "")]);
    let folder = Shared::new("refused");
    let http = false_issuer(&liar, &folder.0);
    let text = config(1, &(http + HTTP + &server("a.test")));
    let weir = Site::new(built_binary(), Driver::usual()).config(&text).start();
    let stop = AtomicBool::new(false);
    let port = weir.port(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let refusal = Client::of("a.test").refusal(port);
            assert!(refusal.contains("HandshakeFailure"), "{refusal}");
        }
    });
    let warned = weir.stop_and_read("error.log").matches("[warn]").count();
    assert!((1..=4).contains(&warned), "{warned} warnings");
}
