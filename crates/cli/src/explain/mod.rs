//! `weir explain URL`: how a configuration answers a request, by the server's own phases.
//!
//! The configuration is loaded and nothing is opened. One connection, a pair of sockets within this
//! process, carries the request to the `http` engine, which notes its decisions
//! ([`http::explain`]) and stops before the content.

mod effect;
mod logline;
mod question;
mod show;

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::rc::Rc;

use base::log::Level;
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use conf::Tree;
use engine::Engine;
use http::engine::HttpEngine;
use http::explain::{Noted, Passed, Place, Step};
use http::server::HttpMain;
use server::load::Refused;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line::{self, option, valued};
use crate::target::{Arguments, Target};
use logline::Logged;
use question::{Chosen, Question};

/// The exit status when there is no answer.
const NO_ANSWER: u8 = 2;

/// The time for the rest of an answer whose head is there: subrequests for parts of a page come
/// behind the head, and so do the bytes of a large file with a `limit_rate`.
const BODY_MS: u64 = 1000;

/// The explanation of a request.
struct Story {
    question: Question,
    chosen: Chosen,
    steps: Vec<Noted>,
    /// The line of the log, if the request is of one.
    logged: Option<Logged>,
    /// The head of the answer, if one was made.
    answer: Option<String>,
    tree: Tree,
}

impl Story {
    /// The steps of the request itself.
    fn own(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps.iter().filter(|noted| !noted.inside).map(|noted| &noted.step)
    }

    /// The location or block whose settings hold in the end; none if the server's own level
    /// answers. A new URI leaves the location, and a search follows.
    fn place(&self) -> Option<&Place> {
        let last = self.own().rev().find_map(|step| match step {
            Step::Entered(place) => Some(Some(place)),
            Step::Uri(_) => Some(None),
            _ => None,
        });
        last.flatten()
    }

    /// The request to a server.
    fn passed(&self) -> Option<&Passed> {
        self.own().rev().find_map(|step| match step {
            Step::Passed(passed) => Some(&**passed),
            _ => None,
        })
    }
}

/// `weir explain`
pub(crate) const COMMAND: Command = Command {
    name: "explain",
    doc: "show how the configuration answers a request, without a server",
    about: "For finding out why a request ends up where it does. Prints the server and location \
            that match, every rewrite, the upstream, the cache key, and each directive in effect \
            with its file and line.",
    args: || {
        let url = Arg::new("URL").required_unless_present("log").value_hint(ValueHint::Url);
        let log = valued("log", "LINE", "A line of the access log instead of a request");
        let header = valued("H", "FIELD", "A header of the request; may be repeated");
        let own = [
            url.help(
                "The URL of the request: http://host/path or https://host/path; with --log: \
                 scheme, host and port for lines without them",
            ),
            log.allow_hyphen_values(true).long_help(
                "A line of the access log: its request is explained. The format is one of the \
                 configuration's, combined, or json",
            ),
            valued("X", "METHOD", "The method [default: GET]").allow_hyphen_values(true),
            header.action(ArgAction::Append).allow_hyphen_values(true),
            valued("from", "ADDR", "The client's address [default: 127.0.0.1]"),
            valued("to", "ADDR", "The address that the client connects to, or unix:PATH"),
            option("json", "JSON for programs"),
        ];
        own.into_iter().chain(line::switches("cpg")).collect()
    },
    exit: &[
        ("0", "the request is explained"),
        ("2", "the configuration does not load, or the command line is wrong"),
    ],
    examples: &[
        (
            "weir explain https://example.com/a -H 'Accept-Encoding: br' -c nginx.conf",
            "How is this request answered?",
        ),
        (
            "weir explain --log '{\"request_uri\":\"/a\"}'",
            "Why was this request answered like this?",
        ),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let told = Arguments::new(matches).and_then(|args| {
        let story = explain(&args)?;
        Ok(if args.has("json") { show::json(&story) } else { show::text(&story).into_bytes() })
    });
    match told {
        Ok(text) => match io::stdout().write_all(&text) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader has closed its end.
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => error.report("explain", NO_ANSWER),
    }
}

fn explain(args: &Arguments) -> Result<Story, Error> {
    let url = args.value("URL");
    let line = args.value("log");
    let asked = match line {
        None => Some(Question::new(url.unwrap_or_default(), args)?),
        Some(_) => None,
    };
    let Target { loader, log } = Target::new(&args.typed, Level::Error)?;
    // The fault of the configuration has been logged.
    let parsed = loader.parse(None, &log, || {}).map_err(|Refused| Error::Logged)?;
    let engines = parsed.engines.iter().map(|engine| &**engine as &dyn std::any::Any);
    let main = engines.filter_map(|any| any.downcast_ref::<HttpEngine>()).next();
    let main =
        main.ok_or_else(|| Error::usage("the configuration has no http block"))?.main().clone();
    let target = Target { loader, log };
    let tree =
        target.tree().ok_or_else(|| Error::usage("the configuration has changed meanwhile"))?;
    let (question, logged) = match (asked, line) {
        (Some(question), _) => (question, None),
        (None, line) => {
            let formats = logline::formats(&tree);
            let logged = logline::read(line.unwrap_or_default(), &formats)?;
            (Question::of_line(&logged, url, &main, args)?, Some(logged))
        }
    };
    let chosen = question.choose(&main)?;
    parsed.settings.pools.install();
    let (steps, answer) = ask(&main, &question, &chosen)
        .map_err(|e| Error::system(format!("the request could not be made: {e}")))?;
    Ok(Story { question, chosen, steps, logged, answer, tree })
}

/// Sends the request and waits until the engine is idle again.
fn ask(
    main: &Rc<HttpMain>,
    question: &Question,
    chosen: &Chosen,
) -> io::Result<(Vec<Noted>, Option<String>)> {
    let mut event_loop = event::Loop::new(event::Options::default())?;
    let (mut socket, server) = UnixStream::pair()?;
    server.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    socket.write_all(question.text(chosen).as_bytes())?;
    let mut client = Client { socket, head: Vec::new(), is_whole: false, late: Rc::default() };
    let engine = HttpEngine::new(main.clone());
    let ends = (server.into(), chosen.local.clone(), question.from.clone());
    let trace = http::explain::begin(main, chosen.listen, ends)
        .ok_or_else(|| io::Error::other("it is explained already"))?;
    let mut taken = Ok(());
    event_loop.run_until(|| {
        taken = client.take();
        taken.is_err() || client.late.get() || trace.has_begun() && engine.idle()
    })?;
    taken.and_then(|()| client.take())?;
    let head = client.is_whole.then(|| String::from_utf8_lossy(&client.head).into_owned());
    Ok((without_repetitions(trace.steps()), head))
}

/// A handler that waits for a disk begins again, and notes its files and lines of the log anew.
fn without_repetitions(steps: Vec<Noted>) -> Vec<Noted> {
    let may_repeat =
        |noted: &Noted| matches!(noted.step, Step::Called(..) | Step::File(..) | Step::Log(..));
    let mut kept: Vec<Noted> = Vec::with_capacity(steps.len());
    for noted in steps {
        let mut run = kept.iter().rev().take_while(|last| may_repeat(last));
        if !(may_repeat(&noted) && run.any(|last| *last == noted)) {
            kept.push(noted);
        }
    }
    kept
}

/// The client's end of the connection.
struct Client {
    socket: UnixStream,
    /// The head of the answer as far as it came, without the empty line.
    head: Vec<u8>,
    is_whole: bool,
    /// The time for the body is over.
    late: Rc<Cell<bool>>,
}

impl Client {
    /// Takes what has come, and keeps the head. The engine waits for as long as the socket is full.
    fn take(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16384];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) if self.is_whole => {}
                Ok(n) => self.keep(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else { return };
        self.head.truncate(end);
        self.is_whole = true;
        let late = self.late.clone();
        event::spawn(async move {
            event::sleep(BODY_MS).await;
            late.set(true);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_repeated_is_told_once() {
        let file = |path: &str| Step::File("root", path.to_owned(), "exists".to_owned());
        let noted = |step: Step| Noted { step, inside: false };
        let uri = || noted(Step::Uri("/".to_owned()));
        let (a, b) = (|| noted(file("a")), || noted(file("b")));
        let steps = vec![a(), b(), a(), b(), uri(), a(), uri(), uri()];
        let want = vec![a(), b(), uri(), a(), uri(), uri()];
        assert!(without_repetitions(steps) == want);
    }
}
