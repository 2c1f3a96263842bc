//! The relay of a UDP session, over a connected socket of its own: only the server's datagrams
//! reach it.
//!
//! ```text
//!  client ──▶ inbox ──▶ server     ends: questions × proxy_responses answers, time-out, the end
//!  client ◀──────────── server           of the worker; a server that is away: the next one
//! ```

use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use base::future::poll_kept;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use engine::Client as _;
use event::{Deadline, Fd, Wake};
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
pub(super) struct Exchange<'a> {
    pub s: &'a mut StreamSession,
    conf: &'a ProxyConf,
    client: Rc<Client>,
    /// What no server has answered yet; none from the first answer on.
    unanswered: Option<Box<Unanswered>>,
    extras: Option<Box<Extras>>,
    questions: u64,
    answers: u64,
    /// The end of the idle time.
    until_ms: u64,
    /// The present server got the PROXY protocol header.
    is_headed: bool,
}

/// Questions without an answer, for the next server.
struct Unanswered {
    kept: Vec<Bytes>,
    /// Those among them that the present server got.
    sent: usize,
}

/// What few sessions have.
#[derive(Default)]
struct Extras {
    upload: Option<Rate>,
    download: Option<Rate>,
    /// The header of each datagram.
    header: Vec<u8>,
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

/// Why a session waits after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// More may be there: others have their turn first.
    Busy,
    /// There is nothing to do until something comes.
    Rests,
    /// The same, and a rate holds questions or answers up.
    Held,
}

impl<'a> Exchange<'a> {
    /// The exchange of a session; its first datagram was read already.
    pub fn new(s: &'a mut StreamSession, conf: &'a ProxyConf) -> Option<Exchange<'a>> {
        let client = s.datagrams.as_ref()?.client().clone();
        let first = std::mem::take(&mut s.preread).freeze();
        let (upload, download) =
            (relay::rate(s, &conf.upload_rate), relay::rate(s, &conf.download_rate));
        let every = conf.protocol.filter(|headers| headers.every_datagram);
        let extras = (upload.is_some() || download.is_some() || every.is_some()).then(|| {
            let header = every.map(|headers| header::of(s, headers.version)).unwrap_or_default();
            Box::new(Extras { upload, download, header })
        });
        if conf.requests > 0 {
            client.limit(conf.requests - 1);
        }
        Some(Exchange {
            s,
            conf,
            client,
            unanswered: Some(Box::new(Unanswered { kept: vec![first], sent: 0 })),
            extras,
            questions: 1,
            answers: 0,
            until_ms: 0,
            is_headed: false,
        })
    }

    /// Begins with a server, which gets the questions so far.
    pub fn begin(&mut self) {
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.sent = 0;
        }
        self.is_headed = false;
        self.renew();
    }

    fn renew(&mut self) {
        self.until_ms = now_ms().saturating_add(self.conf.timeout);
    }

    /// Whether the server is settled: another one is not tried any more.
    pub fn has_answer(&self) -> bool {
        self.answers > 0
    }

    /// Whether all answers that were asked for have come.
    fn is_answered(&self) -> bool {
        let each = self.conf.responses;
        each.is_some_and(|each| self.answers >= each.saturating_mul(self.questions))
    }

    /// Whether the session is over with its answers: its questions are sent.
    fn is_done(&self) -> bool {
        let may_end = self.conf.requests == 0 || self.questions >= self.conf.requests;
        may_end && self.is_answered() && self.unsent().is_none()
    }

    /// Moves what is there, as far as that needs no wait.
    ///
    /// # Errors
    /// The end of the exchange.
    pub fn turn(&mut self, server: &Fd) -> Result<Pause, Ended> {
        loop {
            // Before an answer is read: where none is asked for, the session ends here.
            self.send_kept(server).map_err(|e| self.failed(e))?;
            if self.is_done() {
                self.say("udp done");
                return Err(Ended::Session(status::OK, ServerOutcome::Ok));
            }
            if self.client.is_shed() {
                let m = format_args!("udp session ends to make room for another");
                self.s.log(Level::Info, m);
                return Err(Ended::Session(status::UNAVAILABLE, ServerOutcome::Ok));
            }
            match self.go(server).map_err(|e| self.failed(e))? {
                0 => break,
                rounds => {
                    self.renew();
                    if rounds == ROUNDS {
                        return Ok(Pause::Busy);
                    }
                }
            }
        }
        let is_last = self.s.main.life.is_leaving() && !self.client.is_kept();
        if is_last && (self.conf.responses.is_none() || self.is_answered()) {
            return Err(Ended::Session(status::OK, ServerOutcome::Ok));
        }
        if self.upload_held().is_some() || self.download_held().is_some() {
            // A rate that holds a direction up is no idleness.
            self.renew();
            return Ok(Pause::Held);
        }
        match now_ms() >= self.until_ms {
            true => Err(self.late()),
            false => Ok(Pause::Rests),
        }
    }

    fn upload_held(&mut self) -> Option<u64> {
        self.extras.as_mut()?.upload.as_mut()?.wait_until()
    }

    fn download_held(&mut self) -> Option<u64> {
        self.extras.as_mut()?.download.as_mut()?.wait_until()
    }

    /// Waits for a datagram from either side, the end of the idle time, or the worker's leaving.
    pub fn rest<'b>(&'b self, server: &'b Fd) -> impl Future<Output = io::Result<Wake>> + use<'b> {
        let until = Deadline::at(self.until_ms);
        let mut readable = server.readable_or(&self.s.main.life.gate, until);
        let client = &*self.client;
        std::future::poll_fn(move |cx| {
            client.listen(cx.waker());
            match client.has_news() {
                true => Poll::Ready(Ok(Wake::Ready)),
                false => Pin::new(&mut readable).poll(cx),
            }
        })
    }

    /// The same while a rate holds questions or answers up.
    pub async fn rest_held(&mut self, server: &Fd) {
        let (up, down) = (self.upload_held(), self.download_held());
        let at = up.into_iter().chain(down).fold(self.until_ms, u64::min);
        let mut resumes = pin!(event::sleep_until(Deadline::at(at)));
        let mut readable = pin!(down.is_none().then(|| server.readable(Deadline::NEVER)));
        std::future::poll_fn(|cx| {
            self.client.listen(cx.waker());
            let asked = if up.is_none() { self.client.has_news() } else { self.client.is_shed() };
            match asked || poll_kept(readable.as_mut(), cx).is_ready() {
                true => Poll::Ready(()),
                false => resumes.as_mut().poll(cx),
            }
        })
        .await;
    }

    /// The wait of a session that rests is over.
    pub fn woken(&self, woken: &io::Result<Wake>) {
        if matches!(woken, Ok(Wake::Gate)) && !self.client.is_kept() {
            // The worker leaves: its successor has the socket, and the client's next datagram.
            self.client.close();
        }
    }

    /// Moves datagrams in both directions; the rounds in which there was something.
    fn go(&mut self, server: &Fd) -> io::Result<usize> {
        for round in 0..ROUNDS {
            let asked = self.ask(server)?;
            let answer = match self.download_held() {
                None => self.receive(server)?,
                Some(_) => None,
            };
            if let Some(answer) = &answer {
                self.answer(answer);
            }
            if !asked && answer.is_none() {
                return Ok(round);
            }
        }
        Ok(ROUNDS)
    }

    fn receive(&self, server: &Fd) -> io::Result<Option<Datagrams>> {
        match udp::receive(server.fd()) {
            // An error of another datagram's after answers: the server may be back.
            Err(_) if self.answers > 0 => Ok(None),
            received => received,
        }
    }

    /// Sends the questions so far to a server that has not got them, unless the rate holds them up.
    fn send_kept(&mut self, server: &Fd) -> io::Result<()> {
        while let Some(question) = self.unsent()
            && self.upload_held().is_none()
        {
            if let Some(unanswered) = &mut self.unanswered {
                unanswered.sent += 1;
            }
            self.send(server, question)?;
        }
        Ok(())
    }

    /// The first question that the present server has not got.
    fn unsent(&self) -> Option<Bytes> {
        let unanswered = self.unanswered.as_ref()?;
        unanswered.kept.get(unanswered.sent).cloned()
    }

    /// Passes the next question on, unless the rate holds it up; says whether there was one.
    fn ask(&mut self, server: &Fd) -> io::Result<bool> {
        if self.upload_held().is_some() {
            return Ok(false);
        }
        let Some(question) = self.client.next() else { return Ok(false) };
        if may_pass(self.s) {
            self.s.received.set(self.s.received.get() + question.len() as u64);
            self.questions += 1;
            if let Some(unanswered) = &mut self.unanswered
                && unanswered.kept.len() < KEPT_MAX
            {
                unanswered.kept.push(question.clone());
                unanswered.sent += 1;
            }
            self.send(server, question)?;
        }
        Ok(true)
    }

    /// The question as it goes to the server, behind a header where one is due.
    fn headed(&mut self, question: Bytes) -> Bytes {
        match self.conf.protocol {
            Some(headers) if headers.every_datagram || !self.is_headed => {
                self.is_headed = true;
                match &self.extras {
                    Some(extras) if headers.every_datagram => {
                        [&extras.header[..], &question].concat().into()
                    }
                    _ => [&header::of(self.s, headers.version)[..], &question].concat().into(),
                }
            }
            _ => question,
        }
    }

    fn send(&mut self, server: &Fd, question: Bytes) -> io::Result<()> {
        let one = Datagrams::single(self.headed(question));
        let len = one.bytes.len() as u64;
        if let Some(rate) = self.extras.as_mut().and_then(|extras| extras.upload.as_mut()) {
            rate.count(len);
        }
        match udp::send(server.fd(), &one, None, None) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // The error of an earlier datagram, after which the server answered.
            Err(_) if self.answers > 0 => return Ok(()),
            Err(e) => return Err(e),
        }
        if let Some(a) = self.s.exchanges.as_mut().and_then(|x| x.now()) {
            a.sent += len;
        }
        Ok(())
    }

    fn answer(&mut self, answer: &Datagrams) {
        let len = answer.bytes.len() as u64;
        if self.answers == 0 {
            self.unanswered = None;
            if let Some(x) = &mut self.s.exchanges {
                x.first_byte_now();
            }
        }
        self.answers += answer.count();
        if let Some(a) = self.s.exchanges.as_mut().and_then(|x| x.now()) {
            a.received += len;
        }
        if let Some(rate) = self.extras.as_mut().and_then(|extras| extras.download.as_mut()) {
            rate.count(len);
        }
        let s = &self.s;
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
    fn late(&self) -> Ended {
        if self.conf.responses.is_none() || self.is_answered() {
            self.say("udp timed out");
            return Ended::Session(status::OK, ServerOutcome::Ok);
        }
        failure::timed_out(self.s, "proxying connection");
        match self.answers {
            0 => Ended::Silent,
            _ => Ended::Session(status::BAD_GATEWAY, ServerOutcome::Failed),
        }
    }

    fn say(&self, what: &str) {
        let s = &*self.s;
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
