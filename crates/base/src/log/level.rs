//! The levels of the error log, and the parts that debug lines belong to.

use std::fmt;

/// The severity of a message; a smaller value is more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Printed on standard error without a level; never a sink's threshold.
    Stderr = 0,
    /// The server cannot run.
    Emerg = 1,
    /// Something that must not happen.
    Alert = 2,
    /// A fault of the environment.
    Crit = 3,
    /// A request failed.
    Error = 4,
    /// Suspicious.
    Warn = 5,
    /// Normal but notable.
    Notice = 6,
    /// A client's fault or a detail.
    Info = 7,
    /// Tracing.
    Debug = 8,
}

impl Level {
    /// The name used in `error_log` and in lines.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Stderr => "stderr",
            Level::Emerg => "emerg",
            Level::Alert => "alert",
            Level::Crit => "crit",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Notice => "notice",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level that `error_log` calls `name` (`emerg` to `debug`).
    pub fn from_name(name: &[u8]) -> Option<Level> {
        const ALL: [Level; 8] = [
            Level::Emerg,
            Level::Alert,
            Level::Crit,
            Level::Error,
            Level::Warn,
            Level::Notice,
            Level::Info,
            Level::Debug,
        ];
        ALL.into_iter().find(|level| level.name().as_bytes() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parts that debug lines belong to, a bit each: `debug_core` to `debug_stream` choose them.
pub mod debug {
    /// Configuration, signals, processes.
    pub const CORE: u32 = 0x010;
    /// Memory.
    pub(crate) const ALLOC: u32 = 0x020;
    /// Locks in shared memory.
    pub const MUTEX: u32 = 0x040;
    /// The event loop and sockets.
    pub const EVENT: u32 = 0x080;
    /// Debug lines of `http`.
    pub const HTTP: u32 = 0x100;
    /// Debug lines of `mail`.
    pub const MAIL: u32 = 0x200;
    /// TCP and UDP proxying.
    pub const STREAM: u32 = 0x400;
    /// All of them: plain `debug`.
    pub const ALL: u32 = 0x7f0;

    /// The bit that `error_log` calls `name`.
    pub fn from_name(name: &[u8]) -> Option<u32> {
        Some(match name {
            b"debug_core" => CORE,
            b"debug_alloc" => ALLOC,
            b"debug_mutex" => MUTEX,
            b"debug_event" => EVENT,
            b"debug_http" => HTTP,
            b"debug_mail" => MAIL,
            b"debug_stream" => STREAM,
            _ => return None,
        })
    }
}
