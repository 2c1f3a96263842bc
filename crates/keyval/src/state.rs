//! The state file of a table: a JSON object of its pairs, written whole and read at the start.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::log::{Level, os_error};

use crate::pairs;
use crate::store::{Change, Refused, Store};

/// Places of the table that are written to the text at once.
const STEP: u32 = 256;

/// How pairs are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// As `keyval_zone` has them.
    #[default]
    Keyval,
    /// As njs has them, whose values may all be numbers.
    Script {
        /// They are.
        numbers: bool,
        /// The lifetime of pairs that the file gives none.
        timeout_ms: Option<u64>,
    },
}

/// Why the pairs of a state file are not taken.
enum Unusable {
    Unread(io::Error),
    /// The text is not one JSON object.
    Malformed(serde_json::Error),
    /// A member does not have the form of a pair.
    NoPair,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Unread(error) => os_error(error).fmt(f),
            Unusable::Malformed(error) => error.fmt(f),
            Unusable::NoPair => f.write_str("a member is no pair"),
        }
    }
}

pub struct StateFile {
    path: PathBuf,
    format: Format,
    /// This process is writing it.
    busy: Cell<bool>,
    /// The file could not be read: it is kept under another name before it is replaced.
    damaged: Cell<bool>,
}

impl StateFile {
    pub fn new(path: PathBuf, format: Format) -> StateFile {
        StateFile { path, format, busy: Cell::new(false), damaged: Cell::new(false) }
    }

    /// Fills an empty table. A file that is not there has no pairs. One that is damaged is told of,
    /// and its whole pairs are lost to the table, but not the file: see [`StateFile::damaged`].
    pub fn load(&self, store: &Store) {
        let told = match self.try_load(store) {
            Ok(0) => return,
            Ok(left_out) => format!("{left_out} pairs do not fit, and are left out"),
            Err(e) => {
                self.damaged.set(true);
                format!("{e}; the table starts empty")
            }
        };
        let path = self.path.display();
        base::log!(base::log::default(), Level::Error, None, "state file \"{path}\": {told}");
    }

    fn try_load(&self, store: &Store) -> Result<usize, Unusable> {
        let text = match std::fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(Unusable::Unread(e)),
            Ok(text) => text,
        };
        let (now_ms, mut left_out) = (base::time::unix_ms(), 0);
        let members = match self.format {
            Format::Keyval => pairs::members(&text),
            Format::Script { .. } => pairs::members(&pairs::without_last_comma(&text)),
        };
        let members = members.map_err(Unusable::Malformed)?;
        let read = |(name, value): &(String, _)| match self.format {
            Format::Keyval => pairs::read_state(name, value),
            Format::Script { numbers, timeout_ms } => {
                let mut pair = pairs::read_script(name, value, numbers)?;
                if pair.expires_ms == 0 {
                    pair.expires_ms = timeout_ms.map_or(0, |ms| now_ms.saturating_add(ms));
                }
                Some(pair)
            }
        };
        let pairs: Option<Vec<_>> = members.iter().map(read).collect();
        for pair in pairs.ok_or(Unusable::NoPair)? {
            if pair.expires_ms != 0 && pair.expires_ms <= now_ms {
                continue;
            }
            match store.put(Change::Set, false, &pair) {
                Ok(()) => {}
                Err(
                    Refused::Exists
                    | Refused::Missing
                    | Refused::BadKey
                    | Refused::TooLong
                    | Refused::Full,
                ) => left_out += 1,
            }
        }
        // Pairs that have expired, or have a lifetime now, are to be written so.
        if self.format == Format::Keyval {
            store.set_saved(store.version());
        }
        Ok(left_out)
    }

    /// Writes the table as it is now. A thread writes a new file, which then takes the old one's
    /// name. Writes once more if the table has changed meanwhile, here or in another worker.
    ///
    /// # Errors
    /// The system's.
    pub async fn save(&self, store: &Store) -> io::Result<()> {
        if self.busy.replace(true) {
            // The writer at work sees the change.
            return Ok(());
        }
        let mut done = Ok(());
        while done.is_ok() && store.saved() != store.version() {
            let version = store.version();
            let (mut next, mut text) = (0, Text::default());
            while text.add(store, self.format, &mut next) {
                event::task::next_turn().await;
            }
            let (path, damaged) = (self.path.clone(), self.damaged.take());
            let text = text.end(self.format);
            let written = event::run_blocking(move || write(&path, &text, damaged)).await;
            done = written.unwrap_or_else(|e| Err(io::Error::other(e.to_string())));
            if done.is_ok() {
                store.set_saved(version);
            }
        }
        self.busy.set(false);
        done
    }

    /// The same in a process without an event loop, at the end of the server.
    pub(crate) fn save_now(&self, store: &Store) {
        let version = store.version();
        if store.saved() == version {
            return;
        }
        let (mut next, mut text) = (0, Text::default());
        while text.add(store, self.format, &mut next) {}
        match write(&self.path, &text.end(self.format), self.damaged.take()) {
            Ok(()) => store.set_saved(version),
            Err(e) => {
                let (path, e) = (self.path.display(), os_error(&e));
                let log = base::log::default();
                base::log!(log, Level::Error, None, "state file \"{path}\" cannot be written {e}");
            }
        }
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The file's text in the making.
#[derive(Default)]
struct Text(Vec<u8>);

impl Text {
    /// Adds the next pairs; false at the end.
    fn add(&mut self, store: &Store, format: Format, next: &mut u32) -> bool {
        let Some(pairs) = store.some(next, STEP) else { return false };
        // A value that is no number would make the whole file unreadable.
        let is_number = |pair: &&crate::Pair| match format {
            Format::Script { numbers: true, .. } => pairs::is_number(&pair.value),
            _ => true,
        };
        for pair in pairs.iter().filter(is_number) {
            self.0.extend_from_slice(if self.0.is_empty() { b"{\n" } else { b",\n" });
            match format {
                Format::Keyval => pairs::write_state(pair, &mut self.0),
                Format::Script { numbers, .. } => pairs::write_script(pair, numbers, &mut self.0),
            }
        }
        true
    }

    fn end(mut self, format: Format) -> Vec<u8> {
        if self.0.is_empty() && format != Format::Keyval {
            return b"{}".to_vec();
        }
        self.0.extend_from_slice(if self.0.is_empty() { b"{}\n" } else { b"\n}\n" });
        self.0
    }
}

fn write(path: &Path, text: &[u8], damaged: bool) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    if damaged {
        // It may be all that is left of the pairs.
        std::fs::rename(path, path.with_file_name(format!("{name}.damaged")))?;
    }
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    // Values may be secrets, such as sessions.
    let made = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let written = made.and_then(|mut file| file.write_all(text).and_then(|()| file.sync_data()));
    let done = written.and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done
}
