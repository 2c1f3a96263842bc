//! The scratch engine of [`engine`], with servers of its own, on every event driver.

#![allow(clippy::unwrap_used, clippy::panic)]

mod engine;

use std::rc::Rc;

use base::log::Level;
use event::testing::{connect, each_driver, listen, until};
use event::{Listener, Notify};
use os::SockAddr;
use upstream::peer::down;

use engine::{read_line, write_line};

/// The holding of a line by a server: it has come, and may be answered.
#[derive(Default)]
struct Held {
    arrived: Notify,
    release: Notify,
}

/// A server that answers a line with its own name before it; a line `hold` only when it may.
fn server(name: &'static str, listener: Listener, held: &Rc<Held>) {
    let held = held.clone();
    event::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            let held = held.clone();
            event::spawn(async move {
                let line = read_line(&accepted.sock).await;
                if line.is_empty() {
                    return;
                }
                if line == b"hold" {
                    held.arrived.notify_one();
                    held.release.notified().await;
                }
                write_line(&accepted.sock, &[name.as_bytes(), b":", &line].concat()).await;
            });
        }
    });
}

async fn ask(addr: &SockAddr, line: &str) -> String {
    let sock = connect(addr).await.unwrap();
    write_line(&sock, line.as_bytes()).await;
    String::from_utf8(read_line(&sock).await).unwrap()
}

async fn echoes(rules: &str) -> (Vec<String>, String) {
    let folder = testkit::Folder::new("echo");
    let held = Rc::new(Held::default());
    let ((one, one_addr), (two, two_addr), (dead, dead_addr)) =
        (listen().unwrap(), listen().unwrap(), listen().unwrap());
    server("one", one, &held);
    server("two", two, &held);
    drop(dead);
    let text = format!(
        "map $line $kind {{ ~^h held; default \"other\"; }}
         limit_conn_zone $line zone=lines:64k;
         log_format lines \"$line $kind\";
         upstream back {{
             zone back 64k;
             least_conn;
             server {one_addr};
             server {two_addr};
             server {dead_addr};
         }}
         server {{ {rules} limit_conn lines 1; access_log echo.log lines; }}"
    );
    let (log, _lines) = base::log::capture(Level::Info);
    base::log::set_default(log.clone());
    let echo = engine::load(&text, &folder, &log);
    let (listener, addr) = listen().unwrap();
    engine::start(&echo, vec![listener]);
    let unhealthy = || {
        let lists = echo.group.servers.lists();
        lists
            .all()
            .filter(|p| p.down() & down::UNHEALTHY != 0)
            .map(|p| p.spec.addr.clone())
            .collect::<Vec<_>>()
    };
    until(|| !unhealthy().is_empty()).await;
    assert_eq!(unhealthy(), [dead_addr]);
    let answers = match rules.contains("allow") {
        true => conversation(&addr, &held).await,
        false => vec![ask(&addr, "x").await],
    };
    engine::quit(&echo).await;
    let logged = std::fs::read_to_string(folder.join("echo.log")).unwrap();
    (answers, logged)
}

/// The answers to a held line, to the same line meanwhile, and to another one meanwhile.
async fn conversation(addr: &SockAddr, held: &Held) -> Vec<String> {
    let first = connect(addr).await.unwrap();
    write_line(&first, b"hold").await;
    held.arrived.notified().await;
    let twice = ask(addr, "hold").await;
    let other = ask(addr, "x").await;
    held.release.notify_one();
    vec![String::from_utf8(read_line(&first).await).unwrap(), twice, other]
}

#[test]
fn lines_are_passed_on() {
    each_driver(|| async {
        let (answers, logged) = echoes("allow 127.0.0.1; deny all;").await;
        let [held, twice, other] = &answers[..] else { panic!("{answers:?}") };
        // The server that holds a line has one connection more than the other.
        let servers = [held.split(':').next(), other.split(':').next()];
        assert!(
            matches!(servers, [Some("one"), Some("two")] | [Some("two"), Some("one")]),
            "{answers:?}"
        );
        assert_eq!(twice, "busy");
        assert_eq!(logged, "hold held\nx other\nhold held\n");
    });
}

#[test]
fn clients_are_denied() {
    each_driver(|| async {
        let (answers, _) = echoes("deny 127.0.0.0/8;").await;
        assert_eq!(answers, ["forbidden"]);
    });
}
