//! `weir js`: scripts outside the server.

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, ValueHint};
use script::shell::{self, Settings};

use crate::declared::{Command, PLAIN, Run};
use crate::line;

/// `weir js`
pub(crate) const COMMAND: Command = Command {
    name: "js",
    doc: "run a script of njs outside the server",
    about: "Runs a JavaScript file as a module, with the objects that njs has without a request: \
            Buffer, crypto, fs, console, ngx, querystring, xml, zlib, timers. Without FILE and -c, \
            reads lines from a terminal and prints the value of each, or reads a script from a \
            pipe. There is no limit on time. An exception, or a rejected promise that nobody \
            handles, is printed with its stack.",
    args: || {
        vec![
            line::valued("c", "CODE", "Run this text instead of a file"),
            line::valued("path", "DIR", "Look for imported modules here, too (can be repeated)")
                .value_parser(ValueParser::path_buf())
                .action(clap::ArgAction::Append),
            Arg::new("FILE")
                .value_parser(ValueParser::path_buf())
                .value_hint(ValueHint::FilePath)
                .help("The script; - is standard input"),
            Arg::new("ARGUMENT")
                .num_args(0..)
                .value_parser(ValueParser::os_string())
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .help("Arguments of the script, in process.argv"),
        ]
    },
    environment: &[("NJS_PATH", "More folders of modules, separated by colons.")],
    exit: &[("0", "the script ran to its end"), ("1", "it threw, or could not be read")],
    examples: &[
        ("weir js check.js", "Run a file."),
        ("weir js -c 'console.log(njs.version)'", "Run a line."),
        ("weir js", "Try out expressions; .exit ends."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let settings = settings(matches);
    let mut out = std::io::stdout();
    let code = matches.get_one::<String>("c");
    let file = matches.get_one::<PathBuf>("FILE");
    let result = match (code, file) {
        (Some(code), _) => shell::run_text(code, &settings, &mut out),
        (None, Some(file)) if file.as_os_str() != "-" => shell::run_file(file, &settings, &mut out),
        (None, None) if std::io::stdin().is_terminal() => {
            println!("interactive njs (QuickJS), version {}", shell::NJS_VERSION);
            shell::interact(&mut std::io::stdin().lock(), &settings, &mut out)
        }
        _ => {
            let mut text = String::new();
            if let Err(e) = std::io::stdin().lock().read_to_string(&mut text) {
                eprintln!("weir js: standard input: {e}");
                return ExitCode::FAILURE;
            }
            shell::run_text(&text, &settings, &mut out)
        }
    };
    let flushed = out.flush();
    match result {
        Ok(()) if flushed.is_ok() => ExitCode::SUCCESS,
        // The reader has closed its end.
        Ok(()) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("{}", shell::thrown(&fault));
            ExitCode::FAILURE
        }
    }
}

fn settings(matches: &ArgMatches) -> Settings {
    let given = matches.get_many::<PathBuf>("path").into_iter().flatten().cloned();
    let more = std::env::var_os("NJS_PATH").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    let paths = given.chain(more).map(|path| std::path::absolute(&path).unwrap_or(path)).collect();
    let words = matches.get_many::<OsString>("ARGUMENT").into_iter().flatten();
    let file = matches.get_one::<PathBuf>("FILE").map(|path| path.as_os_str().to_owned());
    let arguments = [OsString::from("weir js")].into_iter().chain(file).chain(words.cloned());
    let arguments = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    Settings { paths, arguments }
}
