//! The logs of a server under test.
//!
//! Threads of the server write its logs, so that a client can have its answer before the line of
//! its request is in the file. A test therefore waits for the line that it needs
//! ([`Weir::wait_for_log`], [`Weir::wait_for_lines`]), and looks for the absence or the number of
//! lines in a log that is complete: because the server has ended ([`Weir::stop_and_read`]), or,
//! where the test goes on, up to a line that comes after all others ([`Weir::error_log`]).

use std::fs;

use crate::{Weir, wait_for};

impl Weir {
    /// A log's text so far, which may be behind; empty while it does not exist.
    pub fn log(&self, name: &str) -> String {
        let bytes = fs::read(self.prefix().join("logs").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The error log with all that the workers have logged until now. Each worker is sent SIGUSR2,
    /// which it ignores but for a line, and a process writes the lines of one file in order: that
    /// line is the last of those awaited. The main log takes lines of `notice`.
    pub fn error_log(&self) -> String {
        let workers = self.workers();
        let marks = |log: &str, pid: u32| {
            let text = format!(" received from {}, ignoring", std::process::id());
            let is_mark = |line: &&str| line.contains(&text) && line.contains(&format!(" {pid}#"));
            whole_lines(log).lines().filter(is_mark).count()
        };
        let log = self.log("error.log");
        let before: Vec<_> = workers.iter().map(|&pid| (pid, marks(&log, pid))).collect();
        workers.iter().for_each(|&pid| crate::signal(pid, "USR2"));
        wait_for("a line in error.log of each worker that gets SIGUSR2", || {
            let log = self.log("error.log");
            // One that has ended has written all of its lines.
            let is_told =
                |&(pid, before): &(u32, usize)| marks(&log, pid) > before || !crate::is_alive(pid);
            before.iter().all(is_told).then_some(log)
        })
    }

    /// Stops the server gracefully, waits for the end of all of its processes, and gives a log
    /// that nothing is missing from. Clients with a request, and those over QUIC, hold it up until
    /// they are gone: see [`Weir::end_and_read`].
    pub fn stop_and_read(&self, name: &str) -> String {
        self.stop("QUIT");
        self.log(name)
    }

    /// As [`Weir::stop_and_read`], but cuts off requests that are in progress.
    pub fn end_and_read(&self, name: &str) -> String {
        self.stop("TERM");
        self.log(name)
    }

    /// Waits until a log holds a line with the text, and gives that line.
    pub fn wait_for_log(&self, name: &str, text: &str) -> String {
        let what = format!("{text:?} in {name}");
        wait_for(&what, || {
            whole_lines(&self.log(name))
                .lines()
                .find(|line| line.contains(text))
                .map(str::to_string)
        })
    }

    /// Waits until so many lines of a log hold the text, and gives the log up to there.
    pub fn wait_for_count(&self, name: &str, text: &str, count: usize) -> String {
        wait_for(&format!("{count} times {text:?} in {name}"), || {
            let log = self.log(name);
            let log = whole_lines(&log);
            let found = log.lines().filter(|line| line.contains(text)).count();
            (found >= count).then(|| log.to_string())
        })
    }

    /// Waits until a log has so many lines, and gives them. More are a failure.
    #[track_caller]
    pub fn wait_for_lines(&self, name: &str, lines: usize) -> String {
        let log = wait_for(&format!("{lines} lines in {name}"), || {
            let log = self.log(name);
            let log = whole_lines(&log);
            (log.lines().count() >= lines).then(|| log.to_string())
        });
        assert_eq!(log.lines().count(), lines, "more lines in {name}:\n{log}");
        log
    }

    /// Lines of the logs that no healthy server writes.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let bad = |line: &str| {
            ["[alert]", "[emerg]", "panicked at"].iter().any(|word| line.contains(word))
        };
        let allowed = |line: &str| self.site.allowed.iter().any(|a| holds(line, a));
        self.all_output()
            .lines()
            .filter(|line| bad(line) && !allowed(line))
            .map(str::to_string)
            .collect()
    }

    pub(crate) fn all_output(&self) -> String {
        format!("{}{}", self.log("error.log"), self.log("stderr.txt"))
    }
}

/// A log without a line that is still being written: it has no break yet.
fn whole_lines(log: &str) -> &str {
    &log[..log.rfind('\n').map_or(0, |at| at + 1)]
}

/// Whether a line holds the parts of a text between its `*`, one behind the other.
fn holds(line: &str, text: &str) -> bool {
    let mut parts = text.split('*');
    parts.try_fold(line, |rest, part| Some(rest.split_once(part)?.1)).is_some()
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn a_star_stands_for_anything() {
        let line = "[alert] 7#7: acme process 47 exited on signal 9";
        for text in ["acme process", "acme process * exited on signal 9", "*"] {
            assert!(holds(line, text), "{text}");
        }
        for text in ["worker process", "worker process * signal 9", "signal 9*acme process"] {
            assert!(!holds(line, text), "{text}");
        }
    }
}
