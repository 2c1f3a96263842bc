//! A whole connection over HTTP/2 under the simulated driver: any frames, or bytes, of a client
//! over a network that is as bad as the input says. The server breaks no rule towards a client that
//! frames its bytes well, holds no more memory than its budgets say, comes to an end, and leaves
//! nothing.

use event::testing::connect;
use event::{Deadline, Sock};
use mem::Chain;
use testkit::h2::{Client, Ended, Frame, Options, PREFACE, Wire, block, flag, kind, setting};

use crate::simulated::{self, World};

/// The first bytes choose the world, the others are operations of the client: see [`Script`].
/// `live` tells the memory that is allocated.
pub fn run(data: &[u8], live: fn() -> usize) {
    let [mode, seed, operations @ ..] = data else { return };
    let (plan, _) = simulated::plan(*mode, *seed);
    let script = Script { rest: operations.to_vec(), judged: mode & 1 == 0, next: 1 };
    let how = (mode & 16 != 0, mode & 32 != 0);
    simulated::run(plan, live, move |world| play(world, script, how));
}

/// The client's operations, four bytes and a payload each.
struct Script {
    rest: Vec<u8>,
    /// The client reads what comes, and judges it. It may break rules of streams, but none of
    /// frames.
    judged: bool,
    next: u32,
}

enum Step {
    Send(Vec<Frame>),
    Bytes(Vec<u8>),
    Read(u8),
    Sleep(u64),
    Finish,
}

impl Script {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let n = n.min(self.rest.len());
        self.rest.drain(..n).collect()
    }

    fn step(&mut self) -> Option<Step> {
        if self.rest.len() < 4 {
            return None;
        }
        let [what, a, b, len] = *self.take(4).first_chunk::<4>()?;
        let payload = self.take(len.into());
        let stream = u32::from(a);
        let end = b & 1 != 0;
        let frame = match what % 16 {
            0 | 1 => self.request(a, b, &payload),
            2 => Frame::data(stream, repeated(&payload, b), end),
            3 => Frame::reset(stream, b.into()),
            4 => Frame::window_update(stream, u32::from(b) << (len % 24)),
            5 => {
                let ids = [setting::HEADER_TABLE_SIZE, setting::INITIAL_WINDOW_SIZE];
                let id = ids.get(usize::from(b % 4)).copied().unwrap_or(100 + u16::from(b));
                Frame::settings(&[(id, u32::from(a) << (len % 16))])
            }
            6 => Frame::ping([a; 8]),
            7 => Frame::priority(stream, b.into(), len & 1 != 0, len),
            8 => Frame::priority_update(stream, &String::from_utf8_lossy(&payload)),
            9 if !self.judged => {
                let stream = payload.first().copied().unwrap_or_default();
                Frame::new(b, a, stream.into(), &payload)
            }
            10 => {
                let stream = self.open(b);
                Frame::headers(stream, &payload, end)
            }
            11 => Frame::headers(stream, block(&[("x-t", "1")]), end),
            12 if !self.judged => return Some(Step::Bytes(payload)),
            13 => return Some(Step::Read(a)),
            14 => return Some(Step::Sleep(u64::from(a) * u64::from(b))),
            15 if a == 0 => return Some(Step::Finish),
            _ => {
                let parts = payload.split_at(usize::from(b).min(payload.len()));
                let stream = self.open(b);
                let head = self.head(a);
                let parts: [&[u8]; 3] = [&head, parts.0, parts.1];
                return Some(Step::Send(Frame::headers_in_parts(stream, &parts, end)));
            }
        };
        let times = if what & 0x80 == 0 { 1 } else { 40 };
        Some(Step::Send(vec![frame; times]))
    }

    fn open(&mut self, b: u8) -> u32 {
        let stream = self.next;
        self.next += if b & 2 == 0 { 2 } else { 6 };
        stream
    }

    fn head(&self, a: u8) -> Vec<u8> {
        let paths = ["/s", "/l", "/none", "/u/l", "/t/s", "/w/s", "/r", "*"];
        let methods = ["GET", "POST", "HEAD", "CONNECT"];
        let (path, method) = (paths[usize::from(a % 8)], methods[usize::from(a >> 3 & 3)]);
        let mut fields = vec![(":method", method), (":authority", "a")];
        if method != "CONNECT" || a & 32 != 0 {
            fields.extend([(":scheme", "http"), (":path", path)]);
        }
        if method == "CONNECT" && a & 32 != 0 {
            fields.push((":protocol", "websocket"));
        }
        if a & 64 != 0 {
            fields.push(("expect", "100-continue"));
        }
        block(&fields)
    }

    fn request(&mut self, a: u8, b: u8, payload: &[u8]) -> Frame {
        let stream = self.open(b);
        let mut head = self.head(a);
        if b & 4 != 0 {
            head.extend(block(&[("content-length", "7")]));
        }
        if b & 8 != 0 {
            head.extend(block(&[("priority", payload)]));
        }
        if b & 16 != 0 {
            head.extend(block(&[("x-field", repeated(payload, b))]));
        }
        Frame::new(kind::HEADERS, flag::END_HEADERS | b & 1, stream, head)
    }
}

fn repeated(payload: &[u8], b: u8) -> Vec<u8> {
    payload.repeat(if b & 0x80 == 0 { 1 } else { 60 })
}

async fn play(world: World, mut script: Script, (small_windows, stays): (bool, bool)) {
    let World { addr, memory, .. } = world;
    let Ok(sock) = connect(&addr).await else { return };
    let window = if small_windows { 100 } else { 65_535 };
    let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, window);
    let mut client = Client::over(Wire::memory(), options);
    if !script.judged {
        client.wire().take_sent();
        client.send([&PREFACE[..], &Frame::settings(&[]).encode()].concat());
    }
    while let Some(step) = script.step() {
        match step {
            Step::Send(frames) if script.judged => client.send_frames(&frames),
            Step::Send(frames) => {
                client.send(frames.iter().flat_map(Frame::encode).collect::<Vec<u8>>());
            }
            Step::Bytes(bytes) => client.send(bytes),
            Step::Read(times) => {
                for _ in 0..times {
                    if hear(&sock, &mut client, script.judged, 20).await.is_none() {
                        break;
                    }
                }
            }
            Step::Sleep(ms) => event::sleep(ms).await,
            Step::Finish => {
                let _ = sock.shutdown_write();
            }
        }
        if send(&sock, &mut client).await.is_none() {
            return;
        }
        memory.check();
    }
    while stays && hear(&sock, &mut client, script.judged, 100_000).await.is_some() {
        if send(&sock, &mut client).await.is_none() {
            return;
        }
        memory.check();
    }
}

async fn send(sock: &Sock, client: &mut Client) -> Option<()> {
    let mut chain = Chain::new();
    chain.push_bytes(client.wire().take_sent().into());
    sock.send(&mut chain, Deadline::in_ms(5_000)).await.ok()
}

/// Reads once; `None` where nothing comes, or the connection has ended.
async fn hear(sock: &Sock, client: &mut Client, judged: bool, ms: u64) -> Option<()> {
    let page = sock.recv(1, Deadline::in_ms(ms)).await.ok()?;
    if page.is_empty() {
        client.wire().end(Ended::Closed);
        return None;
    }
    if judged {
        client.wire().give(&page);
        client.take_given();
    }
    Some(())
}
