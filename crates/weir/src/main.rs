//! The `weir` binary with the modules of the project alone.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(&[])
}
