//! The switches, declared once: parsing, help, completions, the man page and their tests read this
//! table.

use server::layout::{CONF_PATH, ERROR_LOG_PATH, PREFIX};

/// The kind of a switch's value, for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// A folder.
    Dir,
    File,
    /// One of a few words.
    OneOf(&'static [&'static str]),
    Text,
}

/// A switch's value: its name, and the message when it is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    /// Its name in help.
    pub(crate) name: &'static str,
    /// `option "-p" requires …`
    pub(crate) requires: &'static str,
    /// The kind of the value.
    pub(crate) value: Value,
}

/// The action of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// The help text.
    Help,
    Version,
    /// Show the version and the features.
    Build,
    /// A test of the configuration.
    Test,
    /// A test of the configuration, and its text.
    Dump,
    /// No messages but errors.
    Quiet,
    /// A signal to the running server.
    Signal,
    /// Another prefix.
    Prefix,
    /// Another first error log.
    ErrorLog,
    /// Another configuration file.
    ConfFile,
    /// Directives beside the file.
    Directives,
}

/// A switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Its letters; the first is the main one.
    pub(crate) letters: &'static str,
    /// Its value, when it takes one.
    pub(crate) arg: Option<Arg>,
    /// Its effect, as help shows it.
    pub(crate) doc: &'static str,
    /// The default that help names.
    pub(crate) default: &'static str,
    /// Further text for the man page.
    pub(crate) more: &'static str,
    /// Its action.
    pub(crate) ask: Ask,
}

/// The signals of `-s`, with their effects.
pub(crate) const SIGNALS: &[(&str, os::signal::Signal)] = &[
    ("stop", os::signal::Signal::TERM),
    ("quit", os::signal::Signal::QUIT),
    ("reopen", os::signal::Signal::USR1),
    ("reload", os::signal::Signal::HUP),
];
const SIGNAL_NAMES: &[&str] = &["stop", "quit", "reopen", "reload"];

const fn arg(name: &'static str, requires: &'static str, value: Value) -> Option<Arg> {
    Some(Arg { name, requires, value })
}

/// All switches, in the order of the help text.
pub(crate) const FLAGS: &[Flag] = &[
    Flag { letters: "?h", arg: None, doc: "this help", default: "", more: "", ask: Ask::Help },
    Flag {
        letters: "v",
        arg: None,
        doc: "show version and exit",
        default: "",
        more: "",
        ask: Ask::Version,
    },
    Flag {
        letters: "V",
        arg: None,
        doc: "show version and configure options then exit",
        default: "",
        more: "The options list the built-in modules under the names that nginx's \
               configure script has for them.",
        ask: Ask::Build,
    },
    Flag {
        letters: "t",
        arg: None,
        doc: "test configuration and exit",
        default: "",
        more: "Reads the file, opens the log files and binds the listening sockets. The exit \
               status is 0 if the configuration loads, and 1 if it does not.",
        ask: Ask::Test,
    },
    Flag {
        letters: "T",
        arg: None,
        doc: "test configuration, dump it and exit",
        default: "",
        more: "As -t, and prints every file that was read, with secrets starred.",
        ask: Ask::Dump,
    },
    Flag {
        letters: "q",
        arg: None,
        doc: "suppress non-error messages during configuration testing",
        default: "",
        more: "",
        ask: Ask::Quiet,
    },
    Flag {
        letters: "s",
        arg: arg("signal", "parameter", Value::OneOf(SIGNAL_NAMES)),
        doc: "send signal to a master process: stop, quit, reopen, reload",
        default: "",
        more: "stop: at once. quit: after the requests in flight. reopen: reopen the log files. \
               reload: reload the configuration; \"weir reload\" also reports the outcome.",
        ask: Ask::Signal,
    },
    Flag {
        letters: "p",
        arg: arg("prefix", "directory name", Value::Dir),
        doc: "set prefix path",
        default: PREFIX,
        more: "Relative paths in the configuration are below it.",
        ask: Ask::Prefix,
    },
    Flag {
        letters: "e",
        arg: arg("filename", "file name", Value::File),
        doc: "set error log file",
        default: ERROR_LOG_PATH,
        more: "The log for messages from before the configuration sets one; stderr is standard \
               error.",
        ask: Ask::ErrorLog,
    },
    Flag {
        letters: "c",
        arg: arg("filename", "file name", Value::File),
        doc: "set configuration file",
        default: CONF_PATH,
        more: "",
        ask: Ask::ConfFile,
    },
    Flag {
        letters: "g",
        arg: arg("directives", "parameter", Value::Text),
        doc: "set global directives out of configuration file",
        default: "",
        more: "Main-level directives, each with its semicolon: -g \"daemon off;\".",
        ask: Ask::Directives,
    },
];

/// The switch with that letter.
pub(crate) fn find(letter: u8) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.letters.as_bytes().contains(&letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_used_once() {
        let mut letters: Vec<u8> = FLAGS.iter().flat_map(|f| f.letters.bytes()).collect();
        letters.sort_unstable();
        let count = letters.len();
        letters.dedup();
        assert_eq!(letters.len(), count);
        assert!(find(b'h').is_some_and(|f| f.ask == Ask::Help));
        assert!(find(b'z').is_none());
    }

    #[test]
    fn signals_are_those_of_the_table() {
        assert!(SIGNALS.iter().map(|(name, _)| name).eq(SIGNAL_NAMES));
    }
}
