//! The texts of nginx's switches `-h`, `-v` and `-V`, made of the tables.

use server::added;
use server::layout::{self, layout};
use server::typed::Typed;

use crate::commands::COMMANDS;
use base::NGINX_VERSION;

use crate::features;
use crate::flags::{Ask, FLAGS, Flag};

/// Prints the texts that the switches ask for. Returns whether that was all that they ask for.
pub(crate) fn show(typed: &Typed) -> bool {
    if !typed.version {
        return false;
    }
    let is_nginx = layout::is_nginx();
    let mut text = version(is_nginx);
    if typed.help {
        text.push_str(&help());
    }
    if typed.build {
        text.push_str(&if is_nginx { built() } else { build() });
    }
    eprint!("{text}");
    !typed.test
}

/// The text of `-v`. Tools that call the program as nginx read nginx's version from its first line.
fn version(is_nginx: bool) -> String {
    match is_nginx {
        true => format!("nginx version: nginx/{NGINX_VERSION} (weir/{})\n", server::VERSION),
        false => format!("weir version: weir/{}\n", server::VERSION),
    }
}

/// The text of `-V` after the version of Weir.
pub(crate) fn build() -> String {
    format!("nginx version: nginx/{NGINX_VERSION}\n{}", built())
}

/// The text of `-V` after all versions.
fn built() -> String {
    let mut text = String::new();
    text.push_str("built by rustc for Linux\n");
    for line in features::LINES {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("configure arguments:");
    text.push_str(&features::configure_arguments(&layout().arguments()));
    for added in added::added() {
        text.push_str(&format!(" --add-module={}@{}", added.name, added.version));
    }
    text + "\n"
}

/// `-p prefix`, `-?,-h`.
fn form(flag: &Flag) -> String {
    let letters: Vec<String> = flag.letters.chars().map(|c| format!("-{c}")).collect();
    let letters = letters.join(",");
    match flag.arg {
        Some(arg) => format!("{letters} {}", arg.name),
        None => letters,
    }
}

fn doc(flag: &Flag) -> String {
    let default = match flag.ask {
        Ask::Prefix => layout().prefix,
        Ask::ConfFile => layout().conf_path,
        _ => flag.default,
    };
    match default {
        "" => flag.doc.to_owned(),
        default => format!("{} (default: {default})", flag.doc),
    }
}

/// The switches as the first lines of help show them: `[-?hvVtTq] [-s signal] …`.
pub(crate) fn usage() -> Vec<String> {
    let plain: String = FLAGS.iter().filter(|f| f.arg.is_none()).map(|f| f.letters).collect();
    let valued = FLAGS.iter().filter(|f| f.arg.is_some()).map(|f| format!("[{}]", form(f)));
    [format!("[-{plain}]")].into_iter().chain(valued).collect()
}

/// Command lines that most users begin with.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    ("weir -t -c /etc/nginx/nginx.conf", "does this configuration load?"),
    ("weir -c /etc/nginx/nginx.conf", "serve it, as nginx would"),
    ("weir serve ./public", "serve a folder, no file needed"),
];

/// The text of `-h` after the version: nginx's, then the commands.
pub(crate) fn help() -> String {
    let words = usage();
    let (first, second) = words.split_at(words.len().min(3));
    let mut text = format!("Usage: weir {}\n", first.join(" "));
    text.push_str(&format!("            {}\n", second.join(" ")));
    text.push_str("       weir COMMAND [ARGUMENT...]\n\nOptions:\n");
    for flag in FLAGS {
        text.push_str(&format!("  {:<14}: {}\n", form(flag), doc(flag)));
    }
    text.push_str("\nCommands:\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:<16}: {}\n", command.name, command.doc));
    }
    text.push_str("\n\"weir help COMMAND\" shows arguments and an example.\n\nExamples:\n");
    for (example, doc) in EXAMPLES {
        text.push_str(&format!("  {example:<33}: {doc}\n"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_looks_like_nginx_s() {
        let help = help();
        let mut lines = help.lines();
        assert_eq!(lines.next(), Some("Usage: weir [-?hvVtTq] [-s signal] [-p prefix]"));
        let second = lines.next();
        assert_eq!(second, Some("            [-e filename] [-c filename] [-g directives]"));
        for line in [
            "  -?,-h         : this help",
            "  -q            : suppress non-error messages during configuration testing",
            "  -s signal     : send signal to a master process: stop, quit, reopen, reload",
            "  -p prefix     : set prefix path (default: /usr/local/weir/)",
            "  -c filename   : set configuration file (default: conf/nginx.conf)",
            "  -g directives : set global directives out of configuration file",
        ] {
            assert!(help.lines().any(|l| l == line), "{line}\n{help}");
        }
    }
}
