//! `weir diff`: the configuration on disk against the one that runs.

mod lines;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::log::Level;
use bytes::Bytes;
use clap::ArgMatches;
use conf::SourceFile;
use server::added;

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::target::{Arguments, Target, asked, running_files};
use crate::watching;

pub(crate) use lines::unified;

/// The exit status in trouble, as diff(1)'s.
const TROUBLE: u8 = 2;

/// `weir diff`
pub(crate) const COMMAND: Command = Command {
    name: "diff",
    doc: "compare the configuration on disk with the running one",
    about: "For checking what a reload would change. Prints a unified diff, with secrets starred.",
    args: || watching::args([]),
    exit: &[
        ("0", "there is no difference"),
        ("1", "there is one"),
        ("2", "the running server could not be asked, or the command line is wrong"),
    ],
    examples: &[("weir diff -c /etc/nginx/nginx.conf", "What would a reload change?")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let compared = Arguments::new(matches)
        .and_then(|args| compare(&Target::new(&args.typed, Level::Emerg)?, args.value("pid")));
    match compared {
        Ok(text) => match std::io::stdout().write_all(&text) {
            Ok(()) if text.is_empty() => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        },
        Err(error) => error.report("diff", TROUBLE),
    }
}

fn compare(target: &Target, pid_file: Option<&str>) -> Result<Vec<u8>, Error> {
    let answer = asked(&target.socket(pid_file)?, "config")?;
    let running = running_files(&answer)
        .ok_or_else(|| Error::server("the server's answer makes no sense"))?;
    let main = running.first().map_or_else(PathBuf::new, |file| file.path.to_path_buf());
    // A text with a wrong syntax says which files it includes only up to there. The files that run
    // are compared all the same.
    let tree = target.tree();
    let is_whole = tree.is_some();
    let now = tree.map(|tree| tree.files).unwrap_or_else(|| {
        let read = |path: &Path| fs::read(path).ok().map(Bytes::from);
        let paths = running.iter().map(|file| file.path.clone());
        paths.filter_map(|path| read(&path).map(|bytes| SourceFile { path, bytes })).collect()
    });
    let text = difference(&running, &now);
    if !is_whole {
        eprintln!("weir diff: the configuration has a fault: weir -t tells its place");
    }
    if now.is_empty() && !main.as_os_str().is_empty() {
        eprintln!("weir diff: {} cannot be read", main.display());
    }
    Ok(text)
}

/// The texts of files by their paths, in the order of the paths.
type Texts<'a> = BTreeMap<&'a Path, &'a Bytes>;

fn texts(files: &[SourceFile]) -> Texts<'_> {
    files.iter().map(|file| (&*file.path, &file.bytes)).collect()
}

fn difference(running: &[SourceFile], now: &[SourceFile]) -> Vec<u8> {
    let secrets = added::secrets();
    let (old, new) = (texts(running), texts(now));
    let mut out = Vec::new();
    let added = new.keys().filter(|path| !old.contains_key(*path));
    for path in old.keys().chain(added) {
        one_file(path, old.get(path).copied(), new.get(path).copied(), &secrets, &mut out);
    }
    out
}

fn one_file(
    path: &Path,
    old: Option<&Bytes>,
    new: Option<&Bytes>,
    secrets: &[&str],
    out: &mut Vec<u8>,
) {
    if old == new {
        return;
    }
    let shown = |text: Option<&Bytes>| {
        let text = text.map(|text| conf::redact::redact(text, secrets)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let (before, after) = (shown(old), shown(new));
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.lines().collect(), after.lines().collect());
    let hunks = lines::unified(&before, &after);
    let name = |side: &str, text: Option<&Bytes>| match text {
        Some(_) => [side.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat(),
        None => [side.as_bytes(), b"/dev/null\n"].concat(),
    };
    out.extend(name("--- running ", old));
    out.extend(name("+++ on disk ", new));
    match hunks.is_empty() {
        true => out.extend_from_slice(b"(only secrets or line ends differ)\n"),
        false => out.extend_from_slice(hunks.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_go_and_change() {
        let file = |path: &str, text: &'static str| SourceFile {
            path: Path::new(path).into(),
            bytes: Bytes::from_static(text.as_bytes()),
        };
        let old = [file("/a", "x;\n"), file("/b", "y;\n"), file("/same", "z;\n")];
        let new = [file("/a", "w;\n"), file("/c", "v;\n"), file("/same", "z;\n")];
        let text = String::from_utf8(difference(&old, &new)).unwrap();
        let want = "--- running /a\n+++ on disk /a\n@@ -1,1 +1,1 @@\n-x;\n+w;\n\
                    --- running /b\n+++ on disk /dev/null\n@@ -1,1 +0,0 @@\n-y;\n\
                    --- running /dev/null\n+++ on disk /c\n@@ -0,0 +1,1 @@\n+v;\n";
        assert_eq!(text, want);
        assert!(difference(&old, &old).is_empty());
    }
}
