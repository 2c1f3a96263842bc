//! Work that waits for disks: done in a thread, with what it has to say for the log.

use std::io;
use std::path::Path;

use base::log::Level;
use files::FileError;
use http::module::Verdict;
use http::request::Request;

/// Lines that one request logs at most: a tree may have any number of files that cannot be removed.
const LINES_MAX: usize = 100;

/// A line for the log.
struct Line {
    level: Level,
    text: String,
    error: Option<io::Error>,
}

/// The messages of work in a thread, for the log.
#[derive(Default)]
pub(super) struct Notes {
    lines: Vec<Line>,
    more: usize,
}

impl Notes {
    fn add(&mut self, level: Level, text: String, error: Option<io::Error>) {
        match self.lines.len() < LINES_MAX {
            true => self.lines.push(Line { level, text, error }),
            false => self.more += 1,
        }
    }

    /// Refuses what nginx refuses, in its words; the status.
    pub fn refused(&mut self, status: u16, why: String) -> u16 {
        self.add(Level::Error, why, None);
        status
    }

    /// A file that could not be written or moved: 507 where the disk, or the user's part of it, is
    /// full (RFC 4918 section 11.5), 500 otherwise.
    pub fn undone(&mut self, e: &FileError) -> u16 {
        self.add(Level::Crit, e.to_string(), None);
        match e.error().raw_os_error() {
            Some(os::errno::ENOSPC | os::errno::EDQUOT) => 507,
            _ => 500,
        }
    }

    /// Notes a failed call whatever the answer will be.
    pub fn trouble(&mut self, level: Level, what: &str, path: &Path, e: io::Error) {
        self.add(level, format!("{what} \"{}\"", path.display()), Some(e));
    }

    /// Notes a failed call and gives the status that tells of it; `missing` is the one for a path
    /// that is not there.
    pub fn failed(&mut self, what: &str, path: &Path, e: io::Error, missing: u16) -> u16 {
        let (level, status) = grade(&e, missing);
        self.trouble(level, what, path, e);
        status
    }

    fn tell(self, r: &Request) {
        for Line { level, text, error } in self.lines {
            match error {
                Some(e) => r.log_os(level, format_args!("{text}"), &e),
                None => r.log(level, format_args!("{text}")),
            }
        }
        if self.more > 0 {
            r.log(Level::Error, format_args!("{} more failures are not listed", self.more));
        }
    }
}

/// The log level and the status of a failed call.
fn grade(e: &io::Error, missing: u16) -> (Level, u16) {
    use os::errno::{EACCES, EDQUOT, EEXIST, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, EPERM};
    match e.raw_os_error() {
        Some(ENOENT | ENOTDIR | ENAMETOOLONG) => (Level::Error, missing),
        Some(EACCES | EPERM) => (Level::Error, 403),
        Some(EEXIST) => (Level::Error, 405),
        Some(ENOSPC | EDQUOT) => (Level::Crit, 507),
        _ => (Level::Crit, 500),
    }
}

/// Runs `task`, which gives the status of the answer, or that of a failure.
pub(super) async fn run(
    r: &mut Request,
    task: impl FnOnce(&mut Notes) -> Result<u16, u16> + Send + 'static,
) -> Result<u16, Verdict> {
    let done = r.on_disk(move || {
        let mut notes = Notes::default();
        (task(&mut notes), notes)
    });
    match done.await {
        Ok((done, notes)) => {
            notes.tell(r);
            done.map_err(Verdict::Status)
        }
        Err(e) => {
            r.log(Level::Crit, format_args!("{} was not done: {e}", r.target.method.name()));
            Err(Verdict::Status(500))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_status() {
        let status = |errno| grade(&io::Error::from_raw_os_error(errno), 409).1;
        assert_eq!([2, 13, 17, 28, 5].map(status), [409, 403, 405, 507, 500]);
    }

    #[test]
    fn lines_are_limited() {
        let mut notes = Notes::default();
        for _ in 0..150 {
            assert_eq!(notes.refused(412, String::new()), 412);
        }
        assert_eq!((notes.lines.len(), notes.more), (100, 50));
    }
}
