//! `weir docker`: virtual servers and groups of servers by the labels of containers.
//!
//! ```text
//!  engine's socket ──list, events──▶ services ──▶ FILE ──▶ test ──▶ reload of the running server
//! ```
//!
//! It is a process of its own: the server needs no access to the engine's socket, which is as good
//! as root's password.

mod engine;
mod render;
mod services;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;

use self::engine::{Events, Heard};
use self::render::{Style, render};
use self::services::Services;
use crate::declared::{Command, PLAIN, Run, print};
use crate::error::Error;
use crate::line;
use crate::reload::{self, End, Verdict};
use crate::target::Arguments;

/// The list is read anew after this time without an event.
const SILENCE: Duration = Duration::from_secs(30);
/// The pause before the engine is tried again, and before a server that could not be asked is asked
/// again.
const RETRY: Duration = Duration::from_secs(2);

/// `weir docker`
pub(crate) const COMMAND: Command = Command {
    name: "docker",
    doc: "make virtual servers and upstreams from the labels of containers",
    about: "Reads the labels of running containers from the engine's socket (Docker, or Podman's \
            compatible API): weir.host, weir.port, weir.path, weir.upstream, weir.proto, \
            weir.weight, weir.network and weir.directive.NAME. Without --output it prints the \
            configuration. With it, it writes the file, reloads the running server, and does so \
            again at each change, until it is stopped. A service whose new labels do not load \
            stays as it was, and the others change.",
    args: || {
        let more = [
            line::valued("socket", "FILE", "The engine's socket [default: /var/run/docker.sock]"),
            line::valued("output", "FILE", "The file to write, which the configuration includes"),
            line::option("once", "With --output: write and reload once, and end"),
            line::valued("listen", "ADDRESS", "The listen of each server [default: 80]"),
            line::valued("include", "FILE", "A file that each server includes, e.g. for TLS"),
            line::pid(),
        ];
        more.into_iter().chain(line::switches("cpge")).collect()
    },
    files: &[("/var/run/docker.sock", "The engine's socket.")],
    examples: &[
        ("weir docker", "The configuration for the containers that run now."),
        ("weir docker --output /etc/weir/conf.d/docker.conf", "Keep it up to date."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let args = match Arguments::new(matches) {
        Ok(args) => args,
        Err(error) => return failed(&error),
    };
    let of = |name: &str| args.values(name).map(str::to_owned).collect::<Vec<_>>();
    let (mut listens, includes) = (of("listen"), of("include"));
    if listens.is_empty() {
        listens.push("80".to_owned());
    }
    let has_end = |word: &String| word.contains([';', '{', '}', '\n', '"', '#']);
    if let Some(word) = listens.iter().find(|word| has_end(word)) {
        return failed(&Error::usage(format!("invalid address \"{word}\"")));
    }
    let socket = PathBuf::from(args.value("socket").unwrap_or("/var/run/docker.sock"));
    let style = Style { listens: &listens, includes: &includes };
    let Some(output) = args.value("output").map(PathBuf::from) else {
        return match list(&socket) {
            Err(error) => failed(&error),
            Ok(services) => {
                let (text, faults) = render(&services, &style);
                faults.iter().for_each(|fault| tell(fault));
                print(&text)
            }
        };
    };
    let mut provider = Provider {
        args: &args,
        style,
        output,
        good: Services::new(),
        tried: None,
        asked: false,
        unsettled: None,
        is_new: true,
    };
    if args.has("once") {
        return match list(&socket).and_then(|services| provider.update(services)) {
            Ok(()) if provider.asked => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
            Err(error) => failed(&error),
        };
    }
    provider.watch(&socket)
}

fn failed(error: &Error) -> ExitCode {
    error.report("docker", 1)
}

fn tell(message: &str) {
    eprintln!("weir docker: {message}");
}

/// The services of the engine's containers; those with wrong labels are told.
fn list(socket: &Path) -> Result<Services, Error> {
    let list = engine::containers(socket).map_err(Error::file(&socket))?;
    let (services, faults) = services::read(&list)?;
    faults.iter().for_each(|fault| tell(fault));
    Ok(services)
}

/// Keeps a file, and the server that includes it, up to date.
struct Provider<'a> {
    args: &'a Arguments,
    style: Style<'a>,
    output: PathBuf,
    /// The services that the running server has.
    good: Services,
    /// The services that were last tried: they are tried again only once they change.
    tried: Option<Services>,
    /// The running server has read the file.
    asked: bool,
    /// It is not known whether the server has the file. The contents of the file before, if it
    /// existed.
    unsettled: Option<Option<Vec<u8>>>,
    /// It was not asked yet.
    is_new: bool,
}

impl Provider<'_> {
    /// Runs until the process is ended.
    fn watch(&mut self, socket: &Path) -> ExitCode {
        let mut told = String::new();
        loop {
            // Events are listened to before the list is read, so that no change falls between.
            let done = engine::events(socket)
                .map_err(Error::file(&socket))
                .and_then(|events| self.follow(socket, events));
            let message = done.err().map(|error| error.to_string());
            if let Some(message) = message.filter(|message| *message != told) {
                tell(&message);
                told = message;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Follows the changes until the engine ends the connection.
    fn follow(&mut self, socket: &Path, mut events: Events) -> Result<(), Error> {
        loop {
            let services = list(socket)?;
            if let Err(error) = self.update(services) {
                failed(&error);
            }
            let limit = if self.asked { SILENCE } else { RETRY };
            match events.wait(limit) {
                Ok(Heard::Change | Heard::Silence) => {}
                Err(e) => return Err(Error::file(socket)(e)),
            }
        }
    }

    /// Brings the file and the server up to date.
    fn update(&mut self, services: Services) -> Result<(), Error> {
        if self.tried.as_ref() == Some(&services) && self.asked {
            return Ok(());
        }
        self.tried = Some(services.clone());
        if self.load(&services)? {
            return Ok(());
        }
        // Something of it does not load: what changed is tried piece by piece.
        let mut good: Services = self.good.clone();
        good.retain(|name, _| services.contains_key(name));
        for (name, service) in services {
            if good.get(&name) == Some(&service) {
                continue;
            }
            let before = good.insert(name.clone(), service);
            if !self.load(&good)? {
                tell(&format!("{name} is left as it was, because it does not load"));
                match before {
                    Some(before) => drop(good.insert(name, before)),
                    None => drop(good.remove(&name)),
                }
            }
        }
        match self.load(&good)? {
            true => Ok(()),
            false => Err(Error::usage("the configuration does not load; the file is as it was")),
        }
    }

    /// Writes the file and has the server read it. False: it does not load, and the file is as it
    /// was.
    fn load(&mut self, services: &Services) -> Result<bool, Error> {
        let (text, faults) = render(services, &self.style);
        // It is forgotten only once it is known what the server has: an error is no answer.
        let before = match &self.unsettled {
            Some(before) => before.clone(),
            None => self.read()?,
        };
        if before.as_deref() == Some(text.as_bytes()) && self.asked {
            self.good.clone_from(services);
            return Ok(true);
        }
        self.write(text.as_bytes())?;
        let end = reload::reload(self.args);
        let verdict = match &end {
            // The server may still do what it was asked before.
            End::TestFailed(_) if self.unsettled.is_some() => {
                Verdict::Unknown("the configuration fails its test")
            }
            _ => end.verdict(),
        };
        match verdict {
            Verdict::Refused => {
                // Those of a test are on the terminal already.
                if let End::Answered(_) = end {
                    end.reasons().iter().for_each(|reason| tell(reason));
                }
                self.restore(before)?;
                self.unsettled = None;
                Ok(false)
            }
            Verdict::Serves => {
                faults.iter().for_each(|fault| tell(fault));
                self.good.clone_from(services);
                (self.asked, self.unsettled) = (true, None);
                Ok(true)
            }
            // It is not running yet and reads the file when it starts, or it may have read it. It
            // is asked again.
            Verdict::Unknown(reason) => {
                let fate = match end {
                    End::Unknown(_) => "it is unknown whether it serves",
                    _ => "nothing reloaded",
                };
                if self.asked || self.is_new {
                    tell(&format!("the file is written, but {fate}: {reason}"));
                }
                (self.asked, self.is_new) = (false, false);
                // One that was not asked starts with the file, and has no other one to return to.
                if let End::Unknown(_) = end {
                    self.unsettled = Some(before);
                }
                Ok(true)
            }
        }
    }

    /// The contents of the file; `None` if there is none.
    fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(&self.output) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::file(&self.output)(e)),
        }
    }

    fn restore(&self, before: Option<Vec<u8>>) -> Result<(), Error> {
        match before {
            Some(bytes) => self.write(&bytes),
            None => fs::remove_file(&self.output).map_err(Error::file(&self.output)),
        }
    }

    /// Replaces the file in one step.
    fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut name = self.output.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &self.output));
        written.map_err(Error::file(&self.output))
    }
}
