//! nginx's switches, which may be joined (`-tq`, `-pPREFIX`), with nginx's messages.
//!
//! The server's own start reads them here and not with clap, because clap would read `-p=x` and
//! `-` differently than nginx does, and because a start should cost nothing more. What they are is
//! declared once, in [`flags::FLAGS`], of which [`crate::line`] makes clap's arguments.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use server::typed::Typed;

use crate::error::Error;
use crate::flags::{self, Ask, Flag};

/// Reads the arguments after the program's name.
///
/// # Errors
/// There is no such switch, or it lacks its value, in nginx's words.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Typed, Error> {
    let mut typed = Typed::default();
    let mut args = args.into_iter().map(OsString::into_vec);
    while let Some(word) = args.next() {
        // The words that people try first, beside nginx's letters.
        match &word[..] {
            b"--help" | b"help" => {
                switch(&mut typed, Ask::Help);
                continue;
            }
            b"--version" => {
                switch(&mut typed, Ask::Version);
                continue;
            }
            _ => {}
        }
        let Some(letters) = word.strip_prefix(b"-") else {
            return Err(Error::usage(format!(
                "invalid option: \"{}\"",
                String::from_utf8_lossy(&word)
            )));
        };
        for (i, &letter) in letters.iter().enumerate() {
            let Some(flag) = flags::find(letter) else {
                let letter = String::from_utf8_lossy(&letters[i..i + 1]);
                return Err(Error::usage(format!("invalid option: \"{letter}\"")));
            };
            let Some(arg) = flag.arg else {
                switch(&mut typed, flag.ask);
                continue;
            };
            // The value is the rest of the word, or the next one.
            let value = match &letters[i + 1..] {
                [] => args.next(),
                rest => Some(rest.to_vec()),
            };
            let Some(value) = value else {
                let letter = char::from(letter);
                return Err(Error::usage(format!(
                    "option \"-{letter}\" requires {}",
                    arg.requires
                )));
            };
            set_value(&mut typed, flag, value)?;
            break;
        }
    }
    Ok(typed)
}

/// Does what a switch without a value asks for.
pub(crate) fn switch(typed: &mut Typed, ask: Ask) {
    match ask {
        Ask::Help => (typed.version, typed.help) = (true, true),
        Ask::Version => typed.version = true,
        Ask::Build => (typed.version, typed.build) = (true, true),
        Ask::Test => typed.test = true,
        Ask::Dump => (typed.test, typed.dump) = (true, true),
        Ask::Quiet => typed.quiet = true,
        // These have values.
        Ask::Signal | Ask::Prefix | Ask::ErrorLog | Ask::ConfFile | Ask::Directives => {}
    }
}

/// Stores the value of a switch.
///
/// # Errors
/// The signal is none.
pub(crate) fn set_value(typed: &mut Typed, flag: &Flag, value: Vec<u8>) -> Result<(), Error> {
    match flag.ask {
        Ask::Prefix => typed.prefix = Some(value),
        Ask::ErrorLog if value == b"stderr" => typed.error_log = Some(Vec::new()),
        Ask::ErrorLog => typed.error_log = Some(value),
        Ask::ConfFile => typed.conf_file = Some(value),
        Ask::Directives => typed.directives = Some(value),
        Ask::Signal => {
            let known = flags::SIGNALS.iter().find(|(name, _)| name.as_bytes() == value);
            let Some((_, signal)) = known else {
                let value = String::from_utf8_lossy(&value);
                return Err(Error::usage(format!("invalid option: \"-s {value}\"")));
            };
            typed.signal = Some(*signal);
        }
        ask => switch(typed, ask),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use os::signal::Signal;

    use super::*;

    fn read(args: &[&str]) -> Result<Typed, Error> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn switches_may_be_joined() {
        let t = read(&["-tq", "-p/srv", "-c", "x.conf"]).unwrap();
        assert!(t.test && t.quiet && !t.dump);
        assert_eq!(t.prefix.as_deref(), Some(&b"/srv"[..]));
        assert_eq!(t.conf_file.as_deref(), Some(&b"x.conf"[..]));
        assert!(read(&["-T"]).unwrap().test);
        assert!(read(&["-?"]).unwrap().help);
        assert!(read(&["-V"]).unwrap().version);
        assert!(read(&["--help"]).unwrap().help && read(&["help"]).unwrap().help);
        let t = read(&["--version"]).unwrap();
        assert!(t.version && !t.help);
        assert_eq!(read(&["-sreload"]).unwrap().signal, Some(Signal::HUP));
        assert_eq!(read(&["-e", "stderr"]).unwrap().error_log, Some(Vec::new()));
        assert_eq!(read(&["-"]).unwrap(), Typed::default());
    }

    #[test]
    fn errors_in_nginx_s_words() {
        for (args, message) in [
            (&["x"][..], "invalid option: \"x\""),
            (&["-tz"], "invalid option: \"z\""),
            (&["-s", "kill"], "invalid option: \"-s kill\""),
            (&["-s"], "option \"-s\" requires parameter"),
            (&["-p"], "option \"-p\" requires directory name"),
            (&["-c"], "option \"-c\" requires file name"),
            (&["-e"], "option \"-e\" requires file name"),
            (&["-g"], "option \"-g\" requires parameter"),
        ] {
            assert_eq!(read(args).unwrap_err().to_string(), message);
        }
    }
}
