//! Colours for people: only where the stream is a terminal that has colours, and never with
//! `NO_COLOR` (no-color.org).

use std::ffi::OsStr;
use std::io::{self, IsTerminal};

use base::log::Level;

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Whether standard error has colours.
pub fn stderr() -> bool {
    wanted(io::stderr().is_terminal(), &|name| std::env::var_os(name))
}

/// Whether standard output has colours.
pub fn stdout() -> bool {
    wanted(io::stdout().is_terminal(), &|name| std::env::var_os(name))
}

fn wanted(is_terminal: bool, env: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    let forbidden = env("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env("TERM").is_some_and(|value| value == OsStr::new("dumb"));
    is_terminal && !forbidden && !dumb
}

/// A line of a log whose level in brackets (`[emerg] …`) has its colour.
pub fn line(level: Level, line: &[u8]) -> Vec<u8> {
    let end = line.iter().position(|&byte| byte == b']').map_or(0, |at| at + 1);
    let (mark, rest) = line.split_at(end);
    [color(level <= Level::Error).as_bytes(), mark, PLAIN.as_bytes(), rest].concat()
}

/// A word that says how serious a message is.
pub fn severity(is_error: bool, word: &str) -> String {
    format!("{}{word}{PLAIN}", color(is_error))
}

fn color(is_error: bool) -> &'static str {
    if is_error { RED } else { YELLOW }
}

/// Lines of a source with carets below them, and advice.
pub fn snippet(text: &str) -> String {
    let paint = |line: &str| {
        let bare = line.trim_start();
        if let Some(rest) = bare.strip_prefix("help:") {
            return format!("  {CYAN}help:{PLAIN}{rest}\n");
        }
        match line.rsplit_once("| ") {
            Some((margin, carets)) if is_carets(carets) => {
                format!("{margin}| {RED}{carets}{PLAIN}\n")
            }
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(paint).collect()
}

fn is_carets(text: &str) -> bool {
    !text.trim().is_empty() && text.trim().bytes().all(|byte| byte == b'^')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_leave() {
        let env = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into())
        };
        assert!(wanted(true, &env(&[])));
        assert!(wanted(true, &env(&[("NO_COLOR", ""), ("TERM", "xterm")])));
        assert!(!wanted(false, &env(&[])));
        assert!(!wanted(true, &env(&[("NO_COLOR", "1")])));
        assert!(!wanted(true, &env(&[("TERM", "dumb")])));
    }

    #[test]
    fn marks_are_painted_and_nothing_else() {
        let painted = line(Level::Emerg, b"[emerg] a [b]\n");
        assert_eq!(painted, b"\x1b[1;31m[emerg]\x1b[0m a [b]\n");
        assert!(line(Level::Warn, b"[warn] a").starts_with(b"\x1b[1;33m[warn]\x1b[0m"));
        let text = "  3 | a ^ | b\n    |   ^^^\n  help: x\n";
        let want = "  3 | a ^ | b\n    | \x1b[1;31m  ^^^\x1b[0m\n  \x1b[36mhelp:\x1b[0m x\n";
        assert_eq!(snippet(text), want);
    }
}
