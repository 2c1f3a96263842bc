//! `weir tail --slow`: requests that were slow, or failed, as they end.

use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use server::control::Status;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line::{option, valued};
use crate::target::{Arguments, asked};
use crate::watching::{self, NOT_ASKED, print, socket};

/// The interval between two questions.
const EVERY: Duration = Duration::from_millis(250);

/// The earlier requests that are shown first, unless `--last` says how many.
const LAST: u64 = 10;

/// `weir tail`
pub(crate) const COMMAND: Command = Command {
    name: "tail",
    doc: "print slow and failed requests as they end",
    about: "For finding out where the time of a request goes. The configuration needs the \
            directive slow_request_time.",
    args: || {
        watching::args([
            option("slow", "Slow and failed requests: required, nothing else can be followed yet"),
            valued("last", "N", "Begin with the latest N requests [default: 10]"),
            option("once", "Do not wait for further requests"),
            option("json", "JSON for programs"),
        ])
    },
    exit: watching::EXIT,
    examples: &[("weir tail --slow --last 50", "The latest 50, and those that follow.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    match Arguments::new(matches).and_then(|args| tail(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report("tail", NOT_ASKED),
    }
}

fn tail(args: &Arguments) -> Result<(), Error> {
    if !args.has("slow") {
        return Err(Error::usage("--slow is needed: there is nothing else to follow yet"));
    }
    let mut last = match args.value("last") {
        None => LAST,
        Some(text) => {
            text.parse().map_err(|_| Error::usage(format!("invalid number \"{text}\"")))?
        }
    };
    let format = if args.has("json") { "json" } else { "text" };
    let socket = socket(args)?;
    let mut since = 0;
    loop {
        let answer = asked(&socket, &format!("slow {since} {last} {format}"))?;
        if answer.status != Status::Ok {
            return Err(Error::server(answer.lines().join("; ")));
        }
        if !print(&answer.body) || args.has("once") {
            return Ok(());
        }
        // Another binary that took over counts from 0 again.
        let next = answer.number("next");
        since = if next < since { 0 } else { next };
        last = u64::MAX;
        std::thread::sleep(EVERY);
    }
}
