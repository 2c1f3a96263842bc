//! `weir fmt [FILE…]`: the layout of configuration files; see [`conf::format`].

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::{ArgAction, ArgMatches};
use conf::format::format;

use crate::declared::{Command, PLAIN, Run, print};
use crate::error::Error;
use crate::line;
use crate::rewrite::Changed;

/// The exit status of a file that cannot be read, parsed or written.
const FAILED: u8 = 2;

/// `weir fmt`
pub(crate) const COMMAND: Command = Command {
    name: "fmt",
    doc: "format configuration files",
    about: "Indents statements by their blocks and puts each in a line of its own. Words, comments \
            and Lua programs stay as they are, and so does what the configuration means. Included \
            files are not followed: name them, too. A file with a syntax error is not touched.",
    args: || {
        let file = line::file("The files; - is standard input [default: standard input]");
        vec![
            file.action(ArgAction::Append).num_args(0..),
            line::option("check", "Change nothing; name the files that are not formatted")
                .conflicts_with("stdout"),
            line::option("stdout", "Print the formatted text; change nothing"),
        ]
    },
    exit: &[
        ("0", "all files are formatted"),
        ("1", "--check found a file that is not formatted"),
        ("2", "a file cannot be read, parsed or written, or the command line is wrong"),
    ],
    examples: &[
        ("weir fmt /etc/nginx/nginx.conf", "Format this file."),
        ("weir fmt --check nginx.conf conf.d/site.conf", "For CI: are these formatted?"),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

/// What becomes of a formatted text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Write,
    Check,
    Print,
}

fn run(matches: &ArgMatches) -> ExitCode {
    let files: Vec<PathBuf> =
        matches.get_many::<PathBuf>("FILE").into_iter().flatten().cloned().collect();
    let files = if files.is_empty() { vec![PathBuf::from("-")] } else { files };
    let outcome = match (matches.get_flag("check"), matches.get_flag("stdout")) {
        (true, _) => Outcome::Check,
        (_, true) => Outcome::Print,
        _ => Outcome::Write,
    };
    let (mut failed, mut differs) = (false, false);
    for file in &files {
        match one(file, outcome) {
            Ok(is_formatted) => differs |= !is_formatted,
            Err(error) => {
                error.report("fmt", FAILED);
                failed = true;
            }
        }
    }
    match (failed, differs && outcome == Outcome::Check) {
        (true, _) => ExitCode::from(FAILED),
        (false, true) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Formats a file; whether it was formatted already.
fn one(file: &Path, outcome: Outcome) -> Result<bool, Error> {
    let is_input = file == Path::new("-");
    let name = if is_input { Path::new("standard input") } else { file };
    let mut text = Vec::new();
    let read = match is_input {
        true => io::stdin().read_to_end(&mut text).map(drop),
        false => fs::read(file).map(|read| text = read),
    };
    read.map_err(Error::file(&name))?;
    let old = Bytes::from(text);
    let new = Bytes::from(format(name, &old)?);
    let same = old == new;
    match outcome {
        Outcome::Check if !same => println(&name.display().to_string())?,
        Outcome::Print => write(&new)?,
        Outcome::Write if is_input => write(&new)?,
        Outcome::Write if !same => Changed { path: file.to_owned(), old, new }.write()?,
        _ => {}
    }
    Ok(same)
}

fn println(line: &str) -> Result<(), Error> {
    match print(&format!("{line}\n")) {
        ExitCode::SUCCESS => Ok(()),
        _ => Err(Error::system("standard output is closed")),
    }
}

fn write(text: &[u8]) -> Result<(), Error> {
    use std::io::Write as _;
    io::stdout().write_all(text).map_err(|e| Error::system(format!("standard output: {e}")))
}
