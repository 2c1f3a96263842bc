//! `${env:NAME}` and `${env:NAME:-default}`: values from the environment, put into the text of a
//! word when it is read. nginx has no such words: where it knows variables it refuses the colon.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bytes::Bytes;

use crate::{ConfError, Word};

const BEGIN: &[u8] = b"${env:";

/// How a parse treats `${env:NAME}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Environment {
    /// Leaves it as it stands, for what shows or changes the text.
    #[default]
    Keep,
    /// Puts the value in its place, and leaves it where the variable is not set: for what looks at
    /// a configuration in another environment than the server's.
    IfSet,
    /// Puts the value in its place; without a value or a default it is an error.
    Required,
}

/// Puts values in their places in a word, and the names of their variables into `used`.
///
/// # Errors
/// A brace is missing, a name is none, or a variable is not set.
pub(crate) fn expand(
    word: &mut Word,
    how: Environment,
    used: &mut Vec<Vec<u8>>,
) -> Result<(), ConfError> {
    if how == Environment::Keep || !has_any(word.bytes()) {
        return Ok(());
    }
    expand_with(word, how, |name| {
        let value = std::env::var_os(name)?;
        used.push(name.as_bytes().to_vec());
        Some(value.into_vec())
    })
}

fn has_any(text: &[u8]) -> bool {
    memchr::memmem::find(text, BEGIN).is_some()
}

fn expand_with(
    word: &mut Word,
    how: Environment,
    mut value: impl FnMut(&OsStr) -> Option<Vec<u8>>,
) -> Result<(), ConfError> {
    let text = word.text.clone();
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(from) = memchr::memmem::find(&text[at..], BEGIN).map(|i| at + i) {
        out.extend_from_slice(&text[at..from]);
        let inside = from + BEGIN.len();
        let Some(len) = memchr::memchr(b'}', &text[inside..]) else {
            let m = "the closing brace of \"${env:\" is missing";
            return Err(ConfError::within(word, from, text.len() - from, m));
        };
        let content = &text[inside..inside + len];
        let end = inside + len + 1;
        let (name, default) = match memchr::memmem::find(content, b":-") {
            Some(i) => (&content[..i], Some(&content[i + 2..])),
            None => (content, None),
        };
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        if name.is_empty() || name[0].is_ascii_digit() || !name.iter().all(is_name) {
            let name = String::from_utf8_lossy(name);
            let m = format!("invalid name of an environment variable \"{name}\"");
            return Err(ConfError::within(word, from, end - from, m));
        }
        // As in a shell, `:-` also stands for a variable that is set to nothing.
        let set = value(OsStr::from_bytes(name));
        let set = set.filter(|value| default.is_none() || !value.is_empty());
        match (set, default, how) {
            (Some(value), ..) => out.extend_from_slice(&value),
            (None, Some(default), _) => out.extend_from_slice(default),
            (None, None, Environment::Required) => {
                let name = String::from_utf8_lossy(name);
                let m = format!("the environment variable \"{name}\" is not set");
                let help = format!("a default is written as ${{env:{name}:-default}}");
                return Err(ConfError::within(word, from, end - from, m).with_help(help));
            }
            (None, None, _) => out.extend_from_slice(&text[from..end]),
        }
        at = end;
    }
    out.extend_from_slice(&text[at..]);
    word.text = Bytes::from(out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pos;

    fn expanded(text: &'static str, how: Environment) -> Result<String, String> {
        let pos = Pos { file: std::path::Path::new("f").into(), line: 3, column: 5 };
        let text = Bytes::from_static(text.as_bytes());
        let mut word = Word { text, pos, quoted: false };
        let value = |name: &OsStr| match name.as_bytes() {
            b"PORT" => Some(b"8080".to_vec()),
            b"EMPTY" => Some(Vec::new()),
            b"TRAP" => Some(b"${env:PORT}".to_vec()),
            _ => None,
        };
        expand_with(&mut word, how, value).map_err(|e| e.to_string())?;
        Ok(word.lossy().into_owned())
    }

    #[test]
    fn values_take_their_places() {
        for (text, want) in [
            ("127.0.0.1:${env:PORT}", "127.0.0.1:8080"),
            ("${env:PORT}${env:PORT}-", "80808080-"),
            ("a${env:NONE:-b:-c}d", "ab:-cd"),
            ("a${env:EMPTY:-b}", "ab"),
            ("a${env:EMPTY}", "a"),
            ("a${env:NONE:-}", "a"),
            // A value is not looked at again.
            ("${env:TRAP}", "${env:PORT}"),
            ("${uri}$env:PORT", "${uri}$env:PORT"),
        ] {
            assert_eq!(expanded(text, Environment::Required).as_deref(), Ok(want), "{text}");
        }
        let kept = expanded("${env:NONE}:${env:PORT}", Environment::IfSet);
        assert_eq!(kept.as_deref(), Ok("${env:NONE}:8080"));
    }

    #[test]
    fn what_is_wrong() {
        for (text, message) in [
            ("a${env:NONE}", "the environment variable \"NONE\" is not set in f:3"),
            ("${env:PORT", "the closing brace of \"${env:\" is missing in f:3"),
            ("${env:}", "invalid name of an environment variable \"\" in f:3"),
            ("${env:a-b}", "invalid name of an environment variable \"a-b\" in f:3"),
            ("${env:1A}", "invalid name of an environment variable \"1A\" in f:3"),
        ] {
            let error = expanded(text, Environment::Required).unwrap_err();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
