//! The turns of a connection: what came on its streams, and the requests that begin with it.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use engine::slice::Slice;
use engine::stats::Field;
use engine::unconfirmed::{Found, Terms, Unconfirmed};
use engine::{flooders, min_rate};
use event::{Call, Deadline, Rest, Socketless};
use http_wire::h3::leaving::{LAST_ID, Leaving};
use http_wire::h3::{Code, Ends, Fault};
use http_wire::qpack::{self, Limits};
use os::SockAddr;
use quic::{Dir, Ended, StreamId};
use tls::Info;

use super::control::Control;
use super::mux::{Entry, Mux, Phase};
use super::receive::{Job, Parties};
use super::stream;
use crate::channel::conn::Conn;
use crate::channel::streams::{self, is_worn, kept_ms, tell_fault};
use crate::channel::{Answer, SendFailed};
use crate::http3_conf::{BLOCKED_MAX, BLOCKED_STREAMS};
use crate::server::HttpMain;
use engine::turns::run::Runner;
use http_wire::address::Account;

/// A field section may be so many times as large as a head that is taken, and has such a size at
/// least, bytes, 32 for each field included: up to that it is answered.
const SECTION_TIMES: usize = 4;
const SECTION_MIN: usize = 64 << 10;

/// Streams that are over and may be kept track of, beyond as many as are open.
const HEADS_KEPT: usize = 16;

/// The line about a client that is late. nginx's words.
const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// The reason that a client gets that breaks the rules; the log has more. nginx's words.
const PHRASE: &str = "stream error";

/// Checks a client certificate's revocation if its server asks; requests wait for the cell.
type LookUp = fn(&Rc<Conn>, &Rc<Cell<bool>>, &Rc<quic::Connection>);

/// Has a request answered; says whether it waits.
type Start = Box<dyn FnMut(Job) -> bool>;

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
    /// Streams that were opened since the last turn.
    opened: Vec<StreamId>,
    look_up: LookUp,
    /// The client's certificate is being looked up.
    is_held: Rc<Cell<bool>>,
    leaving: Leaving,
    /// The budget of frames that bring nothing, and of resets.
    waste: Account,
    /// Its place among the worker's connections, and what was said of it last.
    place: Rc<Socketless>,
    calls: Rc<Cell<Option<Call>>>,
    /// The handshake is at its end.
    is_established: bool,
    /// Streams whose heads were not whole when they were looked at first, with the times at which
    /// they are to be, the soonest first.
    heads: VecDeque<(StreamId, u64)>,
    /// How the client gets on with responses that are under way.
    unconfirmed: Unconfirmed,
    /// Since when there are no streams, milliseconds.
    quiet_ms: Option<u64>,
    /// It counts as one that waits for a request.
    is_waiting: bool,
    /// Held as long as the connection is.
    _kept: Box<dyn Any>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.place.close();
        self.counts_as_waiting(false);
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
        let server = c.server().clone();
        let section = server.core.large_headers();
        let limits = Limits {
            table_capacity: qpack::TABLE_CAPACITY,
            blocked_streams: BLOCKED_STREAMS as usize,
            blocked_bytes: BLOCKED_MAX,
            section: section.saturating_mul(SECTION_TIMES).max(SECTION_MIN),
            text: server.core.large_header_buffer_size,
        };
        let place = c.place().expect("a connection over QUIC has its place").clone();
        let did_flood = flooders::has(c.client_ip());
        let mux = Rc::new(Mux::new(c, quic.clone(), limits));
        let mut runner = {
            let (mux, main) = (mux.clone(), main.clone());
            Runner::new(move |inbox| {
                let (mux, main) = (mux.clone(), main.clone());
                boxed(|| async move {
                    inbox.work(async |job| answer::<A>(mux.clone(), &main, job).await).await;
                })
            })
        };
        let calls = Rc::default();
        event::spawn(listen(place.clone(), Rc::clone(&calls), quic.clone()));
        let address = mux.with(|state| state.address.clone());
        Session {
            control: Control::new(section),
            start: Box::new(move |job| runner.run(job)),
            jobs: VecDeque::new(),
            readable: VecDeque::new(),
            opened: Vec::new(),
            look_up,
            is_held: Rc::default(),
            leaving: Leaving::No,
            waste: Account::new(server.http3.max_streams, address, did_flood),
            place,
            calls,
            is_established: false,
            heads: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
            quiet_ms: None,
            is_waiting: false,
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
        self.waste.frames(brought.frames, base::time::now_ms())?;
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
        self.waste.frames(brought.empty, base::time::now_ms())?;
        Ok(())
    }

    /// A stream was looked at for the first time: the rest of its head has a time to come.
    fn awaits_head(&mut self, id: StreamId) {
        if self.mux.of(id, |entry| entry.phase == Phase::Begun) != Ok(false) {
            return;
        }
        // Most of them have begun since.
        if self.heads.len() > 2 * self.mux.with(|state| state.streams.len()) + HEADS_KEPT {
            let mux = self.mux.clone();
            self.heads.retain(|(id, _)| mux.of(*id, |e| e.phase == Phase::Begun) == Ok(false));
        }
        let ms = self.mux.c().head_timeout();
        self.heads.push_back((id, base::time::now_ms().saturating_add(ms)));
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
        self.was_reset()
    }

    /// A stream was reset, by the client or for a fault of the client's.
    fn was_reset(&mut self) -> Result<(), Fault> {
        let reset = self.waste.reset(base::time::now_ms());
        let is_strained = self.waste.is_strained();
        self.mux.with(|state| state.is_strained = is_strained);
        Ok(reset?)
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
                if self.waste.tells() {
                    self.mux.c().log(Level::Info, format_args!("client sent {}", fault.what));
                }
                self.mux.quic().reset(id, code);
                self.mux.quic().stop(id, code);
                self.mux.with(|state| state.decoder.cancel(id.into()));
                if let Err(flood) = self.was_reset() {
                    self.fail(None, flood);
                }
            }
            _ => {
                self.mux.with(|state| state.is_refused = true);
                let is_flood = fault.code == Code::ExcessiveLoad;
                tell_fault(&self.mux.c(), fault.what, is_flood);
                self.mux.quic().close(code, PHRASE);
            }
        }
    }

    /// Tells the client that the connection ends, when that is so, and closes it when it is over.
    fn leave_in_time(&mut self) {
        let is_given_up = self.main.life.is_given_up();
        let now_ms = base::time::now_ms();
        match self.leaving {
            Leaving::No if self.main.life.is_leaving() || is_worn(&self.mux.c()) => {
                self.leaving = Leaving::Announced(now_ms);
                self.control.goaway(LAST_ID);
            }
            Leaving::Announced(_) if self.leaving.is_due(now_ms) => {
                self.leaving = Leaving::Final(now_ms);
                self.control.goaway(self.mux.with(|state| state.next_id));
            }
            Leaving::No => return,
            _ => {}
        }
        let is_idle =
            || self.mux.with(|state| state.streams.is_empty() && state.unconfirmed.is_empty());
        if is_given_up || self.leaving.is_due(now_ms) && is_idle() {
            self.mux.quic().close(Code::NoError.number(), "");
        }
    }

    /// Times that have passed.
    fn look_at_time(&mut self) {
        let now_ms = base::time::now_ms();
        let c = self.mux.c();
        if !self.is_established && now_ms >= self.handshake_ends_ms(&c) {
            c.log(Level::Info, format_args!("{TIMED_OUT} while SSL handshaking"));
            return self.mux.quic().close(Code::NoError.number(), "");
        }
        while let Some((id, _)) = self.heads.front().copied().filter(|(_, at_ms)| *at_ms <= now_ms)
        {
            self.heads.pop_front();
            self.head_is_late(id);
        }
        if self.quiet_ms.is_some_and(|since_ms| now_ms >= since_ms.saturating_add(kept_ms(&c))) {
            self.mux.quic().close(Code::NoError.number(), "");
        }
    }

    fn handshake_ends_ms(&self, c: &Conn) -> u64 {
        c.start_ms.saturating_add(c.head_timeout())
    }

    /// A head is late: its stream ends, and a head that has begun gets a line in the access log.
    fn head_is_late(&mut self, id: StreamId) {
        let parties = Parties { mux: &self.mux, main: &self.main };
        match parties.late(id) {
            None => {}
            Some(Some(job)) => self.jobs.push_back(job),
            Some(None) => {
                let code = Code::GeneralProtocolError.number();
                self.mux.quic().reset(id, code);
                self.mux.quic().stop(id, code);
            }
        }
    }

    /// The worker asks for the connection.
    fn make_room(&mut self, call: Call) {
        let c = self.mux.c();
        match call {
            Call::Due => return self.look_at_time(),
            Call::Reclaimed if self.rest() == Rest::Busy => return,
            Call::Reclaimed => {}
            Call::Displaced => {
                let _ = c.is_displaced(|m| c.log(Level::Info, format_args!("{m}")));
            }
        }
        self.mux.with(|state| state.is_refused = true);
        self.mux.quic().close(Code::NoError.number(), "");
    }

    /// How the connection stands, for a worker that is short of room.
    fn rest(&self) -> Rest {
        let (is_busy, is_empty) = self.mux.with(|state| {
            // A response is on its way as long as its end is not confirmed.
            let is_busy = state.begun > 0 || !state.unconfirmed.is_empty();
            (is_busy, state.streams.is_empty())
        });
        if is_busy || self.is_held.get() || !self.jobs.is_empty() {
            Rest::Busy
        } else if is_empty && self.is_established && self.mux.c().requests.get() > 0 {
            Rest::Idle
        } else {
            Rest::Owes
        }
    }

    /// Says how the connection stands, and when it is to be looked at for the time's sake.
    fn settle(&mut self) {
        let confirmed_ms = self.look_at_confirmed();
        let (c, rest) = (self.mux.c(), self.rest());
        let is_quiet = self.is_established
            && self.mux.with(|state| state.streams.is_empty() && state.unconfirmed.is_empty());
        let now_ms = base::time::now_ms();
        self.quiet_ms = is_quiet.then(|| self.quiet_ms.unwrap_or(now_ms));
        self.counts_as_waiting(rest == Rest::Idle);
        while let Some((id, _)) = self.heads.front()
            && self.mux.of(*id, |entry| entry.phase == Phase::Begun) != Ok(false)
        {
            self.heads.pop_front();
        }
        let leaves_ms = self.leaving.next_ms().filter(|at_ms| now_ms < *at_ms);
        let times = [
            self.heads.front().map(|(_, at_ms)| *at_ms),
            self.quiet_ms.map(|since_ms| since_ms.saturating_add(kept_ms(&c))),
            (!self.is_established).then(|| self.handshake_ends_ms(&c)),
            leaves_ms,
            confirmed_ms,
        ];
        let next = times.into_iter().flatten().min();
        self.place.stands(rest, next.map_or(Deadline::NEVER, Deadline::at));
    }

    /// Looks whether the client still confirms responses that it was sent, and gives them up where
    /// it does not. Says when it is to be looked at again.
    fn look_at_confirmed(&mut self) -> Option<u64> {
        let (mux, now_ms) = (self.mux.clone(), base::time::now_ms());
        let c = mux.c();
        let terms = {
            let core = &c.server().root.core;
            Terms { timeout_ms: core.send_timeout, min: core.send_min_rate }
        };
        let is_any = mux.with(|state| !state.unconfirmed.is_empty());
        let too_slow = match self.unconfirmed.look(is_any, terms, now_ms, || mux.quic().confirmed())
        {
            Found::Nothing => return None,
            Found::Until(ms) => return Some(ms),
            Found::Late { too_slow } => too_slow,
        };
        let why = min_rate::reason(too_slow, c.client_ip()).filter(|_| mux.tells_of_end());
        if let Some(m) = why {
            c.log(Level::Info, format_args!("{m} while sending response to client"));
        }
        for id in mux.with(|state| std::mem::take(&mut state.unconfirmed)) {
            mux.quic().reset(id, Code::GeneralProtocolError.number());
        }
        None
    }

    fn counts_as_waiting(&mut self, is_waiting: bool) {
        match (std::mem::replace(&mut self.is_waiting, is_waiting), is_waiting) {
            (false, true) => self.main.stats.add(Field::Waiting, 1),
            (true, false) => self.main.stats.sub(Field::Waiting, 1),
            _ => {}
        }
    }
}

/// Hands the loop's calls for a connection to its session, until it is over.
async fn listen(place: Rc<Socketless>, calls: Rc<Cell<Option<Call>>>, quic: Rc<quic::Connection>) {
    while let Some(call) = place.called().await {
        calls.set(Some(call));
        quic.touch();
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
        self.waste.moves(self.mux.with(|state| state.address.clone()));
    }

    fn established(&mut self, info: Info) {
        self.is_established = true;
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
            } else if matches!(self.leaving, Leaving::Final(_)) {
                // The client was told, and asks another connection.
                let code = Code::RequestRejected.number();
                self.mux.quic().reset(id, code);
                self.mux.quic().stop(id, code);
                if let Err(flood) = self.waste.frame(base::time::now_ms()) {
                    self.fail(None, flood.into());
                }
                continue;
            } else {
                let section = self.mux.c().server().core.large_headers();
                self.mux.with(|state| {
                    state.next_id = u64::from(id) + 4;
                    let address = state.address.clone();
                    state.streams.insert(id, Entry::new(section, address));
                });
                self.waste.stream();
                self.opened.push(id);
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
        self.mux.settled(id);
        let has_begun = self.mux.with(|state| {
            let entry = state.streams.get_mut(&id).filter(|entry| !entry.reset)?;
            entry.reset = entry.phase == Phase::Begun;
            entry.wake_all();
            Some(entry.reset)
        });
        // The client is told that nothing more comes (RFC 9000 section 3.5).
        self.mux.quic().reset(id, Code::RequestCancelled.number());
        let counted = match has_begun {
            Some(true) => self.was_reset(),
            Some(false) => {
                // No request begins that cannot be answered.
                self.mux.quic().stop(id, Code::RequestCancelled.number());
                self.given_up(id)
            }
            // To the client the stream was open, as all of its end had not come.
            None => self.waste.frame(base::time::now_ms()).map_err(Fault::from),
        };
        if let Err(fault) = counted {
            self.fail(None, fault);
        }
    }

    fn finished(&mut self, id: StreamId) {
        self.mux.settled(id);
    }

    fn turn(&mut self) -> bool {
        if let Some(call) = self.calls.take() {
            self.make_room(call);
        }
        let surplus = self.mux.quic().surplus_frames();
        if surplus > 0
            && let Err(flood) = self.waste.frames(surplus, base::time::now_ms())
        {
            self.fail(None, flood.into());
        }
        let mut slice = Slice::default();
        slice.begin(self.waste.is_suspect());
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
        for id in std::mem::take(&mut self.opened) {
            self.awaits_head(id);
        }
        self.leave_in_time();
        self.control.send(&self.mux);
        self.settle();
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
            Ended::TimedOut if open > 0 || !established => Some(TIMED_OUT.to_owned()),
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

/// Answers a request.
async fn answer<A: Answer>(mux: Rc<Mux>, main: &HttpMain, job: Job) {
    let Job { mut r, id, refused, is_late } = job;
    let writing = main.stats.gauge(Field::Writing);
    let is_over = mux.is_over(id);
    let ending = Ending { mux, id, failed: Cell::new(Some(Code::InternalError)) };
    let done = match is_late {
        false => streams::answer::<A>(main, &mut r, refused, is_over).await,
        true => {
            // It is logged, and not answered.
            (r.flags.err_status, stream(&mut r).exchange.timed_out) = (408, true);
            A::log(&mut r).await;
            Some(Err(SendFailed))
        }
    };
    match done {
        Some(Ok(())) => ending.failed.set(None),
        // nginx says so, too.
        Some(Err(SendFailed)) if stream(&mut r).exchange.timed_out => {
            ending.failed.set(Some(Code::GeneralProtocolError));
        }
        Some(Err(SendFailed)) | None => {}
    }
    drop(ending);
    drop(writing);
    r.give_back();
}
