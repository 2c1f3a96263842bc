//! `soak`: the mixed load over every way that weir has, for as long as one likes.
//!
//! ```text
//!  clients ─┬─▶ HTTP/1 ───────────────────────────────────────────┐
//!           ├─▶ stream ──────────────────────────────────────────▶│
//!           ├─▶ stream ── TLS ──▶ HTTP/1 over TLS ────────────────▶│ the site of the mixed load
//!           └─▶ HTTP/1 ── HTTP/2 ──▶ HTTP/2 to itself ────────────▶│
//!           ├─▶ HTTP/2 ───────────────────────────────────────────▶│
//!  telephones: 30 kB/s with pauses of 5 s ────────────────────────┘
//! ```
//!
//! So both sides of each protocol are weir's, and every byte is checked at the end of the row.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::client::{Site, connect};
use crate::mixed::{self, Plan};
use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port};
use crate::tls::Certificate;
use crate::{Outcome, h2};

const TELEPHONES: usize = 4;
/// A telephone's bytes at a time, and its rests: 30 kB/s on the average.
const MOUTHFUL: usize = 150_000;
const REST: Duration = Duration::from_secs(5);
/// The longest wait of a telephone for its next bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two lines about memory and descriptors.
const TELL_EVERY: Duration = Duration::from_secs(20);

const SERVERS: &str = "
    upstream muxed { server 127.0.0.1:%H2%; keepalive 4; }
    server {
        listen 127.0.0.1:%H2%; http2 on;
        location / { proxy_pass http://self; proxy_http_version 1.1; client_max_body_size 10m;
                     proxy_set_header Connection \"\"; proxy_request_buffering off; }
    }
    server {
        listen 127.0.0.1:%FRONT%;
        location / { proxy_pass http://muxed; proxy_http_version 2; client_max_body_size 10m; }
    }
    server {
        listen 127.0.0.1:%TLS% ssl;
        ssl_certificate %CERTIFICATE%; ssl_certificate_key %KEY%;
        location / { proxy_pass http://self; proxy_http_version 1.1; client_max_body_size 10m;
                     proxy_set_header Connection \"\"; }
    }";

const STREAM: &str = "
stream {
    server { listen 127.0.0.1:%PLAIN%; proxy_pass 127.0.0.1:%PORT%; }
    server { listen 127.0.0.1:%SECURED%; proxy_pass 127.0.0.1:%TLS%; proxy_ssl on; }
}";

/// Runs it.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let [h2, front, tls, plain, secured, direct] = ports()?;
    let fill = |text: &str| {
        text.replace("%H2%", &h2.to_string())
            .replace("%FRONT%", &front.to_string())
            .replace("%TLS%", &tls.to_string())
            .replace("%PLAIN%", &plain.to_string())
            .replace("%SECURED%", &secured.to_string())
            .replace("%CERTIFICATE%", &certificate.chain().to_string_lossy())
            .replace("%KEY%", &certificate.key().to_string_lossy())
    };
    let driver = options.driver.as_ref();
    let setup = Setup {
        template: mixed::CONFIG,
        fill: vec![
            ("%MODE%", "threads".to_string()),
            ("%AUTO%", "aio auto;".to_string()),
            ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
            ("%H2_PORT%", direct.to_string()),
            ("%MORE%", fill(SERVERS)),
            ("%STREAM%", fill(STREAM)),
        ],
        cpus: "0,1",
        ..Setup::default()
    };
    let (mut server, _) = Server::start(options, Kind::Weir, &setup)?;
    let (port, kills) = (server.port, options.kill_workers);
    let plan = Plan {
        ports: vec![server.port, plain, secured, front],
        tell_every: Some(TELL_EVERY),
        others: Box::new(move |site, stop| {
            let mut others = begin_telephones(port, site, stop, kills);
            others.extend(h2::mixed::begin(direct, site, stop));
            others
        }),
        others_lost: h2::mixed::LOST_MAX,
    };
    mixed::soak(options, &mut server, &plan)
}

fn ports() -> Outcome<[u16; 6]> {
    let mut ports = [0; 6];
    for at in 0..ports.len() {
        loop {
            let port = free_port()?;
            if !ports.contains(&port) {
                ports[at] = port;
                break;
            }
        }
    }
    Ok(ports)
}

/// Faults that slow clients have found.
pub type Others = Vec<JoinHandle<Vec<String>>>;

fn begin_telephones(port: u16, site: &Arc<Site>, stop: &Arc<AtomicBool>, kills: bool) -> Others {
    let one = |n: usize| {
        let (site, stop) = (Arc::clone(site), Arc::clone(stop));
        std::thread::spawn(move || {
            let mut wrong = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match telephone(port, n, &site, &stop) {
                    Ok(()) => {}
                    // Its worker may have been killed.
                    Err(what) if kills && what != "another body" => {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    Err(what) => wrong.push(format!("telephone: {what}")),
                }
            }
            wrong
        })
    };
    (0..TELEPHONES).map(one).collect()
}

/// A file, read at a telephone's pace.
fn telephone(port: u16, n: usize, site: &Site, stop: &AtomicBool) -> Outcome {
    let (name, body) = site.large(n);
    let place = ["auto", "copied", "proxied", "streamed"][n % 4];
    let mut stream = connect(port, PATIENCE).map_err(|e| e.to_string())?;
    let request = format!("GET /{place}/{name} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut got = Vec::new();
    loop {
        let before = got.len();
        let read = (&mut stream).take(MOUTHFUL as u64).read_to_end(&mut got);
        read.map_err(|e| format!("{e} after {} bytes", got.len()))?;
        let head = got.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if !head.is_some_and(|at| body.starts_with(&got[at..])) {
            return Err("another body".to_string());
        }
        if got.len() == before {
            let whole = head.is_some_and(|at| got.len() - at == body.len());
            return if whole { Ok(()) } else { Err(format!("cut after {} bytes", got.len())) };
        }
        for _ in 0..REST.as_millis() / 100 {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
