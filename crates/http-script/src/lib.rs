//! JavaScript in HTTP: the directives of nginx's `ngx_http_js_module`, over the engine in `script`.
//!
//! | file | holds |
//! | --- | --- |
//! | `directives.rs`, `settings.rs` | the table, and the functions that locations call |
//! | `script.rs` | [`script::Script`]: the script of one request |
//! | `host.rs`, `fields.rs` | a request as scripts see it |
//! | `periodic.rs` | functions that run at intervals |
//! | `handler.rs`, `filters.rs`, `variables.rs` | calls of scripts |
//!
//! What `stream` needs, too, is in the crate `script_modules`.
//!
//! ```text
//!  handler ─▶ Script::call ─▶ Instance ─▶ natives ─▶ HttpCall (host.rs) ─▶ Request
//!     ▲                          ▲
//!     └── Script::progress ──────┘ timers, replies, bodies: the handler's future polls them
//! ```
//!
//! A request is lent to its engine for the length of a call. Between calls the handler's future has
//! it, so that everything the script waits for is polled by the request's own task.
#![forbid(unsafe_code)]

mod directives;
mod fields;
mod filters;
mod handler;
mod host;
mod periodic;
mod script;
mod settings;
mod variables;

pub use directives::MODULE;
