//! `weir top`: requests a second, servers of upstreams and workers, again and again.

mod judge;
mod sample;
mod show;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use server::control::Status;

use crate::declared::{Command, PLAIN, Run};
use crate::line::valued;
use crate::target::{Arguments, asked};
use crate::watching::{self, failed, print, socket, time};
use judge::Watch;
use sample::Sample;

/// The interval without `--interval`, milliseconds.
const USUAL_MS: u64 = 500;

/// The shortest interval, milliseconds: the master has other work.
const LEAST_MS: u64 = 100;

/// Clears the terminal.
const CLEAR: &str = "\x1b[2J";

/// `weir top`
pub const COMMAND: Command = Command {
    name: "top",
    doc: "show live requests per second, upstream servers and workers",
    about: "For watching a running server at a terminal; Ctrl-C ends it. Problems are listed \
            first: servers that are down, fail or are slow, and workers that hang. Upstream \
            servers are counted if a location has api, prometheus or dashboard.",
    args: || {
        watching::args([
            valued("interval", "TIME", "Time between updates, at least 100ms [default: 500ms]"),
            valued("count", "N", "End after N updates"),
        ])
    },
    exit: watching::EXIT,
    examples: &[("weir top --interval 2s", "A new view every two seconds.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    match Arguments::new(matches).and_then(|args| top(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => failed("top", &message),
    }
}

fn top(args: &Arguments) -> Result<(), String> {
    let interval = args.value("interval").map_or(Ok(USUAL_MS), time)?.max(LEAST_MS);
    let count = match args.value("count") {
        None => u64::MAX,
        Some(text) => text.parse().map_err(|_| format!("invalid number \"{text}\""))?,
    };
    let socket = socket(args)?;
    let look = || {
        let answer = asked(&socket, "top")?;
        match answer.status {
            Status::Ok => Ok(Sample::read(Instant::now(), &answer)),
            _ => Err("the server that runs does not know this question".to_owned()),
        }
    };
    let mut watch = Watch::new(look()?);
    for frame in 0..count {
        std::thread::sleep(Duration::from_millis(interval));
        let view = watch.next(look()?);
        let text = match terminal() {
            Some(size) => {
                let clear = if frame == 0 { CLEAR } else { "" };
                format!("{clear}{}", show::on_terminal(&show::frame(&view, size.1), size.0))
            }
            None => format!("{}\n", show::frame(&view, usize::MAX)),
        };
        if !print(text.as_bytes()) {
            return Ok(());
        }
    }
    Ok(())
}

/// Columns and rows of the terminal that the command writes to.
fn terminal() -> Option<(usize, usize)> {
    /// As terminals are that do not know.
    const USUAL: (usize, usize) = (80, 24);
    let out = std::io::stdout();
    out.is_terminal().then(|| os::terminal::size(&out).unwrap_or(USUAL))
}
