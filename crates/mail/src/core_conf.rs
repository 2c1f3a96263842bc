//! Settings of the core.

use std::rc::Rc;

use base::log::{Log, Sink};
use bytes::Bytes;

engine::settings! {
    /// The core's settings of one level.
    pub struct CoreDraft {
        /// The sinks of `error_log`, with the log that they make.
        pub error_log: Option<(Vec<Rc<dyn Sink>>, Log)>,
        /// `max_errors`
        pub max_errors: Option<u64>,
        /// `server_name`
        pub server_name: Option<Bytes>,
        /// `timeout`, milliseconds.
        pub timeout: Option<u64>,
    }
}

/// The core's settings of a server.
pub struct CoreConf {
    /// `error_log`
    pub error_log: Log,
    /// `max_errors`
    pub max_errors: usize,
    /// `server_name`; by default the host's.
    pub server_name: Bytes,
    /// `timeout`, milliseconds: for a dialogue until the client is logged in.
    pub timeout: u64,
}

impl CoreConf {
    /// The settings that hold; `log` is the outermost level's.
    pub(crate) fn new(draft: &CoreDraft, log: &Log) -> CoreConf {
        let host = || Bytes::from(os::process::hostname());
        let max_errors = draft.max_errors.unwrap_or(5);
        CoreConf {
            error_log: draft.error_log.as_ref().map_or(log, |(_, own)| own).clone(),
            max_errors: usize::try_from(max_errors).unwrap_or(usize::MAX),
            server_name: draft.server_name.clone().unwrap_or_else(host),
            timeout: draft.timeout.unwrap_or(60_000),
        }
    }
}
