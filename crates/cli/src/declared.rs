//! A command as its file declares it, of which its parser, help, manual page and completions are
//! made.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Arg, ArgMatches};

use crate::line::{STYLES, WIDTH, capital, common, help, wrapped};

/// Pairs of a term and its explanation.
pub(crate) type Entries = &'static [(&'static str, &'static str)];

pub(crate) struct Command {
    /// The word after `weir`.
    pub(crate) name: &'static str,
    /// Its effect, in a line without a capital letter and full stop.
    pub(crate) doc: &'static str,
    /// Sentences that say who needs the command and what it does.
    pub(crate) about: &'static str,
    /// Its arguments.
    pub(crate) args: fn() -> Vec<Arg>,
    /// Exit statuses besides [`USAGE`]; it is 0 for success and 1 for failure if there are none.
    pub(crate) exit: Entries,
    /// Files that it reads or writes.
    pub(crate) files: Entries,
    /// Variables of the environment that it reads.
    pub(crate) environment: Entries,
    /// Complete command lines, with their effects.
    pub(crate) examples: Entries,
    pub(crate) run: Run,
}

/// How a command gets its arguments.
pub(crate) enum Run {
    /// As clap has read them.
    Parsed(fn(&ArgMatches) -> ExitCode),
    /// As they were typed: nginx's switches, read as nginx reads them.
    Switches(fn(&[OsString]) -> ExitCode),
}

/// The values of a command that has no arguments and notes; its name, texts and `run` are added.
pub(crate) const PLAIN: Command = Command {
    name: "",
    doc: "",
    about: "",
    args: Vec::new,
    exit: &[],
    files: &[],
    environment: &[],
    examples: &[],
    run: Run::Parsed(|_| ExitCode::SUCCESS),
};

/// The exit status of a wrong command line.
const USAGE: (&str, &str) = ("2", "the command line is wrong");

/// Prints help or an error of the command line. Help is no failure.
pub(crate) fn told(error: &clap::Error) -> ExitCode {
    match (error.print(), u8::try_from(error.exit_code())) {
        (Ok(()), Ok(code)) => ExitCode::from(code),
        // The reader has closed its end.
        _ => ExitCode::FAILURE,
    }
}

impl Command {
    /// Runs it with the arguments after its name.
    pub(crate) fn start(&self, args: &[OsString]) -> ExitCode {
        match self.run {
            Run::Parsed(run) => match self.parse(args) {
                Ok(matches) => run(&matches),
                Err(error) => told(&error),
            },
            Run::Switches(run) => match args {
                [only] if only == "--help" || only == "-h" => {
                    self.parse(args).map_or_else(|error| told(&error), |_| ExitCode::SUCCESS)
                }
                _ => run(args),
            },
        }
    }

    /// Reads the arguments after its name.
    ///
    /// # Errors
    /// They are wrong, or ask for help.
    pub(crate) fn parse(&self, args: &[OsString]) -> Result<ArgMatches, clap::Error> {
        let name = format!("weir {}", self.name);
        let declared = self.declared().bin_name(&name);
        declared.try_get_matches_from([OsString::from(name)].iter().chain(args))
    }

    /// The sections of its help and manual page after the options.
    pub(crate) fn sections(&self) -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
        let usual = [("0", "success"), ("1", "failure")];
        let exit = if self.exit.is_empty() { &usual[..] } else { self.exit };
        let known = exit.iter().any(|(code, _)| *code == USAGE.0);
        let exit = exit.iter().copied().chain((!known).then_some(USAGE)).collect();
        let sections = [
            ("Exit status", exit),
            ("Files", self.files.to_vec()),
            ("Environment", self.environment.to_vec()),
            ("Examples", self.examples.to_vec()),
        ];
        sections.into_iter().filter(|(_, entries)| !entries.is_empty()).collect()
    }
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed its end.
        Err(_) => ExitCode::FAILURE,
    }
}

impl Command {
    /// The command for clap, with its texts.
    pub(crate) fn declared(&self) -> clap::Command {
        let doc = capital(self.doc);
        common(clap::Command::new(self.name))
            .about(doc.clone())
            .long_about(format!("{doc}.\n\n{}", self.about))
            .args((self.args)())
            .arg(help())
            .after_help(format!("Run 'weir help {}' for more.", self.name))
            .after_long_help(self.notes())
    }

    /// The sections after the options in long help.
    fn notes(&self) -> String {
        let heading = STYLES.get_header();
        let mut out = String::new();
        for (name, entries) in self.sections() {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&format!("{heading}{name}:{heading:#}\n"));
            for (term, text) in entries {
                match name {
                    // One line is better to read than a list.
                    "Exit status" => out.push_str(&wrapped(&format!("{term}: {text}"), 2, WIDTH)),
                    _ => {
                        out.push_str(&format!("  {term}\n"));
                        out.push_str(&wrapped(text, 10, WIDTH));
                    }
                }
            }
        }
        out
    }
}
