//! The signals that the server lives by.

use base::log;
use base::log::{Level, Log};
use os::signal::{Received, Signal, SignalSet};

/// All of them: held back from the start and taken where the master or a worker asks for them.
const ALL: [Signal; 10] = [
    Signal::CHLD,
    Signal::ALRM,
    Signal::IO,
    Signal::INT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TERM,
    Signal::QUIT,
];

/// The set of them.
pub fn set() -> SignalSet {
    SignalSet::new(&ALL)
}

/// Logs a signal and its effect (`, reconfiguring`).
pub fn note(log: &Log, received: Received, action: &str) {
    let Received { signal, pid } = received;
    let (number, name) = (signal.0, signal.name());
    if pid == 0 {
        log!(log, Level::Notice, None, "signal {number} ({name}) received{action}");
    } else {
        log!(log, Level::Notice, None, "signal {number} ({name}) received from {pid}{action}");
    }
}

/// Sends a signal to the master that a pid file names (`-s`). False when that failed; the failure
/// is logged.
pub fn send(log: &Log, pid_file: &std::path::Path, signal: Signal) -> bool {
    log!(log, Level::Notice, None, "signal process started");
    let pid = match crate::pidfile::read(pid_file) {
        Ok(pid) => pid,
        Err(message) => {
            log!(log, Level::Error, None, "{message}");
            return false;
        }
    };
    match os::signal::kill(pid, signal) {
        Ok(()) => true,
        Err(e) => {
            let (number, e) = (signal.0, base::log::os_error(&e));
            log!(log, Level::Alert, None, "kill({pid}, {number}) failed {e}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_nginx_s_words() {
        let (log, lines) = base::log::capture(Level::Notice);
        note(&log, Received { signal: Signal::HUP, pid: 7 }, ", reconfiguring");
        note(&log, Received { signal: Signal::CHLD, pid: 0 }, "");
        let text = lines.take();
        assert!(text.contains("signal 1 (SIGHUP) received from 7, reconfiguring\n"), "{text}");
        assert!(text.contains("signal 17 (SIGCHLD) received\n"), "{text}");
    }
}
