//! Commands beside nginx's switches: `weir NAME …`. **A command is added to [`COMMANDS`].**

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::flags::Value;
use crate::{
    build, completions, config, container, debug, diff, directives, explain, lint, lsp, manual,
    migrate, reload, serve, tail, top,
};

/// A command.
pub struct Command {
    /// The word after `weir`.
    pub name: &'static str,
    /// Its arguments, for help: `[DIR] [--listen ADDR]`.
    pub usage: &'static str,
    /// Its effect, in a line.
    pub doc: &'static str,
    /// The completion of its arguments.
    pub value: Option<Value>,
    /// Its own switches, for completions: `--listen`.
    pub options: &'static [&'static str],
    /// Runs it with the arguments after its name.
    pub run: fn(&[OsString]) -> ExitCode,
}

/// All commands, in the order of the help text.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        usage: "[DOMAIN...] [DIR | --proxy URL] [--listen ADDR] [--no-browse] [--insecure] \
                [--http ADDR] [--email ADDR] [--directory URL] [--directory-ca FILE] \
                [--resolver ADDR]",
        doc: "serve a folder, or pass on to a server, without a file; domains under HTTPS",
        value: Some(Value::Dir),
        options: &[
            "--listen",
            "--proxy",
            "--no-browse",
            "--insecure",
            "--http",
            "--email",
            "--directory",
            "--directory-ca",
            "--resolver",
        ],
        run: serve::run,
    },
    Command {
        name: "explain",
        usage: "URL [-H FIELD]... [-X METHOD] [--from ADDR] [--to ADDR] [--json] [-c FILE]",
        doc: "tell how the configuration answers a request: server, location, upstream, settings",
        value: None,
        options: &["--json", "-H", "-X", "--from", "--to", "-c", "-p", "-g"],
        run: explain::run,
    },
    Command {
        name: "reload",
        usage: "[--json] [--pid FILE] [-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "test the configuration, have the running server take it over, tell the outcome",
        value: None,
        options: &["--json", "--pid", "-c", "-p", "-g", "-e"],
        run: reload::run,
    },
    Command {
        name: "diff",
        usage: "[--pid FILE] [-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "compare the configuration on disk with the one that runs",
        value: None,
        options: &["--pid", "-c", "-p", "-g"],
        run: diff::run,
    },
    Command {
        name: "top",
        usage: "[--interval TIME] [--count N] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "watch the running server: requests a second, upstreams' servers, workers",
        value: None,
        options: &["--interval", "--count", "--pid", "-c", "-p", "-g"],
        run: top::run,
    },
    Command {
        name: "tail",
        usage: "--slow [--last N] [--json] [--once] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "follow the running server's requests that were slow or failed",
        value: None,
        options: &["--slow", "--last", "--json", "--once", "--pid", "-c", "-p", "-g"],
        run: tail::run,
    },
    Command {
        name: "debug",
        usage: "--client CIDR [--for TIME] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "have the running server log all about some clients for a while (60s)",
        value: None,
        options: &["--client", "--for", "--pid", "-c", "-p", "-g"],
        run: debug::run,
    },
    Command {
        name: "lint",
        usage: "[FILE] [--habits] [--format text|json|sarif|github] [--rules]",
        doc: "look for probable faults of a configuration",
        value: Some(Value::File),
        options: &["--habits", "--format", "--rules"],
        run: lint::run,
    },
    Command {
        name: "migrate",
        usage: "[FILE | -]",
        doc: "what is missing for a configuration of nginx, and the differences that touch it",
        value: Some(Value::File),
        options: &[],
        run: migrate::run,
    },
    Command {
        name: "config",
        usage: "--json [FILE]",
        doc: "print a configuration and its includes as JSON, in crossplane's form",
        value: Some(Value::File),
        options: &["--json"],
        run: config::run,
    },
    Command {
        name: "lsp",
        usage: "[-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "serve an editor: faults, completions, documentation (Language Server Protocol)",
        value: None,
        options: &["-c", "-p", "-g"],
        run: lsp::run,
    },
    Command {
        name: "container",
        usage: "[SWITCHES]",
        doc: "fill in templates of configuration from the environment, and serve",
        value: None,
        options: &["-c", "-p", "-g", "-e"],
        run: container::run,
    },
    Command {
        name: "build",
        usage: "--with MODULE...",
        doc: "compile a server with modules from outside (weir build --help)",
        value: Some(Value::File),
        options: &["--with", "--output", "--weir", "--folder", "--debug", "--offline", "--help"],
        run: build::run,
    },
    Command {
        name: "completions",
        usage: "SHELL",
        doc: "print completions for bash, zsh or fish",
        value: Some(Value::OneOf(completions::NAMES)),
        options: &[],
        run: |args| print(one(args, "completions", "SHELL").and_then(completions::script)),
    },
    Command {
        name: "man",
        usage: "",
        doc: "print the manual page (weir man | man -l -)",
        value: None,
        options: &[],
        run: |args| print(none(args, "man").map(|()| manual::page())),
    },
    Command {
        name: "dump-directives",
        usage: "",
        doc: "print every directive with its places, arguments and default",
        value: None,
        options: &[],
        run: |args| print(none(args, "dump-directives").map(|()| directives::dump())),
    },
];

/// The command of that name.
pub fn find(name: &OsString) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| name == command.name)
}

impl Command {
    /// Runs it with the arguments after its name, or shows its usage.
    pub fn start(&self, args: &[OsString]) -> ExitCode {
        let own_help = self.options.contains(&"--help");
        match args {
            [only] if !own_help && (only == "--help" || only == "-h") => {
                let Command { name, usage, doc, .. } = self;
                let space = if usage.is_empty() { "" } else { " " };
                print(Ok(format!("usage: weir {name}{space}{usage}\n\n{doc}\n")))
            }
            _ => (self.run)(args),
        }
    }
}

fn none(args: &[OsString], name: &str) -> Result<(), String> {
    match args {
        [] => Ok(()),
        _ => Err(format!("\"{name}\" takes no arguments")),
    }
}

fn one<'a>(args: &'a [OsString], name: &str, what: &str) -> Result<&'a str, String> {
    let only = match args {
        [arg] => arg.to_str(),
        _ => None,
    };
    only.ok_or_else(|| format!("usage: weir {name} {what}"))
}

fn print(text: Result<String, String>) -> ExitCode {
    match text {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // The reader has closed its end.
            Err(_) => ExitCode::FAILURE,
        },
        Err(message) => {
            eprintln!("weir: {message}");
            ExitCode::FAILURE
        }
    }
}
