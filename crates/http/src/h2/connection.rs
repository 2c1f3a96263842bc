//! The life of a connection over HTTP/2: parked while it has no streams, served otherwise.
//!
//! A turn reads what is there, runs the requests in it, gives streams their turns to send, and
//! sends everything at once. Streams that wait are tasks of their own; they tell this one when they
//! have something.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base::future::{boxed, keep, poll_kept, rarely};
use base::log::Level;
use engine::slice::Slice;
use engine::stats::Field;
use event::task::foreseen;
use event::{Deadline, Wake};
use http_wire::h2::frame::{self, ErrorCode};
use http_wire::h2::read::Fault;
use http_wire::h2::settings::id;
use http_wire::h2::window::{INITIAL, MAX};
use mem::Page;
use net::moves::{self, ASK_MS, Kind, Line, Stay};

use super::answer::{self, answer};
use super::gather::gather;
use super::leaving::{drain, goodbye, leave, leave_now, refuse};
use super::mux::Mux;
use super::receive::moving::{Resting, offer};
use super::receive::{Job, Leaving, Parties, Receiver, Taken};
use super::schedule::OUTPUT_MAX;
use crate::channel::conn::Conn;
use crate::channel::parting::{self, Due};
use crate::channel::streams::{is_worn, kept_ms};
use crate::channel::{Answer, linger};
use crate::server::HttpMain;
use engine::turns::run::Runner;

/// Output that the client has not taken, from which on nothing is read from it.
const UNTAKEN_MAX: usize = 128 << 10;

/// Bytes that the kernel may hold and has not sent, where there are more: streams that become more
/// urgent wait for these. Half as many are free when the socket is writable again, so that a turn's
/// frames fit.
const UNSENT_MAX: i32 = 2 * OUTPUT_MAX as i32;

/// Time between the first and the final GOAWAY if the client does not answer, milliseconds.
const LEAVE_MS: u64 = 1_000;

/// The time that the streams of a leaving worker's connection have to end, so that it can move,
/// milliseconds. Behind that the client is told that the worker leaves.
const MOVE_MS: u64 = 2_000;

/// Room in a page below which a part of a frame moves to a larger one.
const PAGE_LOW: usize = 4 << 10;

/// Turns that may follow each other before other connections have theirs.
const ROUNDS: usize = 16;

/// Time for which a connection without streams is not parked, milliseconds, if it was parked for
/// less before: rebuilding what parking frees costs as much as answering some requests.
const LINGER_MS: u64 = 100;

/// The next step of a connection that is being served.
pub(super) enum After {
    /// It has no streams.
    Park,
    Close,
    /// All of its streams are tunnels, and its turn to move has come.
    Gather(moves::Turn),
    /// Read and drop the client's remaining bytes, then close.
    Linger,
    /// The same for a client that was cut off, and may send for ever.
    Drain,
}

/// Tells the streams when the connection is gone, whatever way.
struct End(Rc<Mux>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Serves a connection to its end. `first` holds bytes that came before.
pub(crate) async fn run<A: Answer>(c: Rc<Conn>, main: Rc<HttpMain>, first: Page) {
    let mux = Rc::new(Mux::new(c.clone(), c.server().http2));
    let receiver = Receiver::new(&mux);
    greet(&mux, receiver.frame_max());
    live::<A>(Resting { mux, receiver, tunnels: Vec::new() }, &main, first, None).await;
}

/// The same for one that another process has begun, and that is closed in `left_ms` milliseconds if
/// nothing comes.
pub(crate) async fn resume<A: Answer>(
    resting: Resting,
    main: Rc<HttpMain>,
    first: Page,
    left_ms: u64,
) {
    live::<A>(resting, &main, first, Some(left_ms)).await;
}

async fn live<A: Answer>(
    Resting { mux, receiver, tunnels }: Resting,
    main: &Rc<HttpMain>,
    first: Page,
    left_ms: Option<u64>,
) {
    let _end = End(mux.clone());
    for (key, mut r, begin) in tunnels {
        r.loc.clone().pipeline.resume.iter().for_each(|resume| resume(&mut r));
        event::spawn(answer::resume::<A>((mux.clone(), key), main.clone(), r, begin()));
    }
    turns::<A>(&mux, main, receiver, (first, left_ms)).await;
    mux.end_in_turns().await;
}

async fn turns<A: Answer>(
    mux: &Rc<Mux>,
    main: &Rc<HttpMain>,
    mut receiver: Receiver,
    (mut page, mut left_ms): (Page, Option<u64>),
) {
    let c = &*mux.c;
    let (mut lingers, mut answered) = (false, c.requests.get());
    loop {
        let turn = foreseen(boxed(|| serve::<A>(mux, main, &mut receiver, page, lingers)));
        let after = main.life.unless_given_up(pin!(turn)).await;
        match after {
            Some(After::Park) => {}
            Some(After::Gather(turn)) => match boxed(|| gather(mux, &mut receiver, turn)).await {
                Some(read) => {
                    page = read;
                    continue;
                }
                None => return,
            },
            Some(After::Close) | None => return,
            Some(After::Linger) => {
                main.life.unless_given_up(Box::pin(linger(c)).as_mut()).await;
                return;
            }
            Some(After::Drain) => {
                main.life.unless_given_up(Box::pin(drain(c)).as_mut()).await;
                return;
            }
        }
        receiver.shrink();
        mux.with(|state| state.shrink());
        let parked_ms = base::time::now_ms();
        // What was left of the time before the move counts until a request has come.
        let left_ms = left_ms.take().filter(|_| c.requests.get() == answered);
        let ms = left_ms.unwrap_or_else(|| kept_ms(c));
        page = match parked(mux, main, &mut receiver, ms).await {
            Parked::Goes(page) => page,
            Parked::Moved => return,
            Parked::Ends => {
                goodbye(mux, &receiver, ErrorCode::NO_ERROR).await;
                return;
            }
        };
        lingers = base::time::now_ms() - parked_ms < LINGER_MS
            && c.requests.get() > std::mem::replace(&mut answered, c.requests.get())
            && c.server().root.core.keepalive_timeout > LINGER_MS;
    }
}

/// Our preface: parameters, and a window that never matters, since each stream has one.
fn greet(mux: &Mux, frame_max: usize) {
    let conf = &mux.conf;
    let pairs = [
        (id::MAX_CONCURRENT_STREAMS, conf.max_streams),
        (id::INITIAL_WINDOW_SIZE, conf.preread),
        (id::MAX_FRAME_SIZE, frame_max as u32),
        (id::ENABLE_CONNECT_PROTOCOL, 1),
        // Clients that know this parameter send PRIORITY_UPDATE only if it is there (RFC 9218
        // section 2.1.1), and are told by it that their dependencies are ignored (section 2.1):
        // `State::signalled` and `Settings::no_tree` see to that. The tree is for clients that are
        // older than the parameter, and pass over it.
        (id::NO_RFC7540_PRIORITIES, 1),
    ];
    mux.with(|state| {
        state.control(|w| {
            frame::write_settings(w, &pairs);
            frame::write_window_update(w, 0, MAX - INITIAL);
        });
    });
}

/// What has become of a connection that was parked.
enum Parked {
    /// Something may have come; these bytes have been received.
    Goes(Page),
    /// Another process serves it.
    Moved,
    Ends,
}

/// Waits `ms` milliseconds for the next frame.
async fn parked(mux: &Mux, main: &HttpMain, receiver: &mut Receiver, ms: u64) -> Parked {
    let c = &mux.c;
    if receiver.leaving() == Leaving::Final {
        return Parked::Ends;
    }
    main.stats.add(Field::Waiting, 1);
    let until = Deadline::in_ms(ms);
    let wait = async {
        match c.sock().readable_or(&main.life.gate, until).await {
            Ok(Wake::Ready) => Parked::Goes(Page::new()),
            Ok(Wake::Gate) => rarely(part(mux, main, receiver, until)).await,
            Ok(Wake::Reclaim) | Err(_) => Parked::Ends,
        }
    };
    let woken = main.life.unless_given_up(pin!(wait)).await;
    main.stats.sub(Field::Waiting, 1);
    woken.unwrap_or(Parked::Ends)
}

/// The worker is leaving: the connection moves to another process, or its client is told.
async fn part(mux: &Mux, main: &HttpMain, receiver: &mut Receiver, until: Deadline) -> Parked {
    let c = &mux.c;
    let grace = Deadline::in_ms(ASK_MS).or(until);
    let read = match parting::due(c, main.life.moves(), Kind::Http2, (grace, until)).await {
        Due::Woken(Ok(())) => return Parked::Goes(Page::new()),
        Due::Woken(Err(_)) if until.has_passed() => return Parked::Ends,
        Due::Woken(Err(_)) | Due::Stays => Page::new(),
        // Thousands may wait for their turns, and few have them at a time.
        Due::Turn(turn) => match boxed(|| offer(mux, receiver, turn, until, &[])).await {
            Some(read) => read,
            None => return Parked::Moved,
        },
    };
    c.stays.set(true);
    leave(mux, receiver);
    Parked::Goes(read)
}

/// The end of a wait.
enum Woken {
    /// Something may be read or sent, a stream has something, the worker is leaving, or time has
    /// passed that the connection looks out for.
    Go,
    /// The time for which a busy connection is not parked has passed.
    Rested,
    Failed(io::Error),
}

impl Woken {
    /// The end of a wait for the socket. The client is late where `partial`: where it is not, only
    /// the rest of a busy connection has an end.
    fn by(done: io::Result<()>, partial: bool) -> Woken {
        match done {
            Ok(()) => Woken::Go,
            Err(e) if e.kind() == io::ErrorKind::TimedOut && !partial => Woken::Rested,
            Err(e) => Woken::Failed(e),
        }
    }
}

/// The things to wait for between two turns.
struct Waits {
    write: bool,
    read: bool,
    tick: Option<u64>,
}

/// The outcome of a turn.
enum Turn {
    /// There may be more at once.
    Again,
    /// There may be more, but others have their turn first.
    Yield,
    /// Streams that were woken are to run before others send.
    Early,
    Wait(Waits),
    End(After),
    Refused(Fault),
}

/// A connection that is being served.
struct Serving<'a> {
    mux: &'a Rc<Mux>,
    main: &'a Rc<HttpMain>,
    receiver: &'a mut Receiver,
    page: Page,
    /// The page holds bytes that nobody looked at, or requests of those before are to begin.
    fresh: bool,
    /// The time until which a frame that has begun is to be whole.
    partial: Option<Deadline>,
    /// The connection is busy: the time until which it is not parked. It is kept as it is while
    /// requests come, and looked at when it has passed.
    busy_until: Option<Deadline>,
    /// The requests that had come when that time was set.
    requests: u64,
    /// The time of the final GOAWAY.
    leave_at: Option<Deadline>,
    /// The time since which the connection of a leaving worker is not in line to move.
    leaves_ms: Option<u64>,
    /// Its place in line to move with the tunnels on its streams.
    line: Line,
    rounds: usize,
    /// The time of the loop that this connection has before others.
    slice: Slice,
}

impl<'a> Serving<'a> {
    fn new(
        mux: &'a Rc<Mux>,
        main: &'a Rc<HttpMain>,
        receiver: &'a mut Receiver,
        page: Page,
        lingers: bool,
    ) -> Serving<'a> {
        Serving {
            mux,
            main,
            receiver,
            fresh: !page.is_empty(),
            page,
            partial: None,
            busy_until: lingers.then(|| Deadline::in_ms(LINGER_MS)),
            requests: mux.c.requests.get(),
            leave_at: None,
            leaves_ms: None,
            line: Line::default(),
            rounds: 0,
            slice: Slice::default(),
        }
    }

    /// Reads what is there, runs the requests in it, and sends what there is to send.
    fn turn(&mut self, start: impl FnMut(Job) -> bool) -> Turn {
        self.slice.begin(self.receiver.is_suspect());
        let choked = self.mux.with(|state| state.out_len > UNTAKEN_MAX);
        let came = match self.take(choked, start) {
            Ok(came) => came,
            Err(ended) => return ended,
        };
        self.mux.heard();
        self.leave_in_time();
        let sock = self.mux.c.sock();
        let (sent, early) = self.mux.with(|state| {
            state.end_lame(base::time::now_ms());
            let early = state.pump();
            if !state.schedule.is_empty() && state.schedule.is_ranked {
                // More is to come than goes at once. Nothing overtakes what the kernel holds. Where
                // all streams take turns, none is to: then it costs a quarter of the time on the
                // processor to have the kernel ask for a little at a time.
                self.mux.c.limit_unsent(UNSENT_MAX);
            }
            let sent = sock.try_send(&mut state.output, None);
            state.sent += *sent.as_ref().unwrap_or(&0) as u64;
            state.out_len = if state.output.is_empty() { 0 } else { state.output.len() as usize };
            (sent, early)
        });
        if sent.is_err() {
            return Turn::End(cut_off(self.mux));
        }
        if early {
            self.slice.end();
            return Turn::Early;
        }
        if let Some(turn) = self.turn_to_move() {
            return Turn::End(After::Gather(turn));
        }
        let (more, unsent) = self.mux.with(|state| {
            let sendable = !state.schedule.is_empty() && state.send.left() > 0;
            (sendable && state.out_len == 0, state.out_len > 0)
        });
        let unsent = unsent || sock.has_unsent();
        // Frames that lie in the page because too much was unsent are taken once all was sent.
        let came = came || self.fresh && !unsent;
        if came || more {
            self.rounds += 1;
            if self.rounds < ROUNDS && !self.slice.has_passed() {
                return Turn::Again;
            }
        }
        self.rounds = 0;
        self.slice.end();
        if came || more {
            return Turn::Yield;
        }
        self.rest(choked, unsent)
    }

    /// Takes the frames that are there; says whether there were any bytes.
    fn take(&mut self, choked: bool, start: impl FnMut(Job) -> bool) -> Result<bool, Turn> {
        if choked {
            return Ok(false);
        }
        if !std::mem::take(&mut self.fresh) {
            match receive(&self.mux.c, &mut self.page, self.receiver.room()) {
                Ok(None) => return Ok(false),
                Ok(Some(0)) | Err(_) => return Err(Turn::End(cut_off(self.mux))),
                Ok(Some(_)) => {}
            }
        }
        let slice = self.slice;
        let is_over = || slice.has_passed();
        let mut parties =
            Parties { mux: self.mux, main: self.main, start, has_waiting: false, is_over };
        let (receiver, page) = (&mut *self.receiver, &mut self.page);
        let taken = self.main.files.batch(|| receiver.frames(page, &mut parties));
        self.fresh = taken.map_err(Turn::Refused)? == Taken::Part;
        Ok(true)
    }

    /// The time that the connection of a leaving worker has to become idle, so that it can move, in
    /// milliseconds.
    fn left_to_move(&mut self) -> u64 {
        if self.line.waits() {
            // The time begins with the decision: a turn that has just come is not too late.
            self.leaves_ms = None;
            return MOVE_MS;
        }
        let now = base::time::now_ms();
        let passed = now.saturating_sub(*self.leaves_ms.get_or_insert(now));
        match self.mux.c.may_move(self.main.life.moves()) {
            true => MOVE_MS.saturating_sub(passed),
            false => 0,
        }
    }

    /// Sends GOAWAY when the connection ends: twice, so that no stream in flight is lost.
    fn leave_in_time(&mut self) {
        let is_closed = self.main.life.gate.is_closed();
        if is_closed {
            self.stand_in_line();
        }
        if is_closed && self.left_to_move() == 0 || is_worn(&self.mux.c) {
            self.line.stays(self.mux.c.is_movable().err().unwrap_or(Stay::State));
            leave(self.mux, self.receiver);
        }
        if self.receiver.leaving() == Leaving::Announced {
            let at = *self.leave_at.get_or_insert_with(|| Deadline::in_ms(LEAVE_MS));
            if self.receiver.knows_leaving() || at.has_passed() {
                leave_now(self.mux, self.receiver);
            }
        }
    }

    /// The worker is leaving: all streams of the connection may be tunnels, which move with it.
    fn stand_in_line(&mut self) {
        let may_move = !self.mux.c.stays.get() && self.receiver.leaving() == Leaving::No;
        if let Some(moves) = self.main.life.moves().filter(|_| may_move && self.could_move()) {
            self.line.stand(moves, Kind::Http2);
        }
    }

    /// Whether all streams are tunnels, and no frame has arrived in part.
    fn could_move(&self) -> bool {
        let (tunnels, receiver) = (self.mux.party.len(), &*self.receiver);
        let is_between = self.page.is_empty() && !receiver.is_inside();
        let all = tunnels > 0 && tunnels == self.mux.with(|state| state.open);
        all && is_between && !receiver.awaits_continuation()
    }

    /// The turn to move with the tunnels, once it has come. A connection that cannot use it now
    /// stands in line again later: a client that leaves a frame unfinished must not hold up the
    /// others, of which few rest at a time.
    fn turn_to_move(&mut self) -> Option<moves::Turn> {
        let turn = self.line.decision()?;
        self.mux.c.stays.set(turn.is_none());
        if self.could_move() {
            return turn;
        }
        self.line.lapse(turn?);
        None
    }

    /// Nothing more can be done at once.
    fn rest(&mut self, choked: bool, unsent: bool) -> Turn {
        let receiver = &*self.receiver;
        let (open, lame) = self.mux.with(|state| (state.open, state.lame_ms()));
        let is_idle = open == 0 && !unsent && receiver.is_greeted();
        if is_idle && receiver.leaving() == Leaving::Final {
            return Turn::End(After::Linger);
        }
        if is_idle && self.mux.with(|state| state.is_stalled()) {
            // As over HTTP/1, a client that stands still has no connection to keep.
            leave_now(self.mux, self.receiver);
            return Turn::Again;
        }
        let is_partial = !self.page.is_empty() && !self.fresh
            || receiver.awaits_continuation()
            || !receiver.is_greeted();
        let can_park = is_idle && !is_partial && !receiver.is_inside() && self.leave_at.is_none();
        // One that can move does so at once, however busy it is.
        if can_park && (self.busy_until.is_none() || self.main.life.gate.is_closed()) {
            return Turn::End(After::Park);
        }
        if self.page.is_empty() {
            self.page.release();
        }
        if is_partial != self.partial.is_some() {
            let ms = self.mux.c.server().core.client_header_timeout;
            self.partial = is_partial.then(|| Deadline::in_ms(ms));
        }
        let announced = self.leave_at.filter(|_| receiver.leaving() == Leaving::Announced);
        let receiver_stays = receiver.leaving() == Leaving::No;
        let left = announced.map(|at| at.at_ms().saturating_sub(base::time::now_ms()));
        let stays = self.main.life.gate.is_closed() && receiver_stays;
        // A receiver that does not answer is missed soon.
        let moves_in = stays.then(|| self.left_to_move().min(ASK_MS));
        let tick = left.into_iter().chain(lame).chain(moves_in).min();
        Turn::Wait(Waits { write: unsent, read: !choked || !unsent, tick })
    }

    /// A wait has ended, and the connection maybe with it.
    async fn woken(&mut self, woken: Woken) -> Option<After> {
        match woken {
            Woken::Go => None,
            Woken::Rested => {
                self.rested();
                None
            }
            Woken::Failed(e) => self.failed(&e).await,
        }
    }

    /// The time until which the connection is not parked has passed. Where no request came
    /// meanwhile, it is parked as soon as it has no streams.
    fn rested(&mut self) {
        let requests = self.mux.c.requests.get();
        let is_busy = requests > std::mem::replace(&mut self.requests, requests);
        self.busy_until = is_busy.then(|| Deadline::in_ms(LINGER_MS));
    }

    /// A client that is late loses the stream whose head is incomplete, or the connection.
    async fn failed(&mut self, e: &io::Error) -> Option<After> {
        if e.kind() != io::ErrorKind::TimedOut {
            return Some(cut_off(self.mux));
        }
        if self.receiver.give_up_block(&self.page, self.mux) {
            self.partial = Some(Deadline::in_ms(kept_ms(&self.mux.c)));
            return None;
        }
        if self.mux.timed_out() {
            let m = "client timed out (110: Connection timed out)";
            self.mux.c.log(Level::Info, format_args!("{m}"));
        }
        self.mux.with(|state| state.is_refused = true);
        match self.mux.c.server().root.core.reset_timedout_connection {
            true => self.mux.c.reset_at_end.set(true),
            false => goodbye(self.mux, self.receiver, ErrorCode::PROTOCOL_ERROR).await,
        }
        Some(After::Close)
    }
}

/// Serves until there are no streams, or the connection is to end.
async fn serve<A: Answer>(
    mux: &Rc<Mux>,
    main: &Rc<HttpMain>,
    receiver: &mut Receiver,
    page: Page,
    lingers: bool,
) -> After {
    let mut runner = Runner::new(|inbox| {
        let (mux, main) = (mux.clone(), main.clone());
        boxed(|| async move {
            inbox.work(async |job| answer::<A>(mux.clone(), &main, job).await).await;
        })
    });
    let mut serving = Serving::new(mux, main, receiver, page, lingers);
    let sock = mux.c.sock();
    // Each stays in place while others end.
    let mut readable = pin!(None);
    let mut writable = pin!(None);
    let mut gate = pin!(None);
    let mut until = None;
    loop {
        let waits = match serving.turn(|job| runner.run(job)) {
            Turn::Wait(waits) => waits,
            Turn::End(after) => return after,
            Turn::Refused(fault) => return refuse(mux, serving.receiver, fault).await,
            Turn::Again => continue,
            Turn::Yield => {
                // Others may have something that the loop has not seen yet.
                event::task::next_turn().await;
                continue;
            }
            Turn::Early => {
                event::task::yield_now().await;
                mux.with(|state| state.schedule.next_round());
                continue;
            }
        };
        let next = serving.partial.or(serving.busy_until);
        if next != until {
            until = next;
            readable.set(None);
        }
        keep(readable.as_mut(), waits.read, || sock.readable(until.unwrap_or(Deadline::NEVER)));
        let ms = mux.c.server().root.core.send_timeout;
        keep(writable.as_mut(), waits.write, || sock.writable(Deadline::in_ms(ms)));
        keep(gate.as_mut(), !main.life.gate.is_closed(), || main.life.gate.closed());
        let mut timer = pin!(waits.tick.map(event::sleep));
        let partial = serving.partial.is_some();
        let (line, waits_in_line) = (&serving.line, serving.line.waits());
        let woken = poll_fn(|cx| {
            if let Poll::Ready(done) = poll_kept(readable.as_mut(), cx) {
                return Poll::Ready(Woken::by(done, partial));
            }
            if let Poll::Ready(done) = poll_kept(writable.as_mut(), cx) {
                return Poll::Ready(Woken::by(done, true));
            }
            let news = mux.poll_news(cx).is_ready() || poll_kept(gate.as_mut(), cx).is_ready();
            let timer = timer.as_mut().as_pin_mut();
            let news = news || waits_in_line && !line.waits();
            match news || timer.is_some_and(|timer| timer.poll(cx).is_ready()) {
                true => Poll::Ready(Woken::Go),
                false => Poll::Pending,
            }
        })
        .await;
        if let Some(after) = serving.woken(woken).await {
            return after;
        }
    }
}

/// Receives what is there, with room for a whole frame.
fn receive(c: &Conn, page: &mut Page, room: usize) -> io::Result<Option<usize>> {
    if !page.is_empty() && page.spare() < PAGE_LOW {
        page.try_reserve(room.saturating_sub(page.len()).max(PAGE_LOW))?;
    }
    c.sock().try_recv_into(page)
}

/// The client is gone.
fn cut_off(mux: &Mux) -> After {
    let log = |m: &str| mux.c.log(Level::Info, format_args!("{m}"));
    if mux.with(|state| state.open) > 0 && !mux.c.is_displaced(log) {
        log("client prematurely closed connection");
    }
    After::Close
}
