//! The response body of an upstream as a source for the client, with read-ahead into buffers and a
//! temporary file while the client is slow.

use std::io;
use std::pin::pin;
use std::rc::Rc;

use base::log::Level;
use base::time::{now_ms, unix_secs};
use bytes::Bytes;
use engine::overload::Promise;
use event::{Deadline, Either, Pool, race, race_if};
use files::{FileError, NoPool};
use http::channel::ClientEnd;
use http::output::{Ahead, BodySource, Broken, NextPiece};
use http::request::Request;
use http::server::HttpMain;
use mem::{Buf, Chain};
use upstream::h2::StreamEnd;
use upstream::wire::{Received, RecvError, Wire};

use crate::conf::Conf;
use crate::failure::{client_gone, log_io, log_stream, timed_out};
use crate::first::{First, end};
use crate::link::Link;
use crate::request_body::RequestBody;
use crate::spill::{self, SpillFile, Writing, Written};
use crate::{Fault, Progress, Protocol, Sink};

/// Why a body was truncated.
pub(crate) enum Fail {
    Body(Fault),
    Io(io::Error),
    Stream(StreamEnd),
    TimedOut,
    Premature,
}

/// The polling interval of read-ahead while memory is short, in milliseconds.
const LOW_MS: u64 = 50;

/// The maximum piece of a temporary file that is sent to the client at a time, in bytes.
const FILE_PIECE: u64 = 1 << 20;

/// The unsent part of a request whose response started before the whole request was sent.
pub(crate) struct Remainder {
    /// The server accepts more.
    pub takes: bool,
    /// Bytes that are ready to be sent.
    pub out: Chain,
    /// The rest of the body.
    pub body: RequestBody,
}

impl Remainder {
    fn is_nothing(&self) -> bool {
        self.out.is_empty() && self.body.is_sent()
    }

    /// Sends as much as the socket accepts without waiting.
    fn send(&mut self, r: &mut Request, wire: &Wire) {
        match wire.try_send(&mut self.out, self.body.is_sent()) {
            Ok(n) => r.upstream_mut().now().sent += n as u64,
            // The server may have closed after its response, which is what counts.
            Err(_) => {
                self.takes = false;
                self.out.clear();
                self.body.give_up();
            }
        }
    }
}

/// The body of an upstream response.
pub(crate) struct Source {
    conf: Rc<Conf>,
    protocol: Box<dyn Protocol>,
    link: Link,
    main: Rc<HttpMain>,
    sink: Sink,
    buffering: bool,
    left: Remainder,
    ended: bool,
    failed: Option<Fail>,
    /// The temporary file; its bytes come before those in `sink`.
    spill: Option<SpillFile>,
    /// A write to the file in progress; its bytes come before those in `sink`.
    writing: Option<Writing>,
    /// The same bytes, kept in case the write fails.
    unwritten: Vec<Bytes>,
    /// The file cannot be written, so the server is read at the client's pace from then on.
    fileless: bool,
    /// The write error, until it is logged.
    file_error: Option<FileError>,
    /// The thread pool for writes; without one the worker writes itself.
    pool: Option<Pool>,
    /// A file was created, and this was not logged yet.
    made_file: bool,
    /// Bytes received that were not added to the request's counters yet.
    fresh: u64,
    /// All bytes of the body received, for the rate limit.
    total: u64,
    rate: u64,
    start_secs: u64,
    /// The memory reservation for the first bytes, which are read regardless of the client's pace.
    promise: Option<Promise>,
}

impl Source {
    pub(crate) fn new(
        r: &mut Request,
        conf: Rc<Conf>,
        protocol: Box<dyn Protocol>,
        link: Link,
        buffering: bool,
        left: Remainder,
        first: First,
    ) -> Source {
        let rate = match &conf.limit_rate {
            Some(t) if buffering => conf::value::parse_size(&t.eval(r)).unwrap_or(0) as u64,
            _ => 0,
        };
        let mut source = Source {
            conf,
            protocol,
            link,
            main: r.main.clone(),
            sink: first.sink,
            buffering,
            left,
            ended: first.ended.is_some(),
            failed: first.failed,
            spill: None,
            writing: None,
            unwritten: Vec::new(),
            fileless: false,
            file_error: None,
            // An unknown pool name from a variable was already logged; use the default pool.
            pool: r.writing_pool().unwrap_or_else(|NoPool| Some(event::pool::default())),
            made_file: false,
            fresh: 0,
            total: first.len,
            rate,
            start_secs: unix_secs(),
            promise: None,
        };
        if !source.over() {
            source.promise = Some(Promise::new(source.conf.busy as u64));
        }
        if let Some(clean) = first.ended {
            source.release(clean);
        }
        source
    }

    fn feed(&mut self, input: Buf) {
        match self.protocol.body(input, &mut self.sink) {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => {
                self.ended = true;
                self.release(true);
            }
            Err(fault) => self.failed = Some(Fail::Body(fault)),
        }
    }

    /// Releases server and connection. `clean`: the response ended regularly.
    fn release(&mut self, clean: bool) {
        // A connection over which the request was not sent completely cannot be reused.
        let sent_all = self.left.takes && self.left.is_nothing();
        let reusable = clean && sent_all && self.protocol.reusable();
        self.link.finish(reusable, &self.main.life.gate);
    }

    fn over(&self) -> bool {
        self.ended || self.failed.is_some()
    }

    /// Receives once without waiting; false if nothing is available.
    fn pull(&mut self) -> bool {
        let Some(wire) = &self.link.wire else {
            self.failed = Some(Fail::Premature);
            return true;
        };
        match wire.try_recv() {
            Ok(Received::Nothing) => return false,
            Ok(Received::Piece(piece)) => {
                self.fresh += piece.len();
                self.total += piece.len();
                self.feed(piece);
            }
            Ok(Received::End) => match end(wire, self.protocol.as_mut()) {
                Ok(()) => {
                    self.ended = true;
                    self.release(false);
                }
                Err(fail) => self.failed = Some(fail),
            },
            Err(RecvError::Io(e)) => self.failed = Some(Fail::Io(e)),
            Err(RecvError::Stream(end)) => self.failed = Some(Fail::Stream(end)),
        }
        true
    }

    /// The pause that the rate limit requires, in milliseconds.
    fn pause(&self) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let secs = unix_secs().saturating_sub(self.start_secs) + 1;
        let allowed = self.rate.saturating_mul(secs);
        match self.total.checked_sub(allowed) {
            Some(over) => over.saturating_mul(1000) / self.rate + 1,
            None => 0,
        }
    }

    /// Waits until the socket is readable and the rate limit allows reading.
    async fn readable(&self) -> io::Result<()> {
        let pause = self.pause();
        if pause > 0 {
            event::sleep(pause).await;
            return Ok(());
        }
        match &self.link.wire {
            Some(wire) => wire.readable(Deadline::in_ms(self.conf.read_timeout)).await,
            None => Ok(()),
        }
    }

    fn waited(&mut self, done: io::Result<()>) {
        match done {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => self.failed = Some(Fail::TimedOut),
            Err(e) => self.failed = Some(Fail::Io(e)),
        }
    }

    async fn piece(&mut self, r: &mut Request) -> Result<Option<Chain>, Broken> {
        loop {
            if let Some(s) = &mut self.spill
                && s.left() > 0
            {
                let piece = s.take(FILE_PIECE);
                self.sync(r);
                if self.is_over() {
                    self.finish(r);
                }
                return Ok(Some(piece));
            }
            if self.writing.is_some() {
                self.written().await;
                continue;
            }
            let most = self.conf.busy as u64;
            while !self.over() && self.sink.out.len() < most && self.pause() == 0 && self.pull() {
                if !self.buffering {
                    break;
                }
            }
            self.sync(r);
            if !self.sink.out.is_empty() {
                if self.ended {
                    self.finish(r);
                }
                return Ok(Some(self.sink.out.take()));
            }
            if let Some(fail) = self.failed.take() {
                let ends = matches!(fail, Fail::Stream(StreamEnd::Late)) && self.protocol.run_out();
                self.fail(r, fail);
                if !ends {
                    return Err(Broken);
                }
                self.ended = true;
                return Ok(None);
            }
            if self.ended {
                self.finish(r);
                return Ok(None);
            }
            if self.sends_still() && self.pause() == 0 {
                self.send_more(r).await?;
                continue;
            }
            let client = if self.conf.ignore_client_abort { None } else { r.watched() };
            let gone = client.as_ref().map(ClientEnd::gone);
            match race_if(self.readable(), gone).await {
                Either::First(done) => self.waited(done),
                Either::Second(_) => {
                    client_gone(r, "sending to client");
                    self.finish(r);
                    return Err(Broken);
                }
            }
        }
    }

    /// Whether part of the request is still to be sent.
    fn sends_still(&self) -> bool {
        let last = self.left.body.is_sent();
        !self.left.is_nothing() || self.link.wire.as_ref().is_some_and(|w| w.has_unsent(last))
    }

    /// The server responds while it still reads the request: sends more of it, or waits until
    /// either side is ready.
    async fn send_more(&mut self, r: &mut Request) -> Result<(), Broken> {
        let Some(wire) = &self.link.wire else {
            self.left.body.give_up();
            self.left.out.clear();
            return Ok(());
        };
        if !self.left.out.is_empty() || wire.has_unsent(self.left.body.is_sent()) {
            self.left.send(r, wire);
        }
        if !self.left.out.is_empty() || wire.has_unsent(self.left.body.is_sent()) {
            let deadline = Deadline::in_ms(self.conf.read_timeout);
            let done = readable_or_writable(wire, deadline).await;
            self.waited(done);
            return Ok(());
        }
        if self.left.body.is_sent() {
            return Ok(());
        }
        let Remainder { body, out, .. } = &mut self.left;
        if body.more(r, wire, self.protocol.as_mut(), out).await.is_err() {
            // The client's body failed, so nobody waits for the response.
            self.finish(r);
            return Err(Broken);
        }
        Ok(())
    }

    /// Reads ahead while the client receives the last piece; never completes.
    async fn read_ahead(&mut self) {
        loop {
            if self.writing.is_some() {
                self.written().await;
                continue;
            }
            let to_file = self.spill.as_ref().is_some_and(|s| s.left() > 0);
            let most = if to_file { self.conf.temp_file_write } else { self.conf.read_ahead };
            let is_full = self.sink.out.len() >= most as u64;
            if self.over() || is_full && !self.may_spill() {
                std::future::pending::<()>().await;
            }
            let no_cache = is_full && os::memory::is_cache_scarce();
            if os::memory::is_low() || os::memory::is_scarce() || no_cache {
                event::sleep(LOW_MS).await;
                continue;
            }
            event::spare_time().await;
            if is_full {
                self.write_file();
                continue;
            }
            if self.pause() == 0 && self.pull() {
                continue;
            }
            let done = self.readable().await;
            self.waited(done);
        }
    }

    /// Whether the bytes in memory may be moved to the file.
    fn may_spill(&self) -> bool {
        let in_file = self.spill.as_ref().map_or(0, |s| s.file.len());
        let most = self.conf.max_temp_file;
        in_file + self.sink.out.len() <= most && !self.fileless && self.failed.is_none()
    }

    /// Starts writing the bytes in memory to the file, which is created if necessary.
    fn write_file(&mut self) {
        let mut pieces = Vec::new();
        while let Some(buf) = self.sink.out.pop_front() {
            pieces.extend(buf.into_bytes());
        }
        self.unwritten.clone_from(&pieces);
        let folder = &self.conf.temp_path;
        self.writing = Some(spill::write(self.spill.as_ref(), folder, pieces, self.pool.clone()));
    }

    /// Waits for the write to the file. Cancel-safe.
    async fn written(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let done = writing.as_mut().await;
        self.writing = None;
        let unwritten = std::mem::take(&mut self.unwritten);
        match done {
            Ok(Written { made, len, .. }) => {
                if let Some(made) = made {
                    self.spill = Some(made);
                    self.made_file = true;
                }
                if let Some(s) = &mut self.spill {
                    s.file.grew(len);
                }
            }
            Err(e) => {
                // Nothing was received during the write. Bytes that reached the file lie beyond its
                // recorded end, so they are ignored.
                let mut later = self.sink.out.take();
                unwritten.into_iter().for_each(|piece| self.sink.out.push_bytes(piece));
                self.sink.out.append(&mut later);
                self.fileless = true;
                self.file_error = Some(e);
            }
        }
    }

    /// Updates the request's counters, and logs what is pending.
    fn sync(&mut self, r: &mut Request) {
        let a = r.upstream_mut().now();
        a.received += self.fresh;
        a.response_length += self.fresh;
        if self.over() || self.total >= self.conf.busy as u64 {
            self.promise = None;
        }
        self.fresh = 0;
        log_complaints(r, self.protocol.as_mut(), &mut self.sink);
        if let Some(e) = self.file_error.take() {
            r.log(Level::Crit, format_args!("{e} while reading upstream"));
        }
        if let Some(s) = &self.spill {
            if std::mem::take(&mut self.made_file) && r.tells_of_temp_file() {
                let m = "an upstream response is buffered to a temporary file";
                let path = s.file.path().display();
                r.log(Level::Warn, format_args!("{m} {path} while reading upstream"));
            }
            if self.writing.is_none() && s.left() == 0 && s.file.len() >= self.conf.max_temp_file {
                // The file was sent completely; a new one is created if needed.
                self.spill = None;
            }
        }
    }

    fn finish(&mut self, r: &mut Request) {
        finished(r, &self.conf, self.protocol.trailers());
    }

    #[cold]
    fn fail(&mut self, r: &mut Request, fail: Fail) {
        fail.tell(r);
        self.finish(r);
    }
}

/// Reading without the request, for a cache fill.
impl Source {
    /// The part of the body that is available already.
    pub(crate) fn ready(&mut self) -> Option<Chain> {
        (!self.sink.out.is_empty()).then(|| self.sink.out.take())
    }

    /// Whether the whole body was received.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended && self.failed.is_none()
    }

    /// The next piece of the body, about `most` bytes; `None` at its end. Cancel-safe.
    pub(crate) async fn pump(&mut self, most: u64) -> Result<Option<Chain>, Fail> {
        loop {
            while !self.over() && self.sink.out.len() < most && self.pause() == 0 && self.pull() {}
            if let Some(piece) = self.ready() {
                return Ok(Some(piece));
            }
            if let Some(fail) = self.failed.take() {
                return Err(fail);
            }
            if self.ended {
                return Ok(None);
            }
            let done = self.readable().await;
            self.waited(done);
        }
    }

    /// See [`Protocol::is_whole`].
    pub(crate) fn is_whole(&self) -> bool {
        self.protocol.is_whole()
    }

    /// The number of bytes received since the last call.
    pub(crate) fn take_fresh(&mut self) -> u64 {
        std::mem::take(&mut self.fresh)
    }

    /// The log messages and trailers at the end of the body.
    pub(crate) fn ending(&mut self) -> Ending {
        let mut messages = Vec::new();
        while let Some(m) = self.protocol.complaint() {
            messages.push(m);
        }
        messages.extend(self.sink.warning.take().map(|m| (Level::Warn, m.to_owned())));
        Ending { messages, trailers: self.protocol.trailers() }
    }
}

/// Waits until the connection is readable or writable.
async fn readable_or_writable(wire: &Wire, deadline: Deadline) -> io::Result<()> {
    let (readable, writable) =
        (pin!(wire.readable(deadline)), pin!(wire.writable(Deadline::NEVER)));
    match race(writable, readable).await {
        Either::First(done) | Either::Second(done) => done,
    }
}

/// Logs the protocol's messages about data that is forwarded nevertheless.
pub(crate) fn log_complaints(r: &Request, protocol: &mut dyn Protocol, sink: &mut Sink) {
    while let Some((level, m)) = protocol.complaint() {
        r.log(level, format_args!("{m} while reading upstream"));
    }
    if let Some(m) = sink.warning.take() {
        r.log(Level::Warn, format_args!("{m} while reading upstream"));
    }
}

/// The end of a body that was read for a cache.
#[derive(Default)]
pub(crate) struct Ending {
    /// Log messages.
    pub messages: Vec<(Level, String)>,
    pub trailers: Vec<(Bytes, Bytes)>,
}

/// The exchange has ended: records its times and trailers.
pub(crate) fn finished(r: &mut Request, conf: &Conf, trailers: Vec<(Bytes, Bytes)>) {
    let u = r.upstream_mut();
    let a = u.now();
    a.response_ms.get_or_insert(now_ms().saturating_sub(a.start_ms));
    u.asking = false;
    if trailers.is_empty() {
        return;
    }
    if conf.pass_trailers {
        for (name, value) in &trailers {
            let id = http_wire::h1::FieldId::lookup(name);
            if !conf.hidden.has(id, name) {
                r.out.trailers.push((name.clone(), value.clone()));
            }
        }
    }
    r.upstream_mut().trailers = trailers;
}

impl Fail {
    /// Logs the failure.
    #[cold]
    pub(crate) fn tell(self, r: &mut Request) {
        r.upstream_mut().cut_short = !matches!(self, Fail::Body(Fault::Malformed(_)));
        match self {
            Fail::Body(Fault::Malformed(m)) => {
                r.log(Level::Error, format_args!("{m} while reading upstream"));
            }
            Fail::Body(Fault::CutShort(m)) => {
                r.log(Level::Error, format_args!("{m} while reading upstream"));
            }
            Fail::Io(e) => log_io(r, "recv()", &e, "reading upstream"),
            Fail::Stream(end) => log_stream(r, &end, "reading upstream"),
            Fail::TimedOut => drop(timed_out(r, "reading upstream")),
            Fail::Premature => {
                let m = "upstream prematurely closed connection while reading upstream";
                r.log(Level::Error, format_args!("{m}"));
            }
        }
    }
}

impl BodySource for Source {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(self.piece(r))
    }

    fn ahead<'a>(&'a mut self) -> Option<Ahead<'a>> {
        if self.buffering && (!self.over() || self.writing.is_some()) {
            Some(Box::pin(self.read_ahead()))
        } else {
            None
        }
    }

    fn is_over(&self) -> bool {
        let file = self.spill.as_ref().map_or(0, SpillFile::left);
        let waits = file > 0 || self.writing.is_some();
        self.ended && self.failed.is_none() && self.sink.out.is_empty() && !waits
    }

    fn is_ready(&self) -> bool {
        self.ended || self.failed.is_some() || !self.sink.out.is_empty()
    }

    fn abandoned(&mut self, r: &mut Request) {
        self.sync(r);
        self.finish(r);
    }
}
