//! The configuration that a command means, and the server that runs with it: by nginx's switches,
//! as the server itself was started with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base::log;
use base::log::{Level, Log};
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

use crate::switches;

/// The arguments of a command.
#[derive(Debug, Default)]
pub struct Arguments {
    /// nginx's switches.
    pub typed: Typed,
    /// The command's own options: the name with its dashes, and the value of those that take one.
    pub options: Vec<(String, String)>,
    /// The rest.
    pub words: Vec<OsString>,
}

/// Sorts the arguments of a command. `own` are its options, each with whether it takes a value
/// (`--json`, `-H`); one with two dashes may have it behind an equals sign. `allowed` are the
/// letters of nginx's switches that mean something to it.
pub fn arguments(
    args: &[OsString],
    own: &[(&str, bool)],
    allowed: &str,
) -> Result<Arguments, String> {
    let mut sorted = Arguments::default();
    let mut switches = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        let (name, joined) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (&*text, None),
        };
        let mut next = || args.next().map(|arg| arg.to_string_lossy().into_owned());
        if let Some((_, valued)) = own.iter().find(|(known, _)| *known == name) {
            let value = match (valued, joined) {
                (true, None) => next().ok_or_else(|| format!("{name} needs a value"))?,
                (true, Some(value)) => value,
                (false, None) => String::new(),
                (false, Some(_)) => return Err(format!("{name} takes no value")),
            };
            sorted.options.push((name.to_owned(), value));
            continue;
        }
        match text.strip_prefix('-').and_then(|rest| rest.chars().next()) {
            None => sorted.words.push(arg.clone()),
            Some(letter) if allowed.contains(letter) => {
                switches.push(arg.clone());
                if text.len() == 2 {
                    switches.extend(args.next().cloned());
                }
            }
            Some(_) => return Err(format!("unknown option {text}")),
        }
    }
    sorted.typed = switches::parse(switches)?;
    Ok(sorted)
}

impl Arguments {
    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(n, _)| n == name)
    }

    /// The last value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last()
    }

    /// All values of an option.
    pub fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        self.options.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// A configuration, not yet read.
pub struct Target {
    /// Reads it.
    pub loader: Loader,
    /// The log of what happens meanwhile.
    pub log: Log,
}

impl Target {
    /// The configuration that the switches mean. Messages from `level` up go to the terminal and
    /// to the file of `-e`.
    pub fn new(typed: &Typed, level: Level) -> Result<Target, String> {
        let paths = Paths::new(typed, &Environ::capture());
        let log = startlog::open(&paths, level);
        log::set_default(log.clone());
        let lasting = Lasting::new().map_err(|e| format!("mmap() failed {e}"))?;
        Ok(Target { loader: Loader::new(paths, typed.directives.clone(), lasting), log })
    }

    /// Its text, unless its syntax is wrong.
    pub fn tree(&self) -> Option<Tree> {
        let paths = &self.loader.paths;
        let conf_prefix = paths.conf_prefix.clone();
        let environment = Environment::IfSet;
        let options = Options { conf_prefix, keep_broken: true, environment, ..Options::default() };
        parse_file(&paths.conf_file, &options).ok()
    }

    /// The control socket of the server that runs with it. Its settings may be wrong, and its pid
    /// file is found all the same, if the syntax is right.
    pub fn socket(&self, pid_file: Option<&str>) -> Result<PathBuf, String> {
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
        socket_of(&pid_file).ok_or_else(|| "the server has no pid file".to_owned())
    }
}

fn pid_of(tree: &Tree) -> Option<Vec<u8>> {
    let is_pid = |node: &&Node| node.name == *"pid";
    let word = tree.nodes.iter().find(is_pid)?.args.first()?;
    Some(word.bytes().to_vec())
}

/// Asks the running server, and explains a failure.
pub fn asked(socket: &Path, question: &str) -> Result<Answer, String> {
    ask(socket, question).map_err(|e| match e {
        NoAnswer::Unreachable(_, ref error) => {
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
        NoAnswer::Cut => e.to_string(),
    })
}

/// The text of the running configuration, from the answer to `config`.
pub fn running_files(answer: &Answer) -> Option<Vec<SourceFile>> {
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

    fn sorted(args: &[&str]) -> Result<Arguments, String> {
        let own = [("--json", false), ("--pid", true), ("-H", true)];
        arguments(&args.iter().map(OsString::from).collect::<Vec<_>>(), &own, "cpg")
    }

    #[test]
    fn arguments_are_sorted() {
        let a = sorted(&["-c", "x.conf", "/a", "-H", "A: b=c", "-p/srv", "--pid=f", "-H", "B: d"]);
        let a = a.unwrap();
        assert_eq!(a.typed.conf_file.as_deref(), Some(&b"x.conf"[..]));
        assert_eq!(a.typed.prefix.as_deref(), Some(&b"/srv"[..]));
        assert_eq!((a.value("--pid"), a.has("--json")), (Some("f"), false));
        assert_eq!(a.values("-H").collect::<Vec<_>>(), ["A: b=c", "B: d"]);
        assert_eq!(a.words, ["/a"]);
        for wrong in [&["-t"][..], &["--json=1"], &["--pid"], &["-c"], &["--other"]] {
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
