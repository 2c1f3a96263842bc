//! `weir validate [FILE]`: the switch `-t` as a command.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use server::environ::Environ;
use server::start;
use server::typed::Typed;

use crate::declared::{Command, PLAIN, Run};
use crate::line;

/// `weir validate`
pub(crate) const COMMAND: Command = Command {
    name: "validate",
    doc: "test a configuration: does it load?",
    about: "The same as the switch -t: reads the configuration with its includes, opens the log \
            files and binds the listening sockets. All independent errors are reported, each with \
            its file, line and column. \
            weir lint finds settings that load and are probably wrong.",
    args: || {
        let mut args = vec![line::file("The configuration file [default: as for -c]")];
        args.push(line::option("dump", "Print every file that was read, secrets starred (-T)"));
        args.extend(line::switches("qcpge"));
        args
    },
    exit: &[("0", "the configuration loads"), ("1", "it does not")],
    examples: &[("weir validate /etc/nginx/nginx.conf", "Does this configuration load?")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let typed = match line::typed(matches) {
        Ok(typed) => typed,
        Err(error) => return error.report("validate", 1),
    };
    // A word is a path as the shell has it, and -c one below the prefix.
    let file = match matches.get_one::<PathBuf>("FILE").map(std::path::absolute) {
        Some(Ok(path)) => Some(path.into_os_string().into_vec()),
        Some(Err(e)) => {
            eprintln!("weir validate: {e}");
            return ExitCode::FAILURE;
        }
        None => typed.conf_file,
    };
    let dump = matches.get_flag("dump");
    let typed = Typed { test: true, dump, conf_file: file, ..typed };
    start::run(&typed, std::env::args_os().collect(), Environ::capture())
}
