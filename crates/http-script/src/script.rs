//! The engine that works for one request, and what its script waits for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use base::log::Level;
use bytes::Bytes;
use http::Verdict;
use http::channel::in_memory;
use http::request::Request;
use http::subrequest::Handle;
use mem::Chain;

use ::script::host::http::RequestId;
use ::script::{
    Answer, Argument, Call, Data, Fault, FaultKind, Instance, Limits, Outcome, Ticket, TimerId,
};

use crate::code::Code;
use crate::host::HttpCall;
use crate::settings::Settings;

/// Who called the script: some calls are for one kind alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Caller {
    #[default]
    Other,
    Access,
    Content,
    HeaderFilter,
    BodyFilter,
    Periodic,
}

/// What a script has decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Decision {
    /// Nothing.
    #[default]
    None,
    /// A status without a response of its own.
    Status(u16),
    /// A response, by `r.return()` or `r.finish()`.
    Responded,
    /// `r.decline()`
    Declined,
    /// `r.internalRedirect()`
    Redirect(Bytes),
}

/// The reply of a subrequest.
pub(crate) struct Reply {
    pub r: Box<Request>,
    pub body: Vec<u8>,
}

/// What the engine has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Ticket(Ticket),
    Timer(TimerId),
}

/// The outcome of what a script waits for.
pub(crate) enum Done {
    Answer(Answer),
    Fired,
    /// The subrequest's reply; none where it has broken off.
    Reply(Option<Box<Reply>>),
}

/// Something that a script waits for.
type Pending = Pin<Box<dyn Future<Output = Done>>>;

struct Op {
    key: Key,
    pending: Pending,
    /// A subrequest: its end is of use although nobody waits for it.
    detach: Option<Rc<RefCell<Option<Handle>>>>,
}

/// The response as a script makes it.
#[derive(Default)]
pub(crate) struct Output {
    /// Bytes that are to be sent.
    pub queue: RefCell<Chain>,
    /// The header section is settled: fields do not count any more.
    pub header_sent: Cell<bool>,
    /// No more bytes follow.
    pub finished: Cell<bool>,
}

/// The state of the body filter's call.
#[derive(Default)]
pub(crate) struct Filtering {
    /// A filter was called: the request is being answered.
    pub is_on: Cell<bool>,
    /// `r.done()`
    pub done: Cell<bool>,
    /// What the filter has sent on.
    pub sent: RefCell<Vec<u8>>,
}

/// The script of a request.
pub(crate) struct Script {
    /// The number of the request.
    pub id: RequestId,
    pub conf: Rc<Settings>,
    code: Rc<Code>,
    pub limits: Limits,
    engine: RefCell<Option<Instance>>,
    ops: RefCell<Vec<Op>>,
    pub body_wanted: Cell<Option<Ticket>>,
    /// The body, if it was read from its file.
    pub body_of_file: RefCell<Option<Bytes>>,
    pub replies: RefCell<HashMap<RequestId, Reply>>,
    pub caller: Cell<Caller>,
    pub decision: RefCell<Decision>,
    pub return_value: RefCell<Option<Data>>,
    pub output: Output,
    pub filtering: Filtering,
    is_over: Cell<bool>,
    /// A call has failed: the engine is not used again.
    has_failed: Cell<bool>,
}

/// The script of a request, in its state: an internal redirect forgets it.
#[derive(Default)]
struct Slot(Option<Rc<Script>>);

thread_local! {
    static NEXT_ID: Cell<RequestId> = const { Cell::new(1) };
}

/// A number that no other request of this process has had.
pub(crate) fn next_id() -> RequestId {
    NEXT_ID.with(|next| next.replace(next.get() + 1))
}

/// Why a call came to nothing; it was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failed;

impl Script {
    /// The script of a request: the one that it has, or a new one with the imports of its location;
    /// none where there are no imports.
    ///
    /// # Errors
    /// There is no engine.
    pub fn of(r: &mut Request) -> Result<Option<Rc<Script>>, Failed> {
        if let Some(Slot(Some(script))) = r.ctx::<Slot>() {
            return Ok(Some(script.clone()));
        }
        let Some(script) = Script::new(r)? else { return Ok(None) };
        r.ctx_mut::<Slot>().0 = Some(script.clone());
        let ending = script.clone();
        r.at_end(Box::new(move |r| ending.end(r)));
        Ok(Some(script))
    }

    /// One that works beside the request's own, while that one runs.
    ///
    /// # Errors
    /// There is no engine.
    pub fn new(r: &mut Request) -> Result<Option<Rc<Script>>, Failed> {
        let conf = r.loc.confs.listed::<Settings>();
        let Some(code) = conf.compiled() else { return Ok(None) };
        let limits = conf.limits();
        let script = Rc::new(Script {
            id: next_id(),
            conf,
            code,
            limits,
            engine: RefCell::default(),
            ops: RefCell::default(),
            body_wanted: Cell::default(),
            body_of_file: RefCell::default(),
            replies: RefCell::default(),
            caller: Cell::default(),
            decision: RefCell::default(),
            return_value: RefCell::default(),
            output: Output::default(),
            filtering: Filtering::default(),
            is_over: Cell::new(false),
            has_failed: Cell::new(false),
        });
        let made = script.code.take(limits, &mut HttpCall::new(r, &script));
        match made {
            Ok(instance) => {
                *script.engine.borrow_mut() = Some(instance);
                Ok(Some(script))
            }
            Err(fault) => Err(report(r, "js vm init", &fault)),
        }
    }

    /// Whether a call runs now.
    pub fn is_running(&self) -> bool {
        self.engine.borrow().is_none()
    }

    /// Whether the script waits for something.
    pub fn is_waiting(&self) -> bool {
        !self.ops.borrow().is_empty() || self.body_wanted.get().is_some()
    }

    /// Has the engine do something with the request.
    fn with<R>(
        self: &Rc<Self>,
        r: &mut Request,
        f: impl FnOnce(&mut Instance, &mut HttpCall<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let Some(mut instance) = self.engine.borrow_mut().take() else {
            return Err(ended());
        };
        let result = f(&mut instance, &mut HttpCall::new(r, self));
        *self.engine.borrow_mut() = Some(instance);
        if result.is_err() {
            self.has_failed.set(true);
        }
        result
    }

    /// Whether a call has come to its end: its promise is settled.
    ///
    /// # Errors
    /// The promise was rejected, which was logged.
    pub fn has_ended(self: &Rc<Self>, r: &mut Request, call: Call) -> Result<bool, Failed> {
        let outcome = self.with(r, |instance, host| instance.outcome(host, call));
        let outcome = outcome.map_err(|fault| report(r, "js exception", &fault))?;
        Ok(matches!(outcome, Outcome::Done(_)))
    }

    /// Calls a function with the request and further arguments.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn call(
        self: &Rc<Self>,
        r: &mut Request,
        caller: Caller,
        function: &Bytes,
        more: &[Data],
    ) -> Result<Outcome, Failed> {
        let before = self.caller.replace(caller);
        let name = base::log::lossy(function);
        let mut arguments = vec![Argument::Request];
        arguments.extend(more.iter().cloned().map(Argument::Data));
        let outcome = self.with(r, |instance, host| instance.call(host, &name, &arguments));
        let outcome = match outcome {
            Err(fault) if self.is_settled_despite(&fault) => {
                report(r, "js call exception", &fault);
                Ok(Outcome::Done(Data::Undefined))
            }
            outcome => outcome.map_err(|fault| report(r, "js call exception", &fault)),
        };
        if outcome.is_err() || !self.is_waiting() {
            self.caller.set(before);
        }
        outcome
    }

    /// Whether a content handler has answered although a promise was rejected that nobody waits
    /// for: as in nginx, the answer counts.
    fn is_settled_despite(&self, fault: &Fault) -> bool {
        fault.kind == FaultKind::Rejected
            && self.caller.get() == Caller::Content
            && *self.decision.borrow() != Decision::None
    }

    /// Waits for one of the things that the script waits for, and lets it go on.
    ///
    /// # Errors
    /// The verdict that ends the request: the script failed, the client is gone, or the body cannot
    /// be read.
    pub async fn progress(self: &Rc<Self>, r: &mut Request) -> Result<(), Verdict> {
        if let Some(ticket) = self.body_wanted.take() {
            r.read_body().await?;
            self.load_body(r).await?;
            let answer = match self.whole_body(r) {
                Some(body) => Answer::Data(Data::Bytes(body)),
                // More than the engine may hold: an empty body would be another one.
                None if r.body.file().is_some() => {
                    Answer::Failed("the request body exceeds js_memory_limit".to_owned())
                }
                None => Answer::Data(Data::Bytes(Vec::new())),
            };
            let done = self.with(r, |instance, host| instance.complete(host, ticket, answer));
            return self.settle(r, done);
        }
        let (key, done) = match event::race(self.next(), r.client_gone()).await {
            event::Either::First(done) => done,
            event::Either::Second(()) => {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                return Err(r.abandon());
            }
        };
        let done = self.with(r, |instance, host| match (key, done) {
            (Key::Timer(timer), _) => instance.timer_fired(host, timer),
            (Key::Ticket(ticket), Done::Answer(answer)) => instance.complete(host, ticket, answer),
            (Key::Ticket(ticket), Done::Reply(Some(reply))) => {
                let id = next_id();
                self.replies.borrow_mut().insert(id, *reply);
                instance.complete(host, ticket, Answer::Data(Data::Number(id as f64)))
            }
            (Key::Ticket(ticket), Done::Reply(None) | Done::Fired) => {
                instance.complete(host, ticket, Answer::Failed("subrequest failed".to_owned()))
            }
        });
        self.settle(r, done)
    }

    /// What a step of the script means for the request.
    fn settle(&self, r: &mut Request, done: Result<(), Fault>) -> Result<(), Verdict> {
        let Err(fault) = done else { return Ok(()) };
        report(r, "js exception", &fault);
        if self.is_settled_despite(&fault) { Ok(()) } else { Err(Verdict::Status(500)) }
    }

    /// The next thing that has come.
    async fn next(&self) -> (Key, Done) {
        poll_fn(|cx| {
            let mut ops = self.ops.take();
            let found =
                ops.iter_mut().enumerate().find_map(|(i, op)| match op.pending.as_mut().poll(cx) {
                    Poll::Ready(done) => Some((i, done)),
                    Poll::Pending => None,
                });
            let found = found.map(|(i, done)| (ops.remove(i).key, done));
            ops.append(&mut self.ops.borrow_mut());
            *self.ops.borrow_mut() = ops;
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Has a future polled for a ticket.
    pub fn wait(&self, ticket: Ticket, pending: Pending) {
        self.push(Op { key: Key::Ticket(ticket), pending, detach: None });
    }

    /// The same for a subrequest.
    pub fn wait_for_reply(
        &self,
        ticket: Ticket,
        handle: Handle,
        kept: Rc<RefCell<Option<Box<Request>>>>,
    ) {
        let handle = Rc::new(RefCell::new(Some(handle)));
        let detach = Some(handle.clone());
        let pending = Box::pin(async move {
            let ended = handle.borrow().as_ref().map(Handle::ended);
            let ended = match ended {
                Some(ended) => ended.await,
                None => Err(http::output::Broken),
            };
            let body = handle.borrow_mut().take().map(|handle| handle.body());
            let r = kept.borrow_mut().take().filter(|_| ended.is_ok());
            let mut bytes = Vec::new();
            for piece in body.iter().flat_map(Chain::iter) {
                bytes.extend_from_slice(piece.memory().unwrap_or_default());
            }
            Done::Reply(r.map(|r| Box::new(Reply { r, body: bytes })))
        });
        self.push(Op { key: Key::Ticket(ticket), pending, detach });
    }

    pub fn start_timer(&self, timer: TimerId, after_ms: u64) {
        let pending = Box::pin(async move {
            event::sleep(after_ms).await;
            Done::Fired
        });
        self.push(Op { key: Key::Timer(timer), pending, detach: None });
    }

    /// Stops one.
    pub fn stop_timer(&self, timer: TimerId) {
        self.ops.borrow_mut().retain(|op| op.key != Key::Timer(timer));
    }

    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }

    /// Loads a body that is in a file, as far as an engine could hold it.
    pub async fn load_body(&self, r: &mut Request) -> Result<(), Verdict> {
        let Some(len) = r.body.file().map(|_| r.body.len()) else { return Ok(()) };
        if self.body_of_file.borrow().is_some() || len > self.limits.memory_bytes as u64 {
            return Ok(());
        }
        let m = "http js reading request body from a temporary file";
        r.log(Level::Warn, format_args!("{m}"));
        let (mut chain, mut bytes) = (r.body_chain(), Vec::new());
        while !chain.is_empty() {
            let piece = in_memory(r, &mut chain).await.map_err(|_| Verdict::Status(500))?;
            for buf in piece.iter() {
                bytes.extend_from_slice(buf.memory().unwrap_or_default());
            }
        }
        *self.body_of_file.borrow_mut() = Some(bytes.into());
        Ok(())
    }

    /// The body, where it was read.
    pub fn whole_body(&self, r: &Request) -> Option<Vec<u8>> {
        if let Some(body) = &*self.body_of_file.borrow() {
            return Some(body.to_vec());
        }
        let mut body = Vec::new();
        r.write_body(&mut body).then_some(body)
    }

    /// The end of the request: runs the exit hook, and gives the engine back if it is clean.
    pub fn end(self: &Rc<Self>, r: &mut Request) {
        if self.is_over.replace(true) {
            return;
        }
        let is_orphan = match r.ctx::<Slot>() {
            Some(Slot(Some(script))) => !Rc::ptr_eq(script, self),
            _ => true,
        };
        let ops = self.ops.take();
        if !ops.is_empty() {
            r.log(Level::Error, format_args!("pending events"));
        }
        for op in &ops {
            let handle = op.detach.as_ref().and_then(|handle| handle.borrow_mut().take());
            if let Some(handle) = handle {
                if is_orphan {
                    let m = "js subrequest: failed to get the parent context";
                    r.log(Level::Error, format_args!("{m}"));
                }
                handle.detach();
            }
        }
        drop(ops);
        self.caller.set(Caller::Other);
        let Some(mut instance) = self.engine.borrow_mut().take() else { return };
        match instance.end_request(&mut HttpCall::new(r, self)) {
            // It may have run out of memory, of which the next request needs some, too.
            Ok(true) if self.has_failed.get() => {}
            Ok(true) if self.is_too_large(r, &instance) => {}
            Ok(true) => {
                let max = self.conf.reuse.unwrap_or(REUSE);
                self.code.give(self.limits, instance, max);
            }
            Ok(false) => {}
            Err(fault) => {
                report(r, "js exit hook exception", &fault);
            }
        }
        self.ops.take();
        self.replies.take();
    }
}

impl Script {
    /// Whether an engine holds too much memory to be used again. It is looked at now and then, as
    /// adding up takes time.
    fn is_too_large(&self, r: &Request, instance: &Instance) -> bool {
        if !ENDS.replace(ENDS.get() + 1).is_multiple_of(SIZE_EVERY) {
            return false;
        }
        let (bytes, max) = (instance.memory_bytes(), self.conf.reuse_max_size);
        let is_too_large = bytes > max.unwrap_or(REUSE_BYTES);
        if is_too_large {
            let m = "exceeds \"js_context_reuse_max_size\": it is not used again";
            r.log(Level::Warn, format_args!("js engine with {bytes} bytes of memory {m}"));
        }
        is_too_large
    }
}

thread_local! {
    /// Ends of requests with an engine that could be used again.
    static ENDS: Cell<u64> = const { Cell::new(1) };
}

/// One engine in this number is looked at.
const SIZE_EVERY: u64 = 256;

/// The default of `js_context_reuse_max_size`.
const REUSE_BYTES: usize = 4 << 20;

/// The default of `js_context_reuse`.
const REUSE: usize = 128;

fn ended() -> Fault {
    Fault {
        kind: FaultKind::Ended,
        message: "the script runs already".to_owned(),
        stack: String::new(),
        function: None,
        place: None,
    }
}

/// Logs a fault: what, the function and its place.
pub(crate) fn report(r: &Request, what: &str, fault: &Fault) -> Failed {
    let what = match fault.kind {
        FaultKind::Rejected => "js unhandled rejection",
        FaultKind::Stretch | FaultKind::Cpu => "js was ended",
        FaultKind::NoFunction => {
            r.log(Level::Error, format_args!("{}", fault.message));
            return Failed;
        }
        _ => what,
    };
    let stack = fault.stack.lines().map(str::trim).filter(|line| !line.is_empty());
    let stack: Vec<_> = stack.collect();
    let stack = stack.join(" ");
    r.log(Level::Error, format_args!("{what}: {} {stack}", fault.message));
    Failed
}
