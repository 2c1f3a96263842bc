//! JavaScript in HTTP: the directives of nginx's `ngx_http_js_module`, over the engine in `script`.
//!
//! | file | holds |
//! | --- | --- |
//! | `directives.rs`, `settings.rs` | the table, what levels set, and how it is inherited |
//! | `code.rs` | the imports of a location, compiled, with idle engines of this worker |
//! | `script.rs` | [`script::Script`]: the engine of one request, and what it waits for |
//! | `host.rs`, `fields.rs` | a request as scripts see it |
//! | `fetch.rs` | `ngx.fetch`: the HTTP client of `upstream` |
//! | `periodic.rs` | functions that run at intervals |
//! | `shared.rs` | `ngx.shared`: tables of `keyval` |
//! | `content.rs`, `access.rs`, `filters.rs`, `variables.rs` | calls of scripts |
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

mod access;
mod code;
mod content;
mod directives;
mod fetch;
mod fields;
mod filters;
mod host;
mod periodic;
mod script;
mod settings;
mod shared;
mod variables;

pub use directives::MODULE;
