//! `weir debug --client CIDR --for 60s`: has all lines about some clients logged for a while.

use std::process::ExitCode;

use clap::ArgMatches;
use server::control::Status;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line::valued;
use crate::target::{Arguments, asked};
use crate::watching::{self, NOT_ASKED, print, socket, time};

/// The time without `--for`, milliseconds.
const USUAL_MS: u64 = 60_000;

/// `weir debug`
pub(crate) const COMMAND: Command = Command {
    name: "debug",
    doc: "log everything about some clients for a limited time",
    about: "For a problem that one client has: the error log gets every line about connections of \
            the given addresses, as with the directive debug_connection, but without a reload.",
    args: || {
        let client =
            valued("client", "CIDR", "The addresses: 192.0.2.7, 192.0.2.0/24, 2001:db8::/32");
        let time = "The duration, at most a day; 0 ends it at once [default: 60s]";
        watching::args([client.required(true), valued("for", "TIME", time)])
    },
    exit: watching::EXIT,
    examples: &[("weir debug --client 192.0.2.0/24 --for 2m", "For two minutes.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    match Arguments::new(matches).and_then(|args| debug(&args)) {
        Ok(text) if print(text.as_bytes()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => error.report("debug", NOT_ASKED),
    }
}

fn debug(args: &Arguments) -> Result<String, Error> {
    let range =
        args.value("client").ok_or_else(|| Error::usage("--client needs a range of addresses"))?;
    let ms = args.value("for").map_or(Ok(USUAL_MS), time)?;
    let answer = asked(&socket(args)?, &format!("debug {range} {ms}"))?;
    let range = answer.get("range").unwrap_or(range);
    match (answer.status, ms) {
        (Status::Ok, 0) => Ok(format!("connections of {range} are logged as usual again\n")),
        (Status::Ok, _) => {
            let seconds = ms as f64 / 1000.0;
            Ok(format!("the error log has every line about {range} for {seconds} s from now on\n"))
        }
        _ => Err(Error::server(answer.lines().join("; "))),
    }
}
