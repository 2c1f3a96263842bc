//! Reloads and binary upgrades under open connections that move: tunnels, sessions of `stream`, and
//! kept connections of HTTP/1 and HTTP/2. Each client sends numbered messages one by one and
//! compares what comes back; beside them, short requests on new connections are timed.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rig::options::Options;
use rig::report::{self, row};
use rig::server::{Kind, Server, Setup, free_port, get, new_folder};
use rig::{Outcome, proc};
use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::{AnyCertificate, h2, pattern};

const CONFIG: &str = include_str!("../../bench/configs/moves.conf");

const RELOADS: usize = 5;
const UPGRADES: usize = 2;

/// Connections of each kind.
const EACH_MAX: usize = 200;

/// The pause of a client between two messages.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest wait for an answer, and for the end of old workers.
const PATIENCE: Duration = Duration::from_secs(20);

/// The pause between two reloads, in which nothing happens.
const REST: Duration = Duration::from_millis(500);

const STACK: usize = 256 << 10;

const KINDS: [(&str, Protocol); 5] = [
    ("WebSocket, TLS", Protocol::Tunnel { tls: true }),
    ("tunnel, clear", Protocol::Tunnel { tls: false }),
    ("stream, TLS", Protocol::Stream),
    ("HTTP/1 kept, TLS", Protocol::Http1),
    ("HTTP/2, TLS", Protocol::Http2),
];

#[derive(Clone, Copy)]
enum Protocol {
    Tunnel { tls: bool },
    Stream,
    Http1,
    Http2,
}

#[derive(Clone)]
struct Ports {
    clear: u16,
    tls: u16,
    stream: u16,
}

/// The events of a kind's clients.
#[derive(Default)]
struct Tally {
    messages: u64,
    /// An answer was another one than expected.
    wrong: u64,
    /// The connection ended before the answer.
    lost: u64,
    /// Connections that were opened again because the server ended one in good order.
    reconnects: u64,
    /// Times until the answers, milliseconds.
    times: Vec<f64>,
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

/// A message of a connection and its answer: an error, or whether the connection goes on.
type Exchange = Box<dyn FnMut(u64) -> io::Result<bool>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The paths of a certificate of its own, and of its key.
fn certificate() -> Outcome<(String, String)> {
    let folder = new_folder()?;
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.join(name).display().to_string());
    let options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"];
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "30"]).args(options).arg("/CN=localhost");
    let output = command.args(["-keyout", &key, "-out", &chain]).output();
    let output = output.map_err(|e| format!("openssl: {e}"))?;
    match output.status.success() {
        true => Ok((chain, key)),
        false => Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A configuration of TLS that takes any certificate.
fn config() -> Outcome<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let verifier = Arc::new(AnyCertificate);
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Runs the load against weir, on each of its drivers that is to be compared.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut failed = false;
    for &kind in options.servers.iter().filter(|kind| kind.is_real() && **kind != Kind::Nginx) {
        failed |= one(options, kind)?;
    }
    if failed {
        Err("messages were lost or wrong, or old workers stayed".to_string())
    } else {
        Ok(())
    }
}

fn one(options: &Options, kind: Kind) -> Outcome<bool> {
    let (chain, key) = certificate()?;
    let (tls, stream) = (free_port()?, free_port()?);
    let fill = vec![
        ("%CERTIFICATE%", chain),
        ("%KEY%", key),
        ("%TLS_PORT%", tls.to_string()),
        ("%STREAM_PORT%", stream.to_string()),
        ("%TUNNELS%", echo(true)?.to_string()),
        ("%PLAIN%", echo(false)?.to_string()),
    ];
    let setup = Setup { template: CONFIG, fill, daemon: true, cpus: "0-1", ..Setup::default() };
    let (server, _) = Server::start(options, kind, &setup)?;
    let ports = Ports { clear: server.port, tls, stream };
    let each = options.clients.min(EACH_MAX);
    let stop = Arc::new(AtomicBool::new(false));
    let tallies: Vec<Arc<Mutex<Tally>>> = KINDS.iter().map(|_| Arc::default()).collect();
    let mut threads = Vec::new();
    for ((_, protocol), tally) in KINDS.iter().zip(&tallies) {
        for _ in 0..each {
            threads.push(client(*protocol, &ports, tally, &stop)?);
        }
    }
    let others: Arc<Mutex<Vec<f64>>> = Arc::default();
    threads.push(witness(ports.clear, &others, &stop)?);
    std::thread::sleep(2 * REST);
    let before = proc::memory(&server.all_pids()).pss;
    let mut ends = Vec::new();
    let (mut moved, mut longest) = (0, 0);
    for _ in 0..RELOADS {
        ends.push(replaced(&server, |server| server.signal(Signal::HUP)));
    }
    tell(&server, &mut moved, &mut longest);
    for _ in 0..UPGRADES {
        ends.push(replaced(&server, upgrade));
        ends.push(replaced(&server, |server| server.signal(Signal::HUP)));
        tell(&server, &mut moved, &mut longest);
    }
    let after = proc::memory(&server.all_pids()).pss;
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    let failed = print(kind, &tallies) | ends.iter().any(Option::is_none);
    let left = ends.iter().filter(|end| end.is_none()).count();
    let times: Vec<f64> = ends.iter().flatten().map(|end| end.as_secs_f64() * 1000.0).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    println!(
        "{} connections, {RELOADS} reloads, {UPGRADES} upgrades with a reload each; old workers \
         gone after {:.0} ms (median), {slowest:.0} ms (longest), {left} times not in {PATIENCE:?}",
        each * KINDS.len(),
        report::median(&times),
    );
    println!(
        "moved {moved} times, in the slowest change {:.0} connections a second; longest turn of a \
         loop {longest} ms; other requests: {}; PSS {} MB before, {} MB after",
        (each * KINDS.len()) as f64 * 1000.0 / slowest.max(1.0),
        percentiles(&locked(&others)),
        report::megabytes(before as f64),
        report::megabytes(after as f64),
    );
    Ok(failed)
}

fn print(kind: Kind, tallies: &[Arc<Mutex<Tally>>]) -> bool {
    let mut failed = false;
    let head = ["connections", "messages", "lost", "wrong", "reconnects", "time until the answer"];
    let mut rows = vec![row(head)];
    for ((name, _), tally) in KINDS.iter().zip(tallies) {
        let t = locked(tally);
        failed |= t.lost + t.wrong > 0 || t.messages == 0;
        let counts = [t.messages, t.lost, t.wrong, t.reconnects].map(|n| n.to_string());
        let [messages, lost, wrong, reconnects] = &counts;
        rows.push(row([name, messages, lost, wrong, reconnects, &percentiles(&t.times)]));
    }
    println!("{}:", kind.name());
    report::table(&rows);
    failed
}

fn percentiles(times: &[f64]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (sorted.len() as f64 * share) as usize;
        sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    format!("p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms", at(0.5), at(0.99), at(1.0))
}

/// The time from a change until the workers before it have ended; `None` if they have not.
fn replaced(server: &Server, change: impl FnOnce(&Server)) -> Option<Duration> {
    let old: Vec<u32> = server.pids().into_iter().filter(|pid| is_worker(*pid)).collect();
    let began = Instant::now();
    change(server);
    while old.iter().any(|pid| proc::is_running(*pid)) {
        if began.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    std::thread::sleep(REST);
    Some(took)
}

fn is_worker(pid: u32) -> bool {
    proc::title(pid).contains("worker process")
}

/// USR2, and QUIT to the old master when the new one has workers.
fn upgrade(server: &Server) {
    let old = server.pid();
    proc::signal(old, Signal::USR2);
    let began = Instant::now();
    while server.pid() == old || !proc::tree(server.pid()).into_iter().any(is_worker) {
        if began.elapsed() > PATIENCE {
            println!("no new master after USR2: {}", server.complaints());
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    proc::signal(old, Signal::QUIT);
}

/// Adds the counters of this binary.
fn tell(server: &Server, moved: &mut u64, longest: &mut u64) {
    let Ok(text) = get(server.port, "localhost", "/status") else { return };
    let numbers = |name: &str| {
        let value = |part: &str| part.split([',', '}']).next()?.trim().parse::<u64>().ok();
        let name = format!("\"{name}\":");
        text.split(&name).skip(1).filter_map(value).collect::<Vec<_>>()
    };
    *moved += numbers("moved").into_iter().sum::<u64>();
    *longest = numbers("longest_turn_ms").into_iter().chain([*longest]).max().unwrap_or(0);
}

/// A server that sends back what it gets, `behind` a response that opens a tunnel.
fn echo(behind: bool) -> Outcome<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let served = move || drop(serve(stream, behind));
            drop(Builder::new().stack_size(STACK).spawn(served));
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream, behind: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = [0; 8192];
    if behind {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut buf[..1])?;
            head.push(buf[0]);
        }
        stream.write_all(SWITCH.as_bytes())?;
    }
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\n\r\n";

/// A client's thread: messages until the end.
fn client(
    protocol: Protocol,
    ports: &Ports,
    tally: &Arc<Mutex<Tally>>,
    stop: &Arc<AtomicBool>,
) -> Outcome<JoinHandle<()>> {
    let (ports, tally, stop) = (ports.clone(), Arc::clone(tally), Arc::clone(stop));
    let config = config()?;
    let run = move || {
        let mut exchange = None;
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            n += 1;
            let at = Instant::now();
            let there = exchange.take();
            // The client of HTTP/2 panics where the server breaks a rule.
            let done = catch_unwind(AssertUnwindSafe(|| {
                let mut exchange = match there {
                    Some(exchange) => exchange,
                    None => begin(protocol, &ports, &config)?,
                };
                let goes_on = exchange(n)?;
                Ok((exchange, goes_on))
            }));
            let done = done.unwrap_or_else(|_| Err(wrong()));
            let mut tally = locked(&tally);
            match done {
                Ok((same, goes_on)) => {
                    tally.messages += 1;
                    tally.times.push(at.elapsed().as_secs_f64() * 1000.0);
                    tally.reconnects += u64::from(!goes_on);
                    exchange = goes_on.then_some(same);
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData => tally.wrong += 1,
                Err(_) => tally.lost += 1,
            }
        }
    };
    Builder::new().stack_size(4 * STACK).spawn(run).map_err(|e| e.to_string())
}

/// Opens a connection of the kind.
fn begin(protocol: Protocol, ports: &Ports, tls: &Arc<ClientConfig>) -> io::Result<Exchange> {
    let port = match protocol {
        Protocol::Tunnel { tls: false } => ports.clear,
        Protocol::Stream => ports.stream,
        _ => ports.tls,
    };
    if let Protocol::Http2 = protocol {
        let mut client = h2::Client::tls(port);
        return Ok(Box::new(move |n| {
            let path = format!("/echo/{n}");
            let same = client.get(&path).text() == path;
            if same { Ok(client.goaways().is_empty()) } else { Err(wrong()) }
        }));
    }
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let mut stream: Box<dyn Both> = match protocol {
        Protocol::Tunnel { tls: false } => Box::new(socket),
        _ => {
            let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
            let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
            Box::new(StreamOwned::new(session, socket))
        }
    };
    if let Protocol::Http1 = protocol {
        return Ok(Box::new(move |n| ask(&mut stream, n)));
    }
    if let Protocol::Tunnel { .. } = protocol {
        let request = "GET /tunnel HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                       Connection: Upgrade\r\n\r\n";
        stream.write_all(request.as_bytes())?;
        if !head(&mut stream)?.starts_with("HTTP/1.1 101") {
            return Err(wrong());
        }
    }
    Ok(Box::new(move |n| {
        let mut message = n.to_be_bytes().to_vec();
        message.extend_from_slice(&pattern((n * 7919 % 3000) as usize, n as usize));
        stream.write_all(&message)?;
        let mut answer = vec![0; message.len()];
        stream.read_exact(&mut answer)?;
        if answer == message { Ok(true) } else { Err(wrong()) }
    }))
}

fn wrong() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// A header section.
fn head(stream: &mut impl Read) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A request of HTTP/1 and its response.
fn ask(stream: &mut (impl Read + Write), n: u64) -> io::Result<bool> {
    let path = format!("/echo/{n}");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let head = head(stream)?;
    let mut body = vec![0; path.len()];
    stream.read_exact(&mut body)?;
    match head.starts_with("HTTP/1.1 200") && body == path.as_bytes() {
        true => Ok(!head.contains("Connection: close")),
        false => Err(wrong()),
    }
}

/// Times short requests on new connections.
fn witness(
    port: u16,
    times: &Arc<Mutex<Vec<f64>>>,
    stop: &Arc<AtomicBool>,
) -> Outcome<JoinHandle<()>> {
    let (times, stop) = (Arc::clone(times), Arc::clone(stop));
    let run = move || {
        while !stop.load(Ordering::Relaxed) {
            let at = Instant::now();
            if get(port, "localhost", "/return").is_ok() {
                locked(&times).push(at.elapsed().as_secs_f64() * 1000.0);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    Builder::new().spawn(run).map_err(|e| e.to_string())
}
