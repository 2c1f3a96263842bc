//! An origin for tests of caches: each answer is made by the test, and every request counted.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::{Weir, listener};

/// A request as it came.
pub struct Asked {
    pub method: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
    /// The how-manieth request for this target it is, from 1.
    pub count: usize,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Sends a request and returns the cache status and the body.
pub fn ask(weir: &Weir, path: &str) -> (String, String) {
    let response = weir.get(path);
    (response.header("X-Cache").unwrap_or("-").to_owned(), response.text())
}

/// The same as it is expected.
pub fn pair(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

/// An answer.
#[derive(Default)]
pub struct Answer {
    /// 0 is 200.
    pub status: u16,
    /// Field lines, each with its end.
    pub fields: String,
    pub body: Vec<u8>,
    /// Pause before the head.
    pub delay: Duration,
    /// The body goes in so many pieces, with this pause between them.
    pub pieces: usize,
    pub pause: Duration,
    /// The connection ends so many bytes before the body does.
    pub short: usize,
    pub chunked: bool,
}

impl Answer {
    /// A fresh response for a minute.
    pub fn of(body: impl Into<Vec<u8>>) -> Answer {
        let fields = "Cache-Control: max-age=60\r\n".to_owned();
        Answer { fields, body: body.into(), ..Answer::default() }
    }
}

type Answers = dyn Fn(&Asked) -> Answer + Send + Sync;

/// The server; its threads end with the test's process.
pub struct Origin {
    pub port: u16,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl Origin {
    pub fn start(answers: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Origin {
        let (listener, port) = listener();
        let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let (all, answers): (_, Arc<Answers>) = (counts.clone(), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (counts, answers) = (all.clone(), answers.clone());
                let stream = stream.expect("a test's socket");
                std::thread::spawn(move || serve(&stream, &counts, &*answers));
            }
        });
        Origin { port, counts }
    }

    /// Answers with one body, each time as `change` makes of it.
    pub fn of_body(
        body: &[u8],
        change: impl Fn(&Asked, &mut Answer) + Send + Sync + 'static,
    ) -> Origin {
        let body = body.to_vec();
        Origin::start(move |asked| {
            let mut answer = Answer::of(body.clone());
            change(asked, &mut answer);
            answer
        })
    }

    /// The number of requests for a target.
    pub fn count(&self, target: &str) -> usize {
        self.counts.lock().unwrap().get(target).copied().unwrap_or(0)
    }
}

fn serve(stream: &TcpStream, counts: &Mutex<HashMap<String, usize>>, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => lines.push(line.trim_end().to_owned()),
            }
        }
        let Some(first) = lines.first() else { return };
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let field = |l: &String| l.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned()));
        let fields = lines[1..].iter().filter_map(field).collect();
        let count = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(target.clone()).or_default();
            *count += 1;
            *count
        };
        let asked = Asked { method, target, fields, count };
        let answer = answers(&asked);
        let short = answer.short > 0;
        if send(stream, &asked, answer).is_err() || short {
            return;
        }
    }
}

fn send(mut stream: &TcpStream, asked: &Asked, answer: Answer) -> std::io::Result<()> {
    std::thread::sleep(answer.delay);
    let status = if answer.status == 0 { 200 } else { answer.status };
    let framing = match answer.chunked {
        true => "Transfer-Encoding: chunked\r\n".to_owned(),
        false if status == 304 => String::new(),
        false => format!("Content-Length: {}\r\n", answer.body.len()),
    };
    let head = format!("HTTP/1.1 {status} X\r\n{framing}{}\r\n", answer.fields);
    if asked.method == "HEAD" || status == 304 {
        return stream.write_all(head.as_bytes());
    }
    let body = &answer.body[..answer.body.len() - answer.short];
    let piece = body.len().div_ceil(answer.pieces.max(1)).max(1);
    let mut out = head.into_bytes();
    for (i, part) in body.chunks(piece).enumerate() {
        if i > 0 {
            stream.write_all(&out)?;
            out.clear();
            std::thread::sleep(answer.pause);
        }
        if answer.chunked {
            out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        }
        out.extend_from_slice(part);
        if answer.chunked {
            out.extend_from_slice(b"\r\n");
        }
    }
    if answer.chunked && answer.short == 0 {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&out)
}

/// A body in which each place is told from others near it.
pub fn body_of(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i / 7 % 251) as u8).collect()
}
