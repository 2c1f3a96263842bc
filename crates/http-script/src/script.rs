//! The engine that works for one request, and what its script waits for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::Verdict;
use http::channel::in_memory;
use http::request::Request;
use http::server::location::Location;
use http::subrequest::Handle;
use mem::Chain;
use script_modules::job::next_id;
use script_modules::ops::{Done, Key};
use script_modules::text::{Failed, report};
use script_modules::{Function, Job, Settings};

use ::script::host::http::RequestId;
use ::script::{Answer, Argument, Call, Data, Fault, FaultKind, Outcome, Ticket};

use crate::host::HttpCall;

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

/// The response as a script makes it.
#[derive(Default)]
pub(crate) struct Output {
    /// Bytes that are to be sent. Not one piece for each call: small ones would take many times
    /// their size.
    pub queue: RefCell<Vec<u8>>,
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
    /// The engine, and what it waits for.
    pub job: Job,
    /// The location of the latest call, and its settings.
    place: RefCell<(Rc<Location>, Rc<Settings>)>,
    pub body_wanted: Cell<Option<Ticket>>,
    /// The body, if it was read from its file.
    pub body_of_file: RefCell<Option<Bytes>>,
    pub replies: RefCell<BTreeMap<RequestId, Reply>>,
    pub caller: Cell<Caller>,
    pub decision: RefCell<Decision>,
    pub return_value: RefCell<Option<Data>>,
    pub output: Output,
    pub filtering: Filtering,
}

/// The script of a request, in its state: an internal redirect forgets it.
#[derive(Default)]
struct Slot(Option<Rc<Script>>);

impl Output {
    /// Takes the bytes that are to be sent.
    pub fn take(&self) -> Chain {
        let mut chain = Chain::new();
        let bytes = self.queue.take();
        if !bytes.is_empty() {
            chain.push_bytes(bytes.into());
        }
        chain
    }
}

impl Script {
    /// The script of a request: the one that it has, or a new one with the imports of its location;
    /// none where there are no imports.
    ///
    /// # Errors
    /// There is no engine.
    pub fn of(r: &mut Request) -> Result<Option<Rc<Script>>, Failed> {
        match r.ctx::<Slot>() {
            Some(Slot(Some(script))) => Ok(Some(script.clone())),
            _ => {
                let here = settings(r);
                Script::begin(r, here)
            }
        }
    }

    /// The same for a function of a location, whose settings its handler has.
    ///
    /// # Errors
    /// As for [`Script::of`].
    pub fn of_location(r: &mut Request, here: &Rc<Settings>) -> Result<Option<Rc<Script>>, Failed> {
        match r.ctx::<Slot>() {
            Some(Slot(Some(script))) => Ok(Some(script.clone())),
            _ => {
                debug_assert!(Rc::ptr_eq(here, &settings(r)), "the request is in that location");
                Script::begin(r, here.clone())
            }
        }
    }

    fn begin(r: &mut Request, here: Rc<Settings>) -> Result<Option<Rc<Script>>, Failed> {
        let Some(script) = Script::make(r, here)? else { return Ok(None) };
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
        let here = settings(r);
        Script::make(r, here)
    }

    fn make(r: &mut Request, here: Rc<Settings>) -> Result<Option<Rc<Script>>, Failed> {
        let Some(job) = Job::new(here.clone()) else { return Ok(None) };
        let script = Rc::new(Script {
            id: next_id(),
            job,
            place: RefCell::new((r.loc.clone(), here)),
            body_wanted: Cell::default(),
            body_of_file: RefCell::default(),
            replies: RefCell::default(),
            caller: Cell::default(),
            decision: RefCell::default(),
            return_value: RefCell::default(),
            output: Output::default(),
            filtering: Filtering::default(),
        });
        let started = script.job.start(&mut HttpCall::new(r, &script));
        match started {
            Ok(()) => Ok(Some(script)),
            Err(fault) => Err(report(r, "js vm init", &fault)),
        }
    }

    /// The settings of the place where the request is. An internal redirect changes that place.
    pub fn here(&self, r: &Request) -> Rc<Settings> {
        let mut place = self.place.borrow_mut();
        if !Rc::ptr_eq(&place.0, &r.loc) {
            *place = (r.loc.clone(), settings(r));
        }
        place.1.clone()
    }

    /// Whether the script waits for something.
    pub fn is_waiting(&self) -> bool {
        !self.job.ops.is_empty() || self.body_wanted.get().is_some()
    }

    /// Whether a content handler's response can begin: its header section is settled, or nothing
    /// that the script waits for can change it.
    pub fn has_answered(&self) -> bool {
        self.output.header_sent.get() || !self.is_waiting()
    }

    /// Whether a call has come to its end: its promise is settled.
    ///
    /// # Errors
    /// The promise was rejected, which was logged.
    pub fn has_ended(self: &Rc<Self>, r: &mut Request, call: Call) -> Result<bool, Failed> {
        let here = self.here(r);
        let ended = self.job.has_ended(&mut HttpCall::new(r, self), &here, call);
        ended.map_err(|fault| report(r, "js exception", &fault))
    }

    /// Has the rejection of a call's promise end the response as soon as it happens.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn watch(self: &Rc<Self>, r: &mut Request, call: Call) -> Result<(), Failed> {
        let here = self.here(r);
        let host = &mut HttpCall::new(r, self);
        let done = self.job.with(host, &here, |instance, host| instance.watch(host, call));
        done.map_err(|fault| report(r, "js exception", &fault))
    }

    /// Calls a function.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn call(
        self: &Rc<Self>,
        r: &mut Request,
        caller: Caller,
        function: &Function,
        arguments: &[Argument],
    ) -> Result<Outcome, Failed> {
        let before = self.caller.replace(caller);
        let here = self.here(r);
        let outcome = self.job.call(&mut HttpCall::new(r, self), &here, function, arguments);
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
            return self.go_on(r, (Key::Ticket(ticket), Done::Answer(answer)));
        }
        let next = match event::race(self.job.ops.next(), r.client_gone()).await {
            event::Either::First(next) => next,
            event::Either::Second(()) => {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                return Err(r.abandon());
            }
        };
        self.go_on(r, next)
    }

    fn go_on(self: &Rc<Self>, r: &mut Request, next: (Key, Done)) -> Result<(), Verdict> {
        let here = self.here(r);
        let done = self.job.go_on(&mut HttpCall::new(r, self), &here, next);
        self.settle(r, done)
    }

    /// What a step of the script means for the request.
    fn settle(&self, r: &mut Request, done: Result<(), Fault>) -> Result<(), Verdict> {
        let Err(fault) = done else { return Ok(()) };
        report(r, "js exception", &fault);
        if self.is_settled_despite(&fault) { Ok(()) } else { Err(Verdict::Status(500)) }
    }

    /// Waits for the reply of a subrequest, whose end is of use although nobody waits for it.
    pub fn wait_for_reply(
        self: &Rc<Self>,
        ticket: Ticket,
        handle: Handle,
        kept: Rc<RefCell<Option<Box<Request>>>>,
    ) {
        let handle = Rc::new(RefCell::new(Some(handle)));
        let (detached, script) = (handle.clone(), Rc::downgrade(self));
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
            // The future is one of the script's own, which is there while it is polled.
            Done::Answer(match r.zip(script.upgrade()) {
                Some((r, script)) => {
                    let id = next_id();
                    script.replies.borrow_mut().insert(id, Reply { r, body: bytes });
                    Answer::Data(Data::Number(id as f64))
                }
                None => Answer::Failed("subrequest failed".to_owned()),
            })
        });
        let detach = Box::new(move || match detached.borrow_mut().take() {
            Some(handle) => {
                handle.detach();
                true
            }
            None => false,
        });
        self.job.ops.wait_or_detach(ticket, pending, detach);
    }

    /// Loads a body that is in a file, as far as an engine could hold it.
    pub async fn load_body(&self, r: &mut Request) -> Result<(), Verdict> {
        let Some(len) = r.body.file().map(|_| r.body.len()) else { return Ok(()) };
        let max = settings(r).limits().memory_bytes as u64;
        if self.body_of_file.borrow().is_some() || len > max {
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
        let is_orphan = match r.ctx::<Slot>() {
            Some(Slot(Some(script))) => !Rc::ptr_eq(script, self),
            _ => true,
        };
        self.caller.set(Caller::Other);
        let ended = self.job.end(&mut HttpCall::new(r, self));
        ended.log(r);
        if ended.goes_on && is_orphan {
            let m = "js subrequest: failed to get the parent context";
            r.log(Level::Error, format_args!("{m}"));
        }
        self.replies.take();
    }
}

/// The settings of the place where a request is.
pub(crate) fn settings(r: &Request) -> Rc<Settings> {
    r.loc.confs.listed::<Settings>()
}
