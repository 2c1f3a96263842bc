//! `weir debug --client CIDR --for 60s`: has all lines about some clients logged for a while.

use std::ffi::OsString;
use std::process::ExitCode;

use server::control::Status;

use crate::target::{Arguments, asked};
use crate::watching::{failed, options, print, socket, time};

/// The time without `--for`, milliseconds.
const USUAL_MS: u64 = 60_000;

/// Runs the command with the arguments after its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let own = [("--client", true), ("--for", true), ("--pid", true)];
    match options(args, &own).and_then(|args| debug(&args)) {
        Ok(text) if print(text.as_bytes()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => failed("debug", &message),
    }
}

fn debug(args: &Arguments) -> Result<String, String> {
    let range = args.value("--client").ok_or("--client needs a range of addresses")?;
    let ms = args.value("--for").map_or(Ok(USUAL_MS), time)?;
    let answer = asked(&socket(args)?, &format!("debug {range} {ms}"))?;
    let range = answer.get("range").unwrap_or(range);
    match (answer.status, ms) {
        (Status::Ok, 0) => Ok(format!("connections of {range} are logged as usual again\n")),
        (Status::Ok, _) => {
            let seconds = ms as f64 / 1000.0;
            Ok(format!("the error log has every line about {range} for {seconds} s from now on\n"))
        }
        _ => Err(answer.lines().join("; ")),
    }
}
