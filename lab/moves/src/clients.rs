//! Clients with a thread each, and servers that send back what they get.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rig::Outcome;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::{h2, pattern};

use crate::{PATIENCE, Ports, Protocol, Tally, config, locked};

const STACK: usize = 256 << 10;

/// The longest step of a wait between two messages.
const STEP: Duration = Duration::from_millis(50);

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

/// A message of a connection and its answer: an error, or whether the connection goes on.
type Exchange = Box<dyn FnMut(u64) -> io::Result<bool>>;

/// A server that sends back what it gets, `behind` a response that opens a tunnel.
pub fn echo(behind: bool) -> Outcome<u16> {
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
        head(&mut stream)?;
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

/// Opens a tunnel.
pub const UPGRADE: &str = "GET /tunnel HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                           Connection: Upgrade\r\n\r\n";

/// A client's thread: messages until the end, with a pause behind each.
pub fn client(
    protocol: Protocol,
    pause: Duration,
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
            {
                let mut tally = locked(&tally);
                match done {
                    Ok((same, goes_on)) => {
                        tally.add(at);
                        tally.reconnects += u64::from(!goes_on);
                        exchange = goes_on.then_some(same);
                    }
                    Err(e) if e.kind() == io::ErrorKind::InvalidData => tally.wrong += 1,
                    Err(_) => tally.lost += 1,
                }
            }
            while at.elapsed() < pause && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(STEP.min(pause.saturating_sub(at.elapsed())));
            }
        }
    };
    Builder::new().stack_size(4 * STACK).spawn(run).map_err(|e| e.to_string())
}

/// Opens a connection of the kind.
fn begin(protocol: Protocol, ports: &Ports, tls: &Arc<ClientConfig>) -> io::Result<Exchange> {
    let port = ports.of(protocol);
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
        stream.write_all(UPGRADE.as_bytes())?;
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

pub fn wrong() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// A header section.
pub fn head(stream: &mut impl Read) -> io::Result<String> {
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
