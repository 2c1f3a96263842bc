//! The side of a command that asks.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::log::os_error;

use super::{Answer, with_address};

/// The limit of the wait for an answer. A reload may read a large configuration, and waits for its
/// workers.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A question was not answered.
#[derive(Debug)]
pub enum NoAnswer {
    /// There is no connection: the server was not asked.
    Unreachable(PathBuf, io::Error),
    /// The connection ended before the question was sent: the server was not asked.
    Unsent(io::Error),
    /// The server was asked. The connection ended before the answer, or the answer makes no sense.
    Cut,
    /// The server was asked, and there was no answer in time.
    Late,
}

impl NoAnswer {
    /// Whether the server may have done what it was asked.
    pub fn was_asked(&self) -> bool {
        matches!(self, NoAnswer::Cut | NoAnswer::Late)
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreachable(path, e) => {
                write!(f, "connect() to unix:{} failed {}", path.display(), os_error(e))
            }
            NoAnswer::Unsent(e) => write!(f, "the question could not be sent {}", os_error(e)),
            NoAnswer::Cut => f.write_str("the server ended the connection without an answer"),
            NoAnswer::Late => {
                write!(f, "the server did not answer within {} s", ANSWER_MAX.as_secs())
            }
        }
    }
}

/// Asks the master whose control socket this is.
pub fn ask(socket: &Path, question: &str) -> Result<Answer, NoAnswer> {
    let stream = with_address(socket, |address| UnixStream::connect(address));
    let mut stream = stream.map_err(|e| NoAnswer::Unreachable(socket.to_owned(), e))?;
    let mut text = Vec::new();
    stream
        .set_read_timeout(Some(ANSWER_MAX))
        .and_then(|()| stream.write_all(format!("{question}\n").as_bytes()))
        .map_err(NoAnswer::Unsent)?;
    let received = stream.shutdown(Shutdown::Write).and_then(|()| stream.read_to_end(&mut text));
    received.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NoAnswer::Late,
        _ => NoAnswer::Cut,
    })?;
    Answer::decode(&text).ok_or(NoAnswer::Cut)
}
