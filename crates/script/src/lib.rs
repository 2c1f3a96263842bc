//! JavaScript as nginx's njs has it, on QuickJS-NG: compiled by the master, run by the workers.
//!
//! | file | holds |
//! | --- | --- |
//! | `program.rs` | [`Program`]: modules found, checked and compiled, without an engine |
//! | `exports.rs` | modules that export what they declare later |
//! | `instance.rs` | [`Instance`]: an engine that runs a program for one request at a time |
//! | `functions.rs` | the functions that directives name |
//! | `host/` | [`Host`]: what scripts can reach outside the engine |
//! | `state.rs` | what natives share: the lent host, promises of the host, timers, the meter |
//! | `clocks.rs` | the processor time of stretches, measured cheaply |
//! | `fault.rs` | [`Fault`]: why a script failed, and where |
//! | `late.rs` | objects that are made when they are first read |
//! | `native.rs` | how functions and classes of the server are declared |
//! | `builtin.rs` | the modules that scripts import by a bare name |
//! | `shell.rs` | scripts outside the server |
//! | `raw.rs` | the only `unsafe` code |
//! | `limits_tests.rs` | what the limits end, and which builtins never look at the clock |
//!
//! No type of the engine's library appears in a public signature, so that the rest of the server
//! does not depend on it.
#![deny(unsafe_code)]

mod buffer;
mod builtin;
mod clocks;
mod codec;
mod convert;
mod crypto;
mod exports;
mod fault;
mod fetch;
mod form;
mod fs;
mod functions;
mod globals;
pub mod host;
mod http;
mod ids;
mod instance;
mod late;
#[cfg(test)]
mod limits_tests;
mod native;
mod open_files;
mod process;
mod program;
mod query;
mod querystring;
#[allow(unsafe_code)]
mod raw;
mod shared;
pub mod shell;
mod state;
mod stream;
mod text;
mod value;
mod xml;
mod zlib;

pub use fault::{Fault, FaultKind, Place};
pub use host::{Facts, Host, Level, NoHost};
pub use ids::{Ticket, TimerId};
pub use instance::{Call, Instance, Outcome};
pub use program::{Import, Program, Sources};
pub use state::Limits;
pub use value::{Answer, Argument, Data};
