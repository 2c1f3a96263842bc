//! The turns of a connection: what came on its streams, and the requests that begin with it.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use engine::stats::Field;
use os::SockAddr;
use proto::h3::{Code, Ends, Fault};
use proto::qpack::{self, Limits};
use quic::{Dir, Ended, StreamId};
use tls::Info;

use super::control::Control;
use super::mux::{Entry, Mux, Phase};
use super::receive::{Job, Parties};
use super::stream;
use crate::channel::conn::Conn;
use crate::channel::{self, Answer, SendFailed};
use crate::h2::{Inbox, Runner, Slice};
use crate::http3_conf::{BLOCKED_MAX, BLOCKED_STREAMS};
use crate::server::HttpMain;

/// Frames that say nothing, of a client that takes no response besides.
const WASTE_MAX: u32 = 2_000;

/// Such frames that a request that is answered makes up for, and those that one counts for which
/// the client gives up.
const WASTE_AN_ANSWER: u32 = 20;
const WASTE_A_RESET: u32 = 4;

/// The time for which a connection that we leave is there for streams under way to it,
/// milliseconds.
const LEAVE_MS: u64 = 2_000;

/// The reason that a client gets that breaks the rules; the log has more. nginx's words.
const PHRASE: &str = "stream error";

/// Has a client's certificate looked up, where its server asks for that; requests wait while the
/// cell says so.
type LookUp = fn(&Rc<Conn>, &Rc<Cell<bool>>, &Rc<quic::Connection>);

/// Has a request answered; says whether it waits.
type Start = Box<dyn FnMut(Job) -> bool>;

/// The end of a connection that we have announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    /// The client was told, at this time.
    Told(u64),
}

/// The protocol of a connection.
pub(crate) struct Session {
    mux: Rc<Mux>,
    main: Rc<HttpMain>,
    control: Control,
    start: Start,
    /// Requests that are to begin.
    jobs: VecDeque<Job>,
    /// Streams with something that nobody looked at.
    readable: VecDeque<StreamId>,
    look_up: LookUp,
    /// The client's certificate is being looked up.
    is_held: Rc<Cell<bool>>,
    leaving: Leaving,
    waste: u32,
    /// Held as long as the connection is.
    _kept: Box<dyn Any>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.mux.end();
    }
}

impl Session {
    pub fn new<A: Answer>(
        c: Rc<Conn>,
        main: Rc<HttpMain>,
        quic: &Rc<quic::Connection>,
        (look_up, kept): (LookUp, Box<dyn Any>),
    ) -> Session {
        let section = c.server().core.large_headers();
        let limits = Limits {
            table_capacity: qpack::TABLE_CAPACITY,
            blocked_streams: BLOCKED_STREAMS as usize,
            blocked_bytes: BLOCKED_MAX,
            section: section.saturating_mul(2),
        };
        let mux = Rc::new(Mux::new(c, quic.clone(), limits));
        let mut runner = {
            let (mux, main) = (mux.clone(), main.clone());
            Runner::new(move |inbox: Rc<Inbox<Job>>| {
                let (mux, main) = (mux.clone(), main.clone());
                boxed(|| work::<A>(mux, main, inbox))
            })
        };
        Session {
            control: Control::new(section),
            start: Box::new(move |job| runner.run(job)),
            jobs: VecDeque::new(),
            readable: VecDeque::new(),
            look_up,
            is_held: Rc::default(),
            leaving: Leaving::No,
            waste: 0,
            _kept: kept,
            mux,
            main,
        }
    }

    /// Looks at a stream.
    fn read(&mut self, id: StreamId) {
        let read = match id.dir() {
            Dir::Uni => self.read_control(id),
            Dir::Bi => self.read_request(id),
        };
        if let Err(fault) = read {
            self.fail(Some(id), fault);
        }
    }

    fn read_control(&mut self, id: StreamId) -> Result<(), Fault> {
        let brought = self.control.read(&self.mux, id)?;
        self.wasted(brought.frames)?;
        if !brought.has_entries {
            return Ok(());
        }
        while let Some(held) = self.mux.with(|state| state.decoder.unblocked()) {
            let parties = Parties { mux: &self.mux, main: &self.main };
            if let Some(job) = parties.unblocked(&held)? {
                self.readable.push_back(job.id);
                self.jobs.push_back(job);
            }
        }
        Ok(())
    }

    fn read_request(&mut self, id: StreamId) -> Result<(), Fault> {
        let brought = Parties { mux: &self.mux, main: &self.main }.read(id)?;
        self.jobs.extend(brought.job);
        if brought.is_reset {
            self.given_up(id)?;
        }
        self.wasted(brought.empty)
    }

    /// The client gives a request up, or its response.
    fn given_up(&mut self, id: StreamId) -> Result<(), Fault> {
        let has_begun = self.mux.with(|state| {
            let has_begun = state.streams.get(&id).is_some_and(|entry| entry.phase == Phase::Begun);
            if !has_begun {
                state.decoder.cancel(id.into());
                state.streams.remove(&id);
            }
            has_begun
        });
        // Else the stream ends with the request.
        if !has_begun {
            self.mux.quic().reset(id, Code::RequestCancelled.number());
        }
        self.wasted(WASTE_A_RESET)
    }

    fn wasted(&mut self, frames: u32) -> Result<(), Fault> {
        let answered = self.mux.with(|state| std::mem::take(&mut state.answered));
        self.waste = self.waste.saturating_sub(answered.saturating_mul(WASTE_AN_ANSWER));
        self.waste = self.waste.saturating_add(frames);
        match self.waste > WASTE_MAX {
            true => {
                Err(Fault::connection(Code::ExcessiveLoad, "too many frames that bring nothing"))
            }
            false => Ok(()),
        }
    }

    /// A stream of the client's, or the connection, ends for a fault.
    fn fail(&mut self, id: Option<StreamId>, fault: Fault) {
        let code = fault.code.number();
        match (fault.ends, id) {
            (Ends::Stream, Some(id)) => {
                let entry = self.mux.with(|state| {
                    state.decoder.cancel(id.into());
                    state.streams.get_mut(&id).map(|entry| {
                        entry.reset = true;
                        entry.wake_all();
                        entry.phase
                    })
                });
                if entry.is_some_and(|phase| phase != Phase::Begun) {
                    self.mux.with(|state| state.streams.remove(&id));
                }
                self.mux.c().log(Level::Info, format_args!("client sent {}", fault.what));
                self.mux.quic().reset(id, code);
                self.mux.quic().stop(id, code);
            }
            _ => {
                self.mux.with(|state| state.is_refused = true);
                self.mux.c().log(Level::Info, format_args!("client sent {}", fault.what));
                self.mux.quic().close(code, PHRASE);
            }
        }
    }

    /// Tells the client that the connection ends, when that is so, and closes it when it is over.
    fn leave_in_time(&mut self) {
        let is_given_up = self.main.life.is_given_up();
        if self.leaving == Leaving::No
            && (self.main.life.is_leaving() || channel::stream::is_worn(&self.mux.c()))
        {
            self.leaving = Leaving::Told(base::time::now_ms());
            self.control.goaway(self.mux.with(|state| state.next_id));
            let quic = self.mux.quic().clone();
            // One that goes on to say nothing is closed then.
            event::spawn(async move {
                event::sleep(LEAVE_MS).await;
                quic.touch();
            });
        }
        let Leaving::Told(since_ms) = self.leaving else { return };
        let is_idle =
            self.mux.with(|state| state.streams.is_empty() && state.unconfirmed.is_empty());
        if is_given_up || is_idle && base::time::now_ms() >= since_ms + LEAVE_MS {
            self.mux.quic().close(Code::NoError.number(), "");
        }
    }
}

impl quic::Session for Session {
    fn early(&mut self, info: Info) {
        if let Some(tls) = self.mux.c().tls.get() {
            tls.session.is_early(info);
        }
    }

    fn moved(&mut self, to: SocketAddr) {
        self.mux.moved(&self.main, SockAddr::from(to));
    }

    fn established(&mut self, info: Info) {
        let c = self.mux.c();
        let Some(tls) = c.tls.get() else { return };
        self.main.metrics.handshake(&tls.server.zone, Ok(info.is_resumed));
        tls.session.established(info);
        (self.look_up)(&c, &self.is_held, self.mux.quic());
    }

    fn opened(&mut self, dir: Dir) {
        while let Some(id) = self.mux.quic().accept(dir) {
            if dir == Dir::Uni {
                self.control.open(id);
            } else if self.leaving != Leaving::No {
                // The client was told, and asks another connection.
                let code = Code::RequestRejected.number();
                self.mux.quic().reset(id, code);
                self.mux.quic().stop(id, code);
                continue;
            } else {
                let section = self.mux.c().server().core.large_headers();
                self.mux.with(|state| {
                    state.next_id = u64::from(id) + 4;
                    state.streams.insert(id, Entry::new(section));
                });
            }
            self.readable.push_back(id);
        }
    }

    fn readable(&mut self, id: StreamId) {
        self.readable.push_back(id);
    }

    fn writable(&mut self, id: StreamId) {
        let _ = self.mux.of(id, Entry::wake_room);
    }

    fn stopped(&mut self, id: StreamId, _: u64) {
        self.mux.with(|state| state.unconfirmed.remove(&id));
        let given_up = self.mux.of(id, |entry| {
            entry.reset = true;
            entry.wake_all();
        });
        // The client is told that nothing more comes (RFC 9000 section 3.5).
        self.mux.quic().reset(id, Code::RequestCancelled.number());
        if given_up.is_ok()
            && let Err(fault) = self.wasted(WASTE_A_RESET)
        {
            self.fail(None, fault);
        }
    }

    fn finished(&mut self, id: StreamId) {
        self.mux.with(|state| state.unconfirmed.remove(&id));
    }

    fn turn(&mut self) -> bool {
        let mut slice = Slice::default();
        slice.begin(false);
        let hungry = self.mux.with(|state| std::mem::take(&mut state.hungry));
        self.readable.extend(hungry);
        let files = self.main.clone();
        let has_more = files.files.batch(|| {
            loop {
                while let Some(id) = self.readable.pop_front() {
                    self.read(id);
                    if slice.has_passed() {
                        break;
                    }
                }
                while !self.is_held.get()
                    && let Some(job) = self.jobs.pop_front()
                {
                    // A panic costs the request: its stream ends with it.
                    let _ = event::task::caught(|| (self.start)(job));
                    if slice.has_passed() {
                        break;
                    }
                }
                let is_done =
                    self.readable.is_empty() && (self.jobs.is_empty() || self.is_held.get());
                if is_done || slice.has_passed() {
                    return !is_done;
                }
            }
        });
        self.leave_in_time();
        self.control.send(&self.mux);
        has_more
    }

    fn ended(&mut self, why: &Ended) {
        let open = self.mux.with(|state| state.streams.len());
        let c = self.mux.c();
        let established = c.tls.get().is_some_and(|tls| tls.session.info().is_some());
        if !established {
            self.main.metrics.handshake(&c.server().zone, Err(()));
        }
        let m = match why {
            Ended::Fault(text) => Some(format!("QUIC connection failed: {text}")),
            Ended::Refused(text) if !established => {
                Some(format!("client ended the QUIC handshake: {text}"))
            }
            Ended::TimedOut if open > 0 || !established => {
                Some("client timed out (110: Connection timed out)".to_owned())
            }
            Ended::Closed(_) | Ended::Refused(_) | Ended::Reset if open > 0 => {
                Some("client prematurely closed connection".to_owned())
            }
            _ => None,
        };
        if let Some(m) = m {
            let during = if established { "" } else { " while SSL handshaking" };
            self.mux.c().log(Level::Info, format_args!("{m}{during}"));
            // The line tells it of all requests.
            self.mux.with(|state| state.is_refused |= matches!(why, Ended::Fault(_)));
        }
    }
}

/// Ends a stream whose request ends, be it by a panic.
struct Ending {
    mux: Rc<Mux>,
    id: StreamId,
    failed: Cell<Option<Code>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.mux.request_ended(self.id, self.failed.get());
    }
}

/// Answers requests, one after the other, as long as none of them has to wait.
async fn work<A: Answer>(mux: Rc<Mux>, main: Rc<HttpMain>, inbox: Rc<Inbox<Job>>) {
    loop {
        answer::<A>(mux.clone(), &main, inbox.next().await).await;
        if inbox.is_over() {
            return;
        }
    }
}

/// Answers a request.
async fn answer<A: Answer>(mux: Rc<Mux>, main: &HttpMain, job: Job) {
    let Job { mut r, id, refused } = job;
    let writing = main.stats.gauge(Field::Writing);
    let is_over = mux.is_over(id);
    let ending = Ending { mux, id, failed: Cell::new(Some(Code::InternalError)) };
    match channel::stream::answer::<A>(main, &mut r, refused, is_over).await {
        Some(Ok(())) => ending.failed.set(None),
        Some(Err(SendFailed)) if stream(&mut r).timed_out => {
            ending.failed.set(Some(Code::RequestCancelled));
        }
        Some(Err(SendFailed)) | None => {}
    }
    drop(ending);
    drop(writing);
    r.give_back();
}
