//! `weir man`: the manual pages, made of the declarations: weir(8), and weir-NAME(1) of each
//! command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use server::layout::layout;

use crate::commands::{COMMANDS, root};
use crate::declared::{Command, Entries, PLAIN, Run, print};
use crate::error::Error;
use crate::{line, manual};

/// `weir man`
pub(crate) const COMMAND: Command = Command {
    name: "man",
    doc: "print a manual page",
    about: "In roff, for man or a package. Without COMMAND, prints weir(8), the page of the server \
            and its switches.",
    args: || {
        let folder = line::valued("directory", "DIR", "Write all pages into this folder");
        vec![
            Arg::new("COMMAND").help("The command whose page is printed"),
            folder.value_parser(ValueParser::path_buf()).conflicts_with("COMMAND"),
        ]
    },
    examples: &[
        ("weir man | man -l -", "Read weir(8)."),
        ("weir man serve | man -l -", "Read weir-serve(1)."),
        ("weir man --directory share/man", "Write weir.8, weir-serve.1 and so on."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let done = match (matches.get_one::<PathBuf>("directory"), matches.get_one("COMMAND")) {
        (Some(folder), _) => write_all(folder).map(|()| String::new()),
        (None, Some(name)) => of_command(name),
        (None, None) => of_server().map_err(unmade),
    };
    match done {
        Ok(text) => print(&text),
        Err(error) => error.report("man", 1),
    }
}

/// A page cannot be made.
fn unmade(error: io::Error) -> Error {
    Error::system(error.to_string())
}

fn write_all(folder: &Path) -> Result<(), Error> {
    let write = |name: String, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file(&path))
    };
    fs::create_dir_all(folder).map_err(Error::file(&folder))?;
    write("weir.8".to_owned(), of_server().map_err(unmade)?)?;
    for command in COMMANDS {
        let text = page(command).map_err(unmade)?;
        write(format!("weir-{}.1", command.name), text)?;
    }
    Ok(())
}

fn of_command(name: &String) -> Result<String, Error> {
    let command = COMMANDS.iter().find(|command| command.name == name);
    let command = command.ok_or_else(|| Error::usage(format!("there is no command \"{name}\"")))?;
    page(command).map_err(unmade)
}

/// The files of the server, for its page.
fn files() -> Vec<(String, &'static str)> {
    let prefix = Path::new(layout().prefix);
    let conf = prefix.join(layout().conf_path).display().to_string();
    vec![
        (conf, "The configuration file; -c sets another."),
        (
            layout().prefix.to_owned(),
            "The prefix, which relative paths are below; -p sets another.",
        ),
    ]
}

const ENVIRONMENT: Entries = &[
    (
        "RUNTIME_DIRECTORY, STATE_DIRECTORY, LOGS_DIRECTORY",
        "Folders of systemd for the pid file, temporary files and logs that only built-in defaults \
         name, if the prefix cannot be written.",
    ),
    (
        "XDG_RUNTIME_DIR, XDG_STATE_HOME, HOME, TMPDIR",
        "The same folders for users other than root.",
    ),
    ("LISTEN_FDS, LISTEN_PID", "Sockets that systemd passes."),
    ("NO_COLOR", "If it is set, help and errors have no colours."),
];

const SIGNALS: Entries = &[
    ("TERM, INT", "Stop at once."),
    ("QUIT", "Finish the requests in flight, then stop."),
    ("HUP", "Reload the configuration; if it has an error, the old one stays in effect."),
    ("USR1", "Reopen the log files, after a rotation."),
    ("USR2", "Upgrade: start the new binary next to this one, on the same sockets."),
    ("WINCH", "Stop the workers once their requests are finished, but keep the master."),
];

/// weir(8).
fn of_server() -> io::Result<String> {
    let root = root()
        .override_usage(format!("weir {}\nweir COMMAND [ARGUMENT...]", manual::usage().join(" ")));
    let man = Man::new(root);
    let mut out = title("WEIR", "8");
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut roff = Roff::default();
    roff.control("SH", ["COMMANDS"]);
    for command in COMMANDS {
        roff.control("TP", []);
        roff.text([bold(format!("weir-{}", command.name)), roman("(1)")]);
        roff.text([roman(line::capital(command.doc) + ".")]);
    }
    roff.control("SH", ["SIGNALS"]);
    roff.text([roman("To the master, whose process id is in the pid file:")]);
    entries(&mut roff, SIGNALS);
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "0 on success, 1 on failure. Commands list theirs on their own pages. A worker that exits \
         with 2 is not restarted.",
    )]);
    roff.control("SH", ["FILES"]);
    let files = files();
    entries(&mut roff, &files.iter().map(|(path, doc)| (&**path, *doc)).collect::<Vec<_>>());
    roff.control("SH", ["ENVIRONMENT"]);
    entries(&mut roff, ENVIRONMENT);
    roff.control("SH", ["EXAMPLES"]);
    entries(&mut roff, manual::EXAMPLES);
    see_also(&mut roff, COMMANDS.iter().map(|command| command.name));
    roff.to_writer(&mut out)?;
    Ok(without_preamble(&String::from_utf8_lossy(&out)))
}

/// The first line. clap_mangen's lacks quotes around the date, which is empty, and the arguments
/// behind it come to be one too early.
fn title(name: &str, section: &str) -> Vec<u8> {
    format!(".TH {name} {section} \"\" \"weir {}\" \"Weir\"\n", server::VERSION).into_bytes()
}

/// The forms of all arguments: `weir lint [--habits] [--format NAME] … [FILE]`.
fn synopsis(command: &Command) -> String {
    let declared = command.declared();
    let mut out = format!("weir {}", command.name);
    let (words, options): (Vec<_>, Vec<_>) =
        declared.get_arguments().partition(|arg| arg.is_positional());
    for arg in options.into_iter().chain(words) {
        let value = arg.get_value_names().and_then(|names| names.first());
        let value = match (value, arg.is_positional()) {
            (Some(value), _) if arg.get_action().takes_values() => value.as_str(),
            (_, true) => arg.get_id().as_str(),
            _ => "",
        };
        let name = match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        };
        let form = format!("{name} {value}");
        let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        let many = many || matches!(arg.get_action(), clap::ArgAction::Append);
        let dots = if many { "..." } else { "" };
        let form = form.trim();
        match arg.is_required_set() {
            true => out.push_str(&format!(" {form}{dots}")),
            false => out.push_str(&format!(" [{form}]{dots}")),
        }
    }
    out
}

/// weir-NAME(1).
fn page(command: &Command) -> io::Result<String> {
    let declared = command.declared().override_usage(synopsis(command));
    let declared = declared.bin_name(format!("weir {}", command.name));
    let man = Man::new(declared.display_name(format!("weir-{}", command.name)));
    let mut out = title(&format!("WEIR-{}", command.name.to_uppercase()), "1");
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut roff = Roff::default();
    for (name, list) in command.sections() {
        roff.control("SH", [name.to_uppercase().as_str()]);
        entries(&mut roff, &list);
    }
    see_also(&mut roff, ["explain", "validate"].into_iter().filter(|name| *name != command.name));
    roff.to_writer(&mut out)?;
    Ok(without_preamble(&String::from_utf8_lossy(&out)))
}

/// Each part that roff writes begins with a definition of the apostrophe for troffs that lack
/// `\(aq`: groff and mandoc have it.
fn without_preamble(text: &str) -> String {
    text.replace(".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n", "").replace("\\*(Aq", "\\(aq")
}

fn entries(roff: &mut Roff, list: &[(&str, &str)]) {
    for (term, text) in list {
        roff.control("TP", []);
        roff.text([bold(*term)]);
        roff.text([roman(line::capital(text))]);
    }
}

fn see_also<'a>(roff: &mut Roff, commands: impl Iterator<Item = &'a str>) {
    roff.control("SH", ["SEE ALSO"]);
    let mut list = vec![bold("weir"), roman("(8)")];
    for name in commands {
        list.extend([roman(", "), bold(format!("weir-{name}")), roman("(1)")]);
    }
    roff.text(list);
    roff.text([roman("The reference of directives: docs/directives.md")]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
    }

    #[test]
    fn pages_name_every_option_and_section() {
        for command in COMMANDS {
            let page = plain(&page(command).unwrap());
            let title = format!(".TH WEIR-{} 1", command.name.to_uppercase());
            assert!(page.starts_with(&title), "{page}");
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"] {
                assert!(page.contains(&format!(".SH {section}\n")), "{}: {section}", command.name);
            }
            assert!(page.contains(".SH \"EXIT STATUS\"\n"), "{page}");
            let first = page.lines().next().unwrap();
            assert!(
                first.ends_with(&format!(" 1 \"\" \"weir {}\" \"Weir\"", server::VERSION)),
                "{first}"
            );
            for arg in command.declared().get_arguments().filter(|arg| !arg.is_positional()) {
                let name = match (arg.get_long(), arg.get_short()) {
                    (Some(long), _) => format!("--{long}"),
                    (None, short) => format!("-{}", short.unwrap()),
                };
                assert!(page.contains(&name), "{}: {name}", command.name);
            }
        }
        let of = |name: &str| COMMANDS.iter().find(|command| command.name == name).unwrap();
        let lint =
            "weir lint [--habits] [--format NAME] [--fix] [--dry-run] [--rules] [--help] [FILE]";
        assert_eq!(synopsis(of("lint")), lint);
        assert!(synopsis(of("explain")).contains("[-H FIELD]..."), "{}", synopsis(of("explain")));
        assert!(synopsis(of("explain")).ends_with(" [URL]"));
        assert!(
            synopsis(of("serve")).ends_with("[DIR|FILE|DOMAIN]..."),
            "{}",
            synopsis(of("serve"))
        );
        let page = plain(&of_server().unwrap());
        for command in COMMANDS {
            assert!(page.contains(&format!("weir-{}(1)", command.name)), "{page}");
        }
        for letter in "hvVtTqspecg".chars() {
            assert!(page.contains(&format!("\n-{letter}")), "{letter}: {page}");
        }
    }

    /// groff has no complaint, where it is installed.
    #[test]
    fn groff_can_read_them() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let pages = COMMANDS.iter().map(|command| page(command).unwrap());
        for page in pages.chain([of_server().unwrap()]) {
            let child = Command::new("groff")
                .args(["-man", "-Tutf8", "-ww", "-z"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let Ok(mut child) = child else { return };
            child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && told.is_empty(), "{told}\n{page}");
        }
    }
}
