//! The user memory of an idle keep-alive connection, in plain text and under TLS. The test is alone
//! in its process, since it counts all of the heap.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../http/tests/engine/mod.rs"]
#[allow(dead_code)]
mod engine;
#[path = "../../weir/tests/common/tls.rs"]
mod tls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use testkit::certificates::KeyKind;

/// Connections that are held; just under a power of two, so that the room tables have grown for
/// more is not counted.
const COUNT: usize = 507;

/// The budget is 576 bytes, this its hard limit, with the heap's own; nginx takes 944.
const PLAIN_MAX: usize = 608;

/// The budget of a connection under TLS is 8 KB, of which a third is needed: keys, counters, and
/// what variables tell of the session. nginx takes 15.3 KB.
const TLS_MAX: usize = 4096;

/// Sends a request and reads the answer to its end.
fn ask(stream: &mut (impl Read + Write)) {
    stream.write_all(b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut got = [0u8; 1024];
    let mut len = 0;
    while !got[..len].ends_with(b"the end") {
        let n = stream.read(&mut got[len..]).unwrap();
        assert!(n > 0, "closed early: {}", String::from_utf8_lossy(&got[..len]));
        len += n;
    }
}

/// A connection with one request answered on it.
fn plain(addr: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    ask(&mut stream);
    stream
}

/// The same under TLS. The client's side of the session is dropped, and the server does not learn
/// of that.
fn secure(addr: &str, client: &tls::Client) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    let mut session = client.session();
    ask(&mut rustls::Stream::new(&mut session, &mut stream));
    stream
}

/// The bytes that each of many connections takes.
fn each(conf: &str, visit: impl Fn(&str) -> TcpStream + Send) -> usize {
    let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
    let (done, finished) = mpsc::channel();
    let served = engine::serve(conf, weir_http_modules::MODULES);
    std::fs::write(served.folder.path().join("small.txt"), b"the end").unwrap();
    let addr = served.addr.to_string();
    std::thread::scope(|s| {
        let counting = s.spawn(move || {
            let mut held = Vec::with_capacity(COUNT + 2);
            held.push(visit(&addr));
            held.push(visit(&addr));
            // The worker has gone back to waiting once it has answered somebody else.
            let pause = || std::thread::sleep(std::time::Duration::from_millis(100));
            pause();
            let before = os::memory::in_use();
            for _ in 0..COUNT {
                held.push(visit(&addr));
            }
            pause();
            let each = (os::memory::in_use() - before) / COUNT;
            done.send(()).unwrap();
            each
        });
        // The loop turns at least when a connection ends; all end with the thread.
        event_loop.run_until(|| finished.try_recv().is_ok()).unwrap();
        counting.join().unwrap()
    })
}

#[test]
fn an_idle_connection_is_small() {
    os::limits::set(os::limits::Limit::NoFile, 4096).unwrap();
    let conf = "access_log off; server { listen 127.0.0.1:1; root .; keepalive_timeout 75s; }";
    let bytes = each(conf, plain);
    println!("{bytes} bytes a connection");
    assert!((100..=PLAIN_MAX).contains(&bytes), "{bytes} bytes a connection");

    let pair = tls::Pair::own(KeyKind::P256, "a.example");
    let (certificate, key) = (pair.pem(), pair.key.pem());
    let conf = format!(
        "access_log off; server {{ listen 127.0.0.1:1 ssl; root .; keepalive_timeout 75s;
        ssl_certificate \"data:{certificate}\"; ssl_certificate_key \"data:{key}\"; }}"
    );
    for version in tls::BOTH {
        let client = tls::Client::with("a.example", &[version], None);
        let bytes = each(&conf, |addr| secure(addr, &client));
        println!("{bytes} bytes a connection under {:?}", version.version);
        assert!((1000..=TLS_MAX).contains(&bytes), "{bytes} bytes a connection");
    }
}
