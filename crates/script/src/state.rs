//! What the natives of one instance share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use rquickjs::{Ctx, Error, Exception, Function, Object, Persistent, Promise, Result, Value};

use crate::clocks::{Clocks, Start};
use crate::fault::{Fault, FaultKind};
use crate::functions::Path;
use crate::host::{Facts, Host};
use crate::ids::{Ticket, TimerId};
use crate::open_files::OpenFiles;
use crate::raw::{self, Lent, Name, NumberedClass};
use crate::value::Answer;

/// What a script may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Memory of the engine, bytes (`js_memory_limit`).
    pub memory_bytes: usize,
    /// The size of the script's stack, in bytes.
    pub stack_bytes: usize,
    /// Processor time of one stretch: from a call until the script returns or waits.
    pub stretch: Duration,
    /// Processor time of all stretches of a request together.
    pub cpu: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 16 << 20,
            stack_bytes: 256 << 10,
            stretch: Duration::from_millis(100),
            cpu: Duration::from_secs(1),
        }
    }
}

/// Makes the script's value out of the host's answer.
pub type Finish = for<'js> fn(&Ctx<'js>, Answer) -> Result<Value<'js>>;

/// What waits for an answer of the host.
pub enum Waiter {
    /// A promise: its `resolve` and `reject`.
    Promise(Persistent<Function<'static>>, Persistent<Function<'static>>),
    /// A callback of the script, called with the answer.
    Callback(Persistent<Function<'static>>),
}

/// Measures stretches. The engine asks it every few thousand steps.
pub struct Meter {
    clocks: RefCell<Rc<Clocks>>,
    limits: Cell<Limits>,
    started: Cell<Option<Start>>,
    used: Cell<u64>,
    ended: Cell<Option<FaultKind>>,
    #[cfg(test)]
    polls: Cell<u64>,
}

/// The function of a timer, what it is called with, and the memory outside the engine.
type Timer = (Persistent<Function<'static>>, Vec<Persistent<Value<'static>>>, Charge);

/// An object that a getter has made of a request: the request's number, the getter's, and the
/// object.
pub(crate) type Made = ((u64, u32), Persistent<Value<'static>>);

/// State of an instance.
pub struct State {
    /// The host, while a call runs.
    pub lent: Lent,
    /// Limits of time.
    pub meter: Meter,
    /// What `ngx` says.
    pub facts: Rc<Facts>,
    limits: Cell<Limits>,
    /// Memory that natives hold outside the engine for objects of the script, in bytes.
    native_bytes: Cell<usize>,
    /// Files that the script has open.
    pub files: RefCell<OpenFiles>,
    /// The prototypes of natives' classes.
    pub prototypes: RefCell<HashMap<&'static str, Persistent<Object<'static>>>>,
    /// It works for sessions of stream, not for requests.
    pub serves_stream: Cell<bool>,
    /// What is made when it is first read: bits of `late.rs`.
    pub(crate) late: Cell<u32>,
    /// The prototype of `Buffer`: bodies are made of many.
    pub buffer: RefCell<Option<Persistent<Object<'static>>>>,
    /// The class of requests, where there are any.
    pub(crate) request_class: Cell<Option<NumberedClass>>,
    /// The class of the targets of their proxies, which scripts cannot reach.
    pub(crate) target_class: Cell<Option<NumberedClass>>,
    kept: RefCell<Vec<Persistent<Value<'static>>>>,
    /// The handlers of requests' proxies, by what they are for.
    pub(crate) handlers: RefCell<Vec<Persistent<Value<'static>>>>,
    /// The objects that getters have made of requests. They are dropped when the request that is
    /// being served ends.
    pub(crate) made: RefCell<Vec<Made>>,
    /// The object of the request that is being served, and its number.
    pub(crate) request: RefCell<Option<(u64, Persistent<Value<'static>>)>>,
    /// The clocks of `console.time`: label and start, nanoseconds.
    pub clocks: RefCell<Vec<(String, u64)>>,
    /// What `njs.on('exit')` has registered.
    pub exit: RefCell<Option<Persistent<Function<'static>>>>,
    /// The imported modules' default exports, by the name of the import.
    pub imports: RefCell<Vec<(String, Persistent<Value<'static>>)>>,
    /// The functions that directives have called, by their names.
    pub(crate) paths: RefCell<Vec<Rc<Path>>>,
    names: RefCell<Vec<(&'static str, Rc<Name>)>>,
    waiters: RefCell<HashMap<Ticket, (Waiter, Finish)>>,
    timers: RefCell<HashMap<TimerId, Timer>>,
    rejected: RefCell<Vec<(Persistent<Value<'static>>, Persistent<Value<'static>>)>>,
    /// The reason of the first rejection of a promise that the host watches.
    broken: RefCell<Option<Persistent<Value<'static>>>>,
    calls: RefCell<HashMap<u64, Persistent<Value<'static>>>>,
    next: Cell<u64>,
}

impl Meter {
    fn new(limits: Limits) -> Meter {
        Meter {
            clocks: RefCell::new(Clocks::of_thread()),
            limits: Cell::new(limits),
            started: Cell::new(None),
            used: Cell::new(0),
            ended: Cell::new(None),
            #[cfg(test)]
            polls: Cell::new(0),
        }
    }

    /// Begins a stretch.
    pub fn begin(&self) {
        self.started.set(Some(self.clocks.borrow().start()));
    }

    /// Ends a stretch, which counts towards the request's limit.
    pub fn end(&self) {
        if let Some(started) = self.started.take() {
            self.used.set(self.used.get() + self.clocks.borrow().used_usec(&started));
        }
    }

    /// Has a test's clock count.
    #[cfg(test)]
    pub fn set_clock(&self, clock: fn() -> u64) {
        self.clocks.replace(Rc::new(Clocks::new(clock, clock)));
    }

    /// Forgets the time used so far: the next request.
    pub fn reset(&self) {
        self.used.set(0);
    }

    /// Processor time of finished stretches, in microseconds.
    pub fn used_usec(&self) -> u64 {
        self.used.get()
    }

    /// The interrupt handler: whether the script must end. Once it must, it stays so, because an
    /// engine in the middle of something is not run again.
    pub(crate) fn must_end(&self) -> bool {
        #[cfg(test)]
        self.polls.set(self.polls.get() + 1);
        if self.ended.get().is_some() {
            return true;
        }
        let Some(started) = self.started.get() else { return false };
        let limits = self.limits.get();
        let ran = self.clocks.borrow().used_usec(&started);
        let over = |limit: Duration, ran: u64| u128::from(ran) > limit.as_micros();
        if over(limits.stretch, ran) {
            self.ended.set(Some(FaultKind::Stretch));
        } else if over(limits.cpu, self.used.get() + ran) {
            self.ended.set(Some(FaultKind::Cpu));
        }
        self.ended.get().is_some()
    }

    /// Which limit ended the script, if one did.
    pub fn ended(&self) -> Option<FaultKind> {
        self.ended.get()
    }

    /// How often the engine has asked.
    #[cfg(test)]
    pub fn polls(&self) -> u64 {
        self.polls.get()
    }
}

impl State {
    pub(crate) fn new(limits: Limits, facts: Rc<Facts>) -> State {
        State {
            lent: Lent::default(),
            meter: Meter::new(limits),
            facts,
            limits: Cell::new(limits),
            native_bytes: Cell::new(0),
            files: RefCell::default(),
            prototypes: RefCell::default(),
            serves_stream: Cell::new(false),
            late: Cell::new(0),
            buffer: RefCell::default(),
            request_class: Cell::new(None),
            target_class: Cell::new(None),
            kept: RefCell::default(),
            handlers: RefCell::default(),
            made: RefCell::default(),
            request: RefCell::default(),
            clocks: RefCell::default(),
            exit: RefCell::default(),
            imports: RefCell::default(),
            paths: RefCell::default(),
            names: RefCell::default(),
            waiters: RefCell::default(),
            timers: RefCell::default(),
            rejected: RefCell::default(),
            broken: RefCell::default(),
            calls: RefCell::default(),
            next: Cell::new(1),
        }
    }

    /// Keeps an object as long as the engine lives. The engine remembers the shape of new objects
    /// of a kind only while there is one of them, and it takes as long to make a shape as the rest
    /// of a small object.
    pub(crate) fn keep<'js>(&self, ctx: &Ctx<'js>, object: Value<'js>) {
        self.kept.borrow_mut().push(Persistent::save(ctx, object));
    }

    /// The name of a property that natives use often.
    pub(crate) fn name(&self, ctx: &Ctx<'_>, text: &'static str) -> Result<Rc<Name>> {
        if let Some((_, name)) = self.names.borrow().iter().find(|(known, _)| *known == text) {
            return Ok(name.clone());
        }
        let name = Rc::new(Name::new(ctx, text)?);
        self.names.borrow_mut().push((text, name.clone()));
        Ok(name)
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Whether answers or timers are outstanding.
    pub fn is_waiting(&self) -> bool {
        !self.waiters.borrow().is_empty() || !self.timers.borrow().is_empty()
    }

    /// Memory that the script may use, bytes.
    pub fn memory_max(&self) -> usize {
        self.limits.get().memory_bytes
    }

    /// Sets what the script may use from now on.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
        self.meter.limits.set(limits);
    }

    /// Forgets what belongs to one request, and closes its files.
    pub(crate) fn forget_request(&self) {
        self.request.take();
        forget(&self.made, Vec::is_empty);
        self.broken.take();
        // Most requests have none of these, and to make new ones takes longer than to look.
        forget(&self.files, |files| files.is_empty());
        forget(&self.waiters, HashMap::is_empty);
        forget(&self.timers, HashMap::is_empty);
        forget(&self.calls, HashMap::is_empty);
        forget(&self.clocks, Vec::is_empty);
    }

    /// Gives back every value of the engine, before the engine goes.
    pub(crate) fn clear(&self) {
        self.prototypes.take();
        self.kept.take();
        self.handlers.take();
        self.made.take();
        self.request.take();
        self.exit.take();
        self.imports.take();
        self.paths.take();
        self.names.take();
        self.buffer.take();
        self.waiters.take();
        self.timers.take();
        self.rejected.take();
        self.broken.take();
        self.calls.take();
    }

    pub(crate) fn add_call(&self, value: Persistent<Value<'static>>) -> u64 {
        let call = self.number();
        self.calls.borrow_mut().insert(call, value);
        call
    }

    pub(crate) fn call(&self, call: u64) -> Option<Persistent<Value<'static>>> {
        self.calls.borrow().get(&call).cloned()
    }

    pub(crate) fn forget_call(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
    }

    /// Notes that a promise was rejected without a handler, or that it got one late.
    pub(crate) fn note_rejection(
        &self,
        promise: Persistent<Value<'static>>,
        reason: Persistent<Value<'static>>,
        is_handled: bool,
    ) {
        if is_handled {
            self.forget_rejection(&promise);
        } else {
            self.rejected.borrow_mut().push((promise, reason));
        }
    }

    /// Forgets the rejection of a promise.
    pub(crate) fn forget_rejection(&self, promise: &Persistent<Value<'static>>) {
        self.rejected.borrow_mut().retain(|(p, _)| p != promise);
    }

    /// The oldest rejection that nobody handled; all are forgotten.
    pub(crate) fn take_rejection(&self) -> Option<Persistent<Value<'static>>> {
        if !self.has_rejections() {
            return None;
        }
        let all = self.rejected.take();
        all.into_iter().next().map(|(_, reason)| reason)
    }

    /// Whether there are rejections that nobody has handled.
    pub(crate) fn has_rejections(&self) -> bool {
        !self.rejected.borrow().is_empty()
    }

    /// Whether `njs.on('exit')` has registered a function.
    pub(crate) fn has_exit_hook(&self) -> bool {
        self.exit.borrow().is_some()
    }

    /// Notes that a promise was rejected that the host watches.
    pub(crate) fn note_broken(&self, reason: Persistent<Value<'static>>) {
        self.broken.borrow_mut().get_or_insert(reason);
    }

    /// The reason of the first such rejection, which is forgotten.
    pub(crate) fn take_broken(&self) -> Option<Persistent<Value<'static>>> {
        self.broken.take()
    }

    pub(crate) fn take_waiter(&self, ticket: Ticket) -> Option<(Waiter, Finish)> {
        self.waiters.borrow_mut().remove(&ticket)
    }

    pub(crate) fn take_timer(&self, timer: TimerId) -> Option<Timer> {
        self.timers.borrow_mut().remove(&timer)
    }

    pub(crate) fn add_timer(
        &self,
        callback: Persistent<Function<'static>>,
        arguments: Vec<Persistent<Value<'static>>>,
        charge: Charge,
    ) -> TimerId {
        let timer = TimerId(self.number());
        self.timers.borrow_mut().insert(timer, (callback, arguments, charge));
        timer
    }

    fn wait(&self, waiter: Waiter, finish: Finish) -> Ticket {
        let ticket = Ticket(self.number());
        self.waiters.borrow_mut().insert(ticket, (waiter, finish));
        ticket
    }
}

/// Memory outside the engine that an object of the script holds; it counts towards the limit until
/// the object is gone.
pub struct Charge {
    state: Weak<State>,
    bytes: Cell<usize>,
}

impl Charge {
    /// Charges so many bytes.
    ///
    /// # Errors
    /// An exception: the limit is reached.
    pub fn new(ctx: &Ctx<'_>, bytes: usize) -> Result<Charge> {
        let charge = Charge { state: Rc::downgrade(&of(ctx)), bytes: Cell::new(0) };
        charge.add(ctx, bytes)?;
        Ok(charge)
    }

    /// Charges more.
    ///
    /// # Errors
    /// As for [`Charge::new`].
    pub fn add(&self, ctx: &Ctx<'_>, bytes: usize) -> Result<()> {
        let state = of(ctx);
        let sum = state.native_bytes.get().saturating_add(bytes);
        let max = state.memory_max();
        if sum > max {
            // Objects that nobody has any more may be in the way.
            ctx.run_gc();
            if state.native_bytes.get().saturating_add(bytes) > max {
                return Err(out_of_memory(ctx));
            }
        }
        state.native_bytes.set(state.native_bytes.get() + bytes);
        self.bytes.set(self.bytes.get() + bytes);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            state.native_bytes.set(state.native_bytes.get().saturating_sub(self.bytes.get()));
        }
    }
}

/// The limit on memory as an exception.
pub(crate) fn out_of_memory(ctx: &Ctx<'_>) -> Error {
    Exception::throw_internal(ctx, "out of memory")
}

/// Drops the values of a cell, which is not borrowed while they go.
fn forget<T: Default>(cell: &RefCell<T>, is_empty: fn(&T) -> bool) {
    if !is_empty(&cell.borrow()) {
        cell.take();
    }
}

/// The state of the instance that a native belongs to.
pub fn of(ctx: &Ctx<'_>) -> Rc<State> {
    raw::kept(ctx).expect("an instance stores it before any script runs")
}

/// Calls a function with the host, or throws: the object outlived its request.
pub fn host<R>(ctx: &Ctx<'_>, f: impl FnOnce(&mut dyn Host) -> R) -> Result<R> {
    let state = of(ctx);
    state.lent.borrow(f).ok_or_else(|| Exception::throw_internal(ctx, "the request has ended"))
}

/// A promise that the host settles with `Instance::complete`. `finish` turns its answer into the
/// promise's value; an error that it throws rejects the promise.
pub fn promise<'js>(ctx: &Ctx<'js>, finish: Finish) -> Result<(Ticket, Promise<'js>)> {
    let (promise, resolve, reject) = ctx.promise()?;
    let resolve = Persistent::save(ctx, resolve);
    let reject = Persistent::save(ctx, reject);
    Ok((of(ctx).wait(Waiter::Promise(resolve, reject), finish), promise))
}

/// A callback that the host has called with `Instance::complete`.
pub fn callback<'js>(ctx: &Ctx<'js>, callback: Function<'js>, finish: Finish) -> Ticket {
    of(ctx).wait(Waiter::Callback(Persistent::save(ctx, callback)), finish)
}

/// The [`Finish`] of natives whose answers are plain values.
pub fn plain<'js>(ctx: &Ctx<'js>, answer: Answer) -> Result<Value<'js>> {
    match answer {
        Answer::Data(data) => data.to_js(ctx),
        Answer::Failed(message) => Err(Exception::throw_message(ctx, &message)),
    }
}

/// The fault of a script that a limit has ended.
pub(crate) fn ended(kind: FaultKind, mut fault: Fault, limits: &Limits) -> Fault {
    fault.kind = kind;
    fault.message = match kind {
        FaultKind::Cpu => {
            format!("the script used more than {} ms of processor time", limits.cpu.as_millis())
        }
        _ => format!("the script ran for more than {} ms at a stretch", limits.stretch.as_millis()),
    };
    fault
}
