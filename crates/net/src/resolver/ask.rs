//! One question to one name server: over UDP, over TCP where the answer does not fit.

use std::io;

use base::log;
use base::log::{Level, lossy, os_error};
use event::{Deadline, Fd, Sock};
use mem::{Buf, Chain, Page};
use os::SockAddr;
use os::socket::Kind;
use proto::dns::{self, Response};

/// Longest answer over UDP that is taken.
const UDP_MAX: usize = 4096;

/// Limit of a name server's answer over TCP, milliseconds.
const TCP_MS: u64 = 5_000;

#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The name in lower case, without a dot at the end.
    pub name: &'a [u8],
    pub kind: u16,
}

/// Why there is no answer.
pub(super) enum Silence {
    /// None came in time.
    Late,
    /// The server cannot be reached, or broke off.
    Gone,
    /// No query can hold the name.
    BadName,
}

/// The random parts of a query, which an answer must repeat: only a host that sees the query knows
/// them.
struct QueryIdentity {
    id: u16,
    /// The name with its letters in upper and lower case at random (0x20).
    name: Vec<u8>,
    message: Vec<u8>,
}

/// Whether distant hosts can forge answers of this server. The loopback cannot be reached from
/// outside, and servers there are often small ones that do not keep the letters' case.
fn is_exposed(server: &SockAddr) -> bool {
    !server.ip_addr().is_some_and(|ip| ip.is_loopback())
}

fn prepare(q: Question<'_>, mixed: bool) -> Result<QueryIdentity, Silence> {
    let mut name = q.name.to_vec();
    if mixed {
        let mut bits = 0;
        for (i, byte) in name.iter_mut().enumerate() {
            if i % 64 == 0 {
                bits = os::random::number();
            }
            if byte.is_ascii_lowercase() && bits >> (i % 64) & 1 != 0 {
                byte.make_ascii_uppercase();
            }
        }
    }
    let id = os::random::number() as u16;
    let mut message = Vec::with_capacity(name.len() + 18);
    dns::write_query(&mut message, id, &name, q.kind).map_err(|_| Silence::BadName)?;
    Ok(QueryIdentity { id, name, message })
}

/// The classification of a message from the server.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// The answer to the question.
    Answer(Response),
    /// The answer, but with letters of another case: from a server that does not keep it, or
    /// forged.
    Doubtful,
    /// Something else; why.
    No(String),
}

fn judge(message: &[u8], q: Question<'_>, sent: &QueryIdentity) -> Reply {
    let Ok(response) = dns::read(message) else {
        return Reply::No("invalid DNS response".to_owned());
    };
    let name = lossy(q.name);
    if response.id != sent.id {
        let (id, wanted) = (response.id, sent.id);
        let m = format!("wrong ident {id} in DNS response for {name}, expect {wanted}");
        return Reply::No(m);
    }
    if response.kind != q.kind || !response.name.eq_ignore_ascii_case(q.name) {
        return Reply::No(format!("unexpected DNS response for {}", lossy(&response.name)));
    }
    if response.name != sent.name {
        return Reply::Doubtful;
    }
    Reply::Answer(response)
}

fn complain(level: Level, server: &SockAddr, what: &str) {
    let log = log::default();
    base::log!(log, level, None, "{what} while resolving, resolver: {server}");
}

fn failed(server: &SockAddr, call: &str, e: &io::Error) -> Silence {
    complain(Level::Error, server, &format!("{call} failed {}", os_error(e)));
    Silence::Gone
}

/// Asks a server and waits for its answer until `deadline`.
pub(super) async fn ask(
    server: &SockAddr,
    q: Question<'_>,
    deadline: Deadline,
) -> Result<Response, Silence> {
    let sent = prepare(q, is_exposed(server))?;
    match udp(server, q, &sent, deadline).await? {
        Some(response) if !response.truncated => Ok(response),
        _ => {
            // Answers over TCP cannot be forged blindly: no need for mixed case.
            let sent = prepare(q, false)?;
            let ms = deadline.at_ms().saturating_sub(base::time::now_ms()).min(TCP_MS);
            match event::timeout(ms, tcp(server, q, &sent)).await {
                Ok(answer) => answer,
                Err(_) => Err(Silence::Late),
            }
        }
    }
}

/// `None`: the query must be repeated over TCP. Each query has a socket of its own, with a new port
/// each time, and the kernel passes only messages of its peer.
async fn udp(
    server: &SockAddr,
    q: Question<'_>,
    sent: &QueryIdentity,
    deadline: Deadline,
) -> Result<Option<Response>, Silence> {
    let fd =
        os::socket::socket(server, Kind::Datagram).map_err(|e| failed(server, "socket()", &e))?;
    os::socket::connect(&fd, server).map_err(|e| failed(server, "connect()", &e))?;
    let fd = Fd::new(fd);
    os::socket::send(fd.fd(), &sent.message, false).map_err(|e| failed(server, "send()", &e))?;
    let mut buf = [0; UDP_MAX];
    loop {
        match os::socket::recv(fd.fd(), &mut buf) {
            Ok(n) => match judge(&buf[..n], q, sent) {
                Reply::Answer(response) => return Ok(Some(response)),
                Reply::Doubtful => return Ok(None),
                Reply::No(why) => complain(Level::Error, server, &why),
            },
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if fd.readable(deadline).await.is_err() {
                    return Err(Silence::Late);
                }
            }
            Err(e) => return Err(failed(server, "recv()", &e)),
        }
    }
}

async fn tcp(
    server: &SockAddr,
    q: Question<'_>,
    sent: &QueryIdentity,
) -> Result<Response, Silence> {
    let fd =
        os::socket::socket(server, Kind::Stream).map_err(|e| failed(server, "socket()", &e))?;
    let (sock, deadline) = (Sock::from_fd(fd), Deadline::in_ms(TCP_MS));
    sock.connect(server, deadline).await.map_err(|e| failed(server, "connect()", &e))?;
    let mut message = (sent.message.len() as u16).to_be_bytes().to_vec();
    message.extend_from_slice(&sent.message);
    let mut out = Chain::new();
    out.push(Buf::Mem(message.into()));
    sock.send(&mut out, deadline).await.map_err(|e| failed(server, "send()", &e))?;
    let mut buf: Vec<u8> = Vec::new();
    loop {
        if let Some((len, rest)) = buf.split_first_chunk::<2>()
            && let Some(message) = rest.get(..usize::from(u16::from_be_bytes(*len)))
        {
            return match judge(message, q, sent) {
                Reply::Answer(response) => Ok(response),
                Reply::Doubtful => Err(Silence::Gone),
                Reply::No(why) => {
                    complain(Level::Error, server, &why);
                    Err(Silence::Gone)
                }
            };
        }
        let page: Page =
            sock.recv(UDP_MAX, deadline).await.map_err(|e| failed(server, "recv()", &e))?;
        if page.is_empty() {
            complain(Level::Error, server, "name server closed the connection");
            return Err(Silence::Gone);
        }
        buf.extend_from_slice(page.filled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question<'static> {
        Question { name: b"www.example.com", kind: dns::kind::A }
    }

    fn sent() -> QueryIdentity {
        prepare(question(), true).ok().unwrap()
    }

    /// The query as its answer.
    fn echo(sent: &QueryIdentity) -> Vec<u8> {
        let mut m = sent.message.clone();
        m[2] |= 0x80;
        m
    }

    #[test]
    fn each_question_is_another() {
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for _ in 0..64 {
            let s = sent();
            assert!(s.name.eq_ignore_ascii_case(question().name));
            ids.push(s.id);
            names.push(s.name);
        }
        ids.sort_unstable();
        ids.dedup();
        names.sort_unstable();
        names.dedup();
        assert!(ids.len() > 50 && names.len() > 50);
        assert_eq!(prepare(question(), false).ok().unwrap().name, question().name);
    }

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let s = sent();
        assert!(matches!(judge(&echo(&s), question(), &s), Reply::Answer(_)));
        let with = |at: usize, f: fn(u8) -> u8| {
            let mut m = echo(&s);
            m[at] = f(m[at]);
            judge(&m, question(), &s)
        };
        assert!(matches!(with(0, |b| b ^ 1), Reply::No(m) if m.contains("wrong ident")));
        assert!(matches!(with(13, |_| b'x'), Reply::No(m) if m.contains("unexpected")));
        assert!(matches!(with(30, |_| 28), Reply::No(m) if m.contains("unexpected")));
        assert_eq!(with(13, |b| b ^ 0x20), Reply::Doubtful);
        let none = judge(b"short", question(), &s);
        assert_eq!(none, Reply::No("invalid DNS response".to_owned()));
    }

    #[test]
    fn who_is_near_cannot_be_forged() {
        let exposed = |text: &[u8]| is_exposed(&SockAddr::parse(text).unwrap());
        assert!(!exposed(b"127.0.0.53:53") && !exposed(b"[::1]:53"));
        assert!(exposed(b"192.0.2.1:53"));
    }
}
