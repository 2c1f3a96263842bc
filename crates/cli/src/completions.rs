//! Shell completions, made of the tables.

use std::fmt::Write as _;

use crate::commands::COMMANDS;
use crate::flags::{FLAGS, Value};

/// The shells there are completions for.
pub const NAMES: &[&str] = &["bash", "zsh", "fish"];

/// The script for a shell.
pub fn script(shell: &str) -> Result<String, String> {
    match shell {
        "bash" => Ok(bash()),
        "zsh" => Ok(zsh()),
        "fish" => Ok(fish()),
        _ => Err(format!("no completions for \"{shell}\", only for {}", NAMES.join(", "))),
    }
}

fn switches() -> String {
    let letters = FLAGS.iter().flat_map(|f| f.letters.chars());
    letters.map(|c| format!("-{c}")).collect::<Vec<_>>().join(" ")
}

fn bash() -> String {
    let complete = |value: Value| match value {
        Value::Dir => "compgen -d -- \"$cur\"".to_owned(),
        Value::File => "compgen -f -- \"$cur\"".to_owned(),
        Value::OneOf(words) => format!("compgen -W '{}' -- \"$cur\"", words.join(" ")),
        Value::Text => "true".to_owned(),
    };
    let mut text = String::from("# bash completions for weir\n_weir() {\n");
    text.push_str("    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n");
    text.push_str("    case $prev in\n");
    for flag in FLAGS {
        if let Some(arg) = flag.arg {
            let (letter, how) = (flag.letters, complete(arg.value));
            let _ = writeln!(text, "        -{letter}) mapfile -t COMPREPLY < <({how}); return ;;");
        }
    }
    text.push_str("    esac\n    case ${COMP_WORDS[1]} in\n");
    for command in COMMANDS {
        let options = command.options.join(" ");
        let how = command.value.map_or("true".to_owned(), complete);
        let name = command.name;
        let _ = writeln!(
            text,
            "        {name}) [ \"$COMP_CWORD\" -gt 1 ] && {{ mapfile -t COMPREPLY < \
             <(compgen -W '{options}' -- \"$cur\"; {how}); return; }} ;;"
        );
    }
    let names: Vec<&str> = COMMANDS.iter().map(|c| c.name).collect();
    let words = format!("{} {}", switches(), names.join(" "));
    let _ = write!(
        text,
        "    esac\n    mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$cur\")\n}}\n\
         complete -o filenames -F _weir weir\n"
    );
    text
}

/// Text inside zsh's `'…[…]…'`.
fn zsh_text(text: &str) -> String {
    text.replace('\'', "'\\''").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:")
}

fn zsh() -> String {
    let complete = |value: Value| match value {
        Value::Dir => "_files -/".to_owned(),
        Value::File => "_files".to_owned(),
        Value::OneOf(words) => format!("({})", words.join(" ")),
        Value::Text => " ".to_owned(),
    };
    let mut text =
        String::from("#compdef weir\n_weir() {\n    local -a commands\n    commands=(\n");
    for command in COMMANDS {
        let _ = writeln!(text, "        '{}:{}'", command.name, zsh_text(command.doc));
    }
    text.push_str("    )\n    case $words[2] in\n");
    for command in COMMANDS {
        let value = command.value.map(|v| format!(" '*:argument:{}'", complete(v)));
        let options: String = command.options.iter().map(|o| format!(" '{o}[{o}]'")).collect();
        let both = options + &value.unwrap_or_default();
        let action = if both.is_empty() { " '*:: :'".to_owned() } else { both };
        let name = command.name;
        let _ = writeln!(
            text,
            "        {name}) shift words; (( CURRENT-- )); _arguments{action}; return ;;"
        );
    }
    text.push_str("    esac\n    _arguments \\\n");
    for flag in FLAGS {
        let doc = zsh_text(flag.doc);
        for letter in flag.letters.chars() {
            let value = flag.arg.map(|arg| format!(":{}:{}", arg.name, complete(arg.value)));
            let value = value.unwrap_or_default();
            let _ = writeln!(text, "        '-{letter}[{doc}]{value}' \\");
        }
    }
    text.push_str("        '1: :{_describe command commands}'\n}\n_weir \"$@\"\n");
    text
}

fn fish() -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut text = String::from("# fish completions for weir\ncomplete -c weir -f\n");
    for flag in FLAGS {
        for letter in flag.letters.chars() {
            let value = match flag.arg.map(|arg| arg.value) {
                None => String::new(),
                Some(Value::Dir) => " -x -a '(__fish_complete_directories)'".to_owned(),
                Some(Value::File) => " -r -F".to_owned(),
                Some(Value::OneOf(words)) => format!(" -x -a {}", quote(&words.join(" "))),
                Some(Value::Text) => " -x".to_owned(),
            };
            let doc = quote(flag.doc);
            let letter = quote(&letter.to_string());
            let _ = writeln!(text, "complete -c weir -s {letter} -d {doc}{value}");
        }
    }
    for command in COMMANDS {
        let (name, doc) = (command.name, quote(command.doc));
        let _ = writeln!(text, "complete -c weir -n __fish_use_subcommand -a {name} -d {doc}");
        let given = format!("-n '__fish_seen_subcommand_from {name}'");
        for option in command.options {
            let long = option.trim_start_matches('-');
            let _ = writeln!(text, "complete -c weir {given} -l {long}");
        }
        match command.value {
            Some(Value::OneOf(words)) => {
                let words = quote(&words.join(" "));
                let _ = writeln!(text, "complete -c weir {given} -a {words}");
            }
            Some(Value::Dir | Value::File) => {
                let _ = writeln!(text, "complete -c weir {given} -F");
            }
            Some(Value::Text) | None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn every_switch_and_command_is_offered() {
        for shell in NAMES {
            let script = script(shell).unwrap();
            for flag in FLAGS {
                let offered = |c: char| {
                    script.contains(&format!("-{c}")) || script.contains(&format!("-s '{c}'"))
                };
                assert!(flag.letters.chars().all(offered), "{shell}: {}", flag.letters);
            }
            for command in COMMANDS {
                assert!(script.contains(command.name), "{shell}: {}", command.name);
            }
        }
        assert!(script("csh").is_err());
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

    #[test]
    fn bash_completes_a_signal() {
        let script = bash();
        let run = "COMP_WORDS=(weir -s re) COMP_CWORD=2; _weir; printf '%s ' \"${COMPREPLY[@]}\"";
        let command = format!("{}{run}", script.replace("complete -o", "true complete -o"));
        let output = Command::new("bash").arg("-c").arg(command).output().unwrap();
        let mut words: Vec<_> = String::from_utf8(output.stdout)
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        words.sort();
        assert_eq!(words, ["reload", "reopen"]);
    }
}
