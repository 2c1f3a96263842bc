//! `weir tail --slow`: requests that were slow, or failed, as they end.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use server::control::Status;

use crate::target::{Arguments, asked};
use crate::watching::{failed, options, print, socket};

/// The interval between two questions.
const EVERY: Duration = Duration::from_millis(250);

/// The earlier requests that are shown first, unless `--last` says how many.
const LAST: u64 = 10;

/// Runs the command with the arguments after its name.
pub fn run(args: &[OsString]) -> ExitCode {
    let own = [("--slow", false), ("--last", true), ("--json", false), ("--once", false)];
    let own = [&own[..], &[("--pid", true)]].concat();
    match options(args, &own).and_then(|args| tail(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => failed("tail", &message),
    }
}

fn tail(args: &Arguments) -> Result<(), String> {
    if !args.has("--slow") {
        return Err("--slow is needed: there is nothing else to follow yet".to_owned());
    }
    let mut last = match args.value("--last") {
        None => LAST,
        Some(text) => text.parse().map_err(|_| format!("invalid number \"{text}\""))?,
    };
    let format = if args.has("--json") { "json" } else { "text" };
    let socket = socket(args)?;
    let mut since = 0;
    loop {
        let answer = asked(&socket, &format!("slow {since} {last} {format}"))?;
        if answer.status != Status::Ok {
            return Err(answer.lines().join("; "));
        }
        if !print(&answer.body) || args.has("--once") {
            return Ok(());
        }
        // Another binary that took over counts from 0 again.
        let next = answer.number("next");
        since = if next < since { 0 } else { next };
        last = u64::MAX;
        std::thread::sleep(EVERY);
    }
}
