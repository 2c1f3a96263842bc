//! The script of one session.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use engine::Session;
use script_modules::job::next_id;
use script_modules::ops::{Done, Key};
use script_modules::text::{Failed, report};
use script_modules::{Function, Job, Settings};
use stream::StreamSession;
use stream::module::{Sent, Way};

use ::script::host::stream::{self as host, Form, SessionId};
use ::script::{Argument, Call, Data, Outcome};

use crate::host::StreamCall;

/// The status of a phase that no function has decided: an error, as in nginx.
pub(crate) const UNDECIDED: i64 = -1;

/// The script of a session.
pub(crate) struct Script {
    /// The number of the session.
    pub id: SessionId,
    /// The engine, and what it waits for.
    pub job: Job,
    /// A run of `js_periodic`.
    pub is_periodic: bool,
    /// What `s.done()` and its siblings have said in this phase.
    pub code: Cell<i64>,
    /// The callbacks that are set, for each way.
    pub listens: Cell<[Option<Form>; 2]>,
    /// The filter's function was called: the script may send.
    pub is_filtering: Cell<bool>,
    /// The piece that the script works on: its way, and whether it is not held back.
    pub piece: Cell<Option<(Way, bool)>>,
    /// What the filter has sent.
    pub sent: RefCell<Sent>,
    /// The memory that this takes, bytes.
    pub sent_bytes: Cell<usize>,
    pub return_value: RefCell<Option<Data>>,
}

/// The script of a session, in its state.
#[derive(Default)]
struct Slot(RefCell<Option<Rc<Script>>>);

impl Script {
    /// The script of a session: the one that it has, or a new one with the imports of its server;
    /// none where there are no imports.
    ///
    /// # Errors
    /// There is no engine.
    pub fn of(s: &mut StreamSession) -> Result<Option<Rc<Script>>, Failed> {
        if let Some(script) = known(s) {
            return Ok(Some(script));
        }
        let Some(script) = Script::new(s, false)? else { return Ok(None) };
        *s.shared::<Slot>().0.borrow_mut() = Some(script.clone());
        Ok(Some(script))
    }

    /// One for a run of `js_periodic`; or one that works beside the session's own, while that runs.
    ///
    /// # Errors
    /// There is no engine.
    pub fn new(s: &mut StreamSession, is_periodic: bool) -> Result<Option<Rc<Script>>, Failed> {
        let Some(job) = Job::new(settings(s)) else { return Ok(None) };
        let script = Rc::new(Script {
            id: next_id(),
            job,
            is_periodic,
            code: Cell::new(UNDECIDED),
            listens: Cell::default(),
            is_filtering: Cell::default(),
            piece: Cell::default(),
            sent: RefCell::default(),
            sent_bytes: Cell::default(),
            return_value: RefCell::default(),
        });
        let started = script.job.start(&mut StreamCall::new(s, &script));
        match started {
            Ok(()) => Ok(Some(script)),
            Err(fault) => Err(report(s, "js vm init", &fault)),
        }
    }

    /// Whether the script waits for something, not counting bytes.
    pub fn is_waiting(&self) -> bool {
        !self.job.ops.is_empty()
    }

    /// Takes what the filter has sent.
    pub fn take_sent(&self) -> Sent {
        self.sent_bytes.set(0);
        self.sent.take()
    }

    /// The form of a way's callback, if there is one.
    pub fn form(&self, way: Way) -> Option<Form> {
        self.listens.get()[way as usize]
    }

    /// Whether the script waits for bytes.
    pub fn is_listening(&self) -> bool {
        self.listens.get().iter().any(Option::is_some)
    }

    /// Calls a function with the session.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn call(
        self: &Rc<Self>,
        s: &mut StreamSession,
        function: &Function,
    ) -> Result<Outcome, Failed> {
        let here = settings(s);
        let outcome =
            self.job.call(&mut StreamCall::new(s, self), &here, function, &[Argument::Request]);
        outcome.map_err(|fault| report(s, "js call exception", &fault))
    }

    /// Whether a call has come to its end: its promise is settled.
    ///
    /// # Errors
    /// The promise was rejected, which was logged.
    pub fn has_ended(self: &Rc<Self>, s: &mut StreamSession, call: Call) -> Result<bool, Failed> {
        let here = settings(s);
        let ended = self.job.has_ended(&mut StreamCall::new(s, self), &here, call);
        ended.map_err(|fault| report(s, "js exception", &fault))
    }

    /// Calls the callback of a way, if there is one, with bytes.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn event(
        self: &Rc<Self>,
        s: &mut StreamSession,
        way: Way,
        bytes: Vec<u8>,
        last: bool,
    ) -> Result<(), Failed> {
        let Some(form) = self.form(way) else { return Ok(()) };
        let to = if way == Way::Up { host::Way::Up } else { host::Way::Down };
        let here = settings(s);
        let done = self.job.with(&mut StreamCall::new(s, self), &here, |instance, host| {
            instance.event(host, (to, form), bytes, last)
        });
        done.map_err(|fault| report(s, "js exception", &fault))
    }

    /// Lets the script go on with something that has come.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn go_on(self: &Rc<Self>, s: &mut StreamSession, next: (Key, Done)) -> Result<(), Failed> {
        let here = settings(s);
        let done = self.job.go_on(&mut StreamCall::new(s, self), &here, next);
        done.map_err(|fault| report(s, "js exception", &fault))
    }

    /// The value that a function of `js_set` gives; `None` where it fails, or waits.
    ///
    /// # Errors
    /// It failed, which was logged.
    pub fn value(
        self: &Rc<Self>,
        s: &mut StreamSession,
        function: &Function,
    ) -> Result<Option<Data>, Failed> {
        self.return_value.take();
        let outcome = self.call(s, function)?;
        Ok(match (self.return_value.take(), outcome) {
            (Some(set), _) => Some(set),
            (None, Outcome::Done(data)) => Some(data),
            (None, Outcome::Pending(_)) => None,
        })
    }

    /// The end of the session: runs the exit hook, and gives the engine back if it is clean.
    pub fn end(self: &Rc<Self>, s: &mut StreamSession) {
        self.is_filtering.set(false);
        let ended = self.job.end(&mut StreamCall::new(s, self));
        ended.log(s);
    }
}

/// The script that a session has.
fn known(s: &StreamSession) -> Option<Rc<Script>> {
    s.shared_if_any::<Slot>()?.0.borrow().clone()
}

/// The end of a session, after its log was written.
pub(crate) fn end(s: &mut StreamSession) {
    let script = s.shared_if_any::<Slot>().and_then(|slot| slot.0.take());
    if let Some(script) = script {
        script.end(s);
    }
}

/// The settings of the server of a session.
pub(crate) fn settings(s: &StreamSession) -> Rc<Settings> {
    s.conf::<Settings>()
}

/// A variable's value, or a group of the last regular expression.
pub(crate) fn variable(s: &mut StreamSession, name: &[u8]) -> Option<Bytes> {
    if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
        let n = std::str::from_utf8(name).ok()?.parse().ok()?;
        return s.captures().get(n).map(Bytes::copy_from_slice);
    }
    engine::vars::value_of_name(s, name)
}
