//! Mail: logins of IMAP and SMTP, good ones and bad ones, and behind them bytes that have to come
//! back as they went. The authentication server and the mail servers are here, too.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned, version};
use testkit::Scripted;
use testkit::rng::Rng;

use super::behind::content;
use super::tally::{Lane, PATIENCE, Tally};
use super::visitors::config;
use crate::Outcome;
use crate::backends::message;
use crate::client::{Watch, connect};

/// Clients of each kind.
const CLIENTS: u64 = 3;
/// The longest life of a session, seconds.
const LIFE: usize = 30;
/// The longest message: what fits into the buffers of all sockets, as one thread writes and reads.
const LONGEST: usize = 30_000;

/// Weir's ports.
#[derive(Clone, Copy)]
pub struct Ports {
    pub imap: u16,
    pub imaps: u16,
    pub smtp: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Imap,
    Imaps,
    Smtp,
}

/// The password of a user.
fn password(user: &str) -> String {
    format!("of {user}")
}

/// Starts the mail servers and the authentication server, which knows every user by the password;
/// gives its port.
pub fn authority() -> u16 {
    let imap = Scripted::start(|client, _| drop(imap(client)));
    let smtp = Scripted::start(|client, _| drop(smtp(client)));
    let (imap, smtp) = (imap.port, smtp.port);
    let server = Scripted::start(move |mut client, _| {
        let Some((head, _)) = message(&mut client, &mut Vec::new()) else { return };
        let field = |name: &str| {
            let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
            head.lines().find_map(of).unwrap_or_default().replace("%20", " ")
        };
        let port = if field("Auth-Protocol") == "imap" { imap } else { smtp };
        let verdict = match field("Auth-Pass") == password(&field("Auth-User")) {
            true => format!("OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: {port}"),
            false => "bad login\r\nAuth-Wait: 1".to_owned(),
        };
        let _ = write!(client, "HTTP/1.0 200 OK\r\nAuth-Status: {verdict}\r\n\r\n");
    });
    server.port
}

/// A mail server of IMAP, which logs in by literals and sends back what comes then.
fn imap(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    client.write_all(b"* OK ready\r\n")?;
    let mut reader = BufReader::new(client.try_clone()?);
    let command = line(&mut reader)?;
    client.write_all(b"+ user\r\n")?;
    let user = line(&mut reader)?;
    client.write_all(b"+ password\r\n")?;
    let (user, tag) = (first(&user), first(&command));
    let is_good = line(&mut reader)? == password(user);
    write!(client, "{tag} {}\r\n", if is_good { "OK in" } else { "NO wrong password" })?;
    echo(&mut reader, &mut client)
}

/// A mail server of SMTP.
fn smtp(mut client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    client.write_all(b"220 ready\r\n")?;
    let mut reader = BufReader::new(client.try_clone()?);
    loop {
        let command = line(&mut reader)?;
        let answer: &[u8] = match first(&command) {
            "EHLO" => b"250-mail\r\n250-XCLIENT ADDR NAME\r\n250 AUTH PLAIN\r\n",
            "XCLIENT" => b"220 anew\r\n",
            "AUTH" => {
                let given = command.strip_prefix("AUTH PLAIN ").unwrap_or_default().as_bytes();
                let mut plain = Vec::new();
                let is_whole = base::base64::decode(given, &mut plain);
                let plain = String::from_utf8_lossy(&plain).into_owned();
                let mut parts = plain.split('\0').skip(1);
                let user = parts.next().unwrap_or_default();
                let is_good = is_whole && parts.next() == Some(&password(user));
                client.write_all(if is_good {
                    b"235 in\r\n"
                } else {
                    b"535 wrong password\r\n"
                })?;
                return echo(&mut reader, &mut client);
            }
            _ => b"500 wrong command\r\n",
        };
        client.write_all(answer)?;
    }
}

fn first(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// A line without its end.
fn line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    reader.take(4096).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(Error::from(ErrorKind::UnexpectedEof)),
    }
}

fn echo(reader: &mut impl BufRead, client: &mut TcpStream) -> Result<()> {
    loop {
        let bytes = reader.fill_buf()?;
        let len = bytes.len();
        if len == 0 {
            return Ok(());
        }
        client.write_all(bytes)?;
        reader.consume(len);
    }
}

/// Starts the clients.
pub fn begin(ports: Ports, tally: &Arc<Tally>) -> Outcome<Vec<JoinHandle<()>>> {
    let tls = config(&[&version::TLS12, &version::TLS13], &[b"imap"])?;
    let kinds = [
        (Kind::Imap, ports.imap, "IMAP"),
        (Kind::Imaps, ports.imaps, "IMAP over TLS"),
        (Kind::Smtp, ports.smtp, "SMTP"),
    ];
    let mut threads = Vec::new();
    for (place, (kind, port, protocol)) in kinds.into_iter().enumerate() {
        for n in 1..=CLIENTS {
            let (lane, tls) = (Lane::new(tally, protocol), tls.clone());
            threads.push(std::thread::spawn(move || {
                let n = n + place as u64 * CLIENTS;
                let (mut rng, mut number) = (Rng::new(n + 177), n << 32);
                while !lane.tally.is_over() {
                    lane.pace();
                    if let Err(what) = session((kind, port), &tls, &mut number, &mut rng, &lane) {
                        lane.fault(what.1, &what.0);
                        lane.tally.sleep(Duration::from_millis(100));
                    }
                }
            }));
        }
    }
    Ok(threads)
}

/// The fault, and the time of the last beginning.
type Lost = (String, Instant);

/// A client's connection.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn lost(e: &Error, what: &str, since: Instant) -> Lost {
    let stuck = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    (if stuck { "stuck".to_string() } else { what.to_string() }, since)
}

/// Connects, and reads the greeting; gives the socket, too.
fn open(kind: Kind, port: u16, tls: &Arc<ClientConfig>) -> Result<(Talk, TcpStream)> {
    let stream = connect(port, PATIENCE)?;
    let end = stream.try_clone()?;
    let stream: Box<dyn Stream> = match kind {
        Kind::Imaps => {
            let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
            let session = ClientConnection::new(tls.clone(), name).map_err(Error::other)?;
            Box::new(StreamOwned::new(session, stream))
        }
        Kind::Imap | Kind::Smtp => Box::new(stream),
    };
    let mut talk = Talk { stream: BufReader::new(stream), kind };
    talk.greeting()?;
    Ok((talk, end))
}

/// A session: bad logins, a good one, and messages.
fn session(
    (kind, port): (Kind, u16),
    tls: &Arc<ClientConfig>,
    number: &mut u64,
    rng: &mut Rng,
    lane: &Lane,
) -> std::result::Result<(), Lost> {
    let since = Instant::now();
    let (mut talk, end) = open(kind, port, tls).map_err(|e| lost(&e, "not opened", since))?;
    for attempt in 0.. {
        let since = Instant::now();
        *number += 1;
        let user = format!("user{number}");
        let is_good = attempt == 2 || rng.percent(80);
        let password = if is_good { password(&user) } else { "wrong".to_string() };
        // Some clients do not wait for the answer: what they send is for the mail server.
        let ahead = content(*number, if is_good && rng.percent(30) { rng.below(2000) } else { 0 });
        let answer = talk.log_in(&user, &password, &ahead).map_err(|e| lost(&e, "cut", since))?;
        if talk.is_in(&answer) != is_good {
            return Err((format!("wrong answer: {answer}"), since));
        }
        if !is_good {
            lane.right(since, "a refused login");
            continue;
        }
        let mut back = vec![0; ahead.len()];
        talk.stream.read_exact(&mut back).map_err(|e| lost(&e, "cut", since))?;
        if back != ahead {
            return Err(("another body behind a login".to_string(), since));
        }
        lane.right(since, "a login");
        break;
    }
    let life = Duration::from_secs(1 + rng.below(LIFE) as u64);
    while !lane.tally.is_over() && since.elapsed() < life {
        lane.pace();
        *number += 1;
        let longest = if rng.percent(10) { LONGEST } else { 200 };
        let sent = content(*number, rng.below(longest));
        let (since, mut back) = (Instant::now(), vec![0; sent.len()]);
        let stream = talk.stream.get_mut();
        stream
            .write_all(&sent)
            .and_then(|()| stream.flush())
            .map_err(|e| lost(&e, "cut", since))?;
        talk.stream.read_exact(&mut back).map_err(|e| lost(&e, "cut", since))?;
        match back == sent {
            true => lane.right(since, "a message"),
            false => return Err(("another body of a message".to_string(), since)),
        }
        std::thread::sleep(Duration::from_millis(rng.below(400) as u64));
    }
    // Leaves, with an end or a reset.
    if rng.percent(50) {
        let _ = rustix::net::sockopt::set_socket_linger(&end, Some(Duration::ZERO));
    }
    lane.given_up(since);
    Ok(())
}

/// A client's side of the dialogue.
struct Talk {
    stream: BufReader<Box<dyn Stream>>,
    kind: Kind,
}

impl Talk {
    fn greeting(&mut self) -> Result<()> {
        line(&mut self.stream)?;
        if self.kind == Kind::Smtp {
            self.send(b"EHLO soak.test\r\n")?;
            while line(&mut self.stream)?.starts_with("250-") {}
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Gives the answer to a login; `ahead` is sent with it.
    fn log_in(&mut self, user: &str, password: &str, ahead: &[u8]) -> Result<String> {
        let mut bytes = match self.kind {
            Kind::Imap | Kind::Imaps => format!("a1 LOGIN {user} \"{password}\"\r\n"),
            Kind::Smtp => {
                let mut plain = Vec::new();
                base::base64::encode(format!("\0{user}\0{password}").as_bytes(), &mut plain);
                format!("AUTH PLAIN {}\r\n", String::from_utf8_lossy(&plain))
            }
        }
        .into_bytes();
        bytes.extend_from_slice(ahead);
        self.send(&bytes)?;
        line(&mut self.stream)
    }

    fn is_in(&self, answer: &str) -> bool {
        match self.kind {
            Kind::Imap | Kind::Imaps => answer.starts_with("a1 OK "),
            Kind::Smtp => answer.starts_with("235 "),
        }
    }
}
