//! `weir completions SHELL`: scripts for shells, made of the declarations.

use std::io::Write;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches};
use clap_complete::{Shell, generate};

use crate::commands;
use crate::declared::{Command, PLAIN, Run, print};

/// The shells there are completions for.
const NAMES: &[&str] = &["bash", "zsh", "fish"];

/// `weir completions`
pub(crate) const COMMAND: Command = Command {
    name: "completions",
    doc: "print a completion script for bash, zsh or fish",
    about: "For the shell: completes commands, options and files.",
    args: || {
        let shell = Arg::new("SHELL").required(true).help("The shell");
        vec![shell.value_parser(PossibleValuesParser::new(NAMES))]
    },
    examples: &[
        ("weir completions bash > /etc/bash_completion.d/weir", "For all users of bash."),
        ("weir completions zsh > ~/.zfunc/_weir", "For zsh, with that folder in fpath."),
        ("weir completions fish > ~/.config/fish/completions/weir.fish", "For fish."),
    ],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    match matches.get_one::<String>("SHELL").and_then(|shell| script(shell)) {
        Some(text) => print(&text),
        None => ExitCode::FAILURE,
    }
}

/// The script for a shell.
fn script(shell: &str) -> Option<String> {
    let shell = match shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => return None,
    };
    let mut text = Vec::new();
    generate(shell, &mut commands::root(), "weir", &mut text);
    text.flush().ok()?;
    // To fish a bare ? is a pattern, which no file matches.
    let text = String::from_utf8(text).ok()?;
    Some(if shell == Shell::Fish { text.replace(" -s ? ", " -s '?' ") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::COMMANDS;
    use crate::flags::FLAGS;
    use std::process::{Command, Stdio};

    #[test]
    fn every_option_and_command_is_offered() {
        for shell in NAMES {
            let script = script(shell).unwrap();
            for flag in FLAGS {
                let offered = |c: char| {
                    let forms = [format!("-{c}"), format!("-s {c} "), format!("-s '{c}'")];
                    forms.iter().any(|form| script.contains(form))
                };
                assert!(flag.letters.chars().all(offered), "{shell}: {}", flag.letters);
            }
            for command in COMMANDS {
                assert!(script.contains(command.name), "{shell}: {}", command.name);
                for long in command.declared().get_arguments().filter_map(|a| a.get_long()) {
                    let forms = [format!("--{long}"), format!("-l {long}")];
                    let offered = forms.iter().any(|form| script.contains(form));
                    assert!(offered, "{shell}: {} {long}", command.name);
                }
            }
        }
        assert!(!script("fish").unwrap().contains("-s ?"), "a pattern that no file matches");
        assert!(script("csh").is_none());
    }

    /// Each script is read by its own shell, where that is installed.
    #[test]
    fn shells_can_read_them() {
        for shell in NAMES {
            let child =
                Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let Ok(mut child) = child else { continue };
            let script = script(shell).unwrap();
            child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && told.is_empty(), "{shell}: {told}");
        }
    }

    /// The words that bash offers for the last of these.
    fn offered(words: &[&str]) -> Vec<String> {
        let (last, previous) = (words[words.len() - 1], words[words.len() - 2]);
        let line = words.join(" ");
        let run = format!(
            "COMP_WORDS=({line}) COMP_CWORD={}; _weir weir '{last}' '{previous}'; \
             printf '%s ' \"${{COMPREPLY[@]}}\"",
            words.len() - 1
        );
        // `complete` itself is for a shell at a terminal.
        let command = format!("complete() {{ :; }}\n{}\n{run}", script("bash").unwrap());
        let output = Command::new("bash").arg("-c").arg(command).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    }

    #[test]
    fn bash_completes() {
        assert_eq!(offered(&["weir", "ser"]), ["serve"]);
        assert_eq!(offered(&["weir", "serve", "--no-b"]), ["--no-browse"]);
        assert_eq!(offered(&["weir", "lint", "--format", "s"]), ["sarif"]);
        assert_eq!(offered(&["weir", "completions", "z"]), ["zsh"]);
        assert_eq!(offered(&["weir", "-s", "re"]), ["reload", "reopen"]);
    }
}
