//! `weir reload`: has the running server read its configuration again, waits until the new workers
//! serve, and tells the verdict.
//!
//! The configuration is read once, by the server: a test here before would double the time of a
//! reload, which is seconds where there are thousands of servers, and could not find more. It is
//! tested here only if the server could not be asked, because a syntax error may be the cause: then
//! its pid file is not known.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use base::json::Object;
use base::log::Level;
use clap::ArgMatches;
use net::Inherited;
use server::control::{Answer, Status, ask};
use server::load::{Purpose, Refused};

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line;
use crate::target::{Arguments, Target, asked, unanswered};

/// The exit status when the running server could not be asked.
const NOT_ASKED: u8 = 2;
/// The exit status when fewer workers serve than were configured.
const SOME_SERVE: u8 = 3;
/// The exit status when the running server was asked, and gave no answer.
const UNKNOWN: u8 = 4;

/// The outcome of the command.
pub(crate) enum End {
    /// The server could not be asked, and the configuration fails its test.
    TestFailed(Vec<String>),
    /// The server could not be asked.
    NotAsked(String),
    /// The server was asked, and gave no answer: the new configuration may serve.
    Unknown(String),
    /// The server's verdict.
    Answered(Answer),
}

/// Whether a configuration is in effect.
pub(crate) enum Verdict<'a> {
    /// It is, if not in all workers.
    Serves,
    /// It does not load: the one before stays.
    Refused,
    /// The server did not say, for this reason.
    Unknown(&'a str),
}

/// `weir reload`
pub(crate) const COMMAND: Command = Command {
    name: "reload",
    doc: "reload the configuration, and report whether it serves",
    about: "For deployments: unlike the switch -s reload, it waits until the new workers serve, \
            and prints the reasons when they do not.",
    args: || {
        let pid = "The pid file of the running server, if the new configuration moves it";
        let json = line::option("json", "JSON for programs");
        let own = [json, line::valued("pid", "FILE", pid)];
        own.into_iter().chain(line::switches("cpge")).collect()
    },
    exit: &[
        ("0", "the new configuration serves"),
        ("1", "it was refused, and the old one stays"),
        ("2", "the running server could not be asked, or the command line is wrong"),
        ("3", "fewer workers serve than are configured"),
        ("4", "the server was asked and gave no answer: it may serve the new one, or the old one"),
    ],
    examples: &[("weir reload -c /etc/nginx/nginx.conf", "Reload the server of this file.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let args = match Arguments::new(matches) {
        Ok(args) => args,
        Err(error) => return error.report("reload", NOT_ASKED),
    };
    let end = reload(&args);
    let written = match args.has("json") {
        true => std::io::stdout().write_all(&end.json()),
        false => std::io::stdout().write_all(end.text().as_bytes()),
    };
    match written {
        Ok(()) => ExitCode::from(end.code()),
        // The reader has closed its end.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Has the server reload its configuration.
pub(crate) fn reload(args: &Arguments) -> End {
    let target = match Target::new(&args.typed, Level::Info) {
        Ok(target) => target,
        Err(error) => return End::NotAsked(error.to_string()),
    };
    let answered = target.socket(args.value("pid")).and_then(|socket| {
        let status = asked(&socket, "status")?;
        same_file(&target.loader.paths.conf_file, &status)?;
        match ask(&socket, "reload") {
            Ok(answer) => Ok(End::Answered(answer)),
            Err(e) if e.was_asked() => Ok(End::Unknown(e.to_string())),
            Err(e) => Err(unanswered(&e)),
        }
    });
    answered.unwrap_or_else(|error| match test(&target) {
        Ok(()) => End::NotAsked(error.to_string()),
        Err(reasons) => End::TestFailed(reasons),
    })
}

/// Tests the configuration as `-t` does.
fn test(target: &Target) -> Result<(), Vec<String>> {
    let Target { loader, log } = target;
    loader.reasons.begin();
    let log = log.with(loader.reasons.clone());
    let opened = loader.parse(None, &log, || {}).and_then(|parsed| {
        let mut none = Inherited::default();
        loader.open(parsed, Purpose::Test, None, &mut none, &log).map(|_| ())
    });
    let reasons = loader.reasons.end();
    opened.map_err(|Refused| reasons)
}

/// The server reads the file that it was started with, and no other one.
fn same_file(file: &Path, status: &Answer) -> Result<(), Error> {
    let running = Path::new(status.get("file").unwrap_or_default());
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match real(file) == real(running) {
        true => Ok(()),
        false => Err(Error::server(format!(
            "the server with this pid file runs {}, and not {}",
            running.display(),
            file.display()
        ))),
    }
}

/// The fate of open connections; empty if none could have moved.
fn moved(answer: &Answer) -> String {
    let (moved, left) = (answer.number("moved"), answer.number("left"));
    let why = match answer.get("stayed").unwrap_or_default() {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    match (moved, left) {
        // Requests in flight and idle connections: they end soon.
        (0, _) if why.is_empty() => String::new(),
        (moved, 0) => format!("; {moved} connections moved"),
        (moved, left) => {
            format!("; {moved} connections moved, {left} are still with the old workers{why}")
        }
    }
}

impl End {
    pub(crate) fn verdict(&self) -> Verdict<'_> {
        match self {
            End::NotAsked(reason) | End::Unknown(reason) => Verdict::Unknown(reason),
            End::TestFailed(_) => Verdict::Refused,
            End::Answered(answer) if answer.status != Status::Ok => Verdict::Refused,
            End::Answered(_) => Verdict::Serves,
        }
    }

    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            End::TestFailed(_) => 1,
            End::NotAsked(_) => NOT_ASKED,
            End::Unknown(_) => UNKNOWN,
            End::Answered(answer) if answer.status != Status::Ok => 1,
            End::Answered(answer) if answer.number("serving") < answer.number("configured") => {
                SOME_SERVE
            }
            End::Answered(_) => 0,
        }
    }

    fn outcome(&self) -> &str {
        match self {
            End::TestFailed(_) => "test-failed",
            End::NotAsked(_) => "not-asked",
            End::Unknown(_) => "unknown",
            End::Answered(answer) => answer.get("outcome").unwrap_or("refused"),
        }
    }

    /// The reasons of a refusal.
    pub(crate) fn reasons(&self) -> Vec<String> {
        match self {
            End::TestFailed(reasons) => reasons.clone(),
            End::NotAsked(reason) | End::Unknown(reason) => vec![reason.clone()],
            End::Answered(answer) => answer.lines(),
        }
    }

    fn text(&self) -> String {
        let mut out = match self {
            // The terminal has the reasons already.
            End::TestFailed(_) => {
                return "not reloaded: the configuration fails its test\n".to_owned();
            }
            End::NotAsked(_) => "not reloaded: the running server was not asked\n".to_owned(),
            End::Unknown(_) => "not known: the running server was asked to reload, and gave no \
                                answer; \"weir reload\" asks again\n"
                .to_owned(),
            End::Answered(answer) => {
                let workers =
                    format!("{} of {}", answer.number("serving"), answer.number("configured"));
                match self.outcome() {
                    "serving" => format!(
                        "the new configuration serves: {workers} workers, generation {}{}\n",
                        answer.number("generation"),
                        moved(answer)
                    ),
                    "rolled-back" => {
                        "reload undone: no new worker could start; the old configuration serves\n"
                            .to_owned()
                    }
                    "binary-kept" => "not reloaded: a new binary was being tried; the workers of \
                                      the running one are back\n"
                        .to_owned(),
                    _ => "reload refused: the running configuration stays\n".to_owned(),
                }
            }
        };
        self.reasons().iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        out
    }

    fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Object::write(&mut out, |o| {
            o.text("outcome", self.outcome().as_bytes());
            if let End::Answered(answer) = self {
                for name in ["generation", "serving", "configured", "moved", "left"] {
                    o.number(name, answer.number(name));
                }
            }
            o.texts("reasons", self.reasons().iter().map(String::as_bytes));
        });
        out.push(b'\n');
        out
    }
}
