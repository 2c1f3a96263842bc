//! A client's connection over HTTP/1: parked between requests, served in batches.
//!
//! ```text
//!            accept
//!              │ (PROXY header)
//!              ▼            bytes                    response, more in the buffer
//!   ┌──────▶ parked ───────────────▶ serving ◀───────────────────────────┐
//!   │          │ time out, peer gone    │  └──────────────────────────────┘
//!   │          ▼                        │ last response, connection not kept
//!   │        closed ◀── lingering ◀─────┤
//!   └───────────────────────────────────┘ buffer empty, connection kept
//! ```
//!
//! Parked, a connection is its socket, this task's small future and a timer. The future that serves
//! is boxed apart and goes when the buffer is empty, with the request and its buffers.

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use base::future::{boxed, rarely};
use base::log::{Context, Fields, Level, Log};
use event::task::foreseen;
use event::{Deadline, Gate, Sock, Wake};
use mem::Page;
use net::Transport;
use os::SockAddr;
use proto::h1::{HeadParser, Limits, Step};

use crate::bad_head;
use crate::core_conf::{CoreSrv, Lingering};
use crate::phases::{self, Outcome};
use crate::request::Request;
use crate::send::{self, Filtered};
use crate::server::{Address, HttpMain, Server};
use engine::names::ServerNames;
use engine::stats::Field;

/// How long, at least, a worker that is leaving goes on serving kept connections, so that none is
/// cut under a request that is on its way: milliseconds.
const LEAVE_MS: u64 = 2_000;

/// A connection; shared by its task and the request that it serves.
pub struct Conn {
    /// The byte stream from and to the client.
    pub sock: Transport,
    /// Its number in logs, unique among all workers.
    pub number: u64,
    /// The other end.
    pub peer: SockAddr,
    /// The address that it was made to.
    pub listen: Rc<Address>,
    /// Requests so far.
    pub requests: Cell<u64>,
    /// When it was accepted, on the monotonic clock.
    pub start_ms: u64,
    pub(crate) debug: bool,
    /// Whether TCP_NODELAY is on; inherited from the listening socket.
    nodelay: Cell<bool>,
    local: OnceCell<Option<SockAddr>>,
    pub(crate) proxy: OnceCell<Box<proto::proxy_protocol::Header>>,
    /// Bytes that were read already and belong to the first request; no buffer otherwise.
    pub(crate) carried: Cell<Page>,
}

impl Conn {
    /// Our own end; asked of the kernel once.
    pub fn local(&self) -> Option<&SockAddr> {
        self.local.get_or_init(|| self.sock.local_addr().ok()).as_ref()
    }

    /// The port of our own end; 0 for unix sockets.
    pub fn local_port(&self) -> u16 {
        match self.listen.addr.port() {
            0 => self.local().map_or(0, SockAddr::port),
            p => p,
        }
    }

    /// `tcp_nodelay` of the location that answers now.
    pub(crate) fn set_nodelay(&self, on: bool) {
        if self.nodelay.replace(on) != on && !self.listen.addr.is_unix() {
            let _ = self.sock.set_nodelay(on);
        }
    }

    /// What a PROXY protocol header told of the connection that the balancer accepted.
    pub fn proxy_header(&self) -> Option<&proto::proxy_protocol::Header> {
        self.proxy.get().map(|header| &**header)
    }

    pub(crate) fn log_enabled(&self, log: &Log, level: Level) -> bool {
        self.debug || log.enabled(level)
    }

    /// Writes a line with what it is about: a request, or the connection itself.
    pub(crate) fn log_write(
        &self,
        log: &Log,
        level: Level,
        m: std::fmt::Arguments<'_>,
        about: &dyn Context,
    ) {
        if self.debug {
            log.debugging().write_about(level, Some(self.number), m, about);
        } else {
            log.write_about(level, Some(self.number), m, about);
        }
    }
}

/// What is known before there is a request.
impl Context for Conn {
    fn tell(&self, fields: &mut Fields<'_>) {
        fields.plain("client", format_args!("{}", self.peer.host()));
        fields.plain("server", format_args!("{}", self.listen.addr));
    }
}

/// What to do after a batch of requests.
pub(crate) enum After {
    /// Park for so many milliseconds at most.
    Keep(u64),
    /// There was nothing to read after all: park as before.
    Park,
    Close,
    /// Read and drop what still comes, then close.
    Linger,
    /// Close with a reset.
    Reset,
}

/// A connection's task.
pub(crate) async fn run(c: Rc<Conn>, main: Rc<HttpMain>) {
    let mut patience = c.listen.default.core.client_header_timeout;
    let mut ready = false;
    if c.listen.proxy_protocol {
        match rarely(crate::proxy_header::read(&c, &main.gate, patience)).await {
            Ok(more) => ready = more,
            Err(()) => return,
        }
    }
    loop {
        if !std::mem::take(&mut ready) && !parked(&c, &main, patience).await {
            return;
        }
        match foreseen(boxed(|| serve(&c, &main))).await {
            After::Keep(ms) => patience = ms,
            After::Park => {}
            After::Close => return,
            After::Linger => {
                unless_forced(&main, Box::pin(linger(&c)).as_mut()).await;
                return;
            }
            After::Reset => return reset(c),
        }
    }
}

fn reset(c: Rc<Conn>) {
    if let Ok(c) = Rc::try_unwrap(c) {
        c.sock.reset();
    }
}

/// Waits for the next bytes; false when the connection is to close.
async fn parked(c: &Conn, main: &HttpMain, patience_ms: u64) -> bool {
    let kept = c.requests.get() > 0;
    main.stats.add(Field::Waiting, 1);
    let woken = unless_forced(main, pin!(wait(c, &main.gate, patience_ms, kept))).await;
    main.stats.sub(Field::Waiting, 1);
    let Some(woken) = woken else { return false };
    if let Err(e) = &woken
        && !kept
        && e.kind() == io::ErrorKind::TimedOut
    {
        let log = &c.listen.default.root.core.error_log;
        if c.log_enabled(log, Level::Info) {
            let m = "client timed out (110: Connection timed out) while waiting for request";
            c.log_write(log, Level::Info, format_args!("{m}"), c);
        }
    }
    matches!(woken, Ok(true))
}

async fn wait(c: &Conn, gate: &Gate, patience_ms: u64, kept: bool) -> io::Result<bool> {
    match c.sock.readable_or(gate, Deadline::in_ms(patience_ms)).await? {
        Wake::Ready => Ok(true),
        Wake::Reclaim => Ok(false),
        Wake::Gate => {
            // The worker is leaving: a request may be on its way. It is answered, and told to be
            // the last.
            let min = c.listen.default.root.core.keepalive_min_timeout;
            let ms = if kept { LEAVE_MS.max(min) } else { patience_ms };
            c.sock.readable(Deadline::in_ms(ms.min(patience_ms))).await?;
            Ok(true)
        }
    }
}

fn limits(core: &CoreSrv) -> Limits {
    Limits {
        header_buffer: core.client_header_buffer_size as u32,
        large_size: core.large_header_buffer_size as u32,
        large_number: core.large_header_buffers as u32,
        max_headers: core.max_headers as u32,
        ignore_invalid: core.ignore_invalid_headers,
        underscores: core.underscores_in_headers,
    }
}

/// Serves requests until the buffer is empty or the connection is to end.
async fn serve(c: &Rc<Conn>, main: &Rc<HttpMain>) -> After {
    let mut r = Request::take(c.clone(), main);
    let after = match begin(c, &mut r) {
        Some(after) => after,
        None => {
            main.stats.add(Field::Reading, 1);
            let done = {
                let batch = pin!(batch(c, main, &mut r));
                unless_forced(main, batch).await
            };
            match done {
                Some(after) => {
                    main.stats.sub(Field::Reading, 1);
                    after
                }
                None => give_up(main, &mut r).await,
            }
        }
    };
    let timed_out = r.timed_out && r.loc.core.reset_timedout_connection;
    r.give_back();
    match after {
        After::Close if timed_out => After::Reset,
        a => a,
    }
}

/// Runs `future` until it ends, or until connections are given up: it is dropped then. Costs
/// nothing meanwhile, as everything that could wait is woken when that comes.
async fn unless_forced<T>(
    main: &HttpMain,
    mut future: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    std::future::poll_fn(|cx| match main.forced.get() {
        true => Poll::Ready(None),
        false => future.as_mut().poll(cx).map(Some),
    })
    .await
}

/// What had begun is over, and was not answered whole. It is logged all the same.
#[cold]
async fn give_up(main: &HttpMain, r: &mut Request) -> After {
    if r.flags.unlogged {
        main.stats.sub(Field::Writing, 1);
        r.flags.keepalive = false;
        if !r.flags.header_sent && r.err_status == 0 {
            r.err_status = CLIENT_CLOSED;
        }
        rarely(log_phase(r)).await;
    } else {
        main.stats.sub(Field::Reading, 1);
    }
    After::Close
}

/// The status in logs of a request whose connection ended before there was an answer.
const CLIENT_CLOSED: u16 = 499;

/// Takes the first bytes. A new socket counts as readable until it has been tried: where nothing is
/// there yet, the connection parks like a kept one, without a request.
fn begin(c: &Conn, r: &mut Request) -> Option<After> {
    r.buf = c.carried.take();
    if r.buf.filled().is_empty() {
        match c.sock.try_recv_into(&mut r.buf) {
            Ok(None) => return Some(After::Park),
            Ok(Some(0)) | Err(_) => return Some(After::Close),
            Ok(Some(_)) => {}
        }
    }
    r.start_now();
    None
}

async fn batch(c: &Rc<Conn>, main: &Rc<HttpMain>, r: &mut Box<Request>) -> After {
    let mut parser = HeadParser::new();
    let limits = limits(&c.listen.default.core);
    let mut deadline = None;
    loop {
        match parse(c, &mut parser, r, &limits) {
            Step::Done { len } => {
                r.head_len = len;
                deadline = None;
                main.stats.sub(Field::Reading, 1);
                main.stats.add(Field::Writing, 1);
                let after = one(c, r).await;
                main.stats.sub(Field::Writing, 1);
                main.stats.add(Field::Reading, 1);
                if let Some(after) = after {
                    return after;
                }
                parser = HeadParser::new();
                r.reset();
                // A head that cannot be read is for no location, least of all the one before it.
                r.server.clone_from(&c.listen.default);
                r.loc = r.server.root.clone();
                r.flags.pipelined = true;
            }
            Step::More => {
                if send::flush(r).await.is_err() {
                    return After::Close;
                }
                if r.buf.filled().is_empty() {
                    return After::Keep(r.loc.core.keepalive_timeout);
                }
                let taken = parser.taken();
                if !rarely(bad_head::receive(c, r, taken, &mut deadline)).await {
                    return After::Close;
                }
            }
            Step::Bad(e) => return rarely(bad_head::refuse(c, r, e)).await,
        }
    }
}

/// Reads on in the head. Once the host is known, its virtual server's limits hold, where servers of
/// the address differ in them.
#[inline]
fn parse(c: &Conn, parser: &mut HeadParser, r: &mut Request, limits: &Limits) -> Step {
    let names = match &c.listen.names {
        Some(names) if c.listen.differ => names,
        _ => return parser.parse(r.buf.filled(), limits, &mut r.head),
    };
    if names.has_regexes() {
        return parse_and_match(names, parser, r, limits);
    }
    parser.parse_with(r.buf.filled(), limits, &mut r.head, |host, buf| {
        let name = host.name.of(buf).to_ascii_lowercase();
        names.find_text(&name).map(|s| self::limits(&s.core))
    })
}

/// The same where names are regular expressions, which are matched on behalf of the request.
#[cold]
fn parse_and_match(
    names: &ServerNames<Rc<Server>>,
    parser: &mut HeadParser,
    r: &mut Request,
    limits: &Limits,
) -> Step {
    let (buf, mut head) = (std::mem::take(&mut r.buf), std::mem::take(&mut r.head));
    let step = parser.parse_with(buf.filled(), limits, &mut head, |host, buf| {
        let name = host.name.of(buf).to_ascii_lowercase();
        // Where a match is given up, the request is refused when its server is looked for again.
        let found = names.find(&name, r).ok().flatten();
        found.map(|s| self::limits(&s.core))
    });
    (r.buf, r.head) = (buf, head);
    step
}

pub(crate) fn main_request(r: &mut Request) {
    r.flags.unlogged = true;
    r.main.stats.add(Field::Requests, 1);
    if r.start_ms == 0 {
        r.start_now();
    }
}

/// One request, its head parsed: phases, response, log. `None`: the next may follow.
async fn one(c: &Rc<Conn>, r: &mut Box<Request>) -> Option<After> {
    c.requests.set(c.requests.get() + 1);
    main_request(r);
    r.method = r.head.method;
    r.flags.keepalive = r.head.wants_keep_alive() && !r.main.gate.is_closed();
    r.flags.lingering = r.head.has_body();
    r.flags.valid_location = true;
    // An absolute target without a path is passed on with one.
    r.flags.valid_unparsed_uri = r.unparsed_uri().first() == Some(&b'/');
    r.body.begin(&r.head);
    if r.logs(Level::Debug) {
        let line = base::log::lossy(r.request_line()).into_owned();
        r.log(Level::Debug, format_args!("http request line: \"{line}\""));
    }
    let outcome = match crate::target::prepare(r) {
        Ok(()) => phases::run(r).await,
        Err(status) => {
            bad_head::without_uri(r);
            rarely(phases::refuse(r, status)).await
        }
    };
    end(c, r, outcome).await
}

/// Sends the response, logs, and decides what becomes of the connection.
pub(crate) async fn end(c: &Rc<Conn>, r: &mut Box<Request>, mut outcome: Outcome) -> Option<After> {
    if outcome == Outcome::Respond
        && !r.body.is_finished()
        && r.body.is_untouched()
        && !r.skip_buffered_body()
    {
        outcome = rarely(phases::refuse(r, 400)).await;
    }
    if outcome == Outcome::Respond {
        match send::filters(r) {
            Filtered::Whole => {}
            now => outcome = rarely(send::settle_filtered(r, now)).await,
        }
    }
    if outcome == Outcome::Close {
        // The answers before it are none of its business.
        let _ = send::flush(r).await;
        r.err_status = if r.err_status == 0 { 444 } else { r.err_status };
        log_phase(r).await;
        return Some(After::Close);
    }
    if r.main.gate.is_closed() {
        r.flags.keepalive = false;
    }
    c.set_nodelay(r.loc.core.tcp_nodelay);
    let used = r.head_len + r.body.buffered();
    let more = r.buf.filled().len() > used && r.body.is_finished();
    let mut sent = match r.body.is_finished() || !r.body.is_untouched() {
        true => send::response(r, more).await,
        false => rarely(r.respond_and_drain(more)).await,
    };
    if r.flags.unreadable
        && sent.is_err()
        && let Some(instead) = rarely(send::instead(r)).await
    {
        sent = instead;
    }
    r.flags.complete = sent.is_ok();
    if sent.is_err() {
        rarely(send::what_is_left(r)).await;
    }
    if !r.loc.core.post_action.is_empty() {
        rarely(post_action(r)).await;
    }
    log_phase(r).await;
    if sent.is_err() {
        return Some(After::Close);
    }
    if !r.body.is_finished() && r.flags.keepalive && rarely(r.discard_rest()).await.is_err() {
        return Some(After::Close);
    }
    if !r.flags.keepalive {
        return Some(close_or_linger(c, r));
    }
    let used = r.head_len + r.body.buffered();
    r.buf.consume(used);
    if r.buf.filled().is_empty() {
        if send::flush(r).await.is_err() {
            return Some(After::Close);
        }
        return Some(After::Keep(r.loc.core.keepalive_timeout));
    }
    r.start_now();
    None
}

/// Closing a socket with unread bytes resets it, and the client may lose the answer.
fn close_or_linger(c: &Conn, r: &Request) -> After {
    let used = r.head_len + r.body.buffered();
    let pending = r.flags.lingering && !r.body.is_finished() || r.buf.filled().len() > used;
    match r.loc.core.lingering_close {
        Lingering::Off => After::Close,
        Lingering::Always => After::Linger,
        Lingering::On if pending || has_unread(c) => After::Linger,
        Lingering::On => After::Close,
    }
}

/// Whether bytes came that nobody asked for; asks the kernel only where the driver saw some arrive.
fn has_unread(c: &Conn) -> bool {
    matches!(c.sock.try_recv(), Ok(Some(page)) if !page.filled().is_empty())
}

async fn linger(c: &Conn) {
    let core = c.listen.default.root.core.clone();
    if c.sock.shutdown_write().is_err() {
        return;
    }
    let end = Deadline::in_ms(core.lingering_time);
    while !end.has_passed() {
        let step = Deadline::in_ms(core.lingering_timeout);
        match c.sock.recv(1, step).await {
            Ok(page) if !page.filled().is_empty() => {}
            _ => return,
        }
    }
}

/// `post_action`: the request, which is answered, goes through the phases once more, for what the
/// handlers do; nothing of that is sent. Logged is where it ends.
async fn post_action(r: &mut Request) {
    let target = r.loc.core.post_action.clone();
    let (keepalive, err_status) = (r.flags.keepalive, r.err_status);
    // The client need not wait for it.
    if send::flush(r).await.is_err() {
        r.flags.keepalive = false;
    }
    r.queue.clear();
    r.body_filters.clear();
    r.flags.header_only = true;
    r.flags.post_action = true;
    let verdict = match target.first() {
        Some(b'/') => r.internal_redirect(&target, b""),
        _ => r.named_redirect(&target),
    };
    phases::go_on(r, verdict).await;
    if let crate::output::Body::Stream(mut source) = std::mem::take(&mut r.out.body) {
        source.abandoned(r);
    }
    r.err_status = err_status;
    r.flags.keepalive &= keepalive;
}

/// Runs the log phase of the location that the request ended in.
pub(crate) async fn log_phase(r: &mut Request) {
    r.flags.unlogged = false;
    if r.loc.pipeline.log.is_empty() {
        return;
    }
    let loc = r.loc.clone();
    for h in &loc.pipeline.log {
        if let crate::module::Step::Wait(f) = h.run(r) {
            f.await;
        }
    }
    if !r.settling.is_empty() {
        // What the request holds (its place among the connections of a client, say) is free now:
        // the client has its answer, and may come again.
        r.clear_ctx();
        r.family = None;
        for wait in std::mem::take(&mut r.settling) {
            wait.await;
        }
    }
}

impl Request {
    /// Waits for `settled` when the log phase is over, before the connection may be closed.
    pub fn before_close(&mut self, settled: impl Future<Output = ()> + 'static) {
        self.settling.push(Box::pin(settled));
    }

    /// Whether the client is one of the old MSIE, which misread compressed responses.
    pub fn is_msie6(&self) -> bool {
        self.header(proto::h1::FieldId::UserAgent).is_some_and(is_msie6)
    }
}

/// What MSIE says behind its name: its version. Other browsers say it without one, or say that they
/// are Opera.
pub(crate) fn msie(ua: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(ua, b"MSIE ")?;
    let version = &ua[at + 5..];
    (version.len() > 2 && memchr::memmem::find(ua, b"Opera").is_none()).then_some(version)
}

/// MSIE up to version 6.
pub(crate) fn is_msie6(ua: &[u8]) -> bool {
    match msie(ua) {
        Some([b'4' | b'5', b'.', ..]) => true,
        Some(v @ [b'6', b'.', ..]) => memchr::memmem::find(v, b"SV1").is_none(),
        _ => false,
    }
}

/// What accepting needs to know to make a [`Conn`].
pub(crate) struct NewConn {
    pub sock: Sock,
    pub peer: SockAddr,
}

/// Makes the connection and its task.
pub(crate) fn accept(main: &Rc<HttpMain>, listen: usize, new: NewConn) {
    let l = &main.listens[listen];
    let mut known = None;
    let address = l.address(|| {
        known = os::socket::local_addr(new.sock.fd()).ok();
        known.clone()
    });
    let local = OnceCell::new();
    if let Some(a) = known {
        let _ = local.set(Some(a));
    }
    let debug = main.debug_connection(&new.peer);
    let c = Rc::new(Conn {
        sock: new.sock.into(),
        number: main.stats.next_connection(),
        peer: new.peer,
        listen: address,
        requests: Cell::new(0),
        start_ms: base::time::now_ms(),
        debug,
        nodelay: Cell::new(true),
        local,
        proxy: OnceCell::new(),
        carried: Cell::default(),
    });
    let main = main.clone();
    main.stats.add(Field::Accepted, 1);
    main.stats.add(Field::Handled, 1);
    event::spawn(task(c, main));
}

async fn task(c: Rc<Conn>, main: Rc<HttpMain>) {
    let _counted = Counted::new(&main);
    let left = Rc::downgrade(&c);
    run(c, main.clone()).await;
    if let Some(c) = left.upgrade() {
        // A subrequest that nobody waits for still goes on; the client need not wait for its end.
        let _ = c.sock.shutdown_write();
    }
}

/// Counts a connection as active while it lives, whatever way it ends.
struct Counted(Rc<engine::stats::Stats>, #[allow(dead_code, reason = "kept for its drop")] Hold);

impl Counted {
    fn new(main: &HttpMain) -> Counted {
        main.stats.add(Field::Active, 1);
        Counted(main.stats.clone(), Hold::new(main))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sub(Field::Active, 1);
    }
}

/// Keeps a worker that is leaving from leaving.
pub(crate) struct Hold(Rc<Cell<usize>>);

impl Hold {
    pub fn new(main: &HttpMain) -> Hold {
        main.active.set(main.active.get() + 1);
        Hold(main.active.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}
