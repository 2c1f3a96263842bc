//! The relay of a UDP session. Each session has its own connected socket to its server, so that
//! only that server's datagrams reach it. In the code below, a client's datagrams are *questions*
//! and a server's are *answers*.
//!
//! ```text
//!  client ──▶ inbox ──▶ server     ends: questions × proxy_responses answers, timeout, exit of
//!  client ◀──────────── server           the worker; an unreachable server: tries the next one
//! ```
//!
//! A relay has no task: [`crate::udp::table`] runs its turn when a datagram arrives or its timer is
//! due.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use engine::Client as _;
use event::Member;
use net::Kind;
use os::datagram;
use upstream::balance::ServerOutcome;
use upstream::failure;
use upstream::peer::Peer;
use upstream::socket::{self, NotOpened, SocketConf};

use super::choice::Choice;
use super::conf::ProxyConf;
use super::resumed::Resumed;
use super::{Proxy, Stop, finish, header, relay};
use crate::module::{Choosing, Served, TasklessProxy};
use crate::phases::status;
use crate::session::StreamSession;
use crate::udp::client::Client;
use crate::udp::datagrams;
use crate::udp::relay::{Aside, Marks, Pause, Relay, Unanswered};

/// The maximum number of questions kept for the next server until the first answer.
const KEPT_MAX: usize = 16;

/// The maximum number of receives in one turn, so that other sessions get theirs.
const ROUNDS: usize = 64;

/// The end of an exchange with one server.
enum Ended {
    /// The session ends with a status and this outcome for the server.
    Session(u16, ServerOutcome),
    /// The server is unreachable and has sent no answer.
    Away(io::Error),
    /// The server has sent no answer within the timeout although one was expected.
    Silent,
}

impl TasklessProxy for Proxy {
    fn choose<'a>(&'a self, s: &'a mut StreamSession) -> Choosing<'a> {
        s.is_proxied = true;
        boxed(|| Proxy::choose(self, s))
    }

    fn relay(&self, s: StreamSession, choice: Choice) -> Relay {
        self.make_relay(s, choice)
    }

    fn further_datagrams(&self) -> Option<u64> {
        self.conf.requests.checked_sub(1)
    }

    fn turn(&self, relay: &mut Relay, client: &Rc<Client>, came: bool) -> Result<Pause, u16> {
        self.run_turn(relay, client, came)
    }

    fn buffer_size(&self) -> usize {
        self.conf.buffer_size
    }

    fn resume<'a>(&'a self, s: &'a mut StreamSession, resumed: Resumed) -> Served<'a> {
        boxed(|| self.resume_session(s, resumed))
    }
}

impl Proxy {
    /// Creates the relay of a session, whose first datagram was already read.
    fn make_relay(&self, mut s: StreamSession, choice: Choice) -> Relay {
        let conf = &self.conf;
        let first = std::mem::take(&mut s.preread).freeze();
        let (upload, download) =
            (relay::rate(&mut s, &conf.upload_rate), relay::rate(&mut s, &conf.download_rate));
        let every = conf.protocol.filter(|headers| headers.every_datagram);
        let header = every.map(|headers| header::of(&s, headers.version)).unwrap_or_default();
        let unanswered = Some(Unanswered { first, others: Vec::new(), sent: 0 });
        let Choice { lease, others } = choice;
        let aside = Some(Box::new(Aside { unanswered, others, upload, download, header }));
        Relay { s, lease, server: None, questions: 1, answers: 0, aside }
    }

    /// Runs a turn: moves datagrams in both directions as far as possible without waiting. `came`:
    /// the server's socket may be readable.
    ///
    /// # Errors
    /// The session has ended with this status.
    fn run_turn(
        &self,
        relay: &mut Relay,
        client: &Rc<Client>,
        mut came: bool,
    ) -> Result<Pause, u16> {
        let mut turn = Turn { relay, client, proxy: self, conf: &self.conf };
        loop {
            if turn.relay.server.is_none() {
                if let Err(stop) = turn.begin() {
                    turn.go_on(stop)?;
                    continue;
                }
                came = false;
            }
            match turn.step(&mut came) {
                Ok(pause) => return Ok(pause),
                Err(ended) => {
                    turn.relay.server = None;
                    turn.after(ended)?;
                }
            }
        }
    }

    /// Creates a socket connected to a server, for a session of the table.
    fn connect_udp(
        &self,
        s: &mut StreamSession,
        peer: &Peer,
        socket: &SocketConf,
        client: &Client,
    ) -> Result<Member, Stop> {
        let fd = open_server(s, peer, socket)?;
        let Some(member) = client.member(fd) else { return Err(Stop::Status(status::INTERNAL)) };
        if let Err(e) = member.watch() {
            let e = base::log::os_error(&e);
            s.log(Level::Alert, format_args!("watching a socket failed {e}"));
            return Err(Stop::Status(status::INTERNAL));
        }
        Ok(member)
    }
}

/// Creates a socket connected to a server.
pub(super) fn open_server(
    s: &mut StreamSession,
    peer: &Peer,
    socket: &SocketConf,
) -> Result<OwnedFd, Stop> {
    let addr = &peer.spec.addr;
    let fd = socket::open_fd(s, socket, addr, Kind::Datagram)
        .map_err(|NotOpened| Stop::Status(status::INTERNAL))?;
    if let Err(e) = os::socket::connect(&fd, addr) {
        let (to, e) = (base::log::lossy(&peer.name), base::log::os_error(&e));
        let m = format_args!("connect() to {to} failed {e} while connecting to upstream");
        s.log(Level::Error, m);
        return Err(Stop::Next);
    }
    if s.logs(Level::Info)
        && let Ok(local) = os::socket::local_addr(&fd)
    {
        let to = base::log::lossy(&peer.name);
        s.log(Level::Info, format_args!("udp proxy {local} connected to {to}"));
    }
    s.exchanges.connected();
    Ok(fd)
}

/// A turn of a relay.
struct Turn<'a> {
    relay: &'a mut Relay,
    client: &'a Rc<Client>,
    proxy: &'a Proxy,
    conf: &'a ProxyConf,
}

impl Turn<'_> {
    /// Connects to the next server and sends it the unanswered questions.
    fn begin(&mut self) -> Result<(), Stop> {
        let Relay { s, lease, server, aside, .. } = &mut *self.relay;
        // Servers are only tried before the first answer, when `aside` exists.
        let Some(aside) = aside else { return Err(Stop::Status(status::INTERNAL)) };
        let Some(peer) = aside.others.take_next(lease, s) else {
            return Err(Stop::Status(status::BAD_GATEWAY));
        };
        // UDP has no response headers, so the server counts as responding from now on.
        lease.answering();
        let socket = aside.others.bound.as_deref().unwrap_or(&self.conf.socket);
        *server = Some(self.proxy.connect_udp(s, &peer, socket, self.client)?);
        if let Some(unanswered) = &mut aside.unanswered {
            unanswered.sent = 0;
        }
        self.client.marks.set(Marks::default());
        self.client.touch();
        Ok(())
    }

    /// Continues after a failed attempt: tries further servers, or ends with a status.
    fn go_on(&mut self, stop: Stop) -> Result<(), u16> {
        let Relay { s, lease, aside, .. } = &mut *self.relay;
        match aside {
            Some(aside) => self.proxy.go_on(s, lease, &mut aside.others, stop),
            None => Err(status::INTERNAL),
        }
    }

    /// Handles the end of an exchange: tries the next server, or ends the session with a status.
    fn after(&mut self, ended: Ended) -> Result<(), u16> {
        let Relay { s, lease, .. } = &mut *self.relay;
        match ended {
            Ended::Session(status, outcome) => {
                lease.connected();
                finish(s, lease, outcome);
                return Err(status);
            }
            Ended::Away(e) => {
                let e = base::log::os_error(&e);
                s.log(Level::Error, format_args!("recv() failed {e} while proxying connection"));
            }
            Ended::Silent => {}
        }
        self.go_on(Stop::Next)
    }

    /// Whether all expected answers have arrived (`proxy_responses`).
    fn is_answered(&self) -> bool {
        let Relay { questions, answers, .. } = *self.relay;
        self.conf.responses.is_some_and(|each| answers >= each.saturating_mul(questions))
    }

    /// Whether the session is complete: all questions were sent and answered.
    fn is_done(&self) -> bool {
        let may_end = self.conf.requests == 0 || self.relay.questions >= self.conf.requests;
        may_end && self.is_answered() && self.unsent().is_none()
    }

    /// Moves datagrams in both directions once.
    fn step(&mut self, came: &mut bool) -> Result<Pause, Ended> {
        for _ in 0..ROUNDS {
            // Before reading answers, because a session that expects none ends here.
            self.send_kept().map_err(|e| self.failed(e))?;
            if self.is_done() {
                self.say("udp done");
                return Err(Ended::Session(status::OK, ServerOutcome::Ok));
            }
            if self.client.is_shed() {
                let m = format_args!("udp session ends to make room for another");
                self.relay.s.log(Level::Info, m);
                return Err(Ended::Session(status::UNAVAILABLE, ServerOutcome::Ok));
            }
            if self.conf.session_drop && self.relay.s.exchanges.has_lost_server() {
                let m = format_args!("{} while proxying connection", relay::SERVER_IS_OUT);
                self.relay.s.log(Level::Info, m);
                return Err(Ended::Session(status::OK, ServerOutcome::Ok));
            }
            let asked = self.ask().map_err(|e| self.failed(e))?;
            if *came && self.client.is_held_up() {
                return Ok(Pause::Busy);
            }
            let answered = *came && self.receive(came).map_err(|e| self.failed(e))?;
            if !asked && !answered {
                return self.rest();
            }
        }
        Ok(Pause::Busy)
    }

    /// Nothing to move: returns how long that may last.
    fn rest(&mut self) -> Result<Pause, Ended> {
        let is_last = self.relay.s.main.life.is_leaving() && !self.client.is_kept();
        if is_last && (self.conf.responses.is_none() || self.is_answered()) {
            return Err(Ended::Session(status::OK, ServerOutcome::Ok));
        }
        let (up, down) = (self.upload_held(), self.download_held());
        if up.is_some() || down.is_some() {
            // Waiting for a rate limit does not count as idle.
            self.client.touch();
        }
        let until = self.client.last_ms().saturating_add(self.conf.timeout);
        if now_ms() >= until {
            return Err(self.late());
        }
        if let Some(server) = &self.relay.server {
            match down {
                Some(_) => server.silence(),
                // Watching it succeeded before, so no error is expected.
                None => drop(server.watch()),
            }
        }
        let look = now_ms().saturating_add(self.conf.look_ms());
        Ok(Pause::Until(up.into_iter().chain(down).chain([look]).fold(until, u64::min)))
    }

    fn upload_held(&mut self) -> Option<u64> {
        self.relay.aside.as_mut()?.upload.as_mut()?.wait_until()
    }

    fn download_held(&mut self) -> Option<u64> {
        self.relay.aside.as_mut()?.download.as_mut()?.wait_until()
    }

    /// Sends the kept questions that the current server has not got, unless the rate limit forbids
    /// it.
    fn send_kept(&mut self) -> io::Result<()> {
        while let Some(question) = self.unsent().cloned()
            && self.upload_held().is_none()
        {
            if let Some(unanswered) = self.unanswered() {
                unanswered.sent += 1;
            }
            let segment = question.len().max(1);
            self.send(question, segment)?;
        }
        Ok(())
    }

    fn unanswered(&mut self) -> Option<&mut Unanswered> {
        self.relay.aside.as_mut()?.unanswered.as_mut()
    }

    /// The first kept question that the current server has not got.
    fn unsent(&self) -> Option<&Bytes> {
        self.relay.aside.as_ref()?.unanswered.as_ref()?.unsent()
    }

    /// Forwards the next question, together with following ones of the same length, unless the rate
    /// limit forbids it. Returns whether there was one.
    fn ask(&mut self) -> io::Result<bool> {
        if self.upload_held().is_some() {
            return Ok(false);
        }
        let Some(question) = self.client.next() else { return Ok(false) };
        self.client.touch();
        if !self.takes(&question) {
            return Ok(true);
        }
        if let Some(unanswered) = self.unanswered()
            && unanswered.others.len() + 1 < KEPT_MAX
        {
            unanswered.others.push(question.clone());
            unanswered.sent += 1;
        }
        let segment = question.len().max(1);
        let all = self.with_more(question);
        self.send(all, segment)?;
        Ok(true)
    }

    /// Whether to forward a question; if so, counts it.
    fn takes(&mut self, question: &Bytes) -> bool {
        let relay = &mut *self.relay;
        let may_pass = may_pass(&mut relay.s);
        if may_pass {
            relay.s.received.set(relay.s.received.get() + question.len() as u64);
            relay.questions += 1;
        }
        may_pass
    }

    /// Appends following questions that can be sent in the same call. There are none if each is
    /// kept or counted, or needs a header.
    fn with_more(&mut self, first: Bytes) -> Bytes {
        let is_plain = self.conf.protocol.is_none() || self.client.marks.get().is_headed;
        if self.relay.aside.is_some() || !is_plain {
            return first;
        }
        let segment = first.len().max(1);
        let Some(second) = self.client.next_for(first.len(), segment) else { return first };
        let mut all = Vec::with_capacity(8 * segment);
        all.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(question) = next {
            if self.takes(&question) {
                all.extend_from_slice(&question);
            }
            next = self.client.next_for(all.len(), segment);
        }
        all.into()
    }

    /// The question with the PROXY protocol header, if one is due.
    fn headed(&mut self, question: Bytes) -> Bytes {
        let relay = &mut *self.relay;
        let marks = self.client.marks.get();
        match self.conf.protocol {
            Some(headers) if headers.every_datagram || !marks.is_headed => {
                self.client.marks.set(Marks { is_headed: true, ..marks });
                match &relay.aside {
                    Some(aside) if headers.every_datagram => {
                        [&aside.header[..], &question].concat().into()
                    }
                    _ => [&header::of(&relay.s, headers.version)[..], &question].concat().into(),
                }
            }
            _ => question,
        }
    }

    /// Sends a question, or several joined ones, each `segment` bytes long except the last.
    fn send(&mut self, question: Bytes, segment: usize) -> io::Result<()> {
        let bare = question.len();
        let question = self.headed(question);
        // A question with a header is sent alone.
        let segment = segment + question.len() - bare;
        let relay = &mut *self.relay;
        let len = question.len() as u64;
        if let Some(rate) = relay.aside.as_mut().and_then(|aside| aside.upload.as_mut()) {
            rate.count(len);
        }
        let Some(server) = &relay.server else { return Ok(()) };
        match datagrams::send(server.fd(), &question, segment, None, None) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // The error belongs to an earlier datagram; the server has answered since.
            Err(_) if relay.answers > 0 => return Ok(()),
            Err(e) => return Err(e),
        }
        let marks = self.client.marks.get();
        self.client.marks.set(Marks { has_asked: true, ..marks });
        if let Some(a) = relay.s.exchanges.now() {
            a.sent += len;
        }
        Ok(())
    }

    /// Forwards the next answers; returns whether there were any. Clears `came` if no more are
    /// expected; the driver reports those that arrive nevertheless.
    fn receive(&mut self, came: &mut bool) -> io::Result<bool> {
        if self.download_held().is_some() {
            return Ok(false);
        }
        let Some(server) = &self.relay.server else { return Ok(false) };
        let marks = self.client.marks.get();
        let received = datagrams::receive(server.fd(), marks.may_join, |bytes, segment| {
            self.client.answer(bytes, segment);
            (bytes.len(), datagrams::count(bytes.len(), segment))
        });
        match received {
            Ok(Some((bytes, count))) => self.answered(bytes as u64, count as u64),
            Ok(None) => {
                *came = false;
                return Ok(false);
            }
            // The error belongs to an earlier datagram, and the server has answered before: it may
            // be back.
            Err(_) if self.relay.answers > 0 => {
                *came = false;
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
        // Usually there is one answer to each question, so do not read for another one. If there
        // were more answers than questions, do.
        let may_join = self.relay.answers > self.relay.questions;
        if may_join
            && !marks.may_join
            && let Some(server) = &self.relay.server
        {
            // With one answer per question UDP_GRO would only cost time. Kernels before 5.0 lack it
            // and deliver each datagram separately.
            let _ = datagram::set_join(server.fd());
        }
        let may_join = may_join || marks.may_join;
        self.client.marks.set(Marks { has_asked: false, may_join, ..marks });
        *came = !marks.has_asked || self.relay.answers < self.relay.questions;
        Ok(true)
    }

    /// Counts answers that were queued for the client.
    fn answered(&mut self, bytes: u64, count: u64) {
        let relay = &mut *self.relay;
        if relay.answers == 0 {
            relay.s.exchanges.first_byte_now();
            if let Some(mut aside) = relay.aside.take() {
                aside.unanswered = None;
                let is_used = aside.upload.is_some() || aside.download.is_some();
                relay.aside = (is_used || !aside.header.is_empty()).then_some(aside);
            }
        }
        relay.answers += count;
        if let Some(a) = relay.s.exchanges.now() {
            a.received += bytes;
        }
        if let Some(rate) = relay.aside.as_mut().and_then(|aside| aside.download.as_mut()) {
            rate.count(bytes);
        }
        let s = &relay.s;
        s.sent.set(s.sent.get() + bytes);
    }

    fn failed(&self, e: io::Error) -> Ended {
        match self.relay.answers {
            0 => Ended::Away(e),
            _ => Ended::Session(status::OK, ServerOutcome::Failed),
        }
    }

    /// The result of the timeout: a regular end if no answer is missing.
    fn late(&self) -> Ended {
        if self.conf.responses.is_none() || self.is_answered() {
            self.say("udp timed out");
            return Ended::Session(status::OK, ServerOutcome::Ok);
        }
        failure::timed_out(&self.relay.s, "proxying connection");
        match self.relay.answers {
            0 => Ended::Silent,
            _ => Ended::Session(status::BAD_GATEWAY, ServerOutcome::Failed),
        }
    }

    fn say(&self, what: &str) {
        let Relay { s, questions, answers, .. } = &*self.relay;
        say(s, what, (*questions, *answers));
    }
}

/// Logs the end of a session.
pub(super) fn say(s: &StreamSession, what: &str, (questions, answers): (u64, u64)) {
    if s.logs(Level::Info) {
        let (from, to) = s.exchanges.bytes_now().unwrap_or_default();
        let (received, sent) = (s.received.get(), s.sent.get());
        s.log_bare(
            Level::Info,
            format_args!(
                "{what}, packets from/to client:{questions}/{answers}, bytes from/to \
                 client:{received}/{sent}, bytes from/to upstream:{from}/{to}"
            ),
        );
    }
}

/// Whether the datagram handlers let a further datagram pass.
pub(super) fn may_pass(s: &mut StreamSession) -> bool {
    if s.server.pipeline.datagram.is_empty() {
        return true;
    }
    let server = s.server.clone();
    server.pipeline.datagram.iter().all(|handler| handler(s))
}
