//! What scripts can reach outside the engine.
//!
//! A host is lent to an instance for the length of a call (`Instance::call` and its siblings) and
//! is out of reach afterwards, so that it may hold `&mut` references to the request.

use crate::ids::TimerId;

pub mod fetch;
pub mod http;
pub mod shared;
pub mod stream;

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `console.log`, `ngx.log(ngx.INFO, …)`
    Info,
    /// `console.warn`, `ngx.log(ngx.WARN, …)`
    Warn,
    /// `console.error`, `ngx.log(ngx.ERR, …)`
    Error,
}

/// What the `ngx` object says about the server. The same for all instances of a worker.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `process.argv`
    pub arguments: Vec<String>,
    /// `ngx.build`: the configured name of the build, often empty.
    pub build: String,
    /// `ngx.conf_file_path`
    pub conf_file_path: String,
    /// `ngx.conf_prefix`
    pub conf_prefix: String,
    /// `ngx.error_log_path`
    pub error_log_path: String,
    /// `ngx.prefix`
    pub prefix: String,
    /// `ngx.version`
    pub version: String,
    /// `ngx.version_number`: 1031002 for 1.31.2.
    pub version_number: u32,
    /// `ngx.worker_id`
    pub worker_id: u32,
}

/// The world as natives see it.
pub trait Host {
    /// Writes a line to the error log.
    fn log(&mut self, level: Level, text: &str);

    /// Starts a timer; when it expires, the host calls `Instance::timer_fired`. Timers of a
    /// request that has ended are dropped by the host.
    fn start_timer(&mut self, timer: TimerId, after_ms: u64);

    /// Stops a timer that has not fired.
    fn stop_timer(&mut self, timer: TimerId);

    /// The request that the script works for, if it is one over HTTP.
    fn http(&mut self) -> Option<&mut dyn http::HttpHost> {
        None
    }

    /// The session that the script works for, if it is one of `stream`.
    fn stream(&mut self) -> Option<&mut dyn stream::StreamHost> {
        None
    }

    /// `ngx.fetch`, if the caller has a loop that could wait for a response.
    fn fetch(&mut self) -> Option<&mut dyn fetch::FetchHost> {
        None
    }

    /// `ngx.shared`
    fn shared(&mut self) -> Option<&mut dyn shared::SharedHost> {
        None
    }
}

/// A host without a server: it logs to nowhere, and its timers never fire.
#[derive(Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn log(&mut self, _level: Level, _text: &str) {}
    fn start_timer(&mut self, _timer: TimerId, _after_ms: u64) {}
    fn stop_timer(&mut self, _timer: TimerId) {}
}
