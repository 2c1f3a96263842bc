//! The logs of a server under test.
//!
//! Threads of the server write its logs, so that a client can have its answer before the line of
//! its request is in the file. A test therefore waits for the line that it needs
//! ([`Weir::wait_for_log`], [`Weir::wait_for_lines`]), and looks for the absence or the number of
//! lines in a log that is complete, because the server has ended ([`Weir::stop_and_read`]).

use std::fs;

use crate::{Weir, wait_for};

impl Weir {
    /// A log's text so far, which may be behind; empty while it does not exist.
    pub fn log(&self, name: &str) -> String {
        let bytes = fs::read(self.prefix().join("logs").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The error log, once nothing has come to it for a moment: threads write it, and a client can
    /// have its answer before.
    pub fn error_log(&self) -> String {
        self.settled_log("error.log")
    }

    /// The access log, as [`Weir::error_log`].
    pub fn access_log(&self) -> String {
        self.settled_log("access.log")
    }

    fn settled_log(&self, name: &str) -> String {
        /// Looks at which nothing is new: a thread may wait for a processor.
        const QUIET: usize = 3;

        let (mut text, mut same) = (self.log(name), 0);
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let now = self.log(name);
            same = if now == text { same + 1 } else { 0 };
            if same == QUIET {
                break;
            }
            text = now;
        }
        text
    }

    /// Stops the server gracefully, waits for the end of all of its processes, and gives a log
    /// that nothing is missing from. Clients must have closed connections with a request.
    pub fn stop_and_read(&self, name: &str) -> String {
        self.stop("QUIT");
        self.log(name)
    }

    /// As [`Weir::stop_and_read`], with requests cut off: for clients that stay.
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
