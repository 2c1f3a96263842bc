//! The HTTP engine: configuration of `http` blocks, connections, requests and their phases.
//!
//! Modules are elsewhere; the engine knows them only by their tables ([`module::Module`]).
//!
//! | module | concern |
//! | --- | --- |
//! | `accept`, `h1`, `h2`, `h3` | a new connection: PROXY protocol header, then its protocol |
//! | `channel` | the interface between a request and its client, a variant per protocol |
//! | `answer`, `subrequest` | a request from header section to log; requests to itself |
//! | `target`, `phases` | a request's server and location; its way through the phases |
//! | `send`, `filter`, `whole` | a prepared response through its filters to the channel |
//!
//! A protocol does not depend on the engine above it, a type parameter (`channel::Answer`).
#![forbid(unsafe_code)]

mod accept;
pub mod aio;
mod answer;
pub mod auth;
pub mod build;
pub mod channel;
mod core_blocks;
pub mod core_conf;
pub mod core_directives;
mod core_listen;
pub(crate) mod core_pages;
pub mod core_rates;
mod core_vars;
pub mod cx;
pub mod engine;
pub mod exchanges;
pub mod explain;
pub mod files;
mod filter;
pub mod flight;
mod h1;
mod h2;
mod h3;
pub mod http2;
mod http2_conf;
pub mod http3;
mod http3_conf;
mod location_kind;
mod metering;
pub mod module;
pub mod moves;
pub mod output;
mod pause;
mod phases;
mod proxy_header;
mod quic_listen;
pub mod request;
mod send;
pub mod server;
mod session;
pub mod ssl;
pub mod status_line;
pub mod status_zone;
pub mod subrequest;
mod target;
mod trace;
pub mod types;
pub mod vars;
mod warnings;
mod watch;
mod whole;

pub use channel::conn;
pub use cx::{Cx, LoadEnv};
pub use module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Step, Verdict};
pub use request::{Request, body};
pub use server::HttpMain;
