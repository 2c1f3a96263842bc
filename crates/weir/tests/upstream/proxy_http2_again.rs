//! `proxy_http_version 2`: requests that a server did not process go to a fresh connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use crate::common;
use testkit::h2::{Frame, Peer, Reply, code};
use testkit::{Conn, Driver, Scripted, Site, Weir, built_binary, each_driver};

fn site(driver: Driver, port: u16) -> Weir {
    let text = format!(
        "upstream u {{ server 127.0.0.1:{port}; keepalive 4; }}
         server {{
             listen 127.0.0.1:%PORT0%;
             proxy_http_version 2;
             location / {{ proxy_pass http://u; }}
         }}"
    );
    Site::new(built_binary(), driver)
        .config(&format!("worker_processes 1; events {{}} http {{ {text} }}"))
        .start()
}

fn send(conn: &mut Conn, method: &str, path: &str, body: &str) {
    let len = body.len();
    conn.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}"
    ));
}

/// The first connection refuses each request, as a server does that has too many already.
#[test]
fn a_request_that_is_refused_twice_goes_to_another_connection() {
    each_driver(|driver| {
        let refusals = Arc::new(AtomicUsize::new(0));
        let count = refusals.clone();
        let origin = Scripted::start(move |stream, number| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                if number == 1 && request.path() == "/refused" {
                    count.fetch_add(1, Ordering::Relaxed);
                    peer.send(&[Frame::reset(request.stream, code::REFUSED_STREAM)]);
                    continue;
                }
                let body = String::from_utf8_lossy(&request.body).into_owned();
                peer.reply(request.stream, &Reply::of(format!("{body} {number}")));
            }
        });
        let weir = site(driver, origin.port);
        assert_eq!(weir.get("/").text(), " 1");
        for (method, body) in [("POST", "a"), ("GET", "b"), ("GET", "")] {
            let mut conn = weir.connect();
            send(&mut conn, method, "/refused", body);
            let text = conn.response().text();
            assert_eq!(text.split(' ').next(), Some(body), "{method}");
            assert_ne!(text.split(' ').nth(1), Some("1"), "{method}");
        }
        assert!(refusals.load(Ordering::Relaxed) >= 2);
    });
}

/// The server closes a connection while a request is on its way there: the worker, which stands
/// still meanwhile, finds both at once.
#[test]
fn a_request_that_was_not_sent_goes_to_a_fresh_connection() {
    each_driver(|driver| {
        let (close, gate) = mpsc::channel::<()>();
        let (closed, is_closed) = mpsc::channel::<()>();
        let (gate, closed) = (Mutex::new(gate), Mutex::new(closed));
        let origin = Scripted::start(move |stream, number| {
            let socket = stream.try_clone().expect("a descriptor");
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                let body = String::from_utf8_lossy(&request.body).into_owned();
                peer.reply(request.stream, &Reply::of(format!("{body} {number}")));
                if request.path() == "/last" {
                    gate.lock().expect("not poisoned").recv().expect("a word");
                    socket.shutdown(std::net::Shutdown::Both).expect("an open socket");
                    closed.lock().expect("not poisoned").send(()).expect("a listener");
                    return;
                }
            }
        });
        let weir = site(driver, origin.port);
        let worker = weir.workers()[0];
        for round in 0..3 {
            let mut conn = weir.connect();
            send(&mut conn, "GET", "/last", "");
            assert_eq!(conn.response().status, 200);
            common::stop(&weir, worker);
            send(&mut conn, "POST", "/", "body");
            close.send(()).expect("a script");
            is_closed.recv().expect("a script");
            weir.signal_to(worker, "CONT");
            let response = conn.response();
            assert_eq!(response.status, 200, "{round}");
            assert!(response.text().starts_with("body "), "{round}");
        }
    });
}

/// A GET may have been processed, and is sent again all the same: on a connection that was kept,
/// its end may have been on its way.
#[test]
fn a_get_with_a_body_on_a_kept_connection_is_sent_again() {
    each_driver(|driver| {
        let origin = Scripted::start(move |stream, number| {
            let mut peer = Peer::accept(stream, &[]);
            let mut count = 0;
            while let Some(request) = peer.request() {
                count += 1;
                if number == 1 && count == 2 {
                    return;
                }
                let body = String::from_utf8_lossy(&request.body).into_owned();
                peer.reply(request.stream, &Reply::of(format!("{body} {number}")));
            }
        });
        let weir = site(driver, origin.port);
        assert_eq!(weir.get("/").text(), " 1");
        let mut conn = weir.connect();
        send(&mut conn, "GET", "/", "body");
        assert_eq!(conn.response().text(), "body 2");
    });
}
