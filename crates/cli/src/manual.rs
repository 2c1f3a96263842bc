//! Help text and manual page, made of the tables.

use server::added;
use server::layout::layout;
use server::typed::Typed;

use crate::commands::COMMANDS;
use crate::features;
use crate::flags::{Ask, FLAGS, Flag};

/// Prints the texts that the switches ask for. Returns whether that was all that they ask for.
pub fn show(typed: &Typed) -> bool {
    if !typed.version {
        return false;
    }
    let mut text = version();
    if typed.help {
        text.push_str(&help());
    }
    if typed.build {
        text.push_str(&build());
    }
    eprint!("{text}");
    !typed.test
}

/// The text of `-v`.
pub fn version() -> String {
    format!("weir version: weir/{}\n", server::VERSION)
}

/// The text of `-V` after the version.
pub fn build() -> String {
    let mut text = format!("nginx version: nginx/{}\n", features::NGINX_VERSION);
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
fn usage() -> Vec<String> {
    let plain: String = FLAGS.iter().filter(|f| f.arg.is_none()).map(|f| f.letters).collect();
    let valued = FLAGS.iter().filter(|f| f.arg.is_some()).map(|f| format!("[{}]", form(f)));
    [format!("[-{plain}]")].into_iter().chain(valued).collect()
}

/// Command lines that most users begin with.
const EXAMPLES: &[(&str, &str)] = &[
    ("weir -t -c /etc/nginx/nginx.conf", "does this configuration load?"),
    ("weir -c /etc/nginx/nginx.conf", "serve it, as nginx would"),
    ("weir serve ./public", "serve a folder, no file needed"),
];

/// The text of `-h` after the version: nginx's, then the commands.
pub fn help() -> String {
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
    text.push_str("\n\"weir COMMAND --help\" shows arguments and an example.\n\nExamples:\n");
    for (example, doc) in EXAMPLES {
        text.push_str(&format!("  {example:<33}: {doc}\n"));
    }
    text.push('\n');
    text
}

/// Text for roff: no line begins with a control character, hyphens are hyphens.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.as_bytes().first() {
        Some(b'.' | b'\'') => format!("\\&{text}"),
        _ => text,
    }
}

const SIGNALS: &[(&str, &str)] = &[
    ("TERM, INT", "Stop at once."),
    ("QUIT", "Finish the requests in flight, then stop."),
    ("HUP", "Reload the configuration; if it has an error, the old one stays in effect."),
    ("USR1", "Reopen the log files, after a rotation."),
    ("USR2", "Upgrade: start the new binary next to this one, on the same sockets."),
    ("WINCH", "Stop the workers once their requests are finished, but keep the master."),
];

/// The manual page, in roff.
pub fn page() -> String {
    let mut text = format!(".TH WEIR 8 \"\" \"weir {}\" \"Weir\"\n", server::VERSION);
    text.push_str(".SH NAME\nweir \\- web server, reverse proxy, cache and load balancer\n");
    text.push_str(".SH SYNOPSIS\n.B weir\n");
    text.push_str(&format!("{}\n.br\n.B weir\n", roff(&usage().join(" "))));
    text.push_str("COMMAND [ARGUMENT...]\n.SH DESCRIPTION\n");
    text.push_str(
        "Weir is a web server and proxy that reads nginx's configuration files. Without arguments ",
    );
    text.push_str("it reads the default configuration file and starts to serve.\n.SH OPTIONS\n");
    for flag in FLAGS {
        text.push_str(&format!(".TP\n.B {}\n{}.\n", roff(&form(flag)), roff(&doc(flag))));
        if !flag.more.is_empty() {
            text.push_str(&format!("{}\n", roff(flag.more)));
        }
    }
    text.push_str(".SH COMMANDS\n");
    for command in COMMANDS {
        let form = format!("{} {}", command.name, command.usage);
        text.push_str(&format!(".TP\n.B {}\n{}.\n", roff(form.trim_end()), roff(command.doc)));
        // Lines of options keep their breaks.
        for line in command.about.lines() {
            let is_option = line.starts_with("  ");
            let line = match line.trim().split_once("  ") {
                Some((option, doc)) if is_option => format!("{option}: {}", doc.trim()),
                _ => line.trim().to_owned(),
            };
            text.push_str(if is_option { ".br\n" } else { "" });
            text.push_str(&format!("{}\n", roff(&line)));
        }
        text.push_str(&format!(".br\nExample: {}\n", roff(command.example)));
    }
    text.push_str(".SH SIGNALS\nTo the master, whose process id is in the pid file:\n");
    for (name, doc) in SIGNALS {
        text.push_str(&format!(".TP\n.B {}\n{}\n", roff(name), roff(doc)));
    }
    text.push_str(".SH EXIT STATUS\n0 on success, 1 on failure; commands list their others. ");
    text.push_str("A worker that exits with 2 is not restarted.\n.SH EXAMPLES\n");
    for (example, doc) in EXAMPLES {
        text.push_str(&format!(".TP\n.B {}\n{}\n", roff(example), roff(doc)));
    }
    text.push_str(".SH SEE ALSO\n");
    text.push_str("The reference of directives: docs/directives.md\n");
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

    #[test]
    fn the_page_names_everything() {
        let page = page();
        for flag in FLAGS {
            assert!(page.contains(&roff(&form(flag))), "{}", flag.letters);
        }
        for command in COMMANDS {
            assert!(page.contains(&roff(command.name)));
        }
        // A line that begins with a dot is a request to roff: only known ones may come out.
        let known = [".TH", ".SH", ".TP", ".B", ".br"];
        for line in page.lines().filter(|l| l.starts_with('.')) {
            assert!(known.contains(&line.split(' ').next().unwrap()), "{line}");
        }
    }
}
