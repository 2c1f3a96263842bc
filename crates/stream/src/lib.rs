//! The engine of `stream` blocks: listeners, sessions and their phases, and the proxy.
//!
//! Modules are elsewhere; the engine knows them by their tables only ([`module::Module`]).
//!
//! ```text
//!  accept ▶ PROXY header ▶ post-accept ▶ preaccess ▶ access ▶ TLS ▶ preread ▶ content ▶ log
//! ```
//!
//! TLS and preread choose the server by the client's hello; the content is the proxy, `return`, or
//! another module's.
#![forbid(unsafe_code)]

mod accept;
pub mod build;
pub mod content;
pub mod core_conf;
pub mod core_directives;
mod core_listen;
mod core_vars;
mod counted;
pub mod engine;
pub mod module;
mod phases;
pub mod proxy;
pub mod server;
pub mod session;
pub mod ssl;
pub mod status_zone;
pub mod udp;
pub mod upstreams;

pub use module::{Cx, Module, Pipeline, Verdict, View};
pub use server::StreamMain;
pub use session::StreamSession;
