//! An open loop: requests are sent at their times, whether or not those before were answered. The
//! latency of a request counts from the time at which it was due, so that a server that stands
//! still for a while is charged for all requests that it delays. A client that waits for each
//! answer before it sends the next request would send fewer of them at such a time, and see one.
//!
//! One thread on CPU 1, ahead of all others there: a late client would be measured as a late
//! server. [`Sample::late_us`] is how late it was itself.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rig::{Outcome, proc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Requests to one server.
pub(crate) struct Flow {
    /// The server's port on 127.0.0.1.
    pub port: u16,
    /// Requests in a second.
    pub rate: u32,
    pub connections: usize,
    /// The paths, one after the other, again and again.
    pub paths: Vec<String>,
}

/// An answered request, or one whose connection broke.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// The flow, by its number.
    pub flow: usize,
    /// When it was due, microseconds since the beginning.
    pub due_us: u64,
    /// From that moment to the last byte of the response.
    pub latency_us: u64,
    /// The part of it until it was sent over an idle connection.
    pub late_us: u64,
    /// 0: the connection broke.
    pub status: u16,
}

/// A load that runs.
pub(crate) struct Open {
    began: Instant,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Outcome<Vec<Sample>>>,
}

impl Open {
    /// Connects, and begins.
    pub fn start(flows: Vec<Flow>) -> Outcome<Open> {
        let ends = Arc::new(AtomicBool::new(false));
        let of_thread = ends.clone();
        let mut client = Client::new(flows).map_err(|e| format!("open loop: {e}"))?;
        let began = client.began;
        let thread = std::thread::spawn(move || {
            proc::pin(1);
            proc::go_first();
            client.run(&of_thread).map_err(|e| format!("open loop: {e}"))
        });
        Ok(Open { began, ends, thread })
    }

    /// Microseconds since the beginning.
    pub fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    /// Ends it; all of its samples.
    pub fn finish(self) -> Outcome<Vec<Sample>> {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|_| Err("the thread of the load is dead".to_owned()))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A request that was sent.
#[derive(Clone, Copy)]
struct Sent {
    due_us: u64,
    at_us: u64,
}

struct Connection {
    flow: usize,
    stream: TcpStream,
    sent: Option<Sent>,
    received: Vec<u8>,
}

impl Connection {
    fn new(flow: usize, port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { flow, stream, sent: None, received: Vec::new() })
    }
}

/// A flow that runs.
struct Running {
    port: u16,
    requests: Vec<Vec<u8>>,
    period_us: u64,
    /// The number of the next request, and when it is due.
    next: u64,
    due_us: u64,
    /// Requests that are due, without a connection.
    waiting: VecDeque<u64>,
    idle: Vec<usize>,
}

struct Client {
    began: Instant,
    flows: Vec<Running>,
    connections: Vec<Connection>,
    /// The sequence with which requests are spread; see [`Client::begin_next`].
    random: u64,
    samples: Vec<Sample>,
    buffer: Vec<u8>,
}

/// No answer came for so long after the end: none will.
const PATIENCE_US: u64 = 10_000_000;

impl Client {
    fn new(flows: Vec<Flow>) -> std::io::Result<Client> {
        let mut client = Client {
            began: Instant::now(),
            flows: Vec::new(),
            connections: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            samples: Vec::new(),
            buffer: vec![0; 64 << 10],
        };
        for (n, flow) in flows.into_iter().enumerate() {
            let mut idle = Vec::new();
            for _ in 0..flow.connections {
                idle.push(client.connections.len());
                client.connections.push(Connection::new(n, flow.port)?);
            }
            let request = |path: &String| {
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
            };
            client.flows.push(Running {
                port: flow.port,
                requests: flow.paths.iter().map(request).collect(),
                period_us: 1_000_000 / u64::from(flow.rate.max(1)),
                next: 0,
                due_us: 0,
                waiting: VecDeque::new(),
                idle,
            });
        }
        client.began = Instant::now();
        Ok(client)
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }

    fn run(&mut self, ends: &AtomicBool) -> std::io::Result<Vec<Sample>> {
        let mut until_us = None;
        loop {
            let now_us = self.now_us();
            if until_us.is_none() && ends.load(Ordering::SeqCst) {
                until_us = Some(now_us + PATIENCE_US);
            }
            let next_us = match until_us {
                None => self.begin_due()?,
                Some(us) => us,
            };
            if until_us.is_some_and(|us| now_us > us) {
                self.give_up();
            }
            let is_done = self.connections.iter().all(|one| one.sent.is_none());
            if until_us.is_some() && is_done && self.flows.iter().all(|f| f.waiting.is_empty()) {
                return Ok(std::mem::take(&mut self.samples));
            }
            for at in self.wait(next_us)? {
                self.receive(at)?;
            }
        }
    }

    /// Waits for answers until that time; the connections that have some. `poll` and not `epoll`,
    /// because its limit is exact, and few requests are in flight.
    fn wait(&self, until_us: u64) -> std::io::Result<Vec<usize>> {
        let busy = (0..self.connections.len()).filter(|at| self.connections[*at].sent.is_some());
        let busy: Vec<_> = busy.collect();
        let watched = |at: &usize| PollFd::new(&self.connections[*at].stream, PollFlags::IN);
        let mut fds: Vec<_> = busy.iter().map(watched).collect();
        let limit = Duration::from_micros(until_us.saturating_sub(self.now_us()));
        let limit = Timespec::try_from(limit).map_err(|_| ErrorKind::InvalidInput)?;
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready = busy.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(at, _)| *at).collect())
    }

    /// Begins the requests that are due; when the next one is.
    fn begin_due(&mut self) -> std::io::Result<u64> {
        let mut next_us = u64::MAX;
        for n in 0..self.flows.len() {
            while self.flows[n].due_us <= self.now_us() {
                let due_us = self.flows[n].due_us;
                self.flows[n].waiting.push_back(due_us);
                self.begin_next(n);
                self.send_waiting(n)?;
            }
            next_us = next_us.min(self.flows[n].due_us);
        }
        Ok(next_us)
    }

    /// The next request of a flow is due at some moment of its period: at even distances, requests
    /// could meet the rounds of a server always or never.
    fn begin_next(&mut self, n: usize) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let flow = &mut self.flows[n];
        flow.next += 1;
        flow.due_us = flow.next * flow.period_us + self.random % flow.period_us;
    }

    fn send_waiting(&mut self, n: usize) -> std::io::Result<()> {
        let flow = &mut self.flows[n];
        while let Some(&due_us) = flow.waiting.front()
            && let Some(at) = flow.idle.pop()
        {
            flow.waiting.pop_front();
            let of = due_us / flow.period_us;
            let request = &flow.requests[(of % flow.requests.len() as u64) as usize];
            let connection = &mut self.connections[at];
            connection.sent = Some(Sent { due_us, at_us: micros(self.began.elapsed()) });
            connection.received.clear();
            // A request fits into the empty buffer of its socket. If it does not, the connection
            // has broken, which the next read tells.
            let _ = connection.stream.write_all(request);
        }
        Ok(())
    }

    fn receive(&mut self, at: usize) -> std::io::Result<()> {
        let connection = &mut self.connections[at];
        let status = match connection.stream.read(&mut self.buffer) {
            Ok(len) if len > 0 => {
                connection.received.extend_from_slice(&self.buffer[..len]);
                match complete(&connection.received) {
                    None => return Ok(()),
                    Some(status) => status,
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            _ => 0,
        };
        self.end(at, status);
        let n = self.connections[at].flow;
        if status == 0 {
            self.connections[at] = Connection::new(n, self.flows[n].port)?;
        }
        self.flows[n].idle.push(at);
        self.send_waiting(n)
    }

    fn end(&mut self, at: usize, status: u16) {
        let now_us = self.now_us();
        let Connection { flow, sent, .. } = &mut self.connections[at];
        if let Some(Sent { due_us, at_us }) = sent.take() {
            let (latency_us, late_us) = (now_us - due_us, at_us - due_us);
            self.samples.push(Sample { flow: *flow, due_us, latency_us, late_us, status });
        }
    }

    /// Counts all that has no answer as broken.
    fn give_up(&mut self) {
        (0..self.connections.len()).for_each(|at| self.end(at, 0));
        let now_us = self.now_us();
        for n in 0..self.flows.len() {
            for due_us in std::mem::take(&mut self.flows[n].waiting) {
                let latency_us = now_us - due_us;
                let late_us = latency_us;
                self.samples.push(Sample { flow: n, due_us, latency_us, late_us, status: 0 });
            }
        }
    }
}

/// The status of a response that is there as a whole; 0 if it is none.
fn complete(received: &[u8]) -> Option<u16> {
    let end = received.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let length = lines.find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let (Some(status), Some(length)) = (status, length) else { return Some(0) };
    let body: usize = length;
    (received.len() >= end + 4 + body).then_some(status)
}

/// The latency that one in a hundred exceeds, microseconds; 0 without any.
pub(crate) fn percentile(latencies: &mut [u64], per_mille: usize) -> u64 {
    if latencies.is_empty() {
        return 0;
    }
    let at = (latencies.len() * per_mille).div_ceil(1000).max(1) - 1;
    *latencies.select_nth_unstable(at).1
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_response_is_complete_with_its_body() {
        let text = b"HTTP/1.1 429 Too Many\r\nServer: x\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(text), Some(429));
        assert_eq!(complete(&text[..text.len() - 1]), None);
        assert_eq!(complete(b"HTTP/1.1 200 OK\r\n\r\n"), Some(0), "of unknown length");
        assert_eq!(complete(b"HTTP/1.1 200"), None);
    }

    #[test]
    fn percentiles_are_of_the_samples() {
        let mut all: Vec<u64> = (1..=1000).rev().collect();
        assert_eq!(percentile(&mut all, 990), 990);
        assert_eq!(percentile(&mut all, 500), 500);
        assert_eq!(percentile(&mut [7], 990), 7);
        assert_eq!(percentile(&mut [], 990), 0);
    }

    /// The server answers the first request late, and all others at once. A closed loop would have
    /// one slow request; here all that were due meanwhile are.
    #[test]
    fn a_standstill_is_charged_for_each_request_that_was_due() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        const WAITING: usize = 50;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (go, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            let mut is_first = true;
            while client.read(&mut buffer).is_ok_and(|len| len > 0) {
                if std::mem::take(&mut is_first) {
                    waits.recv().unwrap();
                }
                client.write_all(ANSWER).unwrap();
            }
        });
        let flow = Flow { port, rate: 1_000, connections: 1, paths: vec!["/".to_owned()] };
        let open = Open::start(vec![flow]).unwrap();
        while open.now_us() < (WAITING as u64 + 2) * 1_000 {
            std::thread::yield_now();
        }
        let released_us = open.now_us();
        go.send(()).unwrap();
        let samples = open.finish().unwrap();
        let early: Vec<_> = samples.iter().filter(|one| one.due_us < released_us).collect();
        assert!(early.len() > WAITING, "{}", early.len());
        for one in early {
            assert_eq!(one.status, 200);
            assert!(one.latency_us >= released_us - one.due_us, "due at {}", one.due_us);
        }
    }
}
