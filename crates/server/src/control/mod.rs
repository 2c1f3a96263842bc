//! The control socket: questions to the running master, by a unix socket beside its pid file.
//!
//! A connection carries one question and its answer. A question is a line: its name, then
//! arguments with a space before each. An answer is a line with its [`Status`], lines
//! `NAME: VALUE`, an empty line, and the rest as the question defines it, up to the connection's
//! end. The questions stand in `questions.rs`.
//!
//! Only the master's own account and root can connect: that is the socket file's mode.

mod asking;
mod listening;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use self::asking::{NoAnswer, ask};
pub use self::listening::{ClientId, Control, Event};

/// The most bytes of a question.
const QUESTION_BYTES_MAX: usize = 4096;

/// The judgement of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Ok,
    /// Not done: the body has the reasons, a line each.
    Refused,
    /// No such question.
    Unknown,
}

impl Status {
    const ALL: [Status; 3] = [Status::Ok, Status::Refused, Status::Unknown];

    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Refused => "refused",
            Status::Unknown => "unknown",
        }
    }
}

/// An answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its judgement.
    pub status: Status,
    fields: Vec<(String, String)>,
    /// The rest.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer with nothing but a judgement.
    pub fn new(status: Status) -> Answer {
        Answer { status, fields: Vec::new(), body: Vec::new() }
    }

    /// A refusal for one reason.
    pub fn refused(reason: &str) -> Answer {
        Answer { body: format!("{reason}\n").into_bytes(), ..Answer::new(Status::Refused) }
    }

    /// The same with a field. A line break within the value becomes a space.
    pub fn field(mut self, name: &str, value: impl std::fmt::Display) -> Answer {
        let value = value.to_string().replace(['\r', '\n'], " ");
        self.fields.push((name.to_owned(), value));
        self
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The value of a field that is a number; 0 without it.
    pub fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    /// The lines of the body.
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.body).lines().map(str::to_owned).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = format!("{}\n", self.status.name());
        for (name, value) in &self.fields {
            out.push_str(&format!("{name}: {value}\n"));
        }
        out.push('\n');
        let mut out = out.into_bytes();
        out.extend_from_slice(&self.body);
        out
    }

    fn decode(text: &[u8]) -> Option<Answer> {
        let mut lines = text.split_inclusive(|&b| b == b'\n');
        let mut next = || std::str::from_utf8(lines.next()?.strip_suffix(b"\n")?).ok();
        let first = next()?;
        let status = Status::ALL.into_iter().find(|status| status.name() == first)?;
        let mut answer = Answer::new(status);
        loop {
            match next()? {
                "" => break,
                line => {
                    let (name, value) = line.split_once(": ")?;
                    answer.fields.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        answer.body = lines.collect::<Vec<_>>().concat();
        Some(answer)
    }
}

/// The socket of the master that a pid file names; `None` if it has no such file.
pub fn socket_of(pid_file: &Path) -> Option<PathBuf> {
    if pid_file.as_os_str().is_empty() {
        return None;
    }
    let mut name = OsString::from(pid_file);
    name.push(".sock");
    Some(PathBuf::from(name))
}

/// A path that fits into the address of a unix socket, whatever its folder's length: the folder by
/// its descriptor, which has to stay open until the address has been used.
fn short(path: &Path) -> std::io::Result<(PathBuf, std::fs::File)> {
    use std::os::fd::AsRawFd;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = std::fs::File::open(folder)?;
    let name = path.file_name().unwrap_or_default();
    Ok((PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name), folder))
}

/// Runs `use_it` with a path that fits into an address.
fn with_address<T>(
    path: &Path,
    use_it: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    /// `sun_path` less its NUL.
    const PATH_BYTES_MAX: usize = 107;
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return use_it(path);
    }
    let (address, _folder) = short(path)?;
    use_it(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_they_were() {
        let mut answer = Answer::new(Status::Refused).field("workers", 2).field("a", "b: c\nd");
        answer.body = b"line\n\nother \xff\n".to_vec();
        let read = Answer::decode(&answer.encode()).unwrap();
        assert_eq!((read.number("workers"), read.get("a")), (2, Some("b: c d")));
        assert_eq!((read.status, &read.body), (Status::Refused, &answer.body));
        assert_eq!(
            Answer::decode(&Answer::new(Status::Ok).encode()),
            Some(Answer::new(Status::Ok))
        );
        for cut in ["", "ok", "ok\n", "ok\na: b\n", "ok\nab\n\n", "fine\n\n"] {
            assert_eq!(Answer::decode(cut.as_bytes()), None, "{cut:?}");
        }
    }

    #[test]
    fn the_socket_stands_by_the_pid_file() {
        assert_eq!(socket_of(Path::new("/run/weir.pid")), Some("/run/weir.pid.sock".into()));
        assert_eq!(socket_of(Path::new("")), None);
    }
}
