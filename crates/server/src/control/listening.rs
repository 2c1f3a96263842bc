//! The master's side: it waits for questions where it waits for signals, and never for a client.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::log;
use base::log::{Level, Log, os_error};
use os::fd::Awaited;
use os::signal::{Received, SignalFd};
use os::{SockAddr, UnixAddr};

use super::{Answer, QUESTION_BYTES_MAX, socket_of, with_address};
use crate::signals;

/// The most clients at a time.
const CLIENTS_MAX: usize = 16;
/// A client has this long to ask, and to take its answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);
/// Others can neither ask nor stop the server.
const MODE: u32 = 0o600;
/// Clients that the kernel holds until the master takes them.
const BACKLOG: i32 = 128;

/// An occurrence that the master answers to.
#[derive(Debug)]
pub enum Event {
    /// A signal came.
    Signal(Received),
    /// A client asked this.
    Question(ClientId, String),
    /// The time is over.
    Time,
}

/// A client, until it has its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientId(u64);

struct Client {
    id: ClientId,
    stream: UnixStream,
    until: Instant,
    state: State,
}

enum State {
    /// Its question so far.
    Asking(Vec<u8>),
    /// The master works on the answer.
    Asked,
    /// The rest of its answer.
    Answering(Vec<u8>),
    Gone,
}

/// The signals and questions that reach the master.
pub struct Control {
    signals: Option<SignalFd>,
    socket: Option<(PathBuf, UnixListener)>,
    clients: Vec<Client>,
    next_id: u64,
}

impl Control {
    /// Takes the signals that are held back, and questions by the socket beside the pid file. A
    /// server that cannot have the socket runs without.
    pub fn open(pid_file: &Path, log: &Log) -> Control {
        let signals = SignalFd::new(&signals::set());
        if let Err(e) = &signals {
            log!(log, Level::Alert, None, "signalfd() failed {}", os_error(e));
        }
        let mut control =
            Control { signals: signals.ok(), socket: None, clients: Vec::new(), next_id: 0 };
        control.listen(pid_file, log);
        control
    }

    /// Listens beside this pid file and no longer beside another one.
    pub fn listen(&mut self, pid_file: &Path, log: &Log) {
        let path = socket_of(pid_file);
        if self.socket.as_ref().map(|(path, _)| path) == path.as_ref() {
            return;
        }
        self.remove();
        let Some(path) = path else { return };
        match bind(&path) {
            Ok(listener) => self.socket = Some((path, listener)),
            Err(e) => {
                let (path, e) = (path.display(), os_error(&e));
                log!(log, Level::Warn, None, "no control socket: bind() to unix:{path} failed {e}");
            }
        }
    }

    /// The pid file has another name from now on.
    pub fn rename(&mut self, pid_file: &Path) {
        let (Some((path, _)), Some(new)) = (&mut self.socket, socket_of(pid_file)) else { return };
        // A socket file that was removed by hand needs no other name.
        let _ = fs::rename(&*path, &new);
        *path = new;
    }

    /// Ends listening, and removes the file.
    pub fn remove(&mut self) {
        if let Some((path, _)) = self.socket.take() {
            // Someone may have removed it already.
            let _ = fs::remove_file(path);
        }
    }

    /// Waits for the next signal or question, `limit` at most. Without a descriptor for signals
    /// (none was left at the start) no questions are taken.
    pub fn wait(&mut self, limit: Option<Duration>) -> Event {
        if self.signals.is_none() {
            return os::signal::wait(&signals::set(), limit).map_or(Event::Time, Event::Signal);
        }
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            // Signals go first: they stop the server.
            if let Some(received) = self.signals.as_ref().and_then(SignalFd::next) {
                return Event::Signal(received);
            }
            if let Some((id, question)) = self.next_question() {
                return Event::Question(id, question);
            }
            let now = Instant::now();
            if end.is_some_and(|end| end <= now) {
                return Event::Time;
            }
            let waiting = self.clients.iter().filter(|client| client.is_waited_for());
            let until = waiting.map(|client| client.until).chain(end).min();
            self.wait_once(until.map(|until| until.saturating_duration_since(now)));
        }
    }

    fn wait_once(&mut self, limit: Option<Duration>) {
        let room = self.clients.len() < CLIENTS_MAX;
        let listener = self.socket.as_ref().map(|(_, l)| l).filter(|_| room);
        let mut awaited: Vec<_> = self.signals.iter().map(Awaited::input).collect();
        let waiting = self.clients.iter().filter(|client| client.is_waited_for());
        awaited.extend(waiting.map(|client| match client.state {
            State::Answering(_) => Awaited::output(&client.stream),
            _ => Awaited::input(&client.stream),
        }));
        let place = awaited.len();
        awaited.extend(listener.map(Awaited::input));
        let ready = os::fd::wait_any(&awaited, limit);
        let accepted = match (listener, ready.get(place)) {
            (Some(listener), Some(true)) => listener.accept().ok(),
            _ => None,
        };
        let now = Instant::now();
        let waiting = self.clients.iter_mut().filter(|client| client.is_waited_for());
        for (client, ready) in waiting.zip(&ready[1..]) {
            if *ready {
                client.go_on();
            }
            if client.until <= now {
                client.state = State::Gone;
            }
        }
        self.clients.retain(|client| !matches!(client.state, State::Gone));
        if let Some((stream, _)) = accepted
            && stream.set_nonblocking(true).is_ok()
        {
            self.next_id += 1;
            let (id, until) = (ClientId(self.next_id), now + CLIENT_TIME);
            self.clients.push(Client { id, stream, until, state: State::Asking(Vec::new()) });
        }
    }

    fn next_question(&mut self) -> Option<(ClientId, String)> {
        self.clients.iter_mut().find_map(|client| {
            let State::Asking(text) = &client.state else { return None };
            let line = text.split(|&b| b == b'\n').next().filter(|l| l.len() < text.len())?;
            let question = String::from_utf8_lossy(line).trim().to_owned();
            client.state = State::Asked;
            Some((client.id, question))
        })
    }

    /// Sends a client its answer, as much as goes at once; the rest while the master waits.
    pub fn answer(&mut self, id: ClientId, answer: &Answer) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.state = State::Answering(answer.encode());
            client.until = Instant::now() + CLIENT_TIME;
            client.go_on();
        }
        self.clients.retain(|client| !matches!(client.state, State::Gone));
    }
}

impl Client {
    /// Whether it is to do something: one whose answer is not known yet is not.
    fn is_waited_for(&self) -> bool {
        !matches!(self.state, State::Asked)
    }

    /// Receives or sends what can be at the moment.
    fn go_on(&mut self) {
        let outcome = match &mut self.state {
            State::Asking(text) => receive(&mut self.stream, text),
            State::Answering(rest) => send(&mut self.stream, rest),
            // It has asked and closed its side, which is no reason not to answer.
            State::Asked | State::Gone => return,
        };
        match outcome {
            Ok(true) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Ok(false) | Err(_) => self.state = State::Gone,
        }
    }
}

/// False when the client has gone, or says too much.
fn receive(stream: &mut UnixStream, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut buf = [0; QUESTION_BYTES_MAX];
    let n = stream.read(&mut buf)?;
    text.extend_from_slice(&buf[..n]);
    Ok(n > 0 && text.len() <= QUESTION_BYTES_MAX)
}

/// False when all is sent.
fn send(stream: &mut UnixStream, rest: &mut Vec<u8>) -> io::Result<bool> {
    while !rest.is_empty() {
        let n = stream.write(rest)?;
        rest.drain(..n);
    }
    // For all processes: a worker that was forked meanwhile has the descriptor for a moment.
    stream.shutdown(Shutdown::Both)?;
    Ok(false)
}

/// Binds the socket in the place of one that is left of a server that has ended.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    with_address(path, |address| {
        let address = SockAddr::Unix(UnixAddr::from_path(address.as_os_str().as_bytes())?);
        let socket = os::socket::socket(&address, os::socket::Kind::Stream)?;
        // The mode is set before the file exists. An umask would be the whole process's.
        os::socket::set_file_mode(&socket, MODE)?;
        os::socket::bind(&socket, &address)?;
        os::socket::listen(&socket, BACKLOG)?;
        Ok(UnixListener::from(socket))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::{Status, ask};
    use super::*;
    use testkit::Folder;

    fn control(pid_file: &Path) -> Control {
        let (log, _lines) = log::capture(Level::Info);
        Control::open(pid_file, &log)
    }

    /// The next question, as it came. Children of other tests in this process end meanwhile.
    fn question(control: &mut Control) -> (ClientId, String) {
        loop {
            match control.wait(Some(Duration::from_secs(20))) {
                Event::Question(id, text) => return (id, text),
                Event::Signal(_) => {}
                Event::Time => panic!("no question"),
            }
        }
    }

    /// No question comes.
    fn is_quiet(control: &mut Control) -> bool {
        let event = control.wait(Some(Duration::from_millis(5)));
        matches!(event, Event::Time | Event::Signal(_))
    }

    #[test]
    fn a_long_answer_under_a_long_name() {
        let dir = Folder::new("long");
        let folder = dir.join("d".repeat(120));
        fs::create_dir(&folder).unwrap();
        let pid_file = folder.join("pid");
        let mut control = control(&pid_file);
        let socket = socket_of(&pid_file).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, MODE);
        let body = vec![b'x'; 3 << 20];
        let asking = std::thread::spawn(move || ask(&socket, "config all"));
        let (id, text) = question(&mut control);
        assert_eq!(text, "config all");
        let answer = Answer { body, ..Answer::new(Status::Ok) };
        control.answer(id, &answer);
        while !asking.is_finished() {
            assert!(is_quiet(&mut control));
        }
        assert_eq!(asking.join().unwrap().unwrap(), answer);
        control.remove();
        assert!(!folder.join("pid.sock").exists());
    }

    #[test]
    fn clients_that_are_silent_or_wordy_are_left_alone() {
        let dir = Folder::new("silent");
        let pid_file = dir.join("pid");
        let mut control = control(&pid_file);
        let socket = socket_of(&pid_file).unwrap();
        let connect = || UnixStream::connect(&socket).unwrap();
        let (_silent, mut wordy, gone) = (connect(), connect(), connect());
        wordy.write_all(&[b'x'; QUESTION_BYTES_MAX + 1]).unwrap();
        drop(gone);
        let mut asking = connect();
        asking.write_all(b"status\n").unwrap();
        let (id, text) = question(&mut control);
        assert_eq!(text, "status");
        control.answer(id, &Answer::new(Status::Unknown));
        let mut text = String::new();
        asking.read_to_string(&mut text).unwrap();
        assert_eq!(text, "unknown\n\n");
        assert!(is_quiet(&mut control));
        assert_eq!(control.clients.len(), 1);
    }

    #[test]
    fn names_change_and_remains_are_replaced() {
        let dir = Folder::new("names");
        let (one, two) = (dir.join("one"), dir.join("two"));
        drop(UnixListener::bind(socket_of(&one).unwrap()).unwrap());
        let mut control = control(&one);
        control.rename(&two);
        assert!(!dir.join("one.sock").exists());
        assert!(UnixStream::connect(dir.join("two.sock")).is_ok());
        let (log, lines) = log::capture(Level::Info);
        control.listen(&dir.join("no/where"), &log);
        assert!(lines.take().contains("no control socket: bind() to unix:"));
        assert!(!dir.join("two.sock").exists());
        control.listen(Path::new(""), &log);
    }
}
