//! A folder of small files that several servers share, and the lock of the one that may write them:
//! the state of an ACME issuer.
//!
//! Each server has a copy, and a cursor that says how new it is. The lock has a lifetime and a
//! number (the *fence*) that grows with each holder. Writes carry the fence, so that a server that
//! was stopped while it had the lock writes nothing after another one has got it.

use crate::call::{Answer, Call};
use crate::scripts::FOLDER;

/// The state of the files, as a server has them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Another one: the engine was emptied.
    pub epoch: String,
    /// The number of the last change.
    pub version: u64,
}

impl Cursor {
    /// As text.
    pub fn to_text(&self) -> String {
        format!("{} {}\n", self.version, self.epoch)
    }

    /// The cursor of such a text.
    pub fn from_text(text: &str) -> Option<Cursor> {
        let (version, epoch) = text.strip_suffix('\n')?.split_once(' ')?;
        Some(Cursor { epoch: epoch.to_owned(), version: version.parse().ok()? })
    }
}

/// A file by its name; `None`: it is gone.
pub type File = (String, Option<Vec<u8>>);

/// What a server wants of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Nothing: only the files.
    Look,
    /// To get it, if nobody has it.
    Get,
    /// To keep it, under this fence, and to write.
    Keep(u64),
}

/// A folder.
#[derive(Clone, Debug)]
pub struct Folder {
    /// `prefix=`
    pub prefix: String,
    /// Its name.
    pub name: String,
    /// This server's name. A process that takes the place of another one has the same name, and
    /// gets the lock at once.
    pub node: String,
    /// The lifetime of the lock, milliseconds.
    pub lock_ms: u64,
}

impl Folder {
    /// The call for an exchange. The files are written under [`Want::Keep`] alone, and only if the
    /// lock was kept.
    pub fn call(&self, want: Want, cursor: &Cursor, files: &[File]) -> Call {
        let key = |what| format!("{}:{{a:{}}}:{what}", self.prefix, self.name).into_bytes();
        let (fence, lock_ms) = match want {
            Want::Look => (0, 0),
            Want::Get => (0, self.lock_ms),
            Want::Keep(fence) => (fence, self.lock_ms),
        };
        let mut args = vec![self.node.clone().into_bytes()];
        args.extend([fence, lock_ms, cursor.version].map(|n| n.to_string().into_bytes()));
        args.push(cursor.epoch.clone().into_bytes());
        for (name, text) in files {
            args.extend([name.clone().into_bytes(), text.clone().unwrap_or_default()]);
        }
        Call { script: &FOLDER, keys: ["l", "f", "v", "d", "z", "e", "g"].map(key).to_vec(), args }
    }
}

/// The outcome of an exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The fence of the lock, if this server has it.
    pub fence: Option<u64>,
    /// The state of the files.
    pub cursor: Cursor,
    /// The files that were changed since the cursor of the call; all of them if its epoch is
    /// another one, or its version is one that the engine has not come to.
    pub files: Vec<File>,
}

/// Reads an answer; `None` if it makes no sense.
pub fn outcome(answer: &Answer) -> Option<Outcome> {
    let (fixed, rest) = answer.list()?.split_at_checked(3)?;
    let number = |answer: &Answer| u64::try_from(answer.int()?).ok();
    // A name of a file, and a word of the cursor's text.
    let text = |answer: &Answer| {
        let bytes = answer.bytes()?;
        let is_plain = bytes.iter().all(|b| b.is_ascii_graphic() && *b != b'/');
        is_plain.then(|| String::from_utf8_lossy(bytes).into_owned())
    };
    let fence = number(&fixed[0])?;
    let cursor = Cursor { version: number(&fixed[1])?, epoch: text(&fixed[2])? };
    let mut files = Vec::new();
    for two in rest.chunks(2) {
        let [name, content] = two else { return None };
        let content = content.bytes()?;
        let name = text(name).filter(|name| !name.is_empty() && !name.starts_with('.'))?;
        files.push((name, (!content.is_empty()).then(|| content.to_vec())));
    }
    Some(Outcome { fence: (fence > 0).then_some(fence), cursor, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Engine;

    const NOW: i64 = 1_700_000_000_000;

    fn folder(node: &str) -> Folder {
        let (prefix, name, node) = ("p".to_owned(), "one".to_owned(), node.to_owned());
        Folder { prefix, name, node, lock_ms: 5_000 }
    }

    fn file(name: &str, text: &str) -> File {
        (name.to_owned(), (!text.is_empty()).then(|| text.as_bytes().to_vec()))
    }

    #[test]
    fn one_server_writes_and_all_read() {
        let (mut engine, [a, b]) = (Engine::default(), ["a", "b"].map(folder));
        let mut run = |of: &Folder, want, cursor: &Cursor, files: &[File], at| {
            outcome(&engine.run(&of.call(want, cursor, files), NOW + at)).unwrap()
        };
        let start = Cursor::default();
        let got = run(&a, Want::Get, &start, &[file("x", "ignored")], 0);
        assert_eq!((got.fence, got.files.len()), (Some(1), 0), "a getter writes nothing");
        assert_eq!(run(&b, Want::Get, &start, &[], 1).fence, None);
        let wrote = run(&a, Want::Keep(1), &start, &[file("x", "1"), file("y", "2")], 2);
        assert_eq!((wrote.fence, wrote.cursor.version), (Some(1), 2));
        let read = run(&b, Want::Look, &start, &[], 3);
        assert_eq!(read.files, [file("x", "1"), file("y", "2")]);
        let removed = run(&a, Want::Keep(1), &wrote.cursor, &[file("x", "")], 4);
        assert_eq!(removed.files, [file("x", "")]);
        assert_eq!(run(&b, Want::Look, &read.cursor, &[], 5).files, [file("x", "")]);
        // Of another epoch: all files, and those that are gone.
        let other = Cursor { epoch: "other".to_owned(), version: 99 };
        assert_eq!(run(&b, Want::Look, &other, &[], 6).files.len(), 2);
        // A replica that lacks the last writes took over.
        let ahead = Cursor { version: 99, ..read.cursor };
        assert_eq!(run(&b, Want::Look, &ahead, &[], 7).files.len(), 2);
    }

    #[test]
    fn a_name_that_is_gone_is_forgotten_after_a_month() {
        const DAY: i64 = 86_400_000;
        let (mut engine, a) = (Engine::default(), folder("a"));
        let mut run = |want, cursor: &Cursor, files: &[File], at| {
            outcome(&engine.run(&a.call(want, cursor, files), NOW + at)).unwrap()
        };
        let start = Cursor::default();
        run(Want::Get, &start, &[], 0);
        run(Want::Keep(1), &start, &[file("x", "1"), file("y", "2")], 1);
        run(Want::Keep(1), &start, &[file("x", ""), file("y", "")], 2);
        // One that comes back stays, and so does one that has not been gone for as long.
        run(Want::Keep(1), &start, &[file("y", "3")], 3);
        run(Want::Get, &start, &[], 29 * DAY);
        let all = run(Want::Keep(2), &start, &[file("z", "4")], 29 * DAY + 1);
        assert_eq!(all.files, [file("x", ""), file("y", "3"), file("z", "4")]);
        run(Want::Get, &start, &[], 30 * DAY + 2);
        let all = run(Want::Keep(3), &start, &[file("z", "5")], 30 * DAY + 3);
        assert_eq!(all.files, [file("y", "3"), file("z", "5")]);
    }

    #[test]
    fn a_server_that_was_stopped_writes_nothing_after_another_has_the_lock() {
        let (mut engine, [a, b]) = (Engine::default(), ["a", "b"].map(folder));
        let mut run = |of: &Folder, want, files: &[File], at| {
            let call = of.call(want, &Cursor::default(), files);
            outcome(&engine.run(&call, NOW + at)).unwrap()
        };
        assert_eq!(run(&a, Want::Get, &[], 0).fence, Some(1));
        assert_eq!(run(&b, Want::Get, &[], 4_999).fence, None);
        assert_eq!(run(&b, Want::Get, &[], 5_001).fence, Some(2));
        let late = run(&a, Want::Keep(1), &[file("x", "old")], 5_002);
        assert_eq!((late.fence, late.files.len()), (None, 0));
        // A process that takes the place of another one of its server does not wait.
        assert_eq!(run(&b, Want::Get, &[], 5_003).fence, Some(3));
        assert_eq!(run(&b, Want::Keep(2), &[file("x", "old")], 5_004).fence, None);
        assert_eq!(run(&b, Want::Keep(3), &[file("x", "new")], 5_005).files.len(), 1);
    }

    #[test]
    fn answers_without_sense_are_refused() {
        let bytes = |text: &str| Answer::Bytes(text.as_bytes().to_vec());
        for answer in [
            Answer::Nil,
            bytes("foreign"),
            Answer::List(vec![Answer::Int(1), Answer::Int(2)]),
            Answer::List(vec![Answer::Int(-1), Answer::Int(2), bytes("e")]),
            Answer::List(vec![Answer::Int(1), Answer::Int(2), bytes("e"), bytes("x")]),
            Answer::List(vec![Answer::Int(1), Answer::Int(2), bytes("e f")]),
            Answer::List(vec![
                Answer::Int(1),
                Answer::Int(2),
                bytes("e"),
                bytes("../x"),
                bytes(""),
            ]),
            Answer::List(vec![Answer::Int(1), Answer::Int(2), bytes("e"), bytes(".x"), bytes("")]),
        ] {
            assert_eq!(outcome(&answer), None, "{answer:?}");
        }
    }
}
