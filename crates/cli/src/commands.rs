//! The commands: `weir NAME …`. **A command is added to [`COMMANDS`].** Each is declared in its own
//! file as a [`Command`].

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Arg;
use server::directives;

use crate::declared::{Command, PLAIN, Run, print, told};
use crate::flags::FLAGS;

#[cfg(feature = "script")]
use crate::js;
use crate::{
    build, completions, config, container, debug, diff, docker, explain, fmt, healthcheck, line,
    lint, lsp, manual, migrate, pages, reload, serve, tail, top, trust, validate,
};

/// All commands, in the order of the help text.
pub(crate) const COMMANDS: &[&Command] = &[
    &serve::COMMAND,
    &validate::COMMAND,
    &explain::COMMAND,
    &reload::COMMAND,
    &healthcheck::COMMAND,
    &diff::COMMAND,
    &top::COMMAND,
    &tail::COMMAND,
    &debug::COMMAND,
    &lint::COMMAND,
    &fmt::COMMAND,
    &migrate::COMMAND,
    &config::COMMAND,
    #[cfg(feature = "script")]
    &js::COMMAND,
    &lsp::COMMAND,
    &trust::COMMAND,
    &container::COMMAND,
    &docker::COMMAND,
    &build::COMMAND,
    &completions::COMMAND,
    &pages::COMMAND,
    &DUMP_DIRECTIVES,
    &VERSION,
    &HELP,
];

const DUMP_DIRECTIVES: Command = Command {
    name: "dump-directives",
    doc: "print every directive with its contexts, arguments and default",
    about: "For programs: one line per directive, fields separated by tabs.",
    examples: &[("weir dump-directives | grep ^gzip", "The directives of gzip.")],
    run: Run::Parsed(|_| print(&directives::dump())),
    ..PLAIN
};

const VERSION: Command = Command {
    name: "version",
    doc: "print the version",
    about: "Prints Weir's version in a line on standard output. The switch -v prints it on \
            standard error, as nginx does.",
    args: || vec![line::option("build", "Also print the built-in modules, as -V does")],
    examples: &[("weir version", "The version.")],
    run: Run::Parsed(|matches| {
        let build = if matches.get_flag("build") { manual::build() } else { String::new() };
        print(&format!("weir {}\n{build}", server::VERSION))
    }),
    ..PLAIN
};

const HELP: Command = Command {
    name: "help",
    doc: "print help for a command",
    about: "Without COMMAND, lists all commands and switches.",
    args: || vec![Arg::new("COMMAND").help("The command")],
    examples: &[("weir help serve", "The options of weir serve.")],
    run: Run::Parsed(|matches| {
        help(matches.get_one::<String>("COMMAND").map(|name| OsStr::new(name.as_str())))
    }),
    ..PLAIN
};

/// What the program is, in a line.
const ABOUT: &str = "Web server, reverse proxy, cache and load balancer";

/// More about it.
const MORE: &str = "\
Weir reads nginx.conf as it is. Without a command it takes nginx's switches: without any of them \
it reads the default configuration file and serves.";

/// The whole line: nginx's switches and all commands.
pub(crate) fn root() -> clap::Command {
    let root = line::common(clap::Command::new("weir"))
        .about(ABOUT)
        .long_about(format!("{ABOUT}.\n\n{MORE}"))
        .override_usage("weir [SWITCH...]\n       weir COMMAND [ARGUMENT...]")
        .args(FLAGS.iter().map(line::switch))
        .subcommand_value_name("COMMAND")
        .subcommands(COMMANDS.iter().map(|command| command.declared()))
        .after_help("Run 'weir help COMMAND' for a command's options and examples.");
    // `weir help` is a command of ours, with the words of clap's.
    root.disable_help_subcommand(true)
}

/// The command of that name.
fn find(name: &OsStr) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| name == command.name).copied()
}

/// Runs the command that the arguments name, if they name one. `None` leaves them to nginx's
/// switches; nothing but those is known to a program that is called as nginx (`strict`).
pub(crate) fn run(args: &[OsString], strict: bool) -> Option<ExitCode> {
    let (first, rest) = args.split_first()?;
    if let Some(command) = find(first) {
        return Some(command.start(rest));
    }
    let text = first.to_string_lossy();
    match &*text {
        _ if strict => None,
        "--help" => Some(help(None)),
        "--version" => Some(VERSION.start(&[])),
        // nginx has neither words nor long options.
        text if !text.starts_with('-') || text.len() > 2 && text.starts_with("--") => {
            Some(unknown(first))
        }
        _ => None,
    }
}

/// Prints the help of a command, or of all.
fn help(name: Option<&OsStr>) -> ExitCode {
    match name.map(|name| (name, find(name))) {
        // Without colours where there is no terminal, or NO_COLOR is set.
        None => root().print_long_help().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS),
        Some((_, Some(command))) => command.start(&["--help".into()]),
        Some((name, None)) => unknown(name),
    }
}

/// Reports a word or a long option that is none, with those that are similar.
fn unknown(word: &OsStr) -> ExitCode {
    match root().try_get_matches_from([OsStr::new("weir"), word]) {
        Err(error) => told(&error),
        Ok(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgMatches;

    use super::*;

    fn parse(name: &str, args: &[&str]) -> Result<ArgMatches, String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        find(OsStr::new(name)).unwrap().parse(&args).map_err(|e| e.to_string())
    }

    #[test]
    fn declarations_are_sound() {
        root().debug_assert();
        for command in COMMANDS {
            assert!(
                command.about.ends_with('.') && !command.doc.ends_with('.'),
                "{}",
                command.name
            );
            assert!(!command.examples.is_empty(), "{}", command.name);
            for (_, text) in command.examples.iter().chain(command.files).chain(command.environment)
            {
                assert!(text.ends_with(['.', '?']), "{}: {text}", command.name);
            }
        }
    }

    /// Every example is a command line of the command: parsed, not run.
    #[test]
    fn examples_parse() {
        for command in COMMANDS {
            for (example, _) in command.examples {
                let own = example.rsplit(" | ").find(|part| part.starts_with("weir ")).unwrap();
                let own = own.split(" > ").next().unwrap().replace('\'', "");
                let words: Vec<&str> = own.split(' ').skip(1).collect();
                if matches!(command.run, Run::Parsed(_)) {
                    assert_eq!(words[0], command.name);
                    // Quoted values with spaces came apart above.
                    let result = parse(command.name, &words[1..]);
                    assert!(result.is_ok() || example.contains('\''), "{example}: {result:?}");
                }
            }
        }
    }

    #[test]
    fn help_keeps_to_80_columns() {
        for command in COMMANDS {
            for flag in ["-h", "--help"] {
                let text = parse(command.name, &[flag]).unwrap_err();
                let long = text.lines().find(|line| line.chars().count() > line::WIDTH);
                assert_eq!(long, None, "{}", command.name);
                assert!(text.contains(&format!("Usage: weir {}", command.name)), "{text}");
            }
        }
    }

    #[test]
    fn misspelt_words_get_suggestions() {
        let of = |word: &str| root().try_get_matches_from(["weir", word]).unwrap_err();
        assert!(of("sevre").to_string().contains("'serve'"), "{}", of("sevre"));
        assert!(of("--hepl").to_string().contains("'--help'"), "{}", of("--hepl"));
        let error = parse("lint", &["--fromat", "json"]).unwrap_err();
        assert!(error.contains("'--format'"), "{error}");
    }
}
