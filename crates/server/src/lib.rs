//! The server as a library: master, workers, reload, upgrade. The command line is the crate `cli`.
//!
//! A configuration ([`load`]) → sockets, pid file, background ([`start`]) → the master, which forks
//! and becomes a worker in each child, or the one process of `master_process off`.
#![forbid(unsafe_code)]

pub mod added;
mod children;
pub mod control;
pub mod directives;
mod dry_run;
pub mod engines;
pub mod environ;
mod events;
mod helper;
mod history;
pub mod layout;
mod live;
pub mod load;
mod main_block;
mod master;
mod overload;
pub mod paint;
pub mod paths;
mod pidfile;
pub mod places;
mod questions;
mod relays;
mod reloading;
mod serving;
pub mod settings;
mod signals;
mod single;
pub mod start;
pub mod startlog;
mod systemd;
pub mod typed;
mod upgrade;
mod verdict;
mod watchdog;
mod worker;

/// This program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Of every program that is this server; see [`os::memory`].
#[global_allocator]
static ALLOCATOR: os::memory::Allocator = os::memory::Allocator;
