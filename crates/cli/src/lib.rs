//! The command line as a library: nginx's switches, and the commands. The binary `weir` is the
//! crate of that name, whose tests start the real program.
//!
//! [`run`] → a command of [`commands`], or the switches ([`switches`]) → [`server::start`].
//!
//! It is a library so that a program with modules from outside is a `main` of one line
//! (`weir_cli::run(&[Added { … }])`), which `weir build` writes. `http_modules::with` inserts
//! their tables into the list of modules.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod authority;
mod build;
mod commands;
mod completions;
mod config;
mod container;
mod debug;
mod declared;
mod diff;
mod docker;
mod entry_scripts;
mod error;
mod explain;
mod features;
mod fixes;
mod flags;
mod fmt;
mod healthcheck;
#[cfg(feature = "script")]
mod js;
mod json;
mod line;
mod lint;
mod lsp;
mod manual;
mod migrate;
mod pages;
mod reload;
mod rewrite;
mod serve;
mod sign_in;
mod switches;
mod tail;
mod target;
mod top;
mod trust;
mod validate;
mod watching;

use std::process::ExitCode;

use http::module::Modules;
use server::environ::Environ;
use server::{added, layout, start};

pub use server::added::Added;

/// Runs the program with the modules of the project and those `added` to it, in their order: the
/// `fn main` of a binary. See [`Added`].
pub fn run(added: &'static [Added]) -> ExitCode {
    run_of(http_modules::MODULES, added)
}

/// The same with other modules than all of the project's.
pub fn run_of(modules: Modules, added: &'static [Added]) -> ExitCode {
    if let Err(error) = added::install(modules, added) {
        eprintln!("weir: {error}");
        return ExitCode::FAILURE;
    }
    let environ = Environ::capture();
    os::title::init();
    base::time::set_zone(os::clock::utc_offset_secs);
    base::time::update();
    let args = base::arguments().to_vec();
    let own = args.get(1..).unwrap_or_default();
    if let Some(code) = commands::run(own, layout::is_nginx()) {
        return code;
    }
    match switches::parse(own.iter().cloned()) {
        Ok(typed) if manual::show(&typed) => ExitCode::SUCCESS,
        Ok(typed) => start::run(&typed, args, environ),
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::FAILURE
        }
    }
}
