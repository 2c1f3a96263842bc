//! The server as a library: command line, master, workers, reload, upgrade. The binary `weir` is
//! the crate of that name, whose tests start the real program.
//!
//! [`run`] → the command line ([`cli`]) → a configuration ([`load`]) → sockets, pid file,
//! background ([`start`]) → [`master`], which forks and becomes a [`worker`] in each child, or
//! [`single`].
//!
//! It is a library so that a program with modules from outside is a `main` of one line
//! (`weir_server::run(&[Added { … }])`), which `weir build` writes. `http_modules::with` inserts
//! their tables into the list of modules.
#![forbid(unsafe_code)]

mod added;
mod build;
mod children;
mod cli;
mod commands;
mod completions;
mod config;
mod container;
mod control;
mod debug;
mod diff;
mod directives;
mod dry_run;
mod engines;
mod environ;
mod events;
mod explain;
mod features;
mod flags;
mod helper;
mod json;
mod layout;
mod lint;
mod live;
mod load;
mod lsp;
mod main_block;
mod manual;
mod master;
mod migrate;
mod overload;
mod paths;
mod pidfile;
mod places;
mod questions;
mod relays;
mod reload;
mod serve;
mod serve_domains;
mod serve_proxy;
mod serving;
mod settings;
mod signals;
mod single;
mod start;
mod startlog;
mod systemd;
mod tail;
mod target;
mod top;
mod upgrade;
mod verdict;
mod watchdog;
mod watching;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use http::module::Modules;

pub use added::Added;

/// Of every program that is this server; see [`os::memory`].
#[global_allocator]
static ALLOCATOR: os::memory::Allocator = os::memory::Allocator;

/// Runs the program with the modules of the project and those `added` to it, in their order: the
/// `fn main` of a binary. See [`Added`].
pub fn run(added: &'static [Added]) -> ExitCode {
    run_of(http_modules::MODULES, added)
}

/// The same with other modules than all of the project's.
pub fn run_of(modules: Modules, added: &'static [Added]) -> ExitCode {
    if let Err(message) = added::install(modules, added) {
        eprintln!("weir: {message}");
        return ExitCode::FAILURE;
    }
    let environ = environ::Environ::capture();
    os::title::init();
    base::time::set_zone(os::clock::utc_offset_secs);
    base::time::update();
    let args: Vec<OsString> = std::env::args_os().collect();
    let own = args.get(1..).unwrap_or_default();
    if let Some(command) = own.first().and_then(commands::find) {
        return command.start(&own[1..]);
    }
    match cli::parse(own.iter().cloned()) {
        Ok(typed) => start::run(&typed, args, environ),
        Err(message) => {
            eprintln!("weir: {message}");
            ExitCode::FAILURE
        }
    }
}
