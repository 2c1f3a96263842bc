//! Runs a module in the process of a test: the whole engine and all modules of the project, over
//! real sockets of the loopback.
//!
//! ```
//! # use weir_module::Module;
//! # static MODULE: Module = Module { name: "nothing", ..Module::EMPTY };
//! let run = weir_module::testing::serve(&MODULE, "location / { return 204; }", &["/"]);
//! assert_eq!(run.answers[0].status, 204);
//! ```
//!
//! For what needs processes (reload, shared zones, several workers) a test runs the server that
//! `weir build` makes.
#![allow(clippy::panic)]

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::log::{Level, Log, MemorySink};
use bytes::Bytes;
use engine::{Engine, Seat};
use event::{Deadline, Loop, Options, Sock};
use http::engine::HttpEngine;
use http::server::HttpMain;

use crate::Module;

/// The result of a run.
pub struct Ran {
    /// The answers, in the order of the requests.
    pub answers: Vec<Answer>,
    /// The error log, from level info on.
    pub log: String,
}

/// A response.
pub struct Answer {
    /// Its status; 0 where the connection was closed without one.
    pub status: u16,
    /// Its head as it was sent.
    pub head: String,
    /// Its body, without chunks.
    pub body: Vec<u8>,
    /// The fields behind its last chunk, as they were sent.
    pub trailers: String,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first field of that name in the head.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(self.head.lines().skip(1), name)
    }

    /// The first field of that name behind the body.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        field(self.trailers.lines(), name)
    }
}

fn field<'a>(mut lines: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    lines.find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Reads the contents of a `server` block with the module in the list.
///
/// # Errors
/// The error, as the server would log it.
pub fn load(module: &'static Module, server: &str) -> Result<(), String> {
    let folder = Folder::new();
    let (log, _) = base::log::capture(Level::Info);
    build(module, &format!("server {{ {server} }}"), folder.path(), &log).map(drop)
}

/// Runs a server with `server` as the contents of its `server` block, and sends it the requests one
/// after the other. A request is a path, or the text of a whole request that asks for
/// `Connection: close`. In `server`, `%FOLDER%` stands for a folder of the run.
///
/// # Panics
/// If the configuration is wrong, or an answer does not come within ten seconds.
pub fn serve(module: &'static Module, server: &str, requests: &[&str]) -> Ran {
    serve_http(module, &format!("server {{ {server} }}"), requests)
}

/// The same with `http` as the contents of the `http` block, which has one server.
///
/// # Panics
/// As [`serve`].
pub fn serve_http(module: &'static Module, http: &str, requests: &[&str]) -> Ran {
    let folder = Folder::new();
    let (log, sink): (Log, Rc<MemorySink>) = base::log::capture(Level::Info);
    base::log::set_default(log.clone());
    let main = match build(module, http, folder.path(), &log) {
        Ok(main) => main,
        Err(message) => panic!("{message}"),
    };
    let mut event_loop = Loop::new(Options::default()).expect("a loop for the test");
    let (listener, addr) = event::testing::listen().expect("a free port");
    let engine = HttpEngine::new(main);
    let (debug_connections, alone) = (Rc::from([]), event::Gate::new());
    let seat = Seat {
        index: 0,
        slot: 0,
        log,
        debug_connections,
        alone,
        relay: None,
        moves: None,
        removals: Default::default(),
    };
    engine.start(&seat, vec![listener]).expect("the engine starts");
    let requests: Vec<String> = requests.iter().map(|r| request(r)).collect();
    let answers = event_loop.block_on(async move {
        let mut answers = Vec::new();
        for request in requests {
            let sock = event::testing::connect(&addr).await.expect("a connection");
            answers.push(exchange(&sock, &request).await);
        }
        answers
    });
    drop(engine);
    Ran { answers: answers.expect("the exchange does not panic"), log: sink.take() }
}

fn request(text: &str) -> String {
    match text.contains("\r\n") {
        true => text.to_owned(),
        false => format!("GET {text} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"),
    }
}

async fn exchange(sock: &Sock, request: &str) -> Answer {
    let mut chain = mem::Chain::new();
    chain.write(request.as_bytes());
    // The server may answer and close before it has all.
    let _ = sock.send(&mut chain, Deadline::in_ms(10_000)).await;
    let mut all = Vec::new();
    loop {
        match sock.recv(1, Deadline::in_ms(10_000)).await {
            Ok(page) if page.is_empty() => break,
            Ok(page) => all.extend_from_slice(&page),
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => panic!("no answer: {request}"),
            Err(_) => break,
        }
    }
    answer(&all)
}

fn answer(all: &[u8]) -> Answer {
    let end = all.windows(4).position(|w| w == b"\r\n\r\n");
    let (head, body) = match end {
        Some(end) => (&all[..end + 2], &all[end + 4..]),
        None => (all, &[][..]),
    };
    let head = String::from_utf8_lossy(head).into_owned();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut answer = Answer { status, head, body: Vec::new(), trailers: String::new() };
    match answer.header("Transfer-Encoding") {
        Some("chunked") => {
            let rest = unchunked(body, &mut answer.body);
            answer.trailers = String::from_utf8_lossy(rest).into_owned();
        }
        _ => answer.body = body.to_vec(),
    }
    answer
}

/// Appends the chunks' data to `body` and returns the bytes behind the last chunk.
fn unchunked<'a>(mut rest: &'a [u8], body: &mut Vec<u8>) -> &'a [u8] {
    while let Some(line) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap_or_default();
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        rest = &rest[line + 2..];
        if size == 0 || size > rest.len() {
            break;
        }
        body.extend_from_slice(&rest[..size]);
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    rest
}

fn build(
    module: &'static Module,
    http: &str,
    folder: &Path,
    log: &Log,
) -> Result<Rc<HttpMain>, String> {
    let http = http.replace("%FOLDER%", &folder.display().to_string());
    let text = format!("http {{ access_log off; {http} }}");
    let options = conf::parse::Options::default();
    let tree = conf::parse::parse_bytes(Path::new("test.conf"), Bytes::from(text), &options)
        .map_err(|e| e.to_string())?;
    let env = http::LoadEnv::alone(folder, log.clone()).map_err(|e| e.to_string())?;
    let modules = http_modules::with(http_modules::MODULES, std::iter::once(module))
        .map_err(|e| e.to_string())?;
    http::build::build(&tree.nodes[0], env, modules).map_err(|e| e.to_string())
}

/// A folder of a run, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-module-{}-{n}", std::process::id()));
        std::fs::create_dir_all(path.join("logs")).expect("a folder for the run");
        Folder(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
