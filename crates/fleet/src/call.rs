//! Calls of scripts on the engine, and their answers.

use std::fmt::Write;

use sha1::{Digest, Sha1};

/// A script in Lua that runs on the engine as one step.
#[derive(Debug)]
pub struct Script {
    /// Its name, for messages and the model.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl Script {
    /// The SHA-1 of the text in hexadecimal, by which `EVALSHA` names a script that the engine has.
    pub fn sha(&self) -> String {
        let mut out = String::with_capacity(40);
        for byte in Sha1::digest(self.text.as_bytes()) {
            let _ = write!(out, "{byte:02x}");
        }
        out
    }
}

/// A call of a script.
#[derive(Clone, Debug)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// The keys that it reads and writes; all of one hash slot, because a cluster demands it.
    pub keys: Vec<Vec<u8>>,
    /// Its other arguments.
    pub args: Vec<Vec<u8>>,
}

impl Call {
    /// The length of keys and arguments, in bytes.
    pub fn bytes(&self) -> usize {
        self.keys.iter().chain(&self.args).map(Vec::len).sum()
    }
}

/// The answer to a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several.
    List(Vec<Answer>),
    /// An error of the engine, for example `OOM command not allowed …`.
    Error(String),
}

impl Answer {
    /// The number; texts of digits are numbers, too.
    pub fn int(&self) -> Option<i64> {
        match self {
            Answer::Int(n) => Some(*n),
            Answer::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Answer::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The list.
    pub fn list(&self) -> Option<&[Answer]> {
        match self {
            Answer::List(list) => Some(list),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_named_by_their_hash() {
        let script = Script { name: "x", text: "return 1" };
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn numbers_may_be_texts() {
        assert_eq!(Answer::Bytes(b"-12".to_vec()).int(), Some(-12));
        assert_eq!(Answer::Bytes(b"1x".to_vec()).int(), None);
        assert_eq!(Answer::Nil.int(), None);
    }
}
