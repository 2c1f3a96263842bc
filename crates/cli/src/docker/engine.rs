//! The socket of a container engine: Docker's API, which Podman has as well. Requests are of
//! HTTP/1.0, whose answers come without chunks and end with the connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a list.
const LIST_MAX: u64 = 64 << 20;

/// The events of containers, as they come.
pub(crate) struct Events(BufReader<UnixStream>);

/// A word about the containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Something has changed.
    Change,
    /// Nothing has changed for so long.
    Silence,
}

/// The list of running containers.
///
/// # Errors
/// The engine cannot be reached, or answers with an error.
pub(crate) fn containers(socket: &Path) -> io::Result<String> {
    let mut answer = ask(socket, "/containers/json")?;
    let mut text = String::new();
    answer.by_ref().take(LIST_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Listens to the events of containers.
///
/// # Errors
/// As [`containers`].
pub(crate) fn events(socket: &Path) -> io::Result<Events> {
    // {"type":["container"]}
    let answer = ask(socket, "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D")?;
    Ok(Events(answer))
}

impl Events {
    /// Waits for a change, so long at most. Changes that follow at once are one.
    ///
    /// # Errors
    /// The engine has ended the connection.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<Heard> {
        let mut heard = Heard::Silence;
        let mut limit = limit;
        loop {
            self.0.get_ref().set_read_timeout(Some(limit))?;
            let mut line = Vec::new();
            match self.0.read_until(b'\n', &mut line) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => (heard, limit) = (Heard::Change, Duration::from_millis(100)),
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    return Ok(heard);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Asks, and reads the head of the answer.
fn ask(socket: &Path, target: &str) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {target} HTTP/1.0\r\nHost: docker\r\n\r\n").as_bytes())?;
    let mut answer = BufReader::new(stream);
    let mut first = None;
    loop {
        let mut line = String::new();
        if answer.by_ref().take(8 << 10).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        first.get_or_insert_with(|| line.to_owned());
    }
    let first = first.unwrap_or_default();
    match first.split(' ').nth(1) {
        Some("200") => Ok(answer),
        _ => Err(io::Error::other(format!("the engine answers \"{first}\""))),
    }
}
