//! The master process: watches its workers, and answers signals and questions. One thread, which
//! waits for the next one ([`Control`]).
//!
//! ```text
//!             HUP: load ─► start new workers ─► ready ─► old ones leave
//!             USR1: reopen logs          USR2: start a new binary beside this one
//!  running ───WINCH: workers leave, the master stays, HUP brings them back
//!     ├─QUIT──► quitting: workers leave ──► none is left ──► exit
//!     └─TERM──► terminating: workers are told to stop, after a second killed ──► exit
//! ```

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base::log;
use base::log::{Level, debug, os_error};
use engine::Helper;
use engine::history::{EventKind, Severity};
use net::Inherited;
use os::process::Exit;
use os::signal::{Received, Signal};
use shm::ShmLock;

use crate::children::{self, Child, ChildKind, Children, Ended, Seat, Started};
use crate::control::{Answer, ClientId, Control, Event};
use crate::environ::Environ;
use crate::history::Samples;
use crate::load::{Cycle, Loader, Purpose};
use crate::relays::Relays;
use crate::reloading::Reloads;
use crate::systemd::Notify;
use crate::upgrade::{self, Upgrade};
use crate::verdict::{Moved, Outcome, Report, Verdict};
use crate::watchdog::{self, NewlyStuck, Terms, Watchdog};
use crate::worker::Assignment;
use crate::{dry_run, pidfile, signals};

/// The progress of the server's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    No,
    /// When all workers have left.
    Quit,
    /// At once: workers get the signal again at `next`, with a `delay` that grows.
    Terminate {
        delay: Duration,
        next: Instant,
    },
}

/// After this the workers are killed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Handshakes that had begun when a socket was taken out of its group end within this time.
const HANDSHAKE: Duration = Duration::from_millis(100);

pub struct Master {
    /// The configuration that runs.
    pub cycle: Cycle,
    /// The loader of the next one.
    pub loader: Loader,
    /// The environment at the start.
    pub environ: Environ,
    /// The start of a new binary.
    pub upgrade: Upgrade,
    /// The service manager.
    pub notify: Notify,
    /// Signals, and questions of commands.
    pub control: Control,
    /// The lock under which workers accept, if they do.
    pub lock: Rc<ShmLock>,
    /// The process is in the background: WINCH is a request, and not a window's.
    pub daemonized: bool,
    /// The samples of the history.
    pub samples: Samples,
    state: MasterState,
}

struct MasterState {
    children: Children,
    generation: u64,
    stop: Stop,
    /// Workers were sent away (WINCH) while a new binary is tried.
    noaccepting: bool,
    /// The server stops because no worker could begin.
    failed: bool,
    /// Workers and helpers to start again, and when.
    respawn: Vec<(Instant, Seat, u32)>,
    watchdog: Watchdog,
    reloads: Reloads,
}

/// Why the master's loop ended.
pub enum End {
    /// The server has stopped on request.
    Stopped,
    /// No worker could begin.
    Failed,
    /// This is a worker that was just forked.
    Worker(Assignment),
}

/// In a child that was just forked, everything is left by way of `Break`.
type Flow = ControlFlow<End>;

impl Master {
    /// A master without workers yet.
    pub fn new(
        cycle: Cycle,
        loader: Loader,
        environ: Environ,
        mut upgrade: Upgrade,
        notify: Notify,
        lock: Rc<ShmLock>,
        daemonized: bool,
    ) -> Master {
        let lasting = &loader.lasting;
        let watchdog = Watchdog::new(lasting.beats, lasting.stats.clone());
        let control = Control::open(&cycle.settings.pid, &cycle.log);
        let mut children = Children::default();
        children.replaced = upgrade.receivers(&environ);
        children.relays = Relays::new(upgrade.quic.take());
        children.moves = upgrade.take_moves(&cycle.log);
        let state = MasterState {
            children,
            generation: 0,
            stop: Stop::No,
            noaccepting: false,
            failed: false,
            respawn: Vec::new(),
            watchdog,
            reloads: Reloads::default(),
        };
        let samples = Samples::default();
        Master {
            cycle,
            loader,
            environ,
            upgrade,
            notify,
            control,
            lock,
            daemonized,
            samples,
            state,
        }
    }

    /// Starts the workers and runs until the server stops. Returns in each worker as well.
    pub fn run(&mut self) -> End {
        if let ControlFlow::Break(end) = self.start_workers() {
            return end;
        }
        self.note(EventKind::Start, Severity::Info, "the server started");
        self.sample();
        self.notify.ready();
        loop {
            if let ControlFlow::Break(end) = self.watch() {
                return end;
            }
            self.sample();
            let MasterState { reloads, children, .. } = &mut self.state;
            children.raise();
            reloads.answer(children, &self.loader.lasting.stats, &mut self.control);
            let event = self.control.wait(self.limit());
            base::time::update();
            let flow = match event {
                Event::Signal(received) => self.signal(received),
                Event::Question(client, question) => self.question(client, &question),
                Event::Time => self.timer(),
            };
            if let ControlFlow::Break(end) = flow {
                return end;
            }
            let idle = self.state.children.ours().next().is_none();
            if idle && self.state.stop != Stop::No {
                self.end();
                return if self.state.failed { End::Failed } else { End::Stopped };
            }
        }
    }

    /// The number of the running configuration, as the API and Prometheus have it: 1 at the start,
    /// one more with each reload.
    pub fn generation(&self) -> u64 {
        self.state.generation + 1
    }

    /// The number of workers of the running configuration.
    pub(crate) fn worker_count(&self) -> usize {
        let generation = self.state.generation;
        self.state.children.workers().filter(|child| child.generation == generation).count()
    }

    /// The limit of the wait for a signal.
    fn limit(&self) -> Option<Duration> {
        let stop = match self.state.stop {
            Stop::Terminate { next, .. } => Some(next),
            _ => None,
        };
        let respawn = self.state.respawn.iter().map(|(when, ..)| *when);
        let in_time = |next: Instant| next.saturating_duration_since(Instant::now());
        let next = respawn.chain(stop).min().map(in_time);
        let MasterState { watchdog, reloads, children, .. } = &self.state;
        let others = [watchdog.limit(), self.samples.wait(), reloads.limit(), children.limit()];
        next.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Looks for workers that stand still.
    fn watch(&mut self) -> Flow {
        let settings = &self.cycle.settings;
        let Some(kill_ms) = settings.watchdog_ms.filter(|_| self.state.stop == Stop::No) else {
            self.state.watchdog.rest();
            return Flow::Continue(());
        };
        let terms = Terms { kill_ms, resolution_ms: settings.timer_resolution_ms };
        let children = &mut self.state.children;
        let found = self.state.watchdog.look(children, terms, &self.cycle.log);
        for NewlyStuck { pid, .. } in &found {
            let text = format!("worker process {pid} hangs");
            self.note(EventKind::Worker, Severity::Bad, &text);
        }
        found.into_iter().try_for_each(|stuck| self.stand_in(stuck))
    }

    /// Others serve in the place of a stuck worker: those that are there where they can, a new one
    /// where they cannot.
    fn stand_in(&mut self, stuck: NewlyStuck) -> Flow {
        self.lock.free_of(stuck.pid.unsigned_abs());
        let generation = self.state.generation;
        let (others, few) = watchdog::counts(&self.state.children, stuck.index, generation);
        let enough = others && !self.cycle.listeners.borrow().have_own_queues();
        let serves = |child: &Child| {
            child.pid == stuck.pid && child.generation == generation && !child.exiting
        };
        let serves = self.state.children.workers().any(serves);
        if enough || !few || !serves || self.state.noaccepting {
            return Flow::Continue(());
        }
        let log = &self.cycle.log;
        self.state.children.signal(Signal::QUIT, |child| child.pid == stuck.pid, log);
        self.respawn(Seat::Worker(stuck.index), 0)
    }

    fn timer(&mut self) -> Flow {
        let now = Instant::now();
        if let Stop::Terminate { delay, next } = self.state.stop
            && next <= now
        {
            self.terminate(delay * 2);
        }
        let due: Vec<_> = self.state.respawn.extract_if(.., |(when, ..)| *when <= now).collect();
        for (_, seat, early_ends) in due {
            self.respawn(seat, early_ends)?;
        }
        Flow::Continue(())
    }

    fn signal(&mut self, received: Received) -> Flow {
        let stopping = self.state.stop != Stop::No;
        let (action, ignored) = match received.signal {
            Signal::QUIT => (", shutting down", false),
            Signal::TERM | Signal::INT => (", exiting", false),
            Signal::WINCH if self.daemonized => (", stop accepting connections", stopping),
            Signal::HUP => (", reconfiguring", stopping),
            Signal::USR1 => (", reopening logs", stopping),
            Signal::USR2 if self.upgrade_runs() => (", ignoring", true),
            Signal::USR2 => (", changing binary", stopping),
            Signal::CHLD => ("", false),
            _ => ("", true),
        };
        signals::note(&self.cycle.log, received, action);
        match received.signal {
            _ if ignored => {
                if received.signal == Signal::USR2 && !stopping {
                    let message = "the changing binary signal is ignored: you should shutdown or \
                                   terminate before either old or new binary's process";
                    log!(self.cycle.log, Level::Crit, None, "{message}");
                }
                Flow::Continue(())
            }
            Signal::CHLD => self.reap(),
            Signal::TERM | Signal::INT => {
                self.notify_stopping();
                self.terminate(Duration::from_millis(50));
                Flow::Continue(())
            }
            Signal::QUIT => {
                self.quit();
                Flow::Continue(())
            }
            Signal::HUP => self.reconfigure().map_continue(|_| ()),
            Signal::USR1 => {
                self.cycle.reopen_logs(self.cycle.settings.owner());
                self.state.children.signal(Signal::USR1, |_| true, &self.cycle.log);
                Flow::Continue(())
            }
            Signal::USR2 => self.change_binary(),
            Signal::WINCH => {
                self.state.noaccepting = true;
                self.state.respawn.clear();
                self.state.children.signal(Signal::QUIT, |_| true, &self.cycle.log);
                Flow::Continue(())
            }
            _ => Flow::Continue(()),
        }
    }

    /// Whether an old and a new binary run beside each other already.
    fn upgrade_runs(&self) -> bool {
        self.state.children.new_binary().is_some() || self.upgrade.predecessor_lives()
    }

    fn notify_stopping(&self) {
        // A new binary that continues to serve is not the service's end.
        if self.state.children.new_binary().is_none() {
            self.notify.stopping();
        }
    }

    fn terminate(&mut self, delay: Duration) {
        if let Stop::Terminate { delay: before, .. } = self.state.stop
            && delay <= before
        {
            return;
        }
        self.state.respawn.clear();
        self.state.stop = Stop::Terminate { delay, next: Instant::now() + delay };
        let signal = if delay > PATIENCE { Signal::KILL } else { Signal::TERM };
        base::debug!(self.cycle.log, debug::EVENT, None, "termination cycle: {delay:?}");
        self.state.children.signal(signal, |_| true, &self.cycle.log);
    }

    fn quit(&mut self) {
        if self.state.stop != Stop::No {
            return;
        }
        self.notify_stopping();
        self.state.respawn.clear();
        self.state.stop = Stop::Quit;
        self.loader.lasting.beats.set_ending(!self.upgrade_runs());
        self.close_listeners();
        self.state.children.signal(Signal::QUIT, |_| true, &self.cycle.log);
    }

    /// The workers' descriptors are the last ones: each empties the queue before it closes its own.
    /// The files of unix sockets stay when another binary listens on them.
    fn close_listeners(&mut self) {
        let listeners = self.cycle.listeners.take();
        if !self.upgrade_runs() {
            listeners.remove_files();
            listeners.end();
        }
    }

    fn start_workers(&mut self) -> Flow {
        self.start_generation().map_continue(|_| ())
    }

    /// Starts a worker for each seat and waits until they serve; returns their number and the
    /// others' errors.
    fn start_generation(&mut self) -> ControlFlow<End, Started> {
        let log = &self.cycle.log;
        log!(log, Level::Notice, None, "start worker processes");
        self.state.children.hand_over(&self.cycle.listeners.borrow());
        let pipe = os::fd::pipe();
        if let Err(e) = &pipe {
            log!(log, Level::Alert, None, "pipe() failed {}", os_error(e));
        }
        let (reader, writer) = pipe.map_or((None, None), |(r, w)| (Some(r), Some(w)));
        engine::metrics::set_generation(self.state.generation);
        for index in 0..self.cycle.settings.worker_processes {
            let (kind, generation) = (ChildKind::Worker(index), self.state.generation);
            match self.state.children.spawn(kind, generation, 0, log) {
                ControlFlow::Break(mut place) => {
                    place.report = writer.map(Report::new);
                    return ControlFlow::Break(End::Worker(place));
                }
                ControlFlow::Continue(true) => {}
                // Where others serve, this one may be started later.
                ControlFlow::Continue(false) => {
                    let when = Instant::now() + PATIENCE;
                    self.state.respawn.push((when, Seat::Worker(index), 0));
                }
            }
        }
        drop(writer);
        let started = reader.map(|reader| children::wait_started(&reader)).unwrap_or_default();
        Helper::ALL.into_iter().try_for_each(|helper| self.start_helper(helper, 0))?;
        ControlFlow::Continue(started)
    }

    /// Starts a helper process, if there is work for it.
    fn start_helper(&mut self, helper: Helper, early_ends: u32) -> Flow {
        if !self.cycle.wants(helper) {
            return Flow::Continue(());
        }
        let (kind, generation) = (ChildKind::Helper(helper), self.state.generation);
        let spawned = self.state.children.spawn(kind, generation, early_ends, &self.cycle.log);
        match spawned {
            ControlFlow::Break(place) => ControlFlow::Break(End::Worker(place)),
            ControlFlow::Continue(_) => ControlFlow::Continue(()),
        }
    }

    fn respawn(&mut self, seat: Seat, early_ends: u32) -> Flow {
        self.loader.lasting.stats.count_respawn();
        let kind = match seat {
            Seat::Worker(index) => ChildKind::Worker(index),
            Seat::Helper(helper) => return self.start_helper(helper, early_ends),
        };
        let generation = self.state.generation;
        match self.state.children.spawn(kind, generation, early_ends, &self.cycle.log) {
            ControlFlow::Break(place) => ControlFlow::Break(End::Worker(place)),
            ControlFlow::Continue(true) => ControlFlow::Continue(()),
            ControlFlow::Continue(false) => {
                let name = kind.name();
                log!(self.cycle.log, Level::Alert, None, "could not respawn {name}");
                // Memory or processes may be there again in a while.
                let when = Instant::now() + PATIENCE;
                self.state.respawn.push((when, seat, early_ends));
                ControlFlow::Continue(())
            }
        }
    }

    fn reap(&mut self) -> Flow {
        while let Some(ended) = self.state.children.reap(&self.cycle.log) {
            self.ended(&ended)?;
        }
        let generation = self.state.generation;
        if self.state.children.workers().all(|child| child.generation == generation) {
            self.cycle.listeners.borrow_mut().end_parting();
        }
        Flow::Continue(())
    }

    fn ended(&mut self, ended: &Ended) -> Flow {
        ended.tell(&self.cycle.log);
        self.note_end(ended);
        let pid = ended.child.pid;
        self.lock.free_of(pid.unsigned_abs());
        self.state.watchdog.forget(ended.slot);
        self.cycle.zones.died(pid.unsigned_abs(), ended.slot);
        match ended.child.kind {
            ChildKind::Helper(Helper::SharedState) => self.cycle.fleet.process_died(),
            _ => self.cycle.fleet.died(ended.slot),
        }
        self.cycle.engines.iter().for_each(|engine| engine.worker_died(ended.slot));
        let seat = match ended.child.kind {
            ChildKind::NewBinary => return self.new_binary_ended(),
            ChildKind::Worker(index) => Seat::Worker(index),
            ChildKind::Helper(helper) => Seat::Helper(helper),
        };
        let current = ended.child.generation == self.state.generation;
        let serves = self.state.stop == Stop::No && !self.state.noaccepting;
        let is_loader = seat == Seat::Helper(Helper::CacheLoader);
        if ended.child.exiting || !serves || !current {
            // One that a reload has ended early leaves the rest of its work to another.
            return match is_loader && serves {
                true => self.start_helper(Helper::CacheLoader, 0),
                false => Flow::Continue(()),
            };
        }
        if is_loader && ended.exit == Exit::Code(0)
            || matches!(seat, Seat::Helper(_)) && ended.is_fatal()
        {
            return Flow::Continue(());
        }
        if ended.is_fatal() {
            self.fatal();
            return Flow::Continue(());
        }
        let pause = ended.pause();
        if pause.is_zero() {
            return self.respawn(seat, ended.early_ends());
        }
        let when = Instant::now() + pause;
        self.state.respawn.push((when, seat, ended.early_ends()));
        Flow::Continue(())
    }

    /// A worker could not begin. When it was the last one, nothing serves and nothing will: the
    /// server ends and is noticed. A new binary that ends so gives way to the old one.
    fn fatal(&mut self) {
        let none = self.state.children.workers().next().is_none();
        if none && self.state.respawn.is_empty() {
            let message = "no worker process is left, and none could be started: exiting";
            log!(self.cycle.log, Level::Emerg, None, "{message}");
            self.state.failed = true;
            self.quit();
        }
    }

    /// The attempt to change the binary is over: this one is the server again.
    fn new_binary_ended(&mut self) -> Flow {
        self.restore_pid_file();
        if std::mem::take(&mut self.state.noaccepting) && self.state.stop == Stop::No {
            self.state.generation += 1;
            return self.start_workers();
        }
        Flow::Continue(())
    }

    fn restore_pid_file(&mut self) {
        upgrade::restore_pid_file(&self.cycle);
        self.control.rename(&self.cycle.settings.pid);
    }

    fn change_binary(&mut self) -> Flow {
        log!(self.cycle.log, Level::Notice, None, "changing binary");
        if !upgrade::move_pid_file(&self.cycle) {
            return Flow::Continue(());
        }
        self.control.rename(&self.cycle.settings.old_pid());
        // The new binary reads from files what this one has in memory.
        self.cycle.zones.stopped();
        let generation = self.state.generation;
        let log = &self.cycle.log;
        match self.state.children.spawn(ChildKind::NewBinary, generation, 0, log) {
            ControlFlow::Break(_) => {
                let receivers = self.state.children.keep_on_exec();
                let quic = self.state.children.relays.for_new_binary(&self.cycle.log);
                let moves = self.state.children.moves_for_new_binary();
                self.upgrade.exec(&self.cycle, &self.environ, &receivers, quic, moves)
            }
            ControlFlow::Continue(true) => {}
            ControlFlow::Continue(false) => self.restore_pid_file(),
        }
        Flow::Continue(())
    }

    /// Reloads for a client of the control socket, which is answered when connections have moved.
    pub(crate) fn reload_for_client(&mut self, id: ClientId) -> ControlFlow<End, Option<Answer>> {
        if self.state.stop != Stop::No {
            return ControlFlow::Continue(Some(Answer::refused("the server is stopping")));
        }
        log!(self.cycle.log, Level::Notice, None, "reconfiguring, asked by the control socket");
        let reasons = self.loader.reasons.clone();
        reasons.begin();
        let before = Moved::so_far(&self.loader.lasting.stats);
        let verdict = self.reconfigure()?;
        let answer = verdict.answer(self.generation(), &reasons.end());
        self.state.reloads.add(id, answer, before, self.state.generation);
        ControlFlow::Continue(None)
    }

    fn reconfigure(&mut self) -> ControlFlow<End, Verdict> {
        if self.state.children.new_binary().is_some() {
            // The rollback of an upgrade: workers of the configuration that runs.
            self.state.noaccepting = false;
            if self.state.children.workers().all(|child| child.exiting) {
                self.state.generation += 1;
                self.start_workers()?;
            }
            return ControlFlow::Continue(Verdict::without_workers(Outcome::BinaryKept));
        }
        self.notify.reloading();
        let verdict = self.reload()?;
        self.note_reload(&verdict);
        self.notify.ready();
        ControlFlow::Continue(verdict)
    }

    /// Loads the configuration again, starts its workers, and lets the old ones leave when those
    /// serve.
    fn reload(&mut self) -> ControlFlow<End, Verdict> {
        let log = self.cycle.log.with(self.loader.reasons.clone());
        log!(log, Level::Notice, None, "reconfiguring");
        let loaded = dry_run::run(&self.loader, &self.cycle, &log)
            .and_then(|()| self.loader.parse(Some(&self.cycle), &log, || {}))
            .and_then(|parsed| {
                let mut none = Inherited::default();
                self.loader.open(parsed, Purpose::Reload, Some(&self.cycle), &mut none, &log)
            });
        os::memory::refill();
        let Ok(mut next) = loaded else {
            log::set_default(self.cycle.log.clone());
            return ControlFlow::Continue(Verdict::without_workers(Outcome::Refused));
        };
        next.leave_terminal();
        let old = std::mem::replace(&mut self.cycle, next);
        self.state.respawn.clear();
        self.state.noaccepting = false;
        self.state.generation += 1;
        let Started { serving, reasons } = self.start_generation()?;
        reasons.iter().for_each(|line| self.loader.reasons.add(line));
        let configured = self.cycle.settings.worker_processes;
        if serving == 0 && configured > 0 {
            self.roll_back(old)?;
            let outcome = Outcome::RolledBack;
            return ControlFlow::Continue(Verdict { outcome, serving, configured });
        }
        self.control.listen(&self.cycle.settings.pid, &self.cycle.log);
        let under_way =
            old.listeners.borrow().retire(&self.cycle.listeners.borrow(), &self.cycle.log);
        if under_way {
            std::thread::sleep(HANDSHAKE);
        }
        // The old workers' descriptors must be the last: they empty the queues before they close.
        drop(old.listeners.take());
        let (generation, log) = (self.state.generation, &self.cycle.log);
        self.state.children.signal(Signal::QUIT, |child| child.generation != generation, log);
        // After the signal: with thousands of servers, this takes a tenth of a second.
        drop(old);
        ControlFlow::Continue(Verdict { outcome: Outcome::Serving, serving, configured })
    }

    /// None of the new workers could begin: the old configuration and its workers go on.
    fn roll_back(&mut self, old: Cycle) -> Flow {
        let message = "none of the new workers could start: the old configuration stays";
        log!(self.cycle.log, Level::Alert, None, "{message}");
        let refused = std::mem::replace(&mut self.cycle, old);
        log::set_default(self.cycle.log.clone());
        if let Err(e) = pidfile::take_over(&refused.settings.pid, &self.cycle.settings.pid) {
            log!(self.cycle.log, Level::Alert, None, "{e}");
        }
        refused.listeners.take().abandon();
        self.cycle.listeners.borrow().come_back(&self.cycle.log);
        // The workers that run belong to the configuration before.
        self.state.respawn.clear();
        self.state.generation -= 1;
        self.state.children.hand_over(&self.cycle.listeners.borrow());
        self.reap()
    }

    /// The last steps of the server.
    fn end(&mut self) {
        let new_binary = self.state.children.new_binary();
        let pid = match new_binary {
            Some(_) => self.cycle.settings.old_pid(),
            None => self.cycle.settings.pid.clone(),
        };
        pidfile::remove(&pid, &self.cycle.log);
        self.control.remove();
        if new_binary.is_none() {
            self.cycle.zones.stopped();
        }
        log!(self.cycle.log, Level::Notice, None, "exit");
        self.close_listeners();
        if let Some(pid) = new_binary {
            self.notify.main_is(pid);
        }
    }

    /// The part of the master that a worker needs; closes the rest.
    pub(crate) fn into_worker(self) -> (Cycle, Environ, Rc<ShmLock>, bool) {
        (self.cycle, self.environ, self.lock, self.daemonized)
    }
}
