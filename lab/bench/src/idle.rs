//! The user memory of an idle keep-alive connection in a worker.

use std::io::{Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::tls::idle::Idle;
use crate::{Outcome, h2, h3, mail, proc, stream};

/// Connections in the clear, over TLS, of HTTP/2 or of HTTP/3; sessions of `stream` and `mail`.
enum Means {
    Plain,
    Tls(Idle),
    H2(h2::idle::Idle),
    H3(h3::idle::Idle),
    Stream(stream::idle::Idle),
    Mail(mail::Idle),
}

/// The client's end of a connection or session, which lasts as long as it is held.
#[expect(dead_code, reason = "nothing is done with them but to hold them")]
pub enum Held {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Means {
    /// A server's setup, and the port for connections where it is not the usual one.
    fn setup(&self, kind: Kind, connections: usize) -> Outcome<(Setup, Option<u16>)> {
        let (setup, port) = match self {
            Means::Plain => (Setup::default(), None),
            Means::Tls(idle) => idle.setup().map(|(setup, port)| (setup, Some(port)))?,
            Means::H2(idle) => idle.setup(kind).map(|(setup, port)| (setup, Some(port)))?,
            Means::H3(idle) => idle.setup(kind).map(|(setup, port)| (setup, Some(port)))?,
            Means::Stream(idle) => return idle.setup(connections),
            Means::Mail(idle) => return Ok((idle.setup(connections)?, None)),
        };
        Ok((Setup { connections, ..setup }, port))
    }

    /// A connection with answered requests behind it.
    fn one(&self, port: u16) -> Result<Held> {
        match self {
            Means::Plain => plain(port).map(Held::Tcp),
            Means::Tls(idle) => idle.one(port).map(Held::Tcp),
            Means::H2(idle) => idle.one(port).map(Held::Tcp),
            Means::H3(idle) => Ok(Held::Udp(idle.one(port))),
            Means::Stream(idle) => idle.one(port),
            Means::Mail(idle) => idle.one(port),
        }
    }
}

/// Measures every real server. Two parts add up: the memory that connections take when they come,
/// and the memory set aside for them at the start (`worker_connections`).
pub fn run(options: &Options, name: &str) -> Outcome {
    let means = match name {
        "tls-idle" => Means::Tls(Idle::new()?),
        "h2-idle" => Means::H2(h2::idle::Idle::new(false)?),
        "h2-tls-idle" => Means::H2(h2::idle::Idle::new(true)?),
        "h3-idle" => Means::H3(h3::idle::Idle::new()?),
        "stream-idle" => Means::Stream(stream::idle::Idle::new(options, false)?),
        "mail-idle" => Means::Mail(mail::Idle::new()?),
        "stream-udp-idle" => Means::Stream(stream::idle::Idle::new(options, true)?),
        _ => Means::Plain,
    };
    let room = proc::descriptor_limit().saturating_sub(100) as usize;
    let count = options.connections.min(room);
    if count < options.connections {
        println!("only {count} connections: the limit on descriptors allows no more");
    }
    let mut rows = vec![row([
        "server",
        "connections",
        "when they come, B each",
        "set aside, B each",
        "together",
        "RSS growth, B each",
        "after they left, B each",
    ])];
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let (few, _) = means.setup(kind, 64)?;
        let (many, port) = means.setup(kind, count + 200)?;
        let base = {
            let (server, _) = Server::start(options, kind, &few)?;
            settled(&server).private_dirty as f64
        };
        let (server, _) = Server::start(options, kind, &many)?;
        let empty = settled(&server);
        let set_aside = (empty.private_dirty as f64 - base) / (count + 200 - 64) as f64;
        let held = hold(&means, port.unwrap_or(server.port), count)?;
        let full = settled(&server);
        let growth = (full.private_dirty as f64 - empty.private_dirty as f64) / count as f64;
        let rss = (full.rss as f64 - empty.rss as f64) / count as f64;
        drop(held);
        // Free memory goes back in a quiet second.
        std::thread::sleep(Duration::from_millis(2500));
        let after = settled(&server);
        let left = (after.private_dirty as f64 - empty.private_dirty as f64) / count as f64;
        rows.push(row([
            kind.name(),
            &count.to_string(),
            &format!("{growth:.0}"),
            &format!("{set_aside:.0}"),
            &format!("{:.0}", growth + set_aside),
            &format!("{rss:.0}"),
            &format!("{left:.0}"),
        ]));
    }
    report::table(&rows);
    Ok(())
}

/// The worker's memory after a moment of rest.
fn settled(server: &Server) -> proc::Memory {
    std::thread::sleep(Duration::from_millis(300));
    proc::memory(&[server.worker()])
}

/// Opens connections, each with answered requests behind it.
fn hold(means: &Means, port: u16, count: usize) -> Outcome<Vec<Held>> {
    let mut held = Vec::with_capacity(count);
    for n in 0..count {
        held.push(means.one(port).map_err(|e| format!("connection {n}: {e}"))?);
    }
    Ok(held)
}

fn plain(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    ask(&mut stream)?;
    Ok(stream)
}

/// Makes a request and reads the answer to its end.
pub fn ask(stream: &mut (impl Read + Write)) -> Result<()> {
    stream.write_all(b"GET /return HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut buffer = [0; 2048];
    let mut len = 0;
    // The answer is a head and two bytes.
    while !buffer[..len].ends_with(b"\r\n\r\n1\n") {
        match stream.read(&mut buffer[len..])? {
            0 => return Err(std::io::Error::other("closed instead of answered")),
            more => len += more,
        }
    }
    Ok(())
}
