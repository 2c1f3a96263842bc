//! The server's processes, its command line and its commands. Tests that measure a load or the
//! memory are programs of their own: nothing runs beside them.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod cli;
mod config;
mod container;
mod deferred;
mod descriptors;
mod docker;
mod docs;
mod errors;
mod examples;
mod explain;
mod fmt;
mod fresh;
mod healthcheck;
#[cfg(feature = "script")]
mod js;
mod lint;
mod load;
mod log_readers;
mod lsp;
mod modes;
mod moves;
mod moves_idle;
mod plus;
mod privileges;
mod processes;
mod quic_sockets;
mod reload;
#[cfg(feature = "script")]
mod scripts;
mod serve;
mod serve_https;
mod sharding;
mod shared_state;
mod systemd;
mod upgrade;
mod verdict;
mod watching;
