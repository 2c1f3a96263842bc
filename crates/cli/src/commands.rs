//! Commands beside nginx's switches: `weir NAME …`. **A command is added to [`COMMANDS`].**

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use server::directives;

use crate::flags::Value;
use crate::{
    build, completions, config, container, debug, diff, explain, lint, lsp, manual, migrate,
    reload, serve, tail, top,
};

/// A command.
pub struct Command {
    /// The word after `weir`.
    pub name: &'static str,
    /// Its arguments, for help: `[DIR] [--listen ADDR]`.
    pub usage: &'static str,
    /// Its effect, in a line: help lists it.
    pub doc: &'static str,
    /// Who needs it, its options, its exit status: lines of at most 84 columns.
    pub about: &'static str,
    /// One complete command line.
    pub example: &'static str,
    /// How shells complete its arguments.
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
        usage: "[DOMAIN...] [DIR | --proxy URL] [--listen ADDR] [OPTION...]",
        doc: "serve a folder or proxy a server, without a configuration file",
        about: "\
To try Weir, for local development, and for a site that needs no configuration.
DIR is the folder to serve; without it and --proxy there is a welcome page. URL is
http://host:port/path, https://host, host:port or port. Weir takes the first free
port of 127.0.0.1 from 8080 to 8089, or --listen. A DOMAIN is served over HTTPS on
port 443, with a certificate by ACME; HTTP on port 80 is redirected.

  --no-browse          answer 403 for folders without index.html, do not list them
  --insecure           do not check the certificate of an https URL
  --http ADDR          with a domain: where HTTP is redirected (default: port 80)
  --email ADDR         with a domain: contact address for the ACME account
  --directory URL      with a domain: another ACME server than Let's Encrypt
  --directory-ca FILE  with a domain: CA certificates that verify that server
  --resolver ADDR      with a domain: DNS server (default: of /etc/resolv.conf)",
        example: "weir serve example.com --proxy localhost:3000",
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
        doc: "show how the configuration answers a request, without a server",
        about: "\
For finding out why a request ends up where it does. Prints the server and location
that match, every rewrite, the upstream, the cache key, and each directive in effect
with its file and line.

  -X METHOD    the method (default: GET)
  -H FIELD     a header of the request; may be repeated
  --from ADDR  the client's address (default: 127.0.0.1)
  --to ADDR    the address that the client connects to, or unix:PATH
  --json       JSON for programs",
        example: "weir explain https://example.com/a -H 'Accept-Encoding: br' -c nginx.conf",
        value: None,
        options: &["--json", "-H", "-X", "--from", "--to", "-c", "-p", "-g"],
        run: explain::run,
    },
    Command {
        name: "reload",
        usage: "[--json] [--pid FILE] [-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "test the configuration, reload it, and report whether it serves",
        about: "\
For deployments: unlike -s reload, it waits until the new workers serve and prints
the reasons when they do not. Exit status: 0 if the new configuration serves, 1 if
it was refused and the old one stays, 2 if the server could not be reached, 3 if
fewer workers serve than are configured.

  --json      JSON for programs
  --pid FILE  the pid file of the running server, if the new configuration moves it",
        example: "weir reload -c /etc/nginx/nginx.conf",
        value: None,
        options: &["--json", "--pid", "-c", "-p", "-g", "-e"],
        run: reload::run,
    },
    Command {
        name: "diff",
        usage: "[--pid FILE] [-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "compare the configuration on disk with the running one",
        about: "\
For checking what a reload would change. Prints a unified diff, with secrets
starred. Exit status: 0 without a difference, 1 with one, 2 on an error.",
        example: "weir diff -c /etc/nginx/nginx.conf",
        value: None,
        options: &["--pid", "-c", "-p", "-g"],
        run: diff::run,
    },
    Command {
        name: "top",
        usage: "[--interval TIME] [--count N] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "show live requests per second, upstream servers and workers",
        about: "\
For watching a running server at a terminal; Ctrl-C ends it. Problems are listed
first: servers that are down, fail or are slow, and workers that hang. Upstream
servers are counted if a location has api, prometheus or dashboard.

  --interval TIME  time between two updates (default: 500ms, at least 100ms)
  --count N        end after N updates",
        example: "weir top --interval 2s",
        value: None,
        options: &["--interval", "--count", "--pid", "-c", "-p", "-g"],
        run: top::run,
    },
    Command {
        name: "tail",
        usage: "--slow [--last N] [--json] [--once] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "print slow and failed requests as they end",
        about: "\
For finding out where the time of a request goes. The configuration needs
slow_request_time.

  --slow    required: nothing else can be followed yet
  --last N  begin with the latest N requests (default: 10)
  --once    do not wait for further requests
  --json    JSON for programs",
        example: "weir tail --slow --last 50",
        value: None,
        options: &["--slow", "--last", "--json", "--once", "--pid", "-c", "-p", "-g"],
        run: tail::run,
    },
    Command {
        name: "debug",
        usage: "--client CIDR [--for TIME] [--pid FILE] [-c FILE] [-p PREFIX]",
        doc: "log everything about some clients for a limited time",
        about: "\
For a problem that one client has: the error log gets every line about connections
of the range CIDR, as with debug_connection, but without a reload.

  --for TIME  the duration (default: 60s, at most a day); 0 ends it at once",
        example: "weir debug --client 192.0.2.0/24 --for 2m",
        value: None,
        options: &["--client", "--for", "--pid", "-c", "-p", "-g"],
        run: debug::run,
    },
    Command {
        name: "lint",
        usage: "[FILE] [--habits] [--format text|json|sarif|github] [--rules]",
        doc: "find probable errors in a configuration",
        about: "\
For reviews and CI: finds settings that load but rarely do what they seem to do, for
example a location that lets clients escape from its alias. FILE is the default
configuration file if it is left out. Exit status: 0 if nothing is found, 1 if
something is, 2 if the file cannot be read.

  --habits       also report common habits that some teams forbid
  --format NAME  text, json, sarif (2.1.0) or github
  --rules        list all rules",
        example: "weir lint nginx.conf --format sarif > weir.sarif",
        value: Some(Value::File),
        options: &["--habits", "--format", "--rules"],
        run: lint::run,
    },
    Command {
        name: "migrate",
        usage: "[FILE | -]",
        doc: "report what a move of a configuration from nginx to Weir changes",
        about: "\
For a move from nginx. Reads a configuration file, or the output of nginx -T from
standard input (-). Lists directives and modules that Weir lacks, with what to use
instead, and the documented differences that concern this configuration. Exit
status: 0 if nothing is missing, 1 if something is, 2 if the text cannot be read.",
        example: "nginx -T | weir migrate -",
        value: Some(Value::File),
        options: &[],
        run: migrate::run,
    },
    Command {
        name: "config",
        usage: "--json [FILE]",
        doc: "print a configuration and its includes as JSON",
        about: "\
For programs that read or change configurations. The form is that of crossplane
parse; arguments with secrets are ***, comments are left out. Exit status: 1 if a
file cannot be read or parsed.",
        example: "weir config --json /etc/nginx/nginx.conf",
        value: Some(Value::File),
        options: &["--json"],
        run: config::run,
    },
    Command {
        name: "lsp",
        usage: "[-c FILE] [-p PREFIX] [-g DIRECTIVES]",
        doc: "run a language server for editors",
        about: "\
For editors, which start it and talk to it over standard input and output (Language
Server Protocol): errors while you type, completion, documentation, definitions.
docs/EDITORS.md shows how to set up an editor.",
        example: "weir lsp -c /etc/nginx/nginx.conf",
        value: None,
        options: &["-c", "-p", "-g"],
        run: lsp::run,
    },
    Command {
        name: "container",
        usage: "[SWITCHES]",
        doc: "fill in configuration templates from the environment, then serve",
        about: "\
For containers: the same as the entry point of nginx's image. Each
templates/NAME.template next to the configuration file becomes conf.d/NAME, with
${VARIABLES} replaced by the environment's. The NGINX_ENVSUBST_... variables of
nginx's image change folders and suffix.",
        example: "weir container -g 'daemon off;'",
        value: None,
        options: &["-c", "-p", "-g", "-e"],
        run: container::run,
    },
    Command {
        name: "build",
        usage: "--with MODULE...",
        doc: "compile a server with your own modules (weir build --help)",
        about: "\
For modules in Rust that are not part of Weir. weir build --help lists the options,
docs/modules.md explains how to write a module.",
        example: "weir build --with weir-hello=../weir-hello -o weir-hello-server",
        value: Some(Value::File),
        options: &[
            "--with",
            "--output",
            "--weir",
            "--folder",
            "--release",
            "--debug",
            "--offline",
            "--help",
        ],
        run: build::run,
    },
    Command {
        name: "completions",
        usage: "SHELL",
        doc: "print a completion script for bash, zsh or fish",
        about: "\
For the shell: completes commands, switches and files.",
        example: "weir completions bash > /etc/bash_completion.d/weir",
        value: Some(Value::OneOf(completions::NAMES)),
        options: &[],
        run: |args| print(one(args, "completions", "SHELL").and_then(completions::script)),
    },
    Command {
        name: "man",
        usage: "",
        doc: "print the manual page",
        about: "\
In roff, for man or a package.",
        example: "weir man | man -l -",
        value: None,
        options: &[],
        run: |args| print(none(args, "man").map(|()| manual::page())),
    },
    Command {
        name: "dump-directives",
        usage: "",
        doc: "print every directive with its contexts, arguments and default",
        about: "\
For programs: one line per directive, fields separated by tabs.",
        example: "weir dump-directives | grep ^gzip",
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
                let Command { name, usage, doc, about, example, .. } = self;
                let space = if usage.is_empty() { "" } else { " " };
                print(Ok(format!(
                    "usage: weir {name}{space}{usage}\n\nweir {name}: {doc}.\n\n{about}\n\n\
                     Example:\n  {example}\n"
                )))
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
