//! A session of any engine, as seen by code that serves all of them.

use std::fmt;

use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use os::SockAddr;

/// The client of a session: a request's, or a connection's. Balancing methods, limits and access
/// rules know no more of an engine than this.
pub trait Client {
    /// The client's address, or the one that `realip` found.
    fn address(&self) -> &SockAddr;

    /// Evaluates a string with variables.
    fn eval(&mut self, template: &Template) -> Bytes;

    /// Whether the session's error log takes messages of that level.
    fn logs(&self, level: Level) -> bool;

    /// Writes to the error log, with the session's context behind the message.
    fn log(&self, level: Level, message: fmt::Arguments<'_>);

    /// The same with the error of a system call: `open() "x" failed (2: No such file …)`.
    fn log_os(&self, level: Level, what: fmt::Arguments<'_>, e: &std::io::Error) {
        self.log(level, format_args!("{what} failed {}", base::log::os_error(e)));
    }
}
