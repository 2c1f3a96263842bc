//! `weir healthcheck`: by a URL, and by asking the master.

use std::io::{Read, Write};
use std::process::{Command, Output};

use crate::common::{BINARY, config};
use testkit::certificates::KeyKind;
use testkit::{Driver, Pair, Scripted, Site, Weir};

fn check(words: &[&str]) -> (Option<i32>, String) {
    told(Command::new(BINARY).arg("healthcheck").args(words).output().unwrap())
}

fn told(output: Output) -> (Option<i32>, String) {
    assert!(output.stdout.is_empty());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn by_master(weir: &Weir) -> (Option<i32>, String) {
    let mut command = Command::new(BINARY);
    command.args(["healthcheck", "-p"]).arg(weir.prefix()).args(["-c", "conf/weir.conf"]);
    told(command.output().unwrap())
}

#[test]
fn a_server_is_healthy_while_it_answers() {
    let http = "server { listen 127.0.0.1:%PORT0%;
            location /ok { return 204; } location /moved { return 302 /ok; }
            location /no { return 503; } location = / { return 200 root; } }
        server { listen 127.0.0.1:%PORT1% ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
            return 200 $ssl_protocol; }";
    let site =
        Pair::own(KeyKind::P256, "other.example").on(Site::new(BINARY, Driver::usual()), "a");
    let weir = site.config(&config(1, "pid logs/weir.pid;", http)).start();
    let url =
        |scheme: &str, n: usize, path: &str| format!("{scheme}://127.0.0.1:{}{path}", weir.port(n));
    for path in ["/ok", "/moved", "", "/", "?x"] {
        assert_eq!(check(&[&url("http", 0, path)]), (Some(0), String::new()), "{path}");
    }
    let (code, text) = check(&[&url("http", 0, "/no")]);
    assert!(code == Some(1) && text.ends_with("/no: status 503\n"), "{text}");
    // Its name is another one's.
    assert_eq!(check(&[&url("https", 1, "/")]), (Some(0), String::new()));
    // A plain request to TLS is answered with 400.
    let (code, text) = check(&[&url("http", 1, "/")]);
    assert!(code == Some(1) && text.contains("status 400"), "{text}");
    assert_eq!(by_master(&weir), (Some(0), String::new()));
}

#[test]
fn silence_garbage_and_mistakes_are_told() {
    let silent = Scripted::start(|mut stream, _| drop(stream.read(&mut [0; 1024])));
    let garbage = Scripted::start(|mut stream, _| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"220 mail ready\r\n\r\n");
    });
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let of = |port: u16| format!("http://127.0.0.1:{port}/");
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        of(listener.local_addr().unwrap().port())
    };
    let held_url = of(held.local_addr().unwrap().port());
    for (words, message) in [
        (&[&*of(silent.port)][..], "the answer is not HTTP"),
        (&[&*of(garbage.port)], "the answer is not HTTP"),
        (&[&*held_url, "--timeout", "200ms"], "timed out"),
        (&[&*closed], "refused"),
        (&["ftp://a"], "\"ftp://a\" is no URL of http or https"),
        (&["http://a", "--timeout", "x"], "invalid time \"x\""),
        (&["--pid", "/no/such.pid"], "no server runs with this pid file"),
    ] {
        let (code, text) = check(words);
        assert!(code == Some(1) && text.starts_with("weir healthcheck: "), "{words:?}: {text}");
        assert!(text.contains(message), "{words:?}: {text}");
    }
}
