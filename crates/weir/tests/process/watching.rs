//! `weir top`, `weir tail` and `weir debug`: a server that was made slow is named at a terminal,
//! and the log has all about a client for a while.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{BINARY, config};
use testkit::{Scripted, Site, Weir, each_driver, read_until, signal, wait_until};

/// Two servers, each with the time after which it answers.
fn backends() -> Vec<(Scripted, Arc<AtomicU64>)> {
    let start = |_| {
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = delay_ms.clone();
        let server = Scripted::start(move |mut stream, _| {
            let ends = |bytes: &[u8]| bytes.ends_with(b"\r\n\r\n");
            if read_until(&mut stream, ends).is_some() {
                std::thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        (server, delay_ms)
    };
    (0..2).map(start).collect()
}

fn site(backends: &[(Scripted, Arc<AtomicU64>)], driver: testkit::Driver) -> Weir {
    let [one, two] = [0, 1].map(|i: usize| backends[i].0.port);
    let http = format!(
        "upstream app {{ zone app 64k; server 127.0.0.1:{one}; server 127.0.0.1:{two}; }}
         server {{ listen 127.0.0.1:%PORT0%;
             slow_request_time 200ms;
             location / {{ proxy_pass http://app; }}
             location /status/ {{ dashboard; }} }}"
    );
    let text = config(2, "pid logs/weir.pid;", &http);
    Site::new(BINARY, driver).config(&text).start()
}

fn command(weir: &Weir, words: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).arg("-p").arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A command at a terminal of its own, which a program records.
struct Terminal {
    script: Child,
    record: PathBuf,
}

impl Terminal {
    fn start(weir: &Weir, words: &str) -> Terminal {
        Terminal::start_with(weir, words, Stdio::null())
    }

    fn start_with(weir: &Weir, words: &str, keys: Stdio) -> Terminal {
        let record = weir.prefix().join(format!("{}.txt", words.split(' ').next().unwrap()));
        let prefix = weir.prefix().display();
        let line = format!("{BINARY} {words} -p {prefix} -c conf/weir.conf");
        let script = Command::new("script")
            .args(["--quiet", "--flush", "--command", &line])
            .arg(&record)
            .stdin(keys)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .process_group(0)
            .spawn();
        Terminal { script: script.expect("script(1), of bsdutils"), record }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.record).unwrap_or_default()).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The command below it ends when its terminal is gone.
        signal(self.script.id(), "TERM");
        let _ = self.script.wait();
    }
}

/// Clients that ask again and again until they are dropped.
struct Clients(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Clients {
    fn start(port: u16) -> Clients {
        let over = Arc::new(AtomicBool::new(false));
        let ask = |_| {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut conn = testkit::Conn::tcp(port);
                    conn.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                    let _ = conn.read_to_end();
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        };
        let threads = (0..4).map(ask).collect();
        Clients(over, threads)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_server_that_was_made_slow_is_named() {
    each_driver(|driver| {
        let backends = backends();
        let weir = site(&backends, driver);
        let clients = Clients::start(weir.port(0));
        let top = Terminal::start(&weir, "top --interval 500ms");
        let tail = Terminal::start(&weir, "tail --slow");
        wait_until("a view without trouble", || top.text().contains("All is well."));
        let slow = format!("127.0.0.1:{}", backends[1].0.port);
        backends[1].1.store(1_200, Ordering::Relaxed);
        // On a busy machine any server may be slow for a moment, but not for so long.
        let takes = [format!("{slow} of app takes 1."), format!("{slow} of app has stopped")];
        wait_until("its name in top", || takes.iter().any(|text| top.text().contains(text)));
        let told = |line: &str| {
            line.contains(" slow 200 1.") && line.contains(&format!(" server {slow} 200 "))
        };
        wait_until("its name in tail", || tail.text().lines().any(told));
        drop((clients, top, tail));
    });
}

#[test]
fn a_server_that_answers_with_errors_is_named() {
    each_driver(|driver| {
        let broken = Scripted::start(|mut stream, _| {
            if read_until(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n")).is_some() {
                let _ = stream.write_all(b"HTTP/1.0 500 x\r\nContent-Length: 2\r\n\r\nno");
            }
        });
        let fails = format!("127.0.0.1:{} of app fails 100 %", broken.port);
        // No failure for `max_fails`: the server has answered.
        let weir = site(&[backends().remove(0), (broken, Arc::default())], driver);
        let clients = Clients::start(weir.port(0));
        let top = Terminal::start(&weir, "top --interval 500ms");
        wait_until("its name in top", || top.text().contains(&fails));
        drop((clients, top));
    });
}

#[test]
fn keys_change_the_view() {
    let backends = backends();
    let weir = site(&backends, testkit::Driver::usual());
    let mut top = Terminal::start_with(&weir, "top --interval 100ms", Stdio::piped());
    let mut keys = top.script.stdin.take().unwrap();
    let mut press =
        |text: &str| keys.write_all(text.as_bytes()).and_then(|()| keys.flush()).unwrap();
    wait_until("a view", || top.text().contains("UPSTREAM  "));
    assert!(!top.text().contains("Keys: ") && !top.text().contains("(paused)"));
    press("h");
    wait_until("the keys", || top.text().contains("Keys: 1 to 8 sort"));
    press("2");
    wait_until("the sorted column", || top.text().contains("SERVER+ "));
    press("p");
    wait_until("the pause", || top.text().contains(" (paused), "));
    press("q");
    let ended = top.script.wait().unwrap();
    assert!(ended.success(), "{ended}: {}", top.text());
    assert!(top.text().contains("\x1b[1m"), "{}", top.text());
}

#[test]
fn views_without_a_terminal() {
    let backends = backends();
    let weir = site(&backends, testkit::Driver::usual());
    assert_eq!(weir.get("/").status, 200);
    let output = command(&weir, &["top", "--count=1", "--interval", "100ms"]);
    let view = text(&output);
    assert!(output.status.success() && view.contains("configuration 1:"), "{view}");
    assert!(view.contains("UPSTREAM  ") && !view.contains('\x1b'), "{view}");
    assert!(weir.workers().iter().all(|pid| view.contains(&format!("{pid} "))), "{view}");
    backends.iter().for_each(|(_, delay)| delay.store(250, Ordering::Relaxed));
    assert_eq!(weir.get("/x").status, 200);
    // A request is recorded when its client has the answer.
    let lines = || text(&command(&weir, &["tail", "--slow", "--once"]));
    wait_until("the line", || lines().contains("GET localhost/x from 127.0.0.1"));
    assert!(lines().contains(" slow 200 "), "{}", lines());
    let json = text(&command(&weir, &["tail", "--slow", "--once", "--json", "--last=1"]));
    assert_eq!(testkit::Json::parse(&json).number("status"), 200);
}

#[test]
fn a_client_is_logged_in_full_for_a_while() {
    each_driver(|driver| {
        let weir = site(&backends(), driver);
        let mut kept = weir.connect();
        let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        kept.send(ask);
        assert_eq!(kept.response().status, 200);
        assert!(!weir.error_log().contains("[debug]"));
        let output = command(&weir, &["debug", "--client", "127.0.0.0/8", "--for", "1h"]);
        assert!(output.status.success(), "{}", text(&output));
        // A connection that was there before is logged as well.
        kept.send(ask);
        assert_eq!(kept.response().status, 200);
        weir.wait_for_log("error.log", "http request line: \"GET / HTTP/1.1\"");
        weir.wait_for_log("error.log", "connections of 127.0.0.0/8 are logged in full");
        let output = command(&weir, &["debug", "--client", "127.0.0.0/8", "--for", "0"]);
        assert!(text(&output).contains("as usual again"), "{}", text(&output));
        let before = weir.error_log();
        kept.send(ask);
        assert_eq!(kept.response().status, 200);
        let log = weir.error_log();
        assert!(!log[before.len()..].contains("[debug]"), "{}", &log[before.len()..]);
    });
}

#[test]
fn mistakes_are_told() {
    let weir = site(&backends(), testkit::Driver::usual());
    for (words, message) in [
        (&["debug"][..], "--client <CIDR>"),
        (&["debug", "--client", "10.0.0.0/99"], "invalid network \"10.0.0.0/99\""),
        (&["debug", "--client", "10.0.0.0/8", "--for", "2x"], "invalid time \"2x\""),
        (&["debug", "--client", "10.0.0.0/8", "--for", "2d"], "a day at most"),
        (&["tail"], "--slow is needed"),
        (&["tail", "--slow", "--last", "x"], "invalid number \"x\""),
        (&["top", "--count", "x"], "invalid number \"x\""),
        (&["top", "now"], "unexpected argument 'now'"),
        (&["top", "--pid", "/no/such.pid"], "no server runs with this pid file"),
    ] {
        let output = command(&weir, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output).contains(message), "{words:?}: {}", text(&output));
    }
}
