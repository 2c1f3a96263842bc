//! JavaScript in `stream`: the directives of nginx's `ngx_stream_js_module`, over the engine in
//! `script`.
//!
//! | file | holds |
//! | --- | --- |
//! | `directives.rs` | the table, and the functions that servers call |
//! | `script.rs` | [`script::Script`]: the script of one session |
//! | `host.rs` | a session as scripts see it |
//! | `handler.rs`, `filter.rs`, `variables.rs`, `periodic.rs` | calls of scripts |
//!
//! ```text
//!  access ▶ js_access ▶ preread ▶ js_preread ▶ proxy ▶ js_filter ▶ log ▶ Script::end
//!               │             │ on('upload')      │ on('upload'), on('download')
//!               ▼             ▼                   ▼
//!         one engine for a session, from its first script to its end
//! ```
//!
//! A session is lent to its engine for the length of a call. What the script waits for is polled by
//! the session's own task: in a phase by the handler's future, later by the proxy's relay.
#![forbid(unsafe_code)]

mod directives;
mod filter;
mod handler;
mod host;
mod periodic;
mod script;
mod variables;

pub use directives::MODULE;
