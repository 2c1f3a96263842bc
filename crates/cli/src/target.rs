//! The configuration that a command means, and the server that runs with it: by nginx's switches,
//! as the server itself was started with.

use std::path::{Path, PathBuf};

use base::log;
use base::log::{Level, Log};
use clap::ArgMatches;
use conf::environment::Environment;
use conf::parse::{Options, parse_file, parse_params};
use conf::{Node, SourceFile, Tree};
use server::control::{Answer, NoAnswer, ask, socket_of};
use server::engines::Lasting;
use server::environ::Environ;
use server::load::Loader;
use server::paths::Paths;
use server::typed::Typed;
use server::{settings, startlog};

use crate::error::Error;
use crate::line;

/// The arguments of a command, read.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// nginx's switches.
    pub(crate) typed: Typed,
    matches: ArgMatches,
}

impl Arguments {
    /// Takes the arguments that clap has read.
    ///
    /// # Errors
    /// A switch has a wrong value.
    pub(crate) fn new(matches: &ArgMatches) -> Result<Arguments, Error> {
        Ok(Arguments { typed: line::typed(matches)?, matches: matches.clone() })
    }

    /// Whether an option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    /// The last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last()
    }

    /// All values of an option.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.matches.get_many::<String>(name).into_iter().flatten().map(String::as_str)
    }
}

/// A configuration, not yet read.
pub(crate) struct Target {
    /// Reads it.
    pub(crate) loader: Loader,
    /// The log of what happens meanwhile.
    pub(crate) log: Log,
}

impl Target {
    /// The configuration that the switches mean. Messages from `level` up go to the terminal and
    /// to the file of `-e`.
    pub(crate) fn new(typed: &Typed, level: Level) -> Result<Target, Error> {
        let paths = Paths::new(typed, &Environ::capture());
        let log = startlog::open(&paths, level);
        log::set_default(log.clone());
        let lasting = Lasting::new().map_err(|e| Error::system(format!("mmap() failed {e}")))?;
        Ok(Target { loader: Loader::new(paths, typed.directives.clone(), lasting), log })
    }

    /// Its text, unless its syntax is wrong.
    pub(crate) fn tree(&self) -> Option<Tree> {
        let paths = &self.loader.paths;
        let conf_prefix = paths.conf_prefix.clone();
        let environment = Environment::IfSet;
        let options = Options { conf_prefix, keep_broken: true, environment, ..Options::default() };
        parse_file(&paths.conf_file, &options).ok()
    }

    /// The control socket of the server that runs with it. Its settings may be wrong, and its pid
    /// file is found all the same, if the syntax is right.
    pub(crate) fn socket(&self, pid_file: Option<&str>) -> Result<PathBuf, Error> {
        let paths = &self.loader.paths;
        let pid_file = match pid_file {
            Some(path) => PathBuf::from(path),
            None => {
                let given = self.loader.directives.as_deref().unwrap_or_default();
                let given = parse_params(given, &Options::default()).ok();
                let nodes = |tree: &Option<Tree>| tree.as_ref().and_then(pid_of);
                let named = nodes(&given).or_else(|| nodes(&self.tree()));
                settings::pid_file(paths, named.as_deref())
            }
        };
        socket_of(&pid_file).ok_or_else(|| Error::server("the server has no pid file"))
    }
}

fn pid_of(tree: &Tree) -> Option<Vec<u8>> {
    let is_pid = |node: &&Node| node.name == *"pid";
    let word = tree.nodes.iter().find(is_pid)?.args.first()?;
    Some(word.bytes().to_vec())
}

/// Asks the running server, and explains a failure.
pub(crate) fn asked(socket: &Path, question: &str) -> Result<Answer, Error> {
    ask(socket, question).map_err(|e| unanswered(&e))
}

/// Explains why there is no answer.
pub(crate) fn unanswered(e: &NoAnswer) -> Error {
    Error::server(match e {
        NoAnswer::Unreachable(_, error) => {
            let hint = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "only the server's own account and root may ask"
                }
                _ => {
                    "no server runs with this pid file, or it has no master process; --pid names \
                     the file of another one"
                }
            };
            format!("{e}: {hint}")
        }
        NoAnswer::Unsent(_) | NoAnswer::Cut | NoAnswer::Late => e.to_string(),
    })
}

/// The text of the running configuration, from the answer to `config`.
pub(crate) fn running_files(answer: &Answer) -> Option<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut rest = &answer.body[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|&b| b == b'\n')?;
        let head = std::str::from_utf8(&rest[..end]).ok()?;
        let (len, path) = head.split_once(' ')?;
        let len: usize = len.parse().ok()?;
        let text = rest.get(end + 1..)?.get(..len)?;
        let bytes = bytes::Bytes::copy_from_slice(text);
        files.push(SourceFile { path: Path::new(path).into(), bytes });
        rest = rest.get(end + 1 + len + 1..)?;
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn sorted(args: &[&str]) -> Result<Arguments, Error> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let matches =
            crate::explain::COMMAND.parse(&args).map_err(|e| Error::usage(e.to_string()))?;
        Arguments::new(&matches)
    }

    #[test]
    fn arguments_are_sorted() {
        let a = sorted(&["-c", "x.conf", "/a", "-H", "A: b=c", "-p/srv", "--to=f", "-H", "B: d"]);
        let a = a.unwrap();
        assert_eq!(a.typed.conf_file.as_deref(), Some(&b"x.conf"[..]));
        assert_eq!(a.typed.prefix.as_deref(), Some(&b"/srv"[..]));
        assert_eq!((a.value("to"), a.has("json")), (Some("f"), false));
        assert_eq!(a.values("H").collect::<Vec<_>>(), ["A: b=c", "B: d"]);
        assert_eq!(a.value("URL"), Some("/a"));
        // The last one counts, and a value may begin with a dash.
        assert_eq!(sorted(&["/a", "--to", "x", "--to", "y"]).unwrap().value("to"), Some("y"));
        let a = sorted(&["/a", "-g", "-x;"]).unwrap();
        assert_eq!(a.typed.directives.as_deref(), Some(&b"-x;"[..]));
        for wrong in [&["/a", "-t"][..], &["/a", "--json=1"], &["/a", "--to"], &["/a", "-c"], &[]] {
            assert!(sorted(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_running_text_is_read_back() {
        let mut answer = Answer::new(server::control::Status::Ok);
        answer.body = b"3 /a b\nx\ny\n0 /c\n\n".to_vec();
        let files = running_files(&answer).unwrap();
        assert_eq!((&*files[0].path, &files[0].bytes[..]), (Path::new("/a b"), &b"x\ny"[..]));
        assert_eq!((files.len(), files[1].bytes.len()), (2, 0));
        answer.body = b"9 /a\nx".to_vec();
        assert!(running_files(&answer).is_none());
    }
}
