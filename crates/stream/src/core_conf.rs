//! Settings of the core.

use base::log::Log;
use engine::logs::ErrorLog;

engine::settings! {
    /// The core's settings of one level.
    pub struct CoreDraft {
        /// `error_log`
        pub error_log: ErrorLog,
        /// `preread_buffer_size`
        pub preread_buffer_size: Option<usize>,
        /// `preread_timeout`, milliseconds.
        pub preread_timeout: Option<u64>,
        /// `proxy_protocol_timeout`, milliseconds.
        pub proxy_protocol_timeout: Option<u64>,
        /// `tcp_nodelay`
        pub tcp_nodelay: Option<bool>,
        /// `handover`
        pub handover: Option<bool>,
    }
}

/// The core's settings of a server.
pub struct CoreConf {
    /// `error_log`
    pub error_log: Log,
    /// `preread_buffer_size`
    pub preread_buffer_size: usize,
    /// `preread_timeout`, milliseconds.
    pub preread_timeout: u64,
    /// `proxy_protocol_timeout`, milliseconds.
    pub proxy_protocol_timeout: u64,
    /// `tcp_nodelay`
    pub tcp_nodelay: bool,
    /// `handover`: sessions move to new workers.
    pub handover: bool,
}

impl CoreConf {
    /// The effective settings; `log` is the default error log.
    pub(crate) fn new(draft: &CoreDraft, log: &Log) -> CoreConf {
        let error_log = draft.error_log.log().unwrap_or(log).clone();
        CoreConf {
            error_log,
            preread_buffer_size: draft.preread_buffer_size.unwrap_or(16 << 10),
            preread_timeout: draft.preread_timeout.unwrap_or(30_000),
            proxy_protocol_timeout: draft.proxy_protocol_timeout.unwrap_or(30_000),
            tcp_nodelay: draft.tcp_nodelay.unwrap_or(true),
            handover: draft.handover.unwrap_or(true),
        }
    }
}
