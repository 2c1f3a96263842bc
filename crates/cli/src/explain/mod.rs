//! `weir explain URL`: how a configuration answers a request, by the server's own phases.
//!
//! The configuration is loaded and nothing is opened. One connection, a pair of sockets within this
//! process, carries the request to the `http` engine, which notes its decisions
//! ([`http::explain`]) and stops before the content.

mod effect;
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
use crate::line::{self, option, valued};
use crate::target::{Arguments, Target};
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
pub const COMMAND: Command = Command {
    name: "explain",
    doc: "show how the configuration answers a request, without a server",
    about: "For finding out why a request ends up where it does. Prints the server and location \
            that match, every rewrite, the upstream, the cache key, and each directive in effect \
            with its file and line.",
    args: || {
        let url = Arg::new("URL").required(true).value_hint(ValueHint::Url);
        let header = valued("H", "FIELD", "A header of the request; may be repeated");
        let own = [
            url.help("The URL of the request: http://host/path or https://host/path"),
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
    examples: &[(
        "weir explain https://example.com/a -H 'Accept-Encoding: br' -c nginx.conf",
        "How is this request answered?",
    )],
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
        Err(message) => {
            if !message.is_empty() {
                eprintln!("weir explain: {message}");
            }
            ExitCode::from(NO_ANSWER)
        }
    }
}

fn explain(args: &Arguments) -> Result<Story, String> {
    let question = Question::new(args.value("URL").unwrap_or_default(), args)?;
    let Target { loader, log } = Target::new(&args.typed, Level::Error)?;
    // The fault of the configuration has been logged.
    let parsed = loader.parse(None, &log, || {}).map_err(|Refused| String::new())?;
    let engines = parsed.engines.iter().map(|engine| &**engine as &dyn std::any::Any);
    let main = engines.filter_map(|any| any.downcast_ref::<HttpEngine>()).next();
    let main = main.ok_or("the configuration has no http block")?.main().clone();
    let chosen = question.choose(&main)?;
    parsed.settings.pools.install();
    let (steps, answer) = ask(&main, &question, &chosen)
        .map_err(|e| format!("the request could not be made: {e}"))?;
    let target = Target { loader, log };
    let tree = target.tree().ok_or("the configuration has changed meanwhile")?;
    Ok(Story { question, chosen, steps, answer, tree })
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
    Ok((trace.steps(), head))
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
