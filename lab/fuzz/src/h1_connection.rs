//! A whole connection over HTTP/1 under the simulated driver: requests one behind the other, in any
//! pieces, or any bytes, over a network that is as bad as the input says. A client that asks
//! properly gets what it asked for, in order; memory is bounded, everything comes to an end, and
//! nothing is left.

use std::collections::VecDeque;

use bytes::Bytes;
use event::testing::connect;
use event::{Deadline, Sock};
use mem::Chain;

use crate::simulated::{self, SMALL, World};

/// The first bytes choose the world, the others are operations of the client: see [`Script`].
/// `live` tells the memory that is allocated.
pub fn run(data: &[u8], live: fn() -> usize) {
    let [mode, seed, operations @ ..] = data else { return };
    let (plan, is_calm) = simulated::plan(*mode, *seed);
    let judged = mode & 1 == 0;
    let rest_ms = if judged { 40_000 } else { u64::MAX };
    let script = Script { rest: operations.to_vec(), judged, rest_ms };
    simulated::run(plan, live, move |world| play(world, script, is_calm));
}

/// The due answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Small,
    /// The head alone.
    Head,
    Large,
    Part,
    Status(u16),
    /// From a server behind, which may fail on a bad network.
    Passed,
}

/// The client's operations, three bytes and a payload each.
struct Script {
    rest: Vec<u8>,
    /// The client asks properly, and judges what it gets.
    judged: bool,
    /// For so long, ms, it may still do nothing: less in all than `send_timeout`, where it judges.
    rest_ms: u64,
}

enum Step {
    Send(Vec<u8>, Option<Due>),
    Read(u8),
    Sleep(u64),
}

impl Script {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let n = n.min(self.rest.len());
        self.rest.drain(..n).collect()
    }

    fn step(&mut self) -> Option<Step> {
        if self.rest.len() < 3 {
            return None;
        }
        let [what, a, len] = *self.take(3).first_chunk::<3>()?;
        let payload = self.take(len.into());
        Some(match what % 8 {
            0..=4 if self.judged => {
                let (bytes, due) = request(a, &payload);
                Step::Send(bytes, Some(due))
            }
            // A request that is not whole, or none at all.
            0 | 1 => {
                let (bytes, _) = request(a, &payload);
                let cut = usize::from(len) * 2 % (bytes.len() + 1);
                Step::Send([&bytes[..cut], &payload].concat(), None)
            }
            2..=4 => Step::Send(payload.repeat(1 + usize::from(a)), None),
            5 | 6 => Step::Read(a),
            _ => {
                let ms = self.rest_ms.min(u64::from(a) * u64::from(len));
                self.rest_ms -= ms;
                Step::Sleep(ms)
            }
        })
    }
}

/// A proper request, and what it has to get.
fn request(a: u8, payload: &[u8]) -> (Vec<u8>, Due) {
    let (method, path, due) = match a % 8 {
        0 | 1 => ("GET", "/s", Due::Small),
        2 => ("HEAD", "/s", Due::Head),
        3 => ("GET", "/l", Due::Large),
        4 => ("GET", "/none", Due::Status(404)),
        5 => ("POST", "/s", Due::Status(405)),
        6 => ("GET", "/u/l", Due::Passed),
        _ => ("GET", "/l", Due::Part),
    };
    let range = if due == Due::Part { "Range: bytes=10-19\r\n" } else { "" };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{range}");
    let body = match (a >> 3) % 4 {
        0 | 1 => b"\r\n".to_vec(),
        2 => [format!("Content-Length: {}\r\n\r\n", payload.len()).as_bytes(), payload].concat(),
        _ => {
            let mut out = b"Transfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in payload.chunks(7) {
                out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n\r\n");
            out
        }
    };
    ([head.as_bytes(), &body].concat(), due)
}

/// The client's view of its connection.
struct Client {
    sock: Sock,
    due: VecDeque<Due>,
    got: Vec<u8>,
    judged: bool,
    is_calm: bool,
    /// The server has said that no further answer comes.
    is_last: bool,
}

async fn play(world: World, mut script: Script, is_calm: bool) {
    let World { addr, memory, .. } = world;
    let Ok(sock) = connect(&addr).await else { return };
    let (judged, due, got) = (script.judged, VecDeque::new(), Vec::new());
    let mut client = Client { sock, due, got, judged, is_calm, is_last: false };
    while let Some(step) = script.step() {
        match step {
            Step::Send(bytes, due) => {
                client.due.extend(due);
                if client.send(bytes).await.is_none() {
                    return;
                }
            }
            Step::Read(times) => {
                for _ in 0..times {
                    if client.hear(20).await.is_none() {
                        break;
                    }
                }
            }
            Step::Sleep(ms) => event::sleep(ms).await,
        }
        memory.check();
    }
    while client.judged && !client.due.is_empty() && !client.is_last {
        if client.hear(100_000).await.is_none() {
            // It rests no longer than the server waits for a client.
            assert!(!client.is_calm, "{:?} never came", client.due);
            return;
        }
        memory.check();
    }
}

impl Client {
    /// Sends; reads where the server wants its answers to be taken first.
    async fn send(&mut self, bytes: Vec<u8>) -> Option<()> {
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(bytes));
        while !chain.is_empty() {
            match self.sock.send(&mut chain, Deadline::in_ms(50)).await {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::TimedOut => self.hear(5_000).await?,
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Reads once; `None` where nothing comes, or the connection has ended.
    async fn hear(&mut self, ms: u64) -> Option<()> {
        let page = self.sock.recv(1, Deadline::in_ms(ms)).await.ok()?;
        if page.is_empty() {
            return None;
        }
        if self.judged {
            self.got.extend_from_slice(&page);
            while let Some(due) = self.due.front().copied()
                && let Some(len) = self.judge(due)
            {
                self.got.drain(..len);
                self.due.pop_front();
            }
            assert!(!self.due.is_empty() || self.got.is_empty(), "more than was asked for");
        }
        Some(())
    }

    /// Looks at the answer at the front, if it is whole: its length.
    fn judge(&mut self, due: Due) -> Option<usize> {
        let end = self.got.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.got[..end]).into_owned();
        let status: u16 = head.get(9..12).and_then(|s| s.parse().ok()).expect("a status");
        assert!(head.starts_with("HTTP/1.1 "), "{head:?}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.and_then(|n| n.parse().ok()).expect("a length");
        let length = if due == Due::Head { 0 } else { length };
        let body = self.got.get(end..end + length)?;
        self.is_last = head.contains("\r\nConnection: close\r\n");
        match due {
            Due::Small => assert_eq!((status, body), (200, SMALL)),
            Due::Head => assert_eq!(status, 200),
            Due::Large => assert!(status == 200 && body == simulated::large(), "{head}"),
            Due::Part => assert_eq!((status, body), (206, &simulated::large()[10..20])),
            Due::Status(due) => assert_eq!(status, due),
            Due::Passed if status == 200 => assert!(body == simulated::large(), "{head}"),
            Due::Passed => assert!(!self.is_calm && status >= 500, "{head}"),
        }
        Some(end + length)
    }
}
