//! The relay of a UDP session, over a connected socket of its own: only the server's datagrams
//! reach it.
//!
//! ```text
//!  client ──▶ inbox ──▶ server     ends: questions × proxy_responses answers, time-out, the end
//!  client ◀──────────── server           of the worker; a server that is away: the next one
//! ```

use std::io;
use std::pin::pin;
use std::rc::Rc;

use base::future::rarely;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use engine::Client as _;
use event::{Deadline, Either, Fd, race};
use net::Kind;
use net::relay::Rate;
use os::datagram;
use upstream::balance::ServerOutcome;
use upstream::failure;
use upstream::peer::Peer;
use upstream::socket::{self, NotOpened};

use super::conf::ProxyConf;
use super::{Proxy, Stop, header, relay};
use crate::phases::status;
use crate::session::StreamSession;
use crate::udp::{self, Client, Datagrams};

/// Questions that are kept for the next server, until the first answer.
const KEPT_MAX: usize = 16;

/// Receives that may follow each other before others have their turn.
const ROUNDS: usize = 64;

/// A session's state over all servers that it tries.
pub(super) struct Exchange {
    client: Rc<Client>,
    /// The client's datagrams that no server has answered yet.
    kept: Vec<Bytes>,
    questions: u64,
    answers: u64,
    upload: Option<Box<Rate>>,
    download: Option<Box<Rate>>,
}

/// The end of a relay with one server.
pub(super) enum Ended {
    /// With a status, and the server's part in it.
    Session(u16, ServerOutcome),
    /// The server is away, and has answered nothing.
    Away(io::Error),
    /// The server has answered nothing in time, and an answer was asked for.
    Silent,
}

impl Exchange {
    /// The exchange of a session; its first datagram was read already.
    pub fn new(s: &mut StreamSession, conf: &ProxyConf) -> Option<Exchange> {
        let client = s.datagrams.clone()?;
        let first = std::mem::take(&mut s.preread).freeze();
        let upload = relay::rate(s, &conf.upload_rate).map(Box::new);
        let download = relay::rate(s, &conf.download_rate).map(Box::new);
        if conf.requests > 0 {
            client.limit(conf.requests - 1);
        }
        let (kept, questions, answers) = (vec![first], 1, 0);
        Some(Exchange { client, kept, questions, answers, upload, download })
    }

    /// Whether all answers that were asked for have come.
    fn is_answered(&self, conf: &ProxyConf) -> bool {
        conf.responses.is_some_and(|each| self.answers >= each.saturating_mul(self.questions))
    }

    /// Relays between the client and one server.
    pub async fn run(&mut self, s: &mut StreamSession, conf: &ProxyConf, server: &Fd) -> Ended {
        let gate = s.main.life.gate.clone();
        let header = conf.protocol.map(|headers| header::of(s, headers.version));
        let mut header = header.unwrap_or_default();
        for at in 0..self.kept.len() {
            let question = self.kept[at].clone();
            if let Err(e) = self.ask(s, server, &header, &question).await {
                return self.failed(e);
            }
            if !conf.protocol.is_some_and(|headers| headers.every_datagram) {
                header = Vec::new();
            }
        }
        let mut until = now_ms().saturating_add(conf.timeout);
        loop {
            // Without answers to wait for, it is over once its questions are sent.
            let may_end = conf.requests == 0 || self.questions >= conf.requests;
            if may_end && self.is_answered(conf) {
                self.say(s, "udp done");
                return Ended::Session(status::OK, ServerOutcome::Ok);
            }
            if self.client.is_shed() {
                s.log(Level::Info, format_args!("udp session ends to make room for another"));
                return Ended::Session(status::UNAVAILABLE, ServerOutcome::Ok);
            }
            match self.go(s, server, &header).await {
                Err(e) => return self.failed(e),
                Ok(true) => {
                    until = now_ms().saturating_add(conf.timeout);
                    continue;
                }
                Ok(false) => {}
            }
            let is_last = gate.is_closed() && !self.client.is_kept();
            if is_last && (conf.responses.is_none() || self.is_answered(conf)) {
                return Ended::Session(status::OK, ServerOutcome::Ok);
            }
            if now_ms() >= until {
                return self.late(s, conf);
            }
            self.client.rest();
            let deadline = Deadline::at(until);
            let arrived = self.client.arrived.notified_by(deadline);
            let readable = server.readable(Deadline::NEVER);
            let either = race(arrived, readable);
            if gate.is_closed() {
                either.await;
            } else if let Either::Second(()) = race(pin!(either), gate.closed()).await
                && !self.client.is_kept()
            {
                // The worker leaves: its successor has the socket, and the client's next datagram.
                self.client.close();
            }
        }
    }

    /// Moves what is there, as far as that needs no wait; says whether there was something.
    /// `header` goes before each datagram.
    async fn go(&mut self, s: &mut StreamSession, server: &Fd, header: &[u8]) -> io::Result<bool> {
        let mut moved = false;
        for _ in 0..ROUNDS {
            let question = self.client.next();
            let passes = question.is_some() && may_pass(s);
            if let Some(question) = question.as_ref().filter(|_| passes) {
                s.received.set(s.received.get() + question.len() as u64);
                self.questions += 1;
                if self.answers == 0 && self.kept.len() < KEPT_MAX {
                    self.kept.push(question.clone());
                }
                self.ask(s, server, header, question).await?;
            }
            let answer = match udp::receive(server.fd()) {
                Ok(answer) => answer,
                // An error of another datagram's after answers: the server may be back.
                Err(_) if self.answers > 0 => None,
                Err(e) => return Err(e),
            };
            if let Some(answer) = &answer {
                self.answer(s, answer).await;
            }
            if question.is_none() && answer.is_none() {
                return Ok(moved);
            }
            moved = true;
        }
        event::task::yield_now().await;
        Ok(moved)
    }

    async fn ask(
        &mut self,
        s: &mut StreamSession,
        server: &Fd,
        header: &[u8],
        question: &Bytes,
    ) -> io::Result<()> {
        if let Some(rate) = &mut self.upload {
            rarely(pause(rate, (header.len() + question.len()) as u64)).await;
        }
        self.send(s, server, header, question)
    }

    fn send(
        &self,
        s: &mut StreamSession,
        server: &Fd,
        header: &[u8],
        question: &Bytes,
    ) -> io::Result<()> {
        let bytes = match header.is_empty() {
            true => question.clone(),
            false => [header, question].concat().into(),
        };
        let one = Datagrams::single(bytes);
        match udp::send(server.fd(), &one, None, None) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // The error of an earlier datagram, after which the server answered.
            Err(_) if self.answers > 0 => return Ok(()),
            Err(e) => return Err(e),
        }
        if let Some(a) = s.exchanges.as_mut().and_then(|x| x.now()) {
            a.sent += one.bytes.len() as u64;
        }
        Ok(())
    }

    async fn answer(&mut self, s: &mut StreamSession, answer: &Datagrams) {
        let len = answer.bytes.len() as u64;
        if self.answers == 0 {
            self.kept = Vec::new();
            if let Some(x) = &mut s.exchanges {
                x.first_byte_now();
            }
        }
        self.answers += answer.count();
        if let Some(a) = s.exchanges.as_mut().and_then(|x| x.now()) {
            a.received += len;
        }
        if let Some(rate) = &mut self.download {
            rarely(pause(rate, len)).await;
        }
        match self.client.send(answer) {
            Ok(()) => s.sent.set(s.sent.get() + len),
            Err(e) => {
                let e = base::log::os_error(&e);
                s.log(Level::Info, format_args!("sendmsg() failed {e} while proxying connection"));
            }
        }
    }

    fn failed(&self, e: io::Error) -> Ended {
        match self.answers {
            0 => Ended::Away(e),
            _ => Ended::Session(status::OK, ServerOutcome::Failed),
        }
    }

    /// The time is over: as it may be, where no answer is missing.
    fn late(&self, s: &StreamSession, conf: &ProxyConf) -> Ended {
        if conf.responses.is_none() || self.is_answered(conf) {
            self.say(s, "udp timed out");
            return Ended::Session(status::OK, ServerOutcome::Ok);
        }
        failure::timed_out(s, "proxying connection");
        match self.answers {
            0 => Ended::Silent,
            _ => Ended::Session(status::BAD_GATEWAY, ServerOutcome::Failed),
        }
    }

    fn say(&self, s: &StreamSession, what: &str) {
        if s.logs(Level::Info) {
            let bytes = s.exchanges.as_ref().and_then(|x| x.bytes_now());
            let (from, to) = bytes.unwrap_or_default();
            let (received, sent) = (s.received.get(), s.sent.get());
            let (questions, answers) = (self.questions, self.answers);
            s.log_bare(
                Level::Info,
                format_args!(
                    "{what}, packets from/to client:{questions}/{answers}, bytes from/to \
                     client:{received}/{sent}, bytes from/to upstream:{from}/{to}"
                ),
            );
        }
    }
}

/// Whether a session's further datagram goes on to the server.
fn may_pass(s: &mut StreamSession) -> bool {
    if s.server.pipeline.datagram.is_empty() {
        return true;
    }
    let server = s.server.clone();
    server.pipeline.datagram.iter().all(|handler| handler(s))
}

/// Waits for a rate, and counts `n` bytes.
async fn pause(rate: &mut Rate, n: u64) {
    while let Some(at) = rate.wait_until() {
        event::sleep_until(Deadline::at(at)).await;
    }
    rate.count(n);
}

impl Proxy {
    /// A socket connected to a server.
    pub(super) fn connect_udp(&self, s: &mut StreamSession, peer: &Peer) -> Result<Fd, Stop> {
        let addr = &peer.spec.addr;
        let fd = socket::open_fd(s, &self.conf.socket, addr, Kind::Datagram)
            .map_err(|NotOpened| Stop::Status(status::INTERNAL))?;
        if let Err(e) = os::socket::connect(&fd, addr) {
            let (to, e) = (base::log::lossy(&peer.name), base::log::os_error(&e));
            let m = format_args!("connect() to {to} failed {e} while connecting to upstream");
            s.log(Level::Error, m);
            return Err(Stop::Next);
        }
        let _ = datagram::set_join(&fd);
        if s.logs(Level::Info)
            && let Ok(local) = os::socket::local_addr(&fd)
        {
            let to = base::log::lossy(&peer.name);
            s.log(Level::Info, format_args!("udp proxy {local} connected to {to}"));
        }
        if let Some(x) = &mut s.exchanges {
            x.connected();
        }
        Ok(Fd::new(fd))
    }
}
