//! Settings of the core.

use base::log::Log;
use bytes::Bytes;
use engine::logs::ErrorLog;

engine::settings! {
    /// The core's settings of one level.
    pub struct CoreDraft {
        pub error_log: ErrorLog,
        pub max_errors: Option<u64>,
        pub server_name: Option<Bytes>,
        /// `timeout`, milliseconds.
        pub timeout: Option<u64>,
        /// `handover`
        pub handover: Option<bool>,
    }
}

/// The core's settings of a server.
pub struct CoreConf {
    pub error_log: Log,
    pub max_errors: usize,
    /// `server_name`; by default the host's.
    pub server_name: Bytes,
    /// `timeout`, milliseconds: for a dialogue until the client is logged in.
    pub timeout: u64,
    /// `handover`: sessions move to new workers.
    pub handover: bool,
}

impl CoreConf {
    /// The settings that hold; `log` is the outermost level's.
    pub(crate) fn new(draft: &CoreDraft, log: &Log) -> CoreConf {
        let host = || Bytes::from(os::process::hostname());
        let max_errors = draft.max_errors.unwrap_or(5);
        CoreConf {
            error_log: draft.error_log.log().unwrap_or(log).clone(),
            max_errors: usize::try_from(max_errors).unwrap_or(usize::MAX),
            server_name: draft.server_name.clone().unwrap_or_else(host),
            timeout: draft.timeout.unwrap_or(60_000),
            handover: draft.handover.unwrap_or(true),
        }
    }
}
