//! `weir top`: requests a second, servers of upstreams, workers and functions of scripts, again and
//! again.

mod judge;
mod sample;
mod screen;
mod show;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use server::control::Status;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line::valued;
use crate::target::{Arguments, asked};
use crate::watching::{self, NOT_ASKED, print, socket, time};
use judge::{View, Watch};
use os::signal::{Signal, SignalSet};
use os::terminal::Keys;
use sample::Sample;
use screen::{Act, Screen};

/// The interval without `--interval`, milliseconds.
const USUAL_MS: u64 = 500;

/// The shortest interval, milliseconds: the master has other work.
const LEAST_MS: u64 = 100;

/// How often a wait for keys looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);

/// Clears the terminal.
const CLEAR: &str = "\x1b[2J";

/// `weir top`
pub(crate) const COMMAND: Command = Command {
    name: "top",
    doc: "show live requests per second, upstream servers and workers",
    about: "For watching a running server at a terminal. Problems are listed first: servers that \
            are down, fail or are slow, and workers that hang. Functions of scripts follow, \
            those first that take the most processor time. Upstream servers are counted if a \
            location has api, prometheus or dashboard. Keys: 1 to 8 sort by a column, w sorts \
            the worst first, r reverses, p pauses, h shows the keys, q or Ctrl-C quits. Colours \
            are left out if NO_COLOR is set.",
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
        Err(error) => error.report("top", NOT_ASKED),
    }
}

fn top(args: &Arguments) -> Result<(), Error> {
    let interval = args.value("interval").map_or(Ok(USUAL_MS), time)?.max(LEAST_MS);
    let count = match args.value("count") {
        None => u64::MAX,
        Some(text) => {
            text.parse().map_err(|_| Error::usage(format!("invalid number \"{text}\"")))?
        }
    };
    let socket = socket(args)?;
    let look = || {
        let answer = asked(&socket, "top")?;
        match answer.status {
            Status::Ok => Ok(Sample::read(Instant::now(), &answer)),
            _ => Err(Error::server("the server that runs does not know this question")),
        }
    };
    let mut watch = Watch::new(look()?);
    let mut screen = Screen::default();
    let mut keys = terminal().and_then(|_| Keys::of(std::io::stdin()));
    // While the terminal is changed, these end the command in order, so that it is restored.
    let ends = SignalSet::new(&[Signal::TERM, Signal::HUP, Signal::QUIT]);
    let ends = keys.is_some().then_some(ends).inspect(SignalSet::block);
    let (mut before, mut is_first): (Option<View>, bool) = (None, true);
    let mut frames = 0;
    let interval = Duration::from_millis(interval);
    while frames < count {
        let act = wait(interval, &mut keys, ends.as_ref(), &mut screen);
        let view = match before.take() {
            _ if act == Act::Quit => return Ok(()),
            Some(view) if act == Act::Redraw || screen.is_paused => view,
            _ => watch.next(look()?),
        };
        if act == Act::None && !screen.is_paused {
            frames += 1;
        }
        if !draw(&view, &screen, std::mem::take(&mut is_first)) {
            return Ok(());
        }
        before = Some(view);
    }
    Ok(())
}

/// Waits for the next sample, or for a key that changes the view.
fn wait(
    interval: Duration,
    keys: &mut Option<Keys>,
    ends: Option<&SignalSet>,
    screen: &mut Screen,
) -> Act {
    let has_ended = |limit| ends.is_some_and(|ends| os::signal::wait(ends, Some(limit)).is_some());
    let until = Instant::now() + interval;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Act::None;
        }
        if has_ended(Duration::ZERO) {
            return Act::Quit;
        }
        match keys.as_ref().map(|of| of.next(left.min(SIGNALS_EVERY))) {
            None if ends.is_none() => std::thread::sleep(left),
            None if has_ended(left) => return Act::Quit,
            None => {}
            // The terminal has ended its input, but may still show the views.
            Some(None) => *keys = None,
            Some(Some(bytes)) => {
                let act = screen.keys(&bytes);
                if act != Act::None {
                    return act;
                }
            }
        }
    }
}

/// Shows a view. False: the reader has closed its end.
fn draw(view: &View, screen: &Screen, is_first: bool) -> bool {
    let text = match terminal() {
        Some((columns, rows)) => {
            let lines = show::frame(view, rows, screen);
            let clear = if is_first { CLEAR } else { "" };
            format!("{clear}{}", show::on_terminal(&lines, columns, has_colours()))
        }
        None => format!("{}\n", show::plain(&show::frame(view, usize::MAX, screen))),
    };
    print(text.as_bytes())
}

/// Colours are wanted: see <https://no-color.org>.
fn has_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and rows of the terminal that the command writes to.
fn terminal() -> Option<(usize, usize)> {
    /// As terminals are that do not know.
    const USUAL: (usize, usize) = (80, 24);
    let out = std::io::stdout();
    out.is_terminal().then(|| os::terminal::size(&out).unwrap_or(USUAL))
}
