//! The engine of one request or session.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Level;
use engine::Client;
use engine::metrics::functions::FunctionCounts;

use ::script::{Answer, Argument, Call, Data, Fault, FaultKind, Host, Instance, Outcome};

use crate::code::Code;
use crate::function::Function;
use crate::ops::{Done, Key, Ops};
use crate::settings::Settings;
use crate::share;
use crate::text::report;

thread_local! {
    static NEXT_ID: Cell<u64> = const { Cell::new(1) };
}

/// A number that no other request or session of this process has had.
pub fn next_id() -> u64 {
    NEXT_ID.with(|next| next.replace(next.get() + 1))
}

/// An engine that works for one request or session, and what its script waits for.
pub struct Job {
    conf: Rc<Settings>,
    code: Rc<Code>,
    engine: RefCell<Option<Instance>>,
    /// What the script waits for.
    pub ops: Ops,
    /// The counters of the function that was called last: what follows from waits is its time.
    last: RefCell<Option<Rc<FunctionCounts>>>,
    is_over: Cell<bool>,
    /// A call has failed: the engine is not used again.
    has_failed: Cell<bool>,
}

impl Job {
    /// One with the imports of a place; none where there are none.
    pub fn new(conf: Rc<Settings>) -> Option<Job> {
        let code = conf.compiled()?;
        Some(Job {
            conf,
            code,
            engine: RefCell::default(),
            ops: Ops::default(),
            last: RefCell::default(),
            is_over: Cell::new(false),
            has_failed: Cell::new(false),
        })
    }

    /// Takes an engine.
    ///
    /// # Errors
    /// A module threw, or there is not enough memory.
    pub fn start(&self, host: &mut dyn Host) -> Result<(), Fault> {
        let instance = match self.code.idle(self.conf.limits()) {
            Some(idle) => idle,
            None => {
                // Its modules may take long, and fail then.
                let began = os::clock::thread_usec();
                let made = self.code.make(self.conf.limits(), host);
                share::used(os::clock::thread_usec().saturating_sub(began));
                made?
            }
        };
        *self.engine.borrow_mut() = Some(instance);
        Ok(())
    }

    /// Forgets the processor time used so far: the limit of a request begins anew.
    pub fn reset_time(&self) {
        if let Some(instance) = &*self.engine.borrow() {
            instance.reset_time();
        }
    }

    /// Whether a call runs now.
    pub fn is_running(&self) -> bool {
        self.engine.borrow().is_none()
    }

    /// Has the engine do something, under the settings of the place where it is asked.
    ///
    /// # Errors
    /// Those of `f`, or the engine is in the middle of something.
    pub fn with<H: Host, R>(
        &self,
        host: &mut H,
        here: &Settings,
        f: impl FnOnce(&mut Instance, &mut H) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let Some(mut instance) = self.engine.borrow_mut().take() else {
            return Err(ended());
        };
        instance.set_limits(here.limits());
        let before = instance.used_usec();
        let result = f(&mut instance, host);
        let usec = instance.used_usec().saturating_sub(before);
        share::used(usec);
        *self.engine.borrow_mut() = Some(instance);
        let last = self.last.borrow();
        if let Some(last) = &*last {
            last.took(usec);
        }
        if result.is_err() {
            self.has_failed.set(true);
            if let Some(last) = &*last {
                last.failed();
            }
        }
        result
    }

    /// Calls a function.
    ///
    /// # Errors
    /// It failed.
    pub fn call<H: Host>(
        &self,
        host: &mut H,
        here: &Settings,
        function: &Function,
        arguments: &[Argument],
    ) -> Result<Outcome, Fault> {
        function.counts.called();
        let before = self.last.replace(Some(function.counts.clone()));
        let outcome =
            self.with(host, here, |instance, host| instance.call(host, &function.name, arguments));
        // One that waits goes on later; another one that is called in between has its own time.
        if before.is_some() && !self.ops.is_empty() {
            *self.last.borrow_mut() = before;
        }
        outcome
    }

    /// Whether a call has come to its end: its promise is settled.
    ///
    /// # Errors
    /// The promise was rejected.
    pub fn has_ended<H: Host>(
        &self,
        host: &mut H,
        here: &Settings,
        call: Call,
    ) -> Result<bool, Fault> {
        let outcome = self.with(host, here, |instance, host| instance.outcome(host, call))?;
        Ok(matches!(outcome, Outcome::Done(_)))
    }

    /// Lets the script go on with something that has come.
    ///
    /// # Errors
    /// It failed.
    pub fn go_on<H: Host>(
        &self,
        host: &mut H,
        here: &Settings,
        (key, done): (Key, Done),
    ) -> Result<(), Fault> {
        self.with(host, here, |instance, host| match (key, done) {
            (Key::Timer(timer), _) => instance.timer_fired(host, timer),
            (Key::Ticket(ticket), Done::Answer(answer)) => instance.complete(host, ticket, answer),
            // Only timers fire.
            (Key::Ticket(ticket), Done::Fired) => {
                instance.complete(host, ticket, Answer::Data(Data::Undefined))
            }
        })
    }

    /// The end of the request or session: runs the exit hook, and keeps the engine if it is clean.
    /// Nothing happens the second time.
    pub fn end<H: Host>(&self, host: &mut H) -> Ended {
        let mut end = Ended::default();
        if self.is_over.replace(true) {
            return end;
        }
        (end.waited, end.goes_on) = self.ops.end();
        let Some(mut instance) = self.engine.borrow_mut().take() else { return end };
        let before = instance.used_usec();
        let ended = instance.end_request(host);
        share::used(instance.used_usec().saturating_sub(before));
        match ended {
            // It may have run out of memory, of which the next request needs some, too.
            Ok(true) if self.has_failed.get() => {}
            Ok(true) => {
                end.too_large = self.is_too_large(&instance);
                if end.too_large.is_none() {
                    self.code.give(instance, self.conf.reuse.unwrap_or(REUSE));
                }
            }
            Ok(false) => {}
            Err(fault) => end.fault = Some(fault),
        }
        // What the hook has asked for.
        self.ops.end();
        end
    }

    /// The bytes of memory that an engine holds, if they are too many for it to be used again. That
    /// is looked at now and then, because adding up takes time.
    fn is_too_large(&self, instance: &Instance) -> Option<usize> {
        if !ENDS.replace(ENDS.get() + 1).is_multiple_of(SIZE_EVERY) {
            return None;
        }
        let max = self.conf.reuse_max_size.unwrap_or(REUSE_BYTES);
        Some(instance.memory_bytes()).filter(|bytes| *bytes > max)
    }
}

/// The end of a job, for the log.
#[derive(Default)]
pub struct Ended {
    /// The script still waited for something.
    waited: bool,
    /// Some of that goes on without the script.
    pub goes_on: bool,
    /// The exit hook failed.
    fault: Option<Fault>,
    /// The engine holds so many bytes that it is not used again.
    too_large: Option<usize>,
}

impl Ended {
    /// Writes it to the error log.
    pub fn log(&self, client: &impl Client) {
        if self.waited {
            client.log(Level::Error, format_args!("pending events"));
        }
        if let Some(fault) = &self.fault {
            report(client, "js exit hook exception", fault);
        }
        if let Some(bytes) = self.too_large {
            let m = "exceeds \"js_context_reuse_max_size\": it is not used again";
            client.log(Level::Warn, format_args!("js engine with {bytes} bytes of memory {m}"));
        }
    }
}

thread_local! {
    /// Ends of jobs with an engine that could be used again.
    static ENDS: Cell<u64> = const { Cell::new(1) };
}

/// One in so many engines is looked at: adding up takes 60 µs, as long as several requests.
const SIZE_EVERY: u64 = 2048;

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ::script::{Limits, NoHost};

    use super::*;

    const WORK: &str = "function work() { for (let i = 0; i < 100_000; i++); }\n";

    /// A job for a script in a file of its own.
    fn job(name: &'static str, text: &str) -> Job {
        let of = format!("weir-script-job-{}-{name}", std::process::id());
        let prefix = std::env::temp_dir().join(of);
        std::fs::create_dir(&prefix).unwrap();
        std::fs::write(prefix.join(name), format!("{WORK}{text}")).unwrap();
        let pos = conf::Pos { file: Rc::from(Path::new("test")), line: 1, column: 1 };
        let word = conf::Word { text: name.into(), pos, quoted: false };
        let mut settings = Settings::default();
        settings.own.imports.push(("t".to_owned(), name.to_owned(), word));
        settings.own.prefix.clone_from(&prefix);
        settings.prepare([]).unwrap();
        std::fs::remove_dir_all(&prefix).unwrap();
        Job::new(Rc::new(settings)).unwrap()
    }

    #[test]
    fn an_import_that_fails_has_used_time() {
        let job = job("fails.js", "work(); throw new Error('no');");
        let before = share::used_so_far();
        assert!(job.start(&mut NoHost).is_err());
        assert!(share::used_so_far() > before);
    }

    #[test]
    fn the_exit_hook_uses_time() {
        let job = job("exit.js", "njs.on('exit', work); export default {};");
        job.start(&mut NoHost).unwrap();
        let before = share::used_so_far();
        job.end(&mut NoHost);
        assert!(share::used_so_far() > before);
        let idle = job.code.idle(Limits::default()).unwrap();
        assert_eq!(idle.used_usec(), 0, "the next request begins anew");
    }
}
