//! The common part of every serving process: its loop, its listeners, its signals.

use std::io;
use std::rc::Rc;

use base::log;
use base::log::{Level, os_error};
use engine::beat::Beats;
use engine::{Helper, Seat};
use event::{AcceptLock, Deadline, Fd, Gate, ListenOpts, Listener, TaskId};
use net::listeners::Removals;
use net::moves::Moves;
use net::quic_relay::Relay;
use os::signal::{Received, SignalFd};
use quic::Parting;
use shm::ShmLock;

use crate::load::Cycle;
use crate::settings::Settings;
use crate::signals;
use crate::watchdog::{self, OwnSocket, OwnSockets};
use crate::worker::{Assignment, Before};

/// The accept lock, held in the name of this process.
struct OwnLock {
    lock: Rc<ShmLock>,
    pid: u32,
}

impl AcceptLock for OwnLock {
    fn try_lock(&self) -> bool {
        self.lock.try_lock(self.pid)
    }

    fn unlock(&self) {
        self.lock.unlock(self.pid);
    }
}

/// Whether workers accept under a lock: of use only where there are several.
fn uses_accept_lock(settings: &Settings) -> bool {
    settings.events.accept_mutex && settings.master_process && settings.worker_processes > 1
}

/// The settings of the loop.
pub(crate) fn loop_options(settings: &Settings, lock: &Rc<ShmLock>) -> event::Options {
    let events = &settings.events;
    let accept_mutex = uses_accept_lock(settings).then(|| {
        let lock = OwnLock { lock: lock.clone(), pid: std::process::id() };
        Box::new(lock) as Box<dyn AcceptLock>
    });
    event::Options {
        driver: events.driver,
        connections: events.connections,
        multi_accept: events.multi_accept,
        accept_mutex,
        accept_mutex_delay_ms: events.accept_mutex_delay_ms,
        timer_resolution_ms: settings.timer_resolution_ms,
        stall_ms: events.stall_ms,
        epoll_events: events.epoll_events,
    }
}

/// The longest wait for a worker of the configuration before, milliseconds: it may stand still.
const HANDED_OVER_MS: u64 = 5_000;

/// A gate that closes when all of these pipes have ended: see [`Seat::alone`].
pub fn alone(before: Before) -> Gate {
    let gate = Gate::new();
    if before.configuration.is_empty() && before.binary.is_empty() {
        gate.close();
        return gate;
    }
    let (own, until) = (gate.clone(), Deadline::in_ms(HANDED_OVER_MS));
    event::spawn(async move {
        let of_configuration = before.configuration.into_iter().map(|pipe| (pipe, until));
        let of_binary = before.binary.into_iter().map(|pipe| (pipe, Deadline::NEVER));
        for (pipe, until) in of_configuration.chain(of_binary) {
            // Nothing is written to it: it is readable at its end.
            let _ = Fd::new(pipe).readable(until).await;
        }
        own.close();
    });
    gate
}

/// Starts the engines of a configuration on this process's own descriptors of its sockets.
/// The relay and the moves are a worker's; the only process of a server has a relay of its own.
pub(crate) fn start_engines(
    cycle: &Cycle,
    (index, slot): (usize, usize),
    alone: Gate,
    (relay, moves): (Option<Rc<Relay>>, Option<Rc<Moves>>),
) -> io::Result<()> {
    cycle.settings.pools.install();
    files::set_ring_reads(cycle.settings.events.aio_requests);
    let seat = Seat {
        index,
        slot,
        log: cycle.log.clone(),
        debug_connections: cycle.settings.events.debug_connections.clone(),
        alone,
        relay,
        moves,
        removals: cycle.listeners.borrow().removals(),
    };
    let settings = &cycle.settings;
    let several = settings.master_process && settings.worker_processes > 1;
    let shared = several && !uses_accept_lock(settings);
    let sockets = cycle.listeners.borrow();
    let fds = sockets.of_worker(index)?;
    let specs = sockets.bound().iter().map(|bound| &bound.spec);
    let mut listeners = fds.into_iter().zip(specs).map(|(fd, spec)| {
        // A socket of one worker alone needs no choice of whom to wake.
        let exclusive = shared && !spec.reuseport;
        let defer_under_load =
            spec.deferred == Some(net::Deferral::UnderLoad) && !spec.addr.is_unix();
        Listener::new(fd, ListenOpts { exclusive, defer_under_load })
    });
    let workers = if settings.master_process { settings.worker_processes } else { 1 };
    engine::overload::begin(settings.overload, cycle.stats.clone(), workers);
    event::pool::set_workers(workers);
    let mut further = sockets.further_of(index)?;
    let mut first = 0;
    for engine in &cycle.engines {
        let end = first + engine.listeners().len();
        engine.start(&seat, listeners.by_ref().take(end - first).collect())?;
        for (listener, fd) in further.extract_if(.., |(listener, _)| *listener < end) {
            engine.receive_from(listener - first, fd)?;
        }
        first = end;
    }
    seat.moves.iter().for_each(Moves::serve);
    Ok(())
}

/// Has this worker pass on the datagrams of QUIC's removed addresses to the workers of before. The
/// tasks end with those, or with this worker's own leave.
pub(crate) fn start_parting(
    cycle: &Cycle,
    index: usize,
    alone: &Gate,
    relay: Option<Rc<Relay>>,
) -> Vec<TaskId> {
    let Some(relay) = relay else { return Vec::new() };
    let parting = cycle.listeners.borrow().parting_of(index).unwrap_or_else(|e| {
        let m = "connections over QUIC of removed addresses end";
        log!(cycle.log, Level::Alert, None, "{m}: dup() failed {}", os_error(&e));
        Vec::new()
    });
    let start = |(listener, removal, fd)| {
        let parting = Parting { listener, removal, fd, relay: relay.clone() };
        event::spawn(parting.run(alone.clone()))
    };
    parting.into_iter().map(start).collect()
}

/// Starts the watchdog, where a listening socket is steered. The task ends with accepting.
pub(crate) fn start_watchdog(cycle: &Cycle, index: usize) -> Option<TaskId> {
    let several = cycle.settings.master_process && cycle.settings.worker_processes > 1;
    let watchdog = cycle.listeners.borrow().watchdog(index).filter(|_| several)?;
    // By the number of the address: the engine, and the address's number there.
    let owners: Vec<_> = cycle
        .engines
        .iter()
        .flat_map(|engine| (0..engine.listeners().len()).map(|at| (engine.clone(), at)))
        .collect();
    Some(event::spawn(watchdog.run(move |listener, accepted| {
        if let Some((engine, at)) = owners.get(listener) {
            engine.take(*at, accepted);
        }
    })))
}

/// Starts the beat that the master watches, if it does: a task that lasts as long as the worker.
/// The sockets that it holds are in the list.
pub(crate) fn start_beat(cycle: &Cycle, beats: &'static Beats, place: &Assignment) -> OwnSockets {
    let sockets = OwnSockets::default();
    if !cycle.settings.master_process || cycle.settings.watchdog_ms.is_none() {
        return sockets;
    }
    // With the other drivers, the kernel wakes none but a worker that waits.
    if event::driver_name() == "io_uring" {
        let mut first = 0;
        let all = cycle.listeners.borrow().accepted_by(place.index);
        for engine in &cycle.engines {
            let count = engine.listeners().len();
            let own = all.iter().filter(|(at, _)| (first..first + count).contains(at));
            sockets.borrow_mut().extend(own.map(|(at, fd)| OwnSocket {
                fd: fd.clone(),
                engine: engine.clone(),
                at: at - first,
            }));
            first += count;
        }
    }
    beats.begin(place.slot);
    event::spawn(watchdog::beat(beats, sockets.clone()));
    sockets
}

/// Takes signals from now on, in a task of the loop.
pub(crate) fn watch_signals(mut take: impl FnMut(Received) + 'static) -> io::Result<()> {
    let fd = Fd::new(SignalFd::new(&signals::set())?.into_fd());
    event::spawn(async move {
        loop {
            while let Some(received) = os::signal::next_from(fd.fd()) {
                take(received);
            }
            if let Err(e) = fd.readable(Deadline::NEVER).await {
                let e = os_error(&e);
                log!(log::default(), Level::Alert, None, "waiting for signals failed {e}");
                return;
            }
        }
    });
    Ok(())
}

/// The seat of a process that has no sockets.
pub(crate) fn helper_seat(cycle: &Cycle, slot: usize) -> Seat {
    Seat {
        index: 0,
        slot,
        log: cycle.log.clone(),
        debug_connections: cycle.settings.events.debug_connections.clone(),
        alone: Gate::new(),
        relay: None,
        moves: None,
        removals: Removals::default(),
    }
}

/// Starts the work of the helpers, in the only process of a server without a master. The tasks are
/// cancelled when another configuration runs.
pub(crate) fn start_helpers(cycle: &Cycle) -> Vec<TaskId> {
    let seat = helper_seat(cycle, 0);
    let wanted = Helper::ALL.into_iter().filter(|helper| cycle.wants(*helper)).flat_map(|helper| {
        cycle.prepare_help(helper);
        cycle.help(helper, &seat)
    });
    wanted.map(event::spawn).collect()
}

/// Whether the loop of this thread has no work left that a leaving process finishes first.
pub(crate) fn is_loop_idle() -> bool {
    event::pool::all_idle() && event::posted() == 0 && !event::is_held()
}

/// Time of a process that is to exit at once for what must leave it before, milliseconds.
const LAST_WORK_MS: u64 = 500;

/// Calls `exit` when what must leave the process before it ends has left it, or its time is over.
pub(crate) fn after_last_work(cycle: &Cycle, exit: impl FnOnce() + 'static) {
    let last: Vec<_> = cycle.engines.iter().flat_map(|engine| engine.last_work()).collect();
    if last.is_empty() {
        return exit();
    }
    event::spawn(async move {
        let work = async {
            for work in last {
                work.await;
            }
        };
        event::race(std::pin::pin!(work), event::sleep(LAST_WORK_MS)).await;
        exit();
    });
}
