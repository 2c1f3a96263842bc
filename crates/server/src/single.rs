//! One process without a master (`master_process off`): for debugging, as in nginx.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, os_error};
use net::Inherited;
use net::quic_relay::Relay;
use os::signal::{Received, Signal};
use shm::ShmLock;

use crate::history::Samples;
use crate::load::{Cycle, Loader, Purpose};
use crate::systemd::Notify;
use crate::worker::{Before, FATAL, GIVEN_UP_MS};
use crate::{pidfile, serving, signals};

struct Single {
    loader: Loader,
    notify: Notify,
    current: RefCell<Rc<Cycle>>,
    /// Configurations that were replaced and still have connections.
    leaving: RefCell<Vec<Rc<Cycle>>>,
    quit: Cell<bool>,
    /// Unfinished requests are cut off.
    forced: Cell<bool>,
    terminate: Cell<bool>,
    /// It exits when its last work is done.
    exiting: Cell<bool>,
    /// The work of helpers.
    helping: RefCell<Vec<event::TaskId>>,
}

/// Serves until a signal stops it; returns the exit code.
pub fn run(cycle: Cycle, loader: Loader, notify: Notify, lock: &Rc<ShmLock>) -> i32 {
    let log = cycle.log.clone();
    let options = serving::loop_options(&cycle.settings, lock);
    let single = Rc::new(Single {
        loader,
        notify,
        current: RefCell::new(Rc::new(cycle)),
        leaving: RefCell::default(),
        quit: Cell::new(false),
        forced: Cell::new(false),
        terminate: Cell::new(false),
        exiting: Cell::new(false),
        helping: RefCell::default(),
    });
    match single.serve(options) {
        Ok(()) => {
            single.end();
            0
        }
        Err(e) => {
            log!(log, Level::Emerg, None, "starting to serve failed {}", os_error(&e));
            FATAL
        }
    }
}

fn start_engines(cycle: &Cycle) -> io::Result<()> {
    let relay = cycle.listeners.borrow().quic_key().map(|key| Rc::new(Relay::alone(key.clone())));
    serving::start_engines(cycle, (0, 0), serving::alone(Before::default()), (relay, None))
}

impl Single {
    fn serve(self: &Rc<Self>, options: event::Options) -> io::Result<()> {
        let mut event_loop = event::Loop::new(options)?;
        start_engines(&self.current())?;
        self.help(&self.current());
        self.keep_history();
        let own = self.clone();
        serving::watch_signals(move |received| own.signal(received))?;
        self.notify.ready();
        event_loop.run_until(|| self.done())
    }

    /// Starts the work of the helpers for the running configuration.
    fn help(&self, cycle: &Cycle) {
        let tasks = serving::start_helpers(cycle);
        self.helping.replace(tasks).into_iter().for_each(event::task::cancel);
    }

    /// Samples the history as long as the process lives.
    fn keep_history(self: &Rc<Self>) {
        let own = self.clone();
        let mut samples = Samples::default();
        event::spawn(async move {
            loop {
                samples.look(&own.current(), &own.loader.lasting.stats, 0);
                let step = Duration::from_millis(engine::history::STEP_MS);
                let ms = samples.wait().unwrap_or(step).as_millis();
                event::sleep(u64::try_from(ms).unwrap_or(u64::MAX).max(1)).await;
            }
        });
    }

    fn current(&self) -> Rc<Cycle> {
        self.current.borrow().clone()
    }

    fn done(&self) -> bool {
        let idle = |cycle: &Rc<Cycle>| cycle.engines.iter().all(|e| e.idle());
        self.leaving.borrow_mut().retain(|cycle| !idle(cycle));
        let all_idle = || self.leaving.borrow().is_empty() && idle(&self.current());
        let done = || all_idle() && serving::is_loop_idle();
        self.terminate.get() || self.quit.get() && (self.forced.get() || done())
    }

    fn signal(self: &Rc<Self>, received: Received) {
        let cycle = self.current();
        let action = match received.signal {
            Signal::QUIT => ", shutting down",
            Signal::TERM | Signal::INT => ", exiting",
            Signal::HUP => ", reconfiguring",
            Signal::USR1 => ", reopening logs",
            Signal::USR2 => ", ignoring",
            _ => "",
        };
        signals::note(&cycle.log, received, action);
        match received.signal {
            Signal::TERM | Signal::INT if self.exiting.replace(true) => self.terminate.set(true),
            Signal::TERM | Signal::INT => {
                let own = self.clone();
                serving::after_last_work(&cycle, move || own.terminate.set(true));
            }
            Signal::QUIT if !self.quit.replace(true) => {
                self.notify.stopping();
                let after = cycle.settings.shutdown_timeout_ms;
                let listeners = cycle.listeners.take();
                listeners.remove_files();
                listeners.end();
                cycle.engines.iter().for_each(|engine| engine.quit());
                if let Some(ms) = after {
                    let own = self.clone();
                    event::spawn(async move {
                        event::sleep(ms).await;
                        cycle.engines.iter().for_each(|engine| engine.force());
                        own.leaving.borrow().iter().for_each(|cycle| {
                            cycle.engines.iter().for_each(|engine| engine.force());
                        });
                        event::sleep(GIVEN_UP_MS).await;
                        own.forced.set(true);
                    });
                }
            }
            Signal::HUP if !self.quit.get() => {
                self.notify.reloading();
                self.reload(&cycle);
                self.notify.ready();
            }
            Signal::USR1 => {
                cycle.reopen_logs(None);
                for old in self.leaving.borrow().iter() {
                    old.reopen_logs(None);
                }
            }
            _ => {}
        }
    }

    /// Starts a new configuration beside the old one, which finishes its requests.
    fn reload(&self, running: &Rc<Cycle>) {
        let log = &running.log;
        log!(log, Level::Notice, None, "reconfiguring");
        let loaded = self.loader.parse(Some(running), log, || {}).and_then(|parsed| {
            let mut none = Inherited::default();
            self.loader.open(parsed, Purpose::Reload, Some(running), &mut none, log)
        });
        let Ok(mut next) = loaded else {
            log::set_default(log.clone());
            return;
        };
        if next.settings.events.driver != running.settings.events.driver {
            let message = "the event method cannot be changed without a master process; \
                           stop the server and start it again";
            log!(log, Level::Emerg, None, "{message}");
            next.listeners.take().abandon();
            return;
        }
        next.leave_terminal();
        if let Err(e) = start_engines(&next) {
            log!(log, Level::Emerg, None, "starting to serve failed {}", os_error(&e));
            next.listeners.take().abandon();
            return;
        }
        let old = running.listeners.take();
        old.retire(&next.listeners.borrow(), log);
        // This process's second descriptors go first: the engines empty the queues and close
        // theirs.
        drop(old);
        running.engines.iter().for_each(|engine| engine.quit());
        next.listeners.borrow_mut().end_parting();
        self.leaving.borrow_mut().push(running.clone());
        self.help(&next);
        *self.current.borrow_mut() = Rc::new(next);
    }

    fn end(&self) {
        let cycle = self.current();
        log!(cycle.log, Level::Notice, None, "exiting");
        cycle.logs.end();
        self.leaving.borrow().iter().for_each(|cycle| cycle.logs.end());
        pidfile::remove(&cycle.settings.pid, &cycle.log);
        cycle.listeners.take().remove_files();
        cycle.zones.stopped();
        log!(cycle.log, Level::Notice, None, "exit");
    }
}
