//! What the scripts of HTTP and of `stream` have in common: directives, settings, engines at work,
//! `ngx.fetch`, `ngx.shared`.
//!
//! | file | holds |
//! | --- | --- |
//! | `directives.rs`, `settings.rs` | the directives that both have, and what levels set |
//! | `function.rs` | a function that a directive names, and its counters |
//! | `code.rs` | the imports of a place, compiled, with idle engines of this worker |
//! | `job.rs`, `ops.rs` | the engine of one request or session, and what it waits for |
//! | `fetch.rs` | `ngx.fetch`: the HTTP client of `upstream` |
//! | `share.rs` | how much of a turn of the loop all scripts together may take |
//! | `shared.rs` | `ngx.shared`: tables of `keyval` |
//! | `periodic.rs` | when functions run at intervals |
//! | `text.rs` | values as text, and lines of the error log |
#![forbid(unsafe_code)]

pub mod code;
pub mod directives;
pub mod fetch;
pub mod function;
pub mod job;
pub mod ops;
pub mod periodic;
pub mod settings;
pub mod share;
pub mod shared;
pub mod text;

pub use function::Function;
pub use job::Job;
pub use settings::{Main, Settings};
