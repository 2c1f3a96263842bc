//! Lines to syslog (RFC 3164), over UDP or a unix socket, without ever waiting.
//!
//! A unix socket takes few datagrams that were not read yet (`net.unix.max_dgram_qlen`, 10 by
//! default). Lines for which there is no room wait in a [`LogQueue`] for a thread to send them.

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::log;
use base::log::{Level, os_error};
use conf::{ConfError, Word};
use os::SockAddr;
use os::socket::{self, Kind};

use net::addr;

use crate::logs::{LogFiles, LogQueue, Report, Trouble};

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
const TAG_MAX: usize = 32;
/// nginx's, because rules that sort lines on the other end know it.
const DEFAULT_TAG: &str = "nginx";
const DEFAULT_PORT: u16 = 514;

/// A syslog server and the start of lines to it: the value `syslog:server=…,facility=…` of
/// `error_log` and `access_log`.
#[derive(Debug)]
pub struct Syslog {
    server: SockAddr,
    server_text: String,
    facility: usize,
    severity: Level,
    tag: String,
    /// Empty with `nohostname`.
    hostname: String,
    socket: RefCell<Option<Arc<OwnedFd>>>,
    /// The lines that wait, for this server and others of the same address.
    queue: Rc<LogQueue>,
    /// A line about a syslog that fails is not sent to that syslog.
    busy: Cell<bool>,
}

impl Syslog {
    /// Reads a value that begins with `syslog:`. Names of servers are resolved now.
    pub fn parse(word: &Word, logs: &LogFiles) -> Result<Syslog, ConfError> {
        let value = word.bytes().strip_prefix(b"syslog:").unwrap_or(word.bytes());
        let mut draft = Draft::default();
        for part in value.split(|&b| b == b',') {
            draft.parameter(word, part)?;
        }
        let Some((server, server_text)) = draft.server else {
            return Err(ConfError::at(word, "no syslog server specified"));
        };
        let queue = logs.shared_queue(&format!("syslog:server={server_text}"));
        Ok(Syslog {
            server,
            queue,
            server_text,
            facility: draft.facility.unwrap_or(FACILITIES.len() - 1),
            severity: draft.severity.unwrap_or(Level::Info),
            tag: draft.tag.unwrap_or_else(|| DEFAULT_TAG.to_owned()),
            hostname: if draft.nohostname { String::new() } else { os::process::hostname() },
            socket: RefCell::default(),
            busy: Cell::new(false),
        })
    }

    /// Sends a line (without its line feed) with the configured severity, or with another. It waits
    /// in the queue while the server's buffer is full; failures go to the error log.
    pub fn send(&self, severity: Option<Level>, line: &[u8]) {
        if self.busy.replace(true) {
            return;
        }
        let mut message = Vec::with_capacity(line.len() + 64 + self.hostname.len());
        self.write_head(severity.unwrap_or(self.severity), &mut message);
        message.extend_from_slice(line);
        if let Err((what, e)) = self.send_or_queue(message) {
            let level = if what == "send()" { Level::Error } else { Level::Alert };
            let (server, e) = (&self.server_text, os_error(&e));
            log!(
                log::default(),
                level,
                None,
                "{what} failed {e} while logging to syslog, server: {server}"
            );
            *self.socket.borrow_mut() = None;
        }
        self.busy.set(false);
    }

    /// `<PRI>Mon dd hh:mm:ss HOST TAG: `
    fn write_head(&self, severity: Level, out: &mut Vec<u8>) {
        let priority = self.facility * 8 + (severity as usize).saturating_sub(1);
        let time = base::time::syslog_time();
        let space = if self.hostname.is_empty() { "" } else { " " };
        let (host, tag) = (&self.hostname, &self.tag);
        // Writing to a Vec cannot fail.
        let _ = write!(out, "<{priority}>");
        out.extend_from_slice(&time);
        let _ = write!(out, " {host}{space}{tag}: ");
    }

    fn send_or_queue(&self, message: Vec<u8>) -> Result<(), (&'static str, io::Error)> {
        let socket = self.connected()?;
        // Lines that wait are sent first.
        if self.queue.is_idle() {
            match socket::send(&*socket, &message, false) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent.map(drop).map_err(|e| ("send()", e)),
            }
        }
        let (bytes, server) = (message.len(), self.server_text.clone());
        let send = move |report: &mut Report| {
            match send_until(&socket, &message, report.until) {
                Ok(()) => return,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    let message = format!("send() to syslog, server: {server}");
                    let (level, error) = (Level::Error, Some(e));
                    let connection = None;
                    report.trouble(Trouble { level, connection, message, error, of_writing: true });
                }
                Err(_) => {}
            }
            report.dropped += 1;
        };
        self.queue.call(bytes, Box::new(send));
        Ok(())
    }

    fn connected(&self) -> Result<Arc<OwnedFd>, (&'static str, io::Error)> {
        let mut slot = self.socket.borrow_mut();
        if let Some(socket) = &*slot {
            return Ok(socket.clone());
        }
        let fd = socket::socket(&self.server, Kind::Datagram).map_err(|e| ("socket()", e))?;
        socket::connect(&fd, &self.server).map_err(|e| ("connect()", e))?;
        Ok(slot.insert(Arc::new(fd)).clone())
    }
}

/// Sends a datagram as soon as there is room for it; `WouldBlock` if there is none until then.
fn send_until(socket: &OwnedFd, message: &[u8], until: Option<Instant>) -> io::Result<()> {
    loop {
        match socket::send(socket, message, false) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(e);
                }
                os::fd::wait_any(&[os::fd::Awaited::output(socket)], left);
            }
            sent => return sent.map(drop),
        }
    }
}

#[derive(Default)]
struct Draft {
    server: Option<(SockAddr, String)>,
    facility: Option<usize>,
    severity: Option<Level>,
    tag: Option<String>,
    nohostname: bool,
}

impl Draft {
    fn parameter(&mut self, word: &Word, part: &[u8]) -> Result<(), ConfError> {
        let error = |message: String| Err(ConfError::at(word, message));
        let text = String::from_utf8_lossy(part).into_owned();
        let Some((name, value)) = text.split_once('=') else {
            if part == b"nohostname" {
                self.nohostname = true;
                return Ok(());
            }
            return error(format!("unknown syslog parameter \"{text}\""));
        };
        let given = match name {
            "server" => self.server.is_some(),
            "facility" => self.facility.is_some(),
            "severity" => self.severity.is_some(),
            "tag" => self.tag.is_some(),
            _ => return error(format!("unknown syslog parameter \"{text}\"")),
        };
        if given {
            return error(format!("duplicate syslog \"{name}\""));
        }
        match name {
            "server" => self.server = Some(server(word, value)?),
            "facility" => match FACILITIES.iter().position(|f| *f == value) {
                Some(i) => self.facility = Some(i),
                None => return error(format!("unknown syslog facility \"{value}\"")),
            },
            "severity" => match Level::from_name(value.as_bytes()) {
                Some(level) => self.severity = Some(level),
                None => return error(format!("unknown syslog severity \"{value}\"")),
            },
            _ if value.len() > TAG_MAX => {
                return error(format!("syslog tag length exceeds {TAG_MAX}"));
            }
            _ if !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                let message = "syslog \"tag\" only allows alphanumeric characters and underscore";
                return error(message.to_owned());
            }
            _ => self.tag = Some(value.to_owned()),
        }
        Ok(())
    }
}

fn server(word: &Word, value: &str) -> Result<(SockAddr, String), ConfError> {
    let options = addr::Options { default_port: DEFAULT_PORT, ..addr::Options::default() };
    let wrong = |what: &str| ConfError::at(word, format!("{what} in syslog server \"{value}\""));
    let address = addr::parse(value.as_bytes(), options).map_err(wrong)?;
    match address.addrs.into_iter().next() {
        Some(addr) => {
            let text = addr.to_string();
            Ok((addr, text))
        }
        None => Err(wrong("host not found")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use conf::Pos;
    use std::path::Path;

    fn word(text: &str) -> Word {
        let pos = Pos { file: Path::new("f").into(), line: 3, column: 1 };
        Word { text: Bytes::copy_from_slice(text.as_bytes()), pos, quoted: false }
    }

    fn parse(text: &str) -> Result<Syslog, ConfError> {
        Syslog::parse(&word(text), &LogFiles::new(Path::new("/")))
    }

    #[test]
    fn a_line_arrives_with_its_head() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let port = server.local_addr().unwrap().port();
        let syslog = parse(&format!(
            "syslog:server=127.0.0.1:{port},facility=local0,tag=web_1,nohostname,severity=warn"
        ))
        .unwrap();
        let mut buf = [0; 200];
        let mut got = |severity, line: &[u8]| {
            syslog.send(severity, line);
            let n = server.recv(&mut buf).unwrap();
            String::from_utf8_lossy(&buf[..n]).into_owned()
        };
        let text = got(None, b"hello");
        // local0 is 16, warn is 4: 16 * 8 + 4.
        assert!(text.starts_with("<132>") && text.ends_with(" web_1: hello"), "{text}");
        assert_eq!(text.len(), "<132>Jan  1 00:00:00 web_1: hello".len());
        assert!(got(Some(Level::Emerg), b"x").starts_with("<128>"));
    }

    #[test]
    fn a_host_name_stands_before_the_tag() {
        let syslog = parse("syslog:server=127.0.0.1").unwrap();
        assert_eq!(syslog.server.port(), 514);
        let mut head = Vec::new();
        syslog.write_head(Level::Info, &mut head);
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("<190>"), "{head}");
        assert!(head.ends_with(&format!(" {} nginx: ", os::process::hostname())), "{head}");
    }

    #[test]
    fn errors_in_nginx_s_words() {
        for (text, message) in [
            ("tag=x", "no syslog server specified"),
            ("", "unknown syslog parameter \"\""),
            ("server=1.1.1.1,server=1.1.1.1", "duplicate syslog \"server\""),
            ("server=1.1.1.1,facility=x", "unknown syslog facility \"x\""),
            ("server=1.1.1.1,severity=warning", "unknown syslog severity \"warning\""),
            (
                "server=1.1.1.1,tag=a-b",
                "syslog \"tag\" only allows alphanumeric characters and underscore",
            ),
            ("server=unix:", "no path in the unix domain socket in syslog server \"unix:\""),
            ("server=1.1.1.1,x=y", "unknown syslog parameter \"x=y\""),
        ] {
            let error = parse(&format!("syslog:{text}")).unwrap_err();
            assert_eq!(error.to_string(), format!("{message} in f:3"));
        }
        let long = format!("syslog:server=1.1.1.1,tag={}", "t".repeat(33));
        assert!(parse(&long).unwrap_err().to_string().contains("exceeds 32"));
    }

    #[test]
    fn a_server_that_is_not_there_is_told_in_the_error_log() {
        let (log, lines) = base::log::capture(Level::Info);
        base::log::set_default(log);
        let syslog = parse("syslog:server=unix:/does/not/exist").unwrap();
        syslog.send(None, b"x");
        let text = lines.take();
        assert!(text.contains("[alert]"), "{text}");
        assert!(text.contains(
            "connect() failed (2: No such file or directory) while logging to syslog, \
             server: unix:/does/not/exist"
        ));
    }
}
