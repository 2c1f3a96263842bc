//! A dry run of a configuration before a reload, where memory is limited (address space, a control
//! group, no overcommitment).
//!
//! A failed allocation ends a process. So that this is never the master, a child of it reads the
//! configuration first. The child has the same memory and the same limits: if the configuration
//! does not fit, the child ends and the reload is refused; a configuration that fits there fits in
//! the master. This costs a second reading, and is left out where memory has no limit.

use base::log::{Level, Log, os_error};
use os::limits::Limit;
use os::process::{Exit, Fork};

use crate::children;
use crate::load::{Cycle, Loader, Refused};
use crate::verdict::Report;

/// Free memory that must be left after reading: opening the configuration, starting workers and
/// serving take at least that, bytes.
const ROOM: usize = 8 << 20;

/// The child's exit codes besides 0.
const REFUSED: i32 = 1;
const NO_ROOM: i32 = 3;

/// Reads the configuration in a child, if memory is limited. An error is logged; errors of the
/// configuration are logged by the child.
pub fn run(loader: &Loader, running: &Cycle, log: &Log) -> Result<(), Refused> {
    if !os::memory::is_limited() {
        return Ok(());
    }
    let say = |what: std::fmt::Arguments<'_>| {
        base::log!(log, Level::Emerg, None, "{what}: the old configuration stays");
        Err(Refused)
    };
    // The child's messages reach the log; the reasons of the verdict are the master's own.
    let (reader, report) = match os::fd::pipe() {
        Ok((reader, writer)) => (Some(reader), Some(Report::new(writer))),
        Err(_) => (None, None),
    };
    let pid = match os::process::fork() {
        Ok(Fork::Parent(pid)) => pid,
        Ok(Fork::Child) => {
            let log = report.map_or_else(|| log.clone(), |report| log.with(report));
            os::process::exit_now(in_child(loader, running, &log))
        }
        Err(e) => {
            let e = os_error(&e);
            return say(format_args!("fork() failed while trying the new configuration {e}"));
        }
    };
    drop(report);
    let reasons = reader.map(|reader| children::wait_started(&reader).reasons);
    reasons.iter().flatten().for_each(|line| loader.reasons.add(line));
    match os::process::wait_for(pid) {
        Ok(Exit::Code(0)) => Ok(()),
        Ok(Exit::Code(REFUSED)) => Err(Refused),
        Ok(Exit::Code(NO_ROOM)) => {
            say(format_args!("the new configuration leaves no memory to serve with"))
        }
        Ok(Exit::Code(code)) => say(format_args!(
            "the process that tried the new configuration exited with code {code}"
        )),
        Ok(Exit::Signal { signal, .. }) => say(format_args!(
            "the new configuration does not fit in memory, or cannot be read: the process that \
             tried it exited on signal {signal}"
        )),
        Err(e) => say(format_args!("waitpid() failed {}", os_error(&e))),
    }
}

fn in_child(loader: &Loader, running: &Cycle, log: &Log) -> i32 {
    // Its death is expected, and needs no core file.
    let _ = os::limits::set(Limit::Core, 0);
    os::memory::offer_first();
    let Ok(parsed) = loader.parse(Some(running), log, || {}) else { return REFUSED };
    let mut room: Vec<u8> = Vec::new();
    let fits = !os::memory::take_short() && room.try_reserve_exact(ROOM).is_ok();
    // Neither is dropped before: both have to fit.
    drop((parsed, room));
    if fits { 0 } else { NO_ROOM }
}
