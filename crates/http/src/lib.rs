//! The HTTP engine: configuration of `http` blocks, connections, requests and their phases.
//!
//! Modules are elsewhere; the engine knows them by their tables only ([`module::Module`]).
#![forbid(unsafe_code)]

pub mod aio;
pub mod auth;
mod bad_head;
pub mod body;
pub mod build;
pub mod cache;
pub mod conn;
mod core_blocks;
pub mod core_conf;
pub mod core_directives;
mod core_listen;
pub mod core_pages;
mod core_vars;
pub mod cx;
pub mod early_hints;
pub mod engine;
pub mod files;
mod filter;
mod head;
pub mod location;
pub mod module;
pub mod output;
mod pause;
mod phases;
mod proxy_header;
mod reading;
pub mod request;
mod send;
pub mod server;
pub mod subrequest;
mod target;
mod traps;
pub mod types;
pub mod upstream;
pub mod vars;
mod watch;
mod whole;

pub use cx::{Cx, LoadEnv};
pub use module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Step, Verdict};
pub use request::Request;
pub use server::HttpMain;
