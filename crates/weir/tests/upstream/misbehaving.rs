//! Upstreams that misbehave, in every way known, for clients of each protocol, with and without
//! buffers and a cache: the client always sees the fault, and nothing of it is kept. The test
//! prints its table (`--nocapture`).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use testkit::h2::Client;
use testkit::{Driver, PATIENCE, Scripted, Site, Weir, built_binary, each_site, read_until};

/// The end of the connection behind an answer.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Fin,
    Reset,
    /// It stays open, and says nothing more.
    Silent,
}

/// The sight that the client must have.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Must {
    /// An error page: nothing of the answer went before.
    Status(u16),
    /// An error page, or an answer that is visibly cut.
    Fault,
}

/// A way to misbehave.
struct Kind {
    name: &'static str,
    answer: &'static str,
    end: End,
    must: Must,
}

const fn kind(name: &'static str, answer: &'static str, end: End, must: Must) -> Kind {
    Kind { name, answer, end, must }
}

const BAD: Must = Must::Status(502);

const KINDS: &[Kind] = &[
    kind("closes at once", "", End::Fin, BAD),
    kind("resets at once", "", End::Reset, BAD),
    kind("says nothing", "", End::Silent, Must::Status(504)),
    kind("is no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", End::Fin, BAD),
    kind("is HTTP/0.9", "<html>an old page</html>", End::Fin, BAD),
    kind("cuts the status line", "HTTP/1.1 20", End::Fin, BAD),
    kind("cuts the head", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Cut: a", End::Fin, BAD),
    kind("stops in the head", "HTTP/1.1 200 OK\r\nX-Stop: a", End::Silent, Must::Status(504)),
    kind("has a bad status", "HTTP/1.1 2x0 OK\r\n\r\nbody", End::Fin, BAD),
    kind("has a status below 100", "HTTP/1.1 099 OK\r\n\r\nbody", End::Fin, BAD),
    kind("has a field without a colon", "HTTP/1.1 200 OK\r\nX-A\r\n\r\nbody", End::Fin, BAD),
    kind(
        "has a trailer without a colon",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX\r\n\r\n",
        End::Fin,
        Must::Fault,
    ),
    kind("has a field without a name", "HTTP/1.1 200 OK\r\n: x\r\n\r\nbody", End::Fin, BAD),
    kind(
        "has two lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nbody",
        End::Fin,
        BAD,
    ),
    kind(
        "has a length beside chunks",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\nbody\r\n0\r\n\r\n",
        End::Fin,
        BAD,
    ),
    kind(
        "has a length that is none",
        "HTTP/1.1 200 OK\r\nContent-Length: four\r\n\r\nbody",
        End::Fin,
        BAD,
    ),
    kind(
        "cuts a body by length",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbody",
        End::Fin,
        Must::Fault,
    ),
    kind("resets behind no length", "HTTP/1.0 200 OK\r\n\r\nbody", End::Reset, Must::Fault),
    kind(
        "resets in a body",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbody",
        End::Reset,
        Must::Fault,
    ),
    kind(
        "stops in a body",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbody",
        End::Silent,
        Must::Fault,
    ),
    kind(
        "cuts between chunks",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        End::Fin,
        Must::Fault,
    ),
    kind(
        "cuts a chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nbody",
        End::Fin,
        Must::Fault,
    ),
    kind(
        "has bad chunks",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nzz\r\nmore\r\n0\r\n\r\n",
        End::Fin,
        Must::Fault,
    ),
];

const MODES: [&str; 3] = ["buffered", "unbuffered", "cached"];
const PROTOCOLS: [&str; 3] = ["HTTP/1.0", "HTTP/1.1", "HTTP/2"];

/// Answers `/MODE/NUMBER/…` as that kind does, and counts requests by their paths.
fn upstream(asked: Arc<Mutex<Vec<String>>>) -> Scripted {
    Scripted::start(move |mut conn, _| {
        let ends = |bytes: &[u8]| bytes.windows(4).any(|w| w == b"\r\n\r\n");
        let Some(request) = read_until(&mut conn, ends) else { return };
        let text = String::from_utf8_lossy(&request).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let number = path.split('/').nth(2).and_then(|n| n.parse::<usize>().ok());
        asked.lock().expect("no test panicked here").push(path);
        let Some(kind) = number.and_then(|n| KINDS.get(n)) else { return };
        let _ = conn.write_all(kind.answer.as_bytes());
        match kind.end {
            End::Fin => {
                let _ = conn.shutdown(Shutdown::Write);
                let _ = conn.read(&mut [0; 64]);
            }
            End::Reset => {
                // After the bytes: they would be dropped with it.
                std::thread::sleep(std::time::Duration::from_millis(50));
                let _ = os::socket::set_reset_on_close(&conn);
            }
            End::Silent => {
                let _ = conn.read(&mut [0; 64]);
            }
        }
    })
}

fn site(driver: Driver, port: u16) -> Weir {
    let http = format!(
        "proxy_cache_path cache keys_zone=one:1m; proxy_cache_valid 200 1h;
        proxy_http_version 1.1; proxy_read_timeout 300ms; proxy_next_upstream off;
        server {{ listen 127.0.0.1:%PORT0%; http2 on;
            location /buffered/ {{ proxy_pass http://127.0.0.1:{port}; }}
            location /unbuffered/ {{ proxy_pass http://127.0.0.1:{port}; proxy_buffering off; }}
            location /cached/ {{ proxy_pass http://127.0.0.1:{port}; proxy_cache one; }} }}"
    );
    Site::new(built_binary(), driver).http(&http).start()
}

/// The sight that a client had.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Saw {
    Status(u16),
    /// An answer with status 200 that its framing, or the end of the connection, shows to be cut.
    Cut,
    /// An answer with status 200 that seems whole.
    Whole,
}

fn ask(weir: &Weir, protocol: &str, path: &str) -> Saw {
    if protocol == "HTTP/2" {
        let mut client = Client::tcp(weir.port(0));
        let stream = client.open("GET", path, &[], true);
        let over = |c: &Client| {
            let r = c.so_far(stream)?;
            (r.ended || r.reset.is_some()).then_some((r.status, r.reset.is_some()))
        };
        let (status, reset) = client.wait_for("the stream's end", over);
        return judge(status, reset);
    }
    let mut conn = TcpStream::connect(("127.0.0.1", weir.port(0))).expect("a connection");
    conn.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!("GET {path} {protocol}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    conn.write_all(request.as_bytes()).expect("to be read");
    let mut bytes = Vec::new();
    let ended = conn.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return judge(0, ended.is_err()) };
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.to_owned()).next()
    };
    let short = field("content-length").is_some_and(|n| n != body.len().to_string());
    let unended = field("transfer-encoding").is_some() && !body.ends_with("0\r\n\r\n");
    judge(status, ended.is_err() || short || unended)
}

fn judge(status: u16, cut: bool) -> Saw {
    match (status, cut) {
        (200, true) | (0, _) => Saw::Cut,
        (200, false) => Saw::Whole,
        (status, _) => Saw::Status(status),
    }
}

fn is_right(must: Must, saw: Saw) -> bool {
    match must {
        Must::Status(status) => saw == Saw::Status(status),
        Must::Fault => matches!(saw, Saw::Cut | Saw::Status(502 | 504)),
    }
}

#[test]
fn clients_see_the_fault_and_nothing_of_it_is_kept() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let origin = upstream(asked.clone());
    let runs = AtomicUsize::new(0);
    each_site(
        |driver| site(driver, origin.port),
        |weir| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            let (weir, count) = (&weir, |path: &str| {
                asked.lock().expect("no test panicked here").iter().filter(|p| *p == path).count()
            });
            let row = |number: usize, kind: &Kind| -> Vec<(String, bool)> {
                let mut cells = Vec::new();
                for mode in MODES {
                    for protocol in PROTOCOLS {
                        let version = protocol.rsplit('/').next().unwrap_or_default();
                        let path = format!("/{mode}/{number}/{run}/{version}");
                        let saw = [ask(weir, protocol, &path), ask(weir, protocol, &path)];
                        // The second was not answered from what is left of the first.
                        let right =
                            saw.iter().all(|saw| is_right(kind.must, *saw)) && count(&path) >= 2;
                        cells.push((format!("{:?}", saw[0]), right));
                    }
                }
                cells
            };
            let rows: Vec<_> = std::thread::scope(|scope| {
                let row = &row;
                let rows = KINDS.iter().enumerate();
                let rows: Vec<_> =
                    rows.map(|(n, kind)| scope.spawn(move || row(n, kind))).collect();
                rows.into_iter().map(|row| row.join().expect("a row")).collect()
            });
            let mut table = String::new();
            for (kind, cells) in KINDS.iter().zip(&rows) {
                let cells = cells.iter().map(|(saw, right)| match right {
                    true => saw.clone(),
                    false => format!("WRONG {saw}"),
                });
                table +=
                    &format!("| {} | {} |\n", kind.name, cells.collect::<Vec<_>>().join(" | "));
            }
            println!("{:?}\n{table}", weir.driver());
            assert!(!table.contains("WRONG"), "{table}");
            assert_eq!(weir.cached_files("cache"), Vec::<String>::new());
        },
    );
}

#[test]
fn a_body_without_a_head_is_taken_where_asked_for() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let origin = upstream(asked);
    let old = KINDS.iter().position(|kind| kind.name == "is HTTP/0.9").expect("such a kind");
    let http = format!(
        "server {{ listen 127.0.0.1:%PORT0%;
            location / {{ proxy_pass http://127.0.0.1:{}; proxy_http09 on; }} }}",
        origin.port
    );
    let weir = Site::new(built_binary(), Driver::usual()).http(&http).start();
    let mut conn = weir.connect();
    conn.send(format!("GET /buffered/{old}/x HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    // As in nginx, the client gets a body alone, too.
    assert_eq!(conn.read_to_end(), KINDS[old].answer.as_bytes());
}
