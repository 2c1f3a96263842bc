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
        Err(error) => {
            log!(log, Level::Error, None, "{error}");
            return false;
        }
    };
    if let Some(program) = other_program(pid) {
        let file = pid_file.display();
        let what = format_args!("process {pid} of \"{file}\" is \"{program}\"");
        log!(log, Level::Error, None, "{what}, and no server: the file is left from before");
        return false;
    }
    match os::signal::kill(pid, signal) {
        Ok(()) => true,
        Err(e) => {
            let (number, e) = (signal.0, base::log::os_error(&e));
            log!(log, Level::Alert, None, "kill({pid}, {number}) failed {e}");
            false
        }
    }
}

/// The name of the program that a process runs, if it is certainly no server: it got the number
/// of one that ended without removing its pid file. A server says in its title that it is a
/// master, and with `master_process off` the program is one of this name; nginx counts as well.
pub(crate) fn other_program(pid: i32) -> Option<String> {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
    let title = read("cmdline")?;
    // A kernel thread has none, nor has a process that has just ended.
    if title.is_empty() || memchr::memmem::find(&title, b"master process").is_some() {
        return None;
    }
    let command = read("comm")?;
    let own = own_command();
    let command = command.trim_ascii_end();
    let is_server = command == own || command.starts_with(b"nginx") || command == b"weir";
    (!is_server).then(|| base::log::lossy(command).into_owned())
}

/// The name of this program, which may be installed under any.
fn own_command() -> Vec<u8> {
    std::fs::read("/proc/self/comm").unwrap_or_default().trim_ascii_end().to_vec()
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
