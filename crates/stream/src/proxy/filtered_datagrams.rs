//! The relay of a UDP session whose server has a filter of bytes ([`BytesFilter`]). Unlike the
//! relays of [`super::datagrams`], it is a task.
//!
//! Each datagram of a side goes to the filter alone. The pieces that the filter sends up to one
//! with `flush` are one datagram. A server that refuses the first datagram is not replaced by
//! another one, because the filter may have state by then.

use std::io;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use engine::Client as _;
use event::{Deadline, Fd};
use net::relay::Rate;
use upstream::balance::ServerOutcome;
use upstream::failure;

use super::choice::{Choice, Others};
use super::conf::ProxyConf;
use super::datagrams::{may_pass, open_server, say};
use super::filtered::filter_of;
use super::{Proxy, Stop, finish, header, relay};
use crate::module::{BytesFilter, Piece, Sent, TasklessProxy, Way};
use crate::phases::status;
use crate::session::StreamSession;
use crate::udp::client::Client;
use crate::udp::datagrams;

/// The maximum number of datagrams in a row before other tasks get their turn.
const ROUNDS: usize = 64;

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// The end of a session: its status, and the outcome for the server.
type End = (u16, ServerOutcome);

impl Proxy {
    /// Serves a UDP session through the filter of its server; resolves to its status. The worker's
    /// table serves those without one.
    pub(super) async fn run_filtered_datagrams(&self, s: &mut StreamSession) -> u16 {
        let (Some(filter), Some(client)) = (filter_of(s), s.datagrams().cloned()) else {
            return status::INTERNAL;
        };
        let mut choice = match self.choose(s).await {
            Ok(choice) => choice,
            Err(status) => return status,
        };
        let server = loop {
            let Choice { lease, others } = &mut choice;
            let stop = match others.take_next(lease, s) {
                None => Stop::Status(status::BAD_GATEWAY),
                Some(peer) => {
                    // UDP has no response headers: the server counts as responding from now on.
                    lease.answering();
                    match open_server(s, &peer, self.socket(others)) {
                        Ok(fd) => break Fd::new(fd),
                        Err(stop) => stop,
                    }
                }
            };
            if let Err(status) = self.go_on(s, lease, others, stop) {
                return status;
            }
        };
        choice.lease.connected();
        if let Some(more) = self.further_datagrams() {
            client.limit(more);
        }
        let conf = &*self.conf;
        let (upload, download) =
            (relay::rate(s, &conf.upload_rate), relay::rate(s, &conf.download_rate));
        let relay = Relay {
            s: &mut *s,
            client,
            server,
            conf,
            filter,
            questions: 1,
            answers: 0,
            is_headed: false,
            parts: [Vec::new(), Vec::new()],
            upload,
            download,
        };
        let (status, outcome) = relay.relayed().await;
        finish(s, &mut choice.lease, outcome);
        status
    }

    fn socket<'a>(&'a self, others: &'a Others) -> &'a upstream::socket::SocketConf {
        others.bound.as_deref().unwrap_or(&self.conf.socket)
    }
}

struct Relay<'a> {
    s: &'a mut StreamSession,
    client: Rc<Client>,
    server: Fd,
    conf: &'a ProxyConf,
    filter: Box<dyn BytesFilter>,
    /// Datagrams of the client, and of the server.
    questions: u64,
    answers: u64,
    /// The PROXY protocol header was sent.
    is_headed: bool,
    /// The beginnings of datagrams to the server and to the client, whose rest is to come.
    parts: [Vec<u8>; 2],
    upload: Option<Rate>,
    download: Option<Rate>,
}

impl Relay<'_> {
    async fn relayed(mut self) -> End {
        let first = std::mem::take(&mut self.s.preread).freeze();
        if let Err(end) = self.pass(Way::Up, first) {
            return end;
        }
        loop {
            let mut is_busy = true;
            for _ in 0..ROUNDS {
                match self.step() {
                    Ok(true) => {}
                    Ok(false) => {
                        is_busy = false;
                        break;
                    }
                    Err(end) => return end,
                }
            }
            let waited = match is_busy {
                true => {
                    event::task::yield_now().await;
                    Ok(())
                }
                false => self.wait().await,
            };
            if let Err(end) = waited {
                return end;
            }
        }
    }

    /// Passes a datagram through the filter, and sends what comes of it.
    fn pass(&mut self, way: Way, bytes: Bytes) -> Result<(), End> {
        let mut sent = Sent::default();
        let piece = Piece { bytes, flush: true };
        let done = self.filter.filter(self.s, way, piece, false, &mut sent);
        self.send(sent)?;
        done.map_err(|status| (status, ServerOutcome::Ok))
    }

    fn send(&mut self, sent: Sent) -> Result<(), End> {
        for (way, pieces) in [(Way::Up, sent.up), (Way::Down, sent.down)] {
            for piece in pieces {
                let part = &mut self.parts[way as usize];
                if part.len() + piece.bytes.len() > DATAGRAM_MAX {
                    self.s.log(Level::Error, format_args!("a datagram of a filter is too long"));
                    return Err((status::INTERNAL, ServerOutcome::Ok));
                }
                part.extend_from_slice(&piece.bytes);
                if !piece.flush {
                    continue;
                }
                let datagram = std::mem::take(part);
                match way {
                    Way::Up => self.ask(datagram)?,
                    Way::Down => self.answer(&datagram),
                }
            }
        }
        Ok(())
    }

    /// Sends a datagram to the server.
    fn ask(&mut self, mut datagram: Vec<u8>) -> Result<(), End> {
        if let Some(headers) = self.conf.protocol
            && (headers.every_datagram || !self.is_headed)
        {
            self.is_headed = true;
            datagram = [header::of(self.s, headers.version), datagram].concat();
        }
        if let Some(rate) = &mut self.upload {
            rate.count(datagram.len() as u64);
        }
        match datagrams::send(self.server.fd(), &datagram, datagram.len().max(1), None, None) {
            Ok(()) => {
                if let Some(a) = self.s.exchanges.now() {
                    a.sent += datagram.len() as u64;
                }
                Ok(())
            }
            // It is lost, as datagrams may be.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => self.failed(&e),
        }
    }

    /// Sends a datagram to the client.
    fn answer(&mut self, datagram: &[u8]) {
        match self.client.send(datagram) {
            Ok(()) => self.s.sent.set(self.s.sent.get() + datagram.len() as u64),
            Err(e) => {
                let e = base::log::os_error(&e);
                let m = format_args!("sendmsg() failed {e} while proxying connection");
                self.s.log(Level::Info, m);
            }
        }
    }

    /// An error of the server's socket, which ends the session unless the server has answered.
    fn failed(&self, e: &io::Error) -> Result<(), End> {
        if self.answers > 0 {
            return Ok(());
        }
        let e = base::log::os_error(e);
        self.s.log(Level::Error, format_args!("recv() failed {e} while proxying connection"));
        Err((status::BAD_GATEWAY, ServerOutcome::Failed))
    }

    /// Whether all expected answers have arrived (`proxy_responses`).
    fn is_answered(&self) -> bool {
        let each = self.conf.responses;
        each.is_some_and(|each| self.answers >= each.saturating_mul(self.questions))
    }

    /// Takes one datagram of a side; false: there is none.
    fn step(&mut self) -> Result<bool, End> {
        let may_end = self.conf.requests == 0 || self.questions >= self.conf.requests;
        if may_end && self.is_answered() && !self.filter.is_waiting() {
            say(self.s, "udp done", (self.questions, self.answers));
            return Err((status::OK, ServerOutcome::Ok));
        }
        if self.client.is_shed() {
            let m = format_args!("udp session ends to make room for another");
            self.s.log(Level::Info, m);
            return Err((status::UNAVAILABLE, ServerOutcome::Ok));
        }
        if self.conf.session_drop && self.s.exchanges.has_lost_server() {
            let m = format_args!("{} while proxying connection", relay::SERVER_IS_OUT);
            self.s.log(Level::Info, m);
            return Err((status::OK, ServerOutcome::Ok));
        }
        let asked = self.take_question()?;
        Ok(self.take_answer()? || asked)
    }

    fn take_question(&mut self) -> Result<bool, End> {
        if held(&mut self.upload).is_some() {
            return Ok(false);
        }
        let Some(question) = self.client.next() else { return Ok(false) };
        self.client.touch();
        if may_pass(self.s) {
            self.s.received.set(self.s.received.get() + question.len() as u64);
            self.questions += 1;
            self.pass(Way::Up, question)?;
        }
        Ok(true)
    }

    fn take_answer(&mut self) -> Result<bool, End> {
        if held(&mut self.download).is_some() {
            return Ok(false);
        }
        let received =
            datagrams::receive(self.server.fd(), false, |bytes, _| Bytes::copy_from_slice(bytes));
        let answer = match received {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(false),
            Err(e) => return self.failed(&e).map(|()| false),
        };
        self.client.touch();
        self.s.exchanges.first_byte_now();
        self.answers += 1;
        let len = answer.len() as u64;
        if let Some(a) = self.s.exchanges.now() {
            a.received += len;
        }
        if let Some(rate) = &mut self.download {
            rate.count(len);
        }
        self.pass(Way::Down, answer)?;
        Ok(true)
    }

    /// Waits for a datagram of a side, or for the filter.
    async fn wait(&mut self) -> Result<(), End> {
        let gate = self.s.main.life.gate.clone();
        let is_leaving = gate.is_closed();
        let is_done = self.conf.responses.is_none() || self.is_answered();
        if is_leaving && !self.client.is_kept() && is_done {
            return Err((status::OK, ServerOutcome::Ok));
        }
        let (up, down) = (held(&mut self.upload), held(&mut self.download));
        if up.is_some() || down.is_some() {
            // Waiting for a rate limit does not count as idle.
            self.client.touch();
        }
        let until = self.client.last_ms().saturating_add(self.conf.timeout);
        let now = now_ms();
        if now >= until {
            return Err(self.late());
        }
        let look = now.saturating_add(self.conf.look_ms());
        let until = up.into_iter().chain(down).chain([look]).fold(until, u64::min);
        let until = Deadline::at(until);
        let (client, server) = (self.client.clone(), &self.server);
        let mut sent = Sent::default();
        let sides = async {
            let client = async {
                match up {
                    Some(_) => std::future::pending().await,
                    None => client.came().await,
                }
            };
            let server = async {
                match down {
                    Some(_) => event::sleep_until(until).await,
                    // An error shows when the socket is used.
                    None => drop(server.readable(until).await),
                }
            };
            let leaving = async {
                match is_leaving {
                    true => std::future::pending().await,
                    false => gate.closed().await,
                }
            };
            event::race(event::race(client, server), leaving).await;
        };
        let done = match self.filter.is_waiting() {
            false => {
                sides.await;
                Ok(())
            }
            true => match event::race(sides, self.filter.go_on(self.s, &mut sent)).await {
                event::Either::First(()) => Ok(()),
                event::Either::Second(done) => done,
            },
        };
        self.send(sent)?;
        done.map_err(|status| (status, ServerOutcome::Ok))
    }

    /// The result of the timeout: a regular end if no answer is missing.
    fn late(&self) -> End {
        if self.conf.responses.is_none() || self.is_answered() {
            say(self.s, "udp timed out", (self.questions, self.answers));
            return (status::OK, ServerOutcome::Ok);
        }
        failure::timed_out(self.s, "proxying connection");
        (status::BAD_GATEWAY, ServerOutcome::Failed)
    }
}

/// The time until which a rate limit holds a direction up, if it does.
fn held(rate: &mut Option<Rate>) -> Option<u64> {
    rate.as_mut().and_then(Rate::wait_until)
}
