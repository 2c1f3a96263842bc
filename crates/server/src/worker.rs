//! A worker process: from the fork to its end.
//!
//! ```text
//!  prepare (environment, limits, user, processors, folder) ──fatal──► exit 2, not respawned
//!     └► loop, engines ──► ready ──► serving ──TERM──► exit
//!                                       └─QUIT─► leaving ──idle, or timeout──► exit
//! ```

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::log;
use base::log::{Level, os_error};
use engine::Helper;
use engine::beat::Beats;
use net::moves::{Channel, Moves};
use net::quic_relay::Relay;
use os::limits::Limit;
use os::signal::{Received, Signal};
use shm::ShmLock;

use crate::environ::Environ;
use crate::load::Cycle;
use crate::main_block::DebugPoint;
use crate::verdict::Report;
use crate::watchdog::OwnSockets;
use crate::{helper, serving, signals};

/// The exit code of a worker that could not begin: it is not started again.
pub(crate) const FATAL: i32 = 2;

/// Time of cut-off connections for their last steps, milliseconds.
pub(crate) const GIVEN_UP_MS: u64 = 500;

/// For each worker that is to leave its sockets to a new one, a pipe that ends when it receives no
/// more datagrams.
#[derive(Debug, Default)]
pub struct Before {
    /// The pipes of a configuration before.
    pub configuration: Vec<OwnedFd>,
    /// The pipes of the binary before, whose workers serve as long as an operator wants.
    pub binary: Vec<OwnedFd>,
}

/// The place that a worker takes.
pub struct Assignment {
    /// Its number among the workers.
    pub index: usize,
    /// Its number among the master's processes.
    pub slot: usize,
    /// Its task if it is no worker.
    pub helper: Option<Helper>,
    /// Tells the master that it serves, or why it cannot.
    pub report: Option<Rc<Report>>,
    /// The workers that receive datagrams still.
    pub before: Before,
    /// Closed when this one does not.
    pub receiving: Option<OwnedFd>,
    /// The connections of QUIC that this process and others have.
    pub relay: Option<Relay>,
    /// The queue by which live connections move between workers.
    pub moves: Option<Channel>,
    /// Closed when this one leaves and all that can move has moved.
    pub moving: Option<OwnedFd>,
}

struct Worker {
    cycle: Cycle,
    master: i32,
    daemonized: bool,
    /// The task that watches over other workers.
    watchdog: Cell<Option<event::TaskId>>,
    /// The sockets that a stuck worker may share.
    sockets: OwnSockets,
    /// Open while it receives datagrams from the common sockets.
    receiving: Cell<Option<OwnedFd>>,
    /// The moves of live connections from and to other workers.
    moves: Option<Rc<Moves>>,
    /// The tasks that read QUIC's removed addresses.
    parting: Cell<Vec<event::TaskId>>,
    asked: Asked,
}

/// How far a worker's end has come.
#[derive(Default)]
struct Asked {
    terminate: Cell<bool>,
    /// It exits when its last work is done.
    exiting: Cell<bool>,
    leaving: Cell<bool>,
    /// Unfinished requests are cut off.
    forced: Cell<bool>,
    /// WINCH asked for a graceful end: nginx's way to make a worker stop at its debug point.
    debug_quit: Cell<bool>,
}

/// Runs a worker to its end; the exit code.
pub fn run(
    mut cycle: Cycle,
    mut place: Assignment,
    environ: &Environ,
    lock: &Rc<ShmLock>,
    beats: &'static Beats,
    daemonized: bool,
) -> i32 {
    log::set_ids(std::process::id(), std::process::id());
    base::time::update();
    if let Some(report) = &place.report {
        cycle.log = cycle.log.with(report.clone());
    }
    if let Some(helper) = place.helper {
        cycle.prepare_help(helper);
    }
    if let Err(Fatal) = prepare(&cycle, &place, environ) {
        return FATAL;
    }
    if let Some(helper) = place.helper {
        return helper::run(cycle, helper, place.slot, lock);
    }
    let log = cycle.log.clone();
    let fatal = |what: &str, e: &std::io::Error| {
        log!(log, Level::Emerg, None, "{what} failed {}", os_error(e));
        FATAL
    };
    let mut event_loop = match event::Loop::new(serving::loop_options(&cycle.settings, lock)) {
        Ok(event_loop) => event_loop,
        Err(e) => return fatal("starting the event loop", &e),
    };
    let alone = serving::alone(std::mem::take(&mut place.before));
    let (at, relay) = ((place.index, place.slot), place.relay.take().map(Rc::new));
    let moves = moves(&cycle, &mut place);
    let parts = (relay.clone(), moves.clone());
    if let Err(e) = serving::start_engines(&cycle, at, alone.clone(), parts) {
        return fatal("starting to serve", &e);
    }
    let parting = serving::start_parting(&cycle, place.index, &alone, relay);
    let watchdog = serving::start_watchdog(&cycle, place.index);
    let sockets = serving::start_beat(&cycle, beats, &place);
    // The master's descriptors of all sockets, those of the other workers included.
    drop(cycle.listeners.take());
    let worker = Rc::new(Worker {
        cycle,
        master: os::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
        daemonized,
        watchdog: Cell::new(watchdog),
        sockets,
        receiving: Cell::new(place.receiving.take()),
        moves,
        parting: Cell::new(parting),
        asked: Asked::default(),
    });
    let own = worker.clone();
    if let Err(e) = serving::watch_signals(move |received| own.signal(received)) {
        return fatal("signalfd()", &e);
    }
    os::title::set("weir: worker process");
    place.report.inspect(|report| report.serves());
    if let Err(e) = event_loop.run_until(|| worker.done()) {
        log!(log, Level::Alert, None, "the event loop failed {}", os_error(&e));
        return 1;
    }
    lock.unlock(std::process::id());
    beats.end(); // Logs may take a while.
    worker.end();
    0
}

/// This worker's part in moves of live connections.
fn moves(cycle: &Cycle, place: &mut Assignment) -> Option<Rc<Moves>> {
    // Dropped where there is no queue: a reload waits until it closes.
    let open = place.moving.take();
    Some(Moves::new(place.moves.take()?, cycle.stats.clone(), open))
}

impl Worker {
    fn done(&self) -> bool {
        let idle = || self.cycle.engines.iter().all(|e| e.idle());
        self.asked.terminate.get()
            || self.asked.leaving.get()
                && (self.asked.forced.get() || idle() && serving::is_loop_idle())
    }

    fn signal(self: &Rc<Self>, received: Received) {
        let action = match received.signal {
            Signal::QUIT => ", shutting down",
            Signal::WINCH if self.daemonized => ", shutting down",
            Signal::TERM | Signal::INT => ", exiting",
            Signal::USR1 => ", reopening logs",
            Signal::HUP | Signal::USR2 | Signal::IO => ", ignoring",
            _ => "",
        };
        // The master logs the signals it passes on itself.
        if received.pid != self.master {
            signals::note(&self.cycle.log, received, action);
        }
        match received.signal {
            Signal::TERM | Signal::INT => self.exit(),
            Signal::QUIT => self.leave(),
            Signal::WINCH if self.daemonized => {
                self.asked.debug_quit.set(true);
                self.leave();
            }
            Signal::USR1 => self.cycle.reopen_logs(None),
            _ => {}
        }
    }

    /// Exits, as soon as what must leave the process before has left it.
    fn exit(self: &Rc<Self>) {
        // The master repeats the signal.
        if !self.asked.exiting.replace(true) {
            let own = self.clone();
            serving::after_last_work(&self.cycle, move || own.asked.terminate.set(true));
        }
    }

    /// Stops accepting, and finishes the connections that it has.
    fn leave(self: &Rc<Self>) {
        let log = &self.cycle.log;
        log!(log, Level::Notice, None, "gracefully shutting down");
        os::title::set("weir: worker process is shutting down");
        if self.asked.leaving.replace(true) {
            return;
        }
        if let Some(ms) = self.cycle.settings.shutdown_timeout_ms {
            let own = self.clone();
            event::spawn(async move {
                event::sleep(ms).await;
                let log = &own.cycle.log;
                base::debug!(log, log::debug::CORE, None, "shutdown timeout");
                own.cycle.engines.iter().for_each(|engine| engine.force());
                // Requests are logged, which may take a disk.
                event::sleep(GIVEN_UP_MS).await;
                own.asked.forced.set(true);
            });
        }
        // A leaving worker has no heartbeat, and no sockets of the others.
        if let Some(watchdog) = self.watchdog.take() {
            event::task::cancel(watchdog);
        }
        self.sockets.take();
        self.parting.take().into_iter().for_each(event::task::cancel);
        self.cycle.engines.iter().for_each(|engine| engine.quit());
        self.moves.iter().for_each(|moves| moves.leave(engine::beat::is_ending()));
        self.receiving.take();
    }

    fn end(&self) {
        let log = &self.cycle.log;
        log!(log, Level::Notice, None, "exiting");
        self.cycle.logs.end();
        if self.asked.debug_quit.get() {
            log!(log, Level::Alert, None, "aborting");
            match self.cycle.settings.debug_points {
                Some(DebugPoint::Stop) => os::signal::raise(Signal::STOP),
                Some(DebugPoint::Abort) => std::process::abort(),
                None => {}
            }
        }
        log!(log, Level::Notice, None, "exit");
    }
}

/// The worker cannot run; the reason has been logged.
struct Fatal;

/// Descriptors of a worker besides those of connections, about.
const FILES: usize = 512;

/// The most descriptors that a worker has room for from the beginning: each takes 8 bytes of the
/// kernel's memory.
const ROOM_MAX: usize = 1 << 16;

/// Sets the process up as the configuration asks for.
fn prepare(cycle: &Cycle, place: &Assignment, environ: &Environ) -> Result<(), Fatal> {
    let (settings, log) = (&cycle.settings, &cycle.log);
    let complain = |level: Level, what: String, e: &std::io::Error| {
        log!(log, level, None, "{what} failed {}", os_error(e));
        Fatal
    };
    if let Err(e) = os::process::set_environment(&environ.chosen(&settings.env)) {
        return Err(complain(Level::Emerg, "setting the environment".to_owned(), &e));
    }
    if settings.priority != 0
        && let Err(e) = os::limits::set_priority(settings.priority)
    {
        complain(Level::Alert, format!("setpriority({})", settings.priority), &e);
    }
    let limits = [
        (Limit::NoFile, "RLIMIT_NOFILE", settings.rlimit_nofile),
        (Limit::Core, "RLIMIT_CORE", settings.rlimit_core),
    ];
    for (limit, name, value) in limits {
        if let Some(value) = value
            && let Err(e) = os::limits::set(limit, value)
        {
            complain(Level::Alert, format!("setrlimit({name}, {value})"), &e);
        }
    }
    if place.helper.is_none() {
        // Now, because the process has no threads yet. If it fails, the table grows later.
        let _ = os::fd::make_room(settings.events.connections.saturating_add(FILES).min(ROOM_MAX));
    }
    // The acme process starts programs for challenges by DNS.
    let executes = place.helper == Some(Helper::Acme);
    if !executes && let Err(e) = os::privilege::renounce() {
        complain(Level::Notice, "prctl(PR_SET_NO_NEW_PRIVS)".to_owned(), &e);
    }
    if let Some(user) = &settings.user {
        let (name, uid, gid) = (user.name.to_string_lossy(), user.uid, user.gid);
        let what = |call: &str| format!("{call} for user {name} ({uid}:{gid})");
        match os::privilege::drop_to(&user.name, uid, gid, settings.wants_core()) {
            Ok(None) => {}
            // It has its ids, and runs with the groups that the master has.
            Ok(Some((call, e))) => {
                complain(Level::Notice, what(call), &e);
            }
            Err((call, e)) => return Err(complain(Level::Emerg, what(call), &e)),
        }
    }
    if let Some(cpus) = settings.cpus_of(place.index)
        && let Err(e) = os::limits::set_affinity(&cpus)
    {
        complain(Level::Alert, "sched_setaffinity()".to_owned(), &e);
    }
    if let Some(folder) = &settings.working_directory {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(folder));
        if let Err(e) = std::env::set_current_dir(path) {
            let what = format!("chdir(\"{}\")", path.display());
            return Err(complain(Level::Alert, what, &e));
        }
    }
    Ok(())
}
