//! A client of the mixed load: requests of all kinds, checked answers, and many requests given up.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Outcome, deploy};

/// Nothing came for so long: nothing will come. Long enough for a machine that is busy, and shorter
/// than the time after which servers give up.
pub const PATIENCE: Duration = Duration::from_secs(30);

const FILES: &[(&str, usize)] = &[
    ("empty.txt", 0),
    ("small.txt", 1 << 10),
    ("page.txt", 20_000),
    ("middle.txt", 100 << 10),
    ("large0.bin", 4 << 20),
    ("large1.bin", 4 << 20),
    ("large2.bin", (4 << 20) - 1),
    ("large3.bin", 3_000_001),
];

/// Where the same files are served in different ways.
pub const PLACES: &[&str] =
    &["auto", "threads", "off", "copied", "direct", "held", "slow", "proxied", "streamed"];

const PAGE: &str = "a<!--#include virtual=\"/auto/small.txt\" -->b\
    <!--#include virtual=\"/proxied/page.txt\" -->c<!--#include virtual=\"/off/middle.txt\" -->d";

/// Looks on while a client works, and holds it back.
pub trait Watch: Send + Sync {
    /// Waits until one more request may begin.
    fn pace(&self);
    /// A request that began then was answered rightly.
    fn right(&self, since: Instant, what: &str);
    /// A request was given up on purpose.
    fn given_up(&self, since: Instant);
    /// Something is wrong with what began then; which request it was, where that is known.
    fn fault(&self, since: Instant, what: &str, request: &str);
}

/// The site's files, with their contents.
pub struct Site {
    folder: PathBuf,
    files: Vec<(&'static str, Vec<u8>)>,
    page: Vec<u8>,
    /// Large files are asked for as often as the others, or now and then.
    light: bool,
}

impl Site {
    /// Writes them below a folder.
    pub fn new(folder: PathBuf) -> Outcome<Self> {
        let mut files = Vec::new();
        for (n, &(name, len)) in FILES.iter().enumerate() {
            files.push((name, (0..len).map(|i| ((i / 7 + n) % 251) as u8).collect::<Vec<u8>>()));
        }
        let text = |name: &str| files.iter().find(|f| f.0 == name).map_or(&[][..], |f| &f.1);
        let page =
            [b"a", text("small.txt"), b"b", text("page.txt"), b"c", text("middle.txt"), b"d"];
        let page = page.concat();
        let site = Self { folder, files, page, light: false };
        for (name, bytes) in &site.files {
            site.write(&format!("files/{name}"), bytes)?;
        }
        site.write("page/page.html", PAGE.as_bytes())?;
        fs::create_dir_all(site.uploads())
            .and_then(|()| deploy::give(&site.uploads()))
            .map_err(|e| format!("uploads: {e}"))?;
        Ok(site)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Outcome {
        let path = self.folder.join(name);
        let write = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            let mut file = fs::File::create(path)?;
            file.write_all(bytes)?;
            // Only clean pages can be dropped from memory.
            file.sync_all()
        };
        write(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The same where clients ask for a large file one time in twelve.
    pub fn lightened(self) -> Self {
        Self { light: true, ..self }
    }

    /// A file's number, drawn with a function that gives a number below another one.
    pub fn draw(&self, below: &mut dyn FnMut(usize) -> usize) -> usize {
        let small = self.files.iter().filter(|file| file.1.len() <= 1 << 20).count();
        let most = if self.light && below(12) > 0 { small } else { self.files.len() };
        below(most)
    }

    /// The files, with their contents.
    pub fn files(&self) -> &[(&'static str, Vec<u8>)] {
        &self.files
    }

    /// The page, with all of its parts.
    pub fn page(&self) -> &[u8] {
        &self.page
    }

    /// Whether a body is the page with an error in the place of the part that is passed on, whose
    /// server broke off.
    pub fn is_page_without_part(&self, body: &[u8]) -> bool {
        let part = |name: &str| self.files.iter().find(|f| f.0 == name).map_or(0, |f| f.1.len());
        let (before, behind) = (2 + part("small.txt"), 2 + part("middle.txt"));
        let Some(middle) = body.len().checked_sub(behind).and_then(|end| body.get(before..end))
        else {
            return false;
        };
        body.starts_with(&self.page[..before])
            && body.ends_with(&self.page[self.page.len() - behind..])
            && middle.len() < 400
            && middle.windows(15).any(|text| text == b"502 Bad Gateway")
    }

    /// A large file.
    pub fn large(&self, n: usize) -> (&'static str, &[u8]) {
        let large: Vec<_> = self.files.iter().filter(|file| file.1.len() > 1 << 20).collect();
        let (name, body) = large[n % large.len()];
        (name, body)
    }

    /// Where uploads go.
    pub fn uploads(&self) -> PathBuf {
        self.folder.join("put")
    }

    /// Drops one file, or a part of it, from memory, as far as the system likes.
    pub fn forget(&self, turn: usize) {
        let (name, bytes) = &self.files[turn % self.files.len()];
        if let Ok(file) = fs::File::open(self.folder.join("files").join(name)) {
            let part = std::num::NonZeroU64::new(bytes.len() as u64 / (1 + turn as u64 % 3));
            let _ = rustix::fs::fadvise(&file, 0, part, rustix::fs::Advice::DontNeed);
        }
    }
}

/// The results.
#[derive(Default)]
pub struct Seen {
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers, and requests given up, by the kind of request.
    pub kinds: BTreeMap<String, u64>,
    /// Failures, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Requests that were given up on purpose.
    pub given_up: u64,
    /// Kept connections that the server closed while a request was on its way, which a client has
    /// to expect of any connection that was idle; asked again on a new one.
    pub let_go: u64,
}

impl Seen {
    /// Answers in all.
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Adds another client's results.
    pub fn add(&mut self, other: Self) {
        fn sum<K: Ord>(to: &mut BTreeMap<K, u64>, from: BTreeMap<K, u64>) {
            for (key, count) in from {
                *to.entry(key).or_default() += count;
            }
        }
        sum(&mut self.statuses, other.statuses);
        sum(&mut self.kinds, other.kinds);
        sum(&mut self.failures, other.failures);
        self.given_up += other.given_up;
        self.let_go += other.let_go;
    }
}

/// Why there was no whole answer.
enum Lost {
    /// It was given up on purpose.
    GivenUp,
    /// It should have come; how it failed.
    Failed(&'static str),
}

/// Failures that say that nothing of an answer came.
const UNANSWERED: &[&str] = &["closed unanswered", "reset", "not sent"];

/// The way a request is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Not,
    /// Half of the request is sent.
    HalfAsked,
    Asked,
    /// So many bytes of the answer are read.
    After(usize),
    /// No more is sent, and the answer is read as far as it comes.
    HalfClosed,
}

struct Answer {
    status: u16,
    body: Vec<u8>,
    keep: bool,
}

/// A client. It keeps its connection as long as it may.
pub struct Client {
    id: usize,
    port: u16,
    site: Arc<Site>,
    stop: Arc<AtomicBool>,
    random: u64,
    seen: Seen,
    kept: Option<TcpStream>,
    patience: Duration,
    /// The last request's head.
    asked: String,
}

impl Client {
    /// Number `id` of some; each does the same in each run.
    pub fn new(id: usize, port: u16, site: Arc<Site>, stop: Arc<AtomicBool>) -> Self {
        let random = 0x9e37_79b9_7f4a_7c15 ^ (id as u64 + 1);
        let (seen, kept, patience) = (Seen::default(), None, PATIENCE);
        let asked = String::new();
        Self { id, port, site, stop, random, seen, kept, patience, asked }
    }

    /// Asks until it is to stop.
    pub fn run(mut self) -> Seen {
        while !self.stop.load(Ordering::Relaxed) {
            self.one();
            std::thread::sleep(Duration::from_millis(self.below(20) as u64));
        }
        self.seen
    }

    /// The same under a watch, with a longer limit of waits.
    pub fn run_watched(mut self, patience: Duration, watch: &dyn Watch) {
        self.patience = patience;
        while !self.stop.load(Ordering::Relaxed) {
            watch.pace();
            let since = Instant::now();
            self.one();
            let seen = std::mem::take(&mut self.seen);
            let wrong: u64 = seen.failures.values().sum();
            for what in seen.failures.keys() {
                watch.fault(since, what, &self.asked);
            }
            (0..seen.given_up).for_each(|_| watch.given_up(since));
            let kind = seen.kinds.keys().next().map_or("", String::as_str);
            (0..seen.answered().saturating_sub(wrong)).for_each(|_| watch.right(since, kind));
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        // xorshift: the choice of requests need not be a secret.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as usize) % limit.max(1)
    }

    fn one(&mut self) {
        let site = Arc::clone(&self.site);
        match self.below(100) {
            0..60 => {
                let place = PLACES[self.below(PLACES.len())];
                let (name, body) = &site.files[site.draw(&mut |limit| self.below(limit))];
                self.get(place, &format!("/{place}/{name}"), "", 200, Some(body));
            }
            60..68 => {
                let place = PLACES[self.below(PLACES.len())];
                // The first one is empty.
                let n = site.draw(&mut |limit| self.below(limit)).max(1);
                let (name, body) = &site.files[n];
                let from = self.below(body.len());
                let to = from + 1 + self.below(body.len() - from);
                let range = format!("Range: bytes={from}-{}\r\n", to - 1);
                self.get("range", &format!("/{place}/{name}"), &range, 206, Some(&body[from..to]));
            }
            68..78 => self.get("page", "/page/page.html", "", 200, Some(&site.page)),
            78..86 => {
                let name = ["page.txt", "middle.txt"][self.below(2)];
                let accept = "Accept-Encoding: gzip\r\n";
                self.get("gzipped", &format!("/gzipped/{name}"), accept, 200, None);
            }
            86..90 => self.get("listed", "/listed/", "", 200, None),
            90..93 => self.get("none", "/auto/none.txt", "", 404, None),
            _ => self.upload(),
        }
    }

    fn leave(&mut self, len: usize) -> Leave {
        match self.below(20) {
            0 => Leave::HalfAsked,
            1 => Leave::Asked,
            2 | 3 => Leave::After(1 + self.below(len + 300)),
            4 => Leave::HalfClosed,
            _ => Leave::Not,
        }
    }

    fn get(&mut self, kind: &str, path: &str, fields: &str, status: u16, body: Option<&[u8]>) {
        let leave = self.leave(body.map_or(1000, <[u8]>::len));
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let Some(answer) = self.ask(kind, request.as_bytes(), leave) else { return };
        if answer.status != status {
            self.fail(&format!("{kind}: status {}", answer.status));
        } else if kind == "page" && self.site.is_page_without_part(&answer.body) {
            self.fail("page: status 502 of a part");
        } else if let Some(body) = body.filter(|body| *body != answer.body) {
            self.asked.push_str(&difference(&answer.body, body));
            self.fail(&format!("{kind}: another body"));
        }
    }

    /// Puts a file, gets it, and deletes it.
    fn upload(&mut self) {
        let len = [0, 10, 5_000, 300_000][self.below(4)];
        let body: Vec<u8> = (0..len).map(|i| (i % 253) as u8).collect();
        let name = format!("/put/{}", self.id);
        let mut put =
            format!("PUT {name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n")
                .into_bytes();
        put.extend_from_slice(&body);
        let leave = if self.below(5) == 0 { Leave::HalfAsked } else { Leave::Not };
        match self.ask("put", &put, leave) {
            Some(Answer { status: 201 | 204, .. }) => {
                let get = format!("GET {name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                if let Some(got) = self.ask("got", get.as_bytes(), Leave::Not)
                    && (got.status != 200 || got.body != body)
                {
                    self.fail("put: another body");
                }
            }
            Some(other) => self.fail(&format!("put: status {}", other.status)),
            None => {}
        }
        let delete = format!("DELETE {name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // The page may have been there before.
        for _ in 0..3 {
            let answer = self.ask("delete", delete.as_bytes(), Leave::Not);
            if answer.is_some_and(|a| a.status == 204 || a.status == 404) {
                return;
            }
        }
        self.fail("delete");
    }

    fn fail(&mut self, what: &str) {
        *self.seen.failures.entry(what.to_string()).or_default() += 1;
    }

    /// One request; nothing where it was given up or failed, which is counted.
    fn ask(&mut self, kind: &str, request: &[u8], leave: Leave) -> Option<Answer> {
        *self.seen.kinds.entry(kind.to_string()).or_default() += 1;
        let head = request.split(|b| *b == b'\n').take(3).collect::<Vec<_>>().concat();
        self.asked = String::from_utf8_lossy(&head[..head.len().min(150)]).replace('\r', " ");
        let kept = self.kept.is_some();
        let mut exchanged = self.exchange(request, leave);
        if kept && matches!(exchanged, Err(Lost::Failed(what)) if UNANSWERED.contains(&what)) {
            self.seen.let_go += 1;
            exchanged = self.exchange(request, leave);
        }
        let lost = match exchanged {
            Ok(answer) => {
                *self.seen.statuses.entry(answer.status).or_default() += 1;
                return Some(answer);
            }
            Err(lost) => lost,
        };
        match lost {
            Lost::GivenUp => self.seen.given_up += 1,
            Lost::Failed("stuck") => {
                self.fail("stuck");
                println!(
                    "stuck: {kind} {}",
                    String::from_utf8_lossy(&request[..request.len().min(80)])
                );
            }
            Lost::Failed(what) => {
                self.fail(&format!("{kind}: {what}"));
            }
        }
        None
    }

    fn exchange(&mut self, request: &[u8], leave: Leave) -> Result<Answer, Lost> {
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => connect(self.port, self.patience)
                .map_err(|e| Lost::Failed(failure(e.kind(), "not connected")))?,
        };
        let asked = match leave {
            Leave::HalfAsked => &request[..self.below(request.len())],
            _ => request,
        };
        if let Err(e) = stream.write_all(asked)
            && leave == Leave::Not
        {
            return Err(Lost::Failed(failure(e.kind(), "not sent")));
        }
        match leave {
            Leave::HalfAsked | Leave::Asked => return self.give_up(&stream),
            Leave::HalfClosed => drop(stream.shutdown(Shutdown::Write)),
            Leave::After(_) | Leave::Not => {}
        }
        // Some read slowly.
        let pause = if self.below(10) == 0 { self.below(10) as u64 } else { 0 };
        let limit = if let Leave::After(bytes) = leave { bytes } else { usize::MAX };
        match read_answer(&mut stream, limit, pause) {
            Err(Lost::GivenUp) => self.give_up(&stream),
            // Whether a client that has closed its half gets all of it is not promised.
            Err(Lost::Failed(what)) if leave == Leave::HalfClosed && what != "stuck" => {
                Err(Lost::GivenUp)
            }
            Ok(answer) => {
                if answer.keep && leave != Leave::HalfClosed {
                    self.kept = Some(stream);
                }
                Ok(answer)
            }
            failed => failed,
        }
    }

    /// Closes, sometimes with a reset.
    fn give_up(&mut self, stream: &TcpStream) -> Result<Answer, Lost> {
        if self.below(2) == 0 {
            let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
        Err(Lost::GivenUp)
    }
}

/// Where a body is first another one than the right one, and what stands there.
fn difference(body: &[u8], right: &[u8]) -> String {
    let at = body.iter().zip(right).take_while(|(a, b)| a == b).count();
    let there = &body[at..body.len().min(at + 80)];
    let (len, right) = (body.len(), right.len());
    format!("{len} bytes instead of {right}, from {at} on: {}", there.escape_ascii())
}

/// A connection to a port of the loopback whose reads and writes have a limit.
pub fn connect(port: u16, limit: Duration) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The same from an address of the loopback.
pub fn connect_from(from: Ipv4Addr, port: u16, limit: Duration) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&fd, &SocketAddrV4::new(from, 0))?;
    let stream = TcpStream::from(fd);
    // The limit of writes is that of connecting, too.
    stream.set_write_timeout(Some(limit))?;
    connect(&stream, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn failure(kind: ErrorKind, otherwise: &'static str) -> &'static str {
    match kind {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "stuck",
        _ => otherwise,
    }
}

/// Where an answer ends.
enum Framing {
    Length(usize),
    Chunked,
}

fn read_answer(stream: &mut TcpStream, limit: usize, pause_ms: u64) -> Result<Answer, Lost> {
    let mut got = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut head = None;
    loop {
        if head.is_none()
            && let Some(at) = got.windows(4).position(|w| w == b"\r\n\r\n")
        {
            head = Some((at + 4, parse_head(&got[..at + 4])?));
        }
        if let Some((at, (status, framing, keep))) = &head {
            let body = match framing {
                Framing::Length(len) if got.len() - at >= *len => Some(got[*at..at + len].to_vec()),
                Framing::Length(_) => None,
                Framing::Chunked if !got.ends_with(b"0\r\n\r\n") => None,
                Framing::Chunked => joined(&got[*at..]),
            };
            if let Some(body) = body {
                return Ok(Answer { status: *status, body, keep: *keep });
            }
        }
        if got.len() >= limit {
            return Err(Lost::GivenUp);
        }
        if pause_ms > 0 {
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        match stream.read(&mut buffer) {
            Ok(0) if got.is_empty() => return Err(Lost::Failed("closed unanswered")),
            Ok(0) => return Err(Lost::Failed("cut")),
            Ok(len) => got.extend_from_slice(&buffer[..len]),
            Err(e) if got.is_empty() => return Err(Lost::Failed(failure(e.kind(), "reset"))),
            Err(e) => return Err(Lost::Failed(failure(e.kind(), "reset in the answer"))),
        }
    }
}

fn parse_head(head: &[u8]) -> Result<(u16, Framing, bool), Lost> {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
    let status = status.ok_or(Lost::Failed("no status"))?;
    let field = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let framing = match (status, field("content-length"), field("transfer-encoding")) {
        (204, _, _) => Framing::Length(0),
        (_, Some(len), _) => Framing::Length(len.parse().unwrap_or(0)),
        (_, None, Some("chunked")) => Framing::Chunked,
        _ => return Err(Lost::Failed("an answer without a length")),
    };
    Ok((status, framing, field("connection") != Some("close")))
}

/// The chunks of a body put together; nothing while the last one is missing.
fn joined(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        let from = line + 2;
        if rest.len() < from + len + 2 {
            return None;
        }
        if len == 0 {
            return Some(body);
        }
        body.extend_from_slice(&rest[from..from + len]);
        rest = &rest[from + len + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together() {
        assert_eq!(joined(b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"), Some(b"abcd".to_vec()));
        assert_eq!(joined(b"3\r\nabc\r\n0\r\n"), None);
        assert_eq!(joined(b"5\r\n0\r\n\r\n"), None, "an end that is none");
    }

    #[test]
    fn a_part_that_failed_is_told_from_other_bodies() {
        let folder = std::env::temp_dir().join(format!("weir-bench-page-{}", std::process::id()));
        let site = Site::new(folder.clone()).unwrap();
        let _ = fs::remove_dir_all(folder);
        let (before, behind) = (2 + 1024, 2 + (100 << 10));
        let behind = &site.page[site.page.len() - behind..];
        let with = |part: &[u8]| [&site.page[..before], part, behind].concat();
        assert!(site.is_page_without_part(&with(b"<h1>502 Bad Gateway</h1>")));
        assert!(!site.is_page_without_part(&with(b"")));
        assert!(!site.is_page_without_part(&with(&site.files[2].1)), "the page itself");
        assert!(!site.is_page_without_part(b"502 Bad Gateway"));
    }

    #[test]
    fn heads_tell_where_bodies_end() {
        let parsed =
            parse_head(b"HTTP/1.1 206 X\r\nContent-Length: 12\r\nConnection: close\r\n\r\n");
        assert!(matches!(parsed, Ok((206, Framing::Length(12), false))));
        let parsed = parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(matches!(parsed, Ok((200, Framing::Chunked, true))));
        assert!(parse_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
