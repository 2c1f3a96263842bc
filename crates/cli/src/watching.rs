//! The common parts of commands that watch a running server.

use std::io::{self, Write};
use std::path::PathBuf;

use base::log::Level;
use clap::Arg;

use crate::declared::Entries;
use crate::error::Error;
use crate::line;
use crate::target::{Arguments, Target};

/// The exit status when the running server could not be asked.
pub(crate) const NOT_ASKED: u8 = 2;

/// The arguments that such a command has besides its own.
pub(crate) fn args(own: impl IntoIterator<Item = Arg>) -> Vec<Arg> {
    own.into_iter().chain([line::pid()]).chain(line::switches("cpg")).collect()
}

/// The exit statuses of such a command.
pub(crate) const EXIT: Entries = &[
    ("0", "success"),
    ("2", "the running server could not be asked, or the command line is wrong"),
];

/// The control socket of the server that the arguments mean.
pub(crate) fn socket(args: &Arguments) -> Result<PathBuf, Error> {
    Target::new(&args.typed, Level::Emerg)?.socket(args.value("pid"))
}

/// A time on the command line: `60s`, `2m`, `500ms`; a number alone is seconds. Milliseconds.
pub(crate) fn time(text: &str) -> Result<u64, Error> {
    let ms = match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse().ok().and_then(|secs: u64| secs.checked_mul(1000)),
        false => conf::value::parse_msec(text.as_bytes()),
    };
    ms.ok_or_else(|| Error::usage(format!("invalid time \"{text}\"")))
}

/// Writes to standard output at once. False: the reader has closed its end.
pub(crate) fn print(text: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time("60").unwrap(), 60_000);
        assert_eq!(time("500ms").unwrap(), 500);
        assert_eq!(time("2m").unwrap(), 120_000);
        for bad in ["", "x", "1.5", "-1", "99999999999999999999"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
