//! A process beside the workers: cache manager, cache loader, acme or shared state
//! process.

use std::cell::Cell;
use std::rc::Rc;

use base::log;
use base::log::{Level, os_error};
use base::time::now_ms;
use engine::Helper;
use os::signal::Signal;
use shm::ShmLock;

use crate::load::Cycle;
use crate::serving;
use crate::worker::FATAL;

/// Runs a helper to its end; the exit code.
pub fn run(cycle: Cycle, helper: Helper, slot: usize, lock: &Rc<ShmLock>) -> i32 {
    let log = cycle.log.clone();
    // An orphan would keep the lock of the folder that the next server's process waits for, or take
    // part in the fleet for a server that is gone.
    if matches!(helper, Helper::Acme | Helper::SharedState)
        && let Err(e) = os::process::end_with_parent(os::process::getppid())
    {
        log!(log, Level::Alert, None, "the master process is gone {}", os_error(&e));
        return FATAL;
    }
    // A socket is closed with its last descriptor, and this process accepts nothing.
    drop(cycle.listeners.take());
    let mut options = serving::loop_options(&cycle.settings, lock);
    options.accept_mutex = None;
    options.connections = options.connections.min(CONNECTIONS);
    let mut event_loop = match event::Loop::new(options) {
        Ok(event_loop) => event_loop,
        Err(e) => {
            log!(log, Level::Emerg, None, "starting the event loop failed {}", os_error(&e));
            return FATAL;
        }
    };
    os::title::set(title(helper));
    cycle.settings.pools.install();
    // The time to end at the latest, once it leaves.
    let over = Rc::new(Cell::new(None));
    let cycle = Rc::new(cycle);
    let (leave, of_signals) = (over.clone(), cycle.clone());
    let watched = serving::watch_signals(move |received| match received.signal {
        Signal::TERM | Signal::INT | Signal::QUIT => {
            // The manager's writes are soon done, unless a disk is stuck.
            let ms = if helper == Helper::CacheManager { LEAVE_MS } else { 0 };
            leave.set(Some(now_ms() + ms));
            of_signals.engines.iter().for_each(|engine| engine.quit());
            event::spawn(event::sleep(ms));
        }
        Signal::USR1 => of_signals.reopen_logs(None),
        _ => {}
    });
    if let Err(e) = watched {
        log!(log, Level::Emerg, None, "signalfd() failed {}", os_error(&e));
        cycle.logs.end();
        return FATAL;
    }
    let seat = serving::helper_seat(&cycle, slot);
    let left = Rc::new(Cell::new(0_usize));
    for help in cycle.help(helper, &seat) {
        left.set(left.get() + 1);
        let left = left.clone();
        event::spawn(async move {
            help.await;
            left.set(left.get() - 1);
        });
    }
    let is_late = || over.get().is_some_and(|at| now_ms() >= at);
    let turned = event_loop.run_until(|| left.get() == 0 || is_late());
    match &turned {
        Err(e) => log!(log, Level::Alert, None, "the event loop failed {}", os_error(e)),
        Ok(()) if over.get().is_some() => log!(log, Level::Notice, None, "exiting"),
        Ok(()) => {}
    }
    cycle.logs.end(); // Threads write the log, and the loop that feeds them has ended.
    i32::from(turned.is_err())
}

fn title(helper: Helper) -> &'static str {
    match helper {
        Helper::CacheManager => "weir: cache manager process",
        Helper::CacheLoader => "weir: cache loader process",
        Helper::Acme => "weir: acme process",
        Helper::SharedState => "weir: shared state process",
    }
}

/// Limit of the cache manager's exit, milliseconds.
const LEAVE_MS: u64 = 2000;

/// A helper needs few descriptors.
const CONNECTIONS: usize = 512;
