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
    /// The server could not be asked.
    Unreachable(PathBuf, io::Error),
    /// The connection ended before the answer, or the answer makes no sense.
    Cut,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Unreachable(path, e) => {
                write!(f, "connect() to unix:{} failed {}", path.display(), os_error(e))
            }
            NoAnswer::Cut => f.write_str("the server ended the connection without an answer"),
        }
    }
}

/// Asks the master whose control socket this is.
pub fn ask(socket: &Path, question: &str) -> Result<Answer, NoAnswer> {
    let stream = with_address(socket, |address| UnixStream::connect(address));
    let mut stream = stream.map_err(|e| NoAnswer::Unreachable(socket.to_owned(), e))?;
    let mut text = Vec::new();
    let exchanged = stream
        .set_read_timeout(Some(ANSWER_MAX))
        .and_then(|()| stream.write_all(format!("{question}\n").as_bytes()))
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .and_then(|()| stream.read_to_end(&mut text));
    exchanged.map_err(|_| NoAnswer::Cut)?;
    Answer::decode(&text).ok_or(NoAnswer::Cut)
}
