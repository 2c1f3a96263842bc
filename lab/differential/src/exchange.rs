//! One case with one server: its answers, made comparable.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use super::generate::Case;

/// The limit of an answer. Both servers time out before it.
const PATIENCE: Duration = Duration::from_secs(8);

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The server closed it; unread bytes decide whether by a reset.
    Closed,
    /// It was still open.
    Open,
}

/// An answer without the differences that are natural.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status line.
    pub line: String,
    /// Fields in their order.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing and coding.
    pub body: Vec<u8>,
    /// Fields behind the body.
    pub trailers: Vec<String>,
    /// Whether the body came whole.
    pub whole: bool,
}

impl Answer {
    /// The status.
    pub fn status(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// Takes all fields of a name out.
    pub fn without(&mut self, name: &str) {
        self.fields.retain(|(n, _)| n != name);
    }

    /// Puts another text into the body in place of the first one like this.
    pub fn replace(&mut self, text: &str, other: &str) {
        self.body = String::from_utf8_lossy(&self.body).replacen(text, other, 1).into_bytes();
    }

    /// The first field of a name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

/// All that came over one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The answers.
    pub answers: Vec<Answer>,
    /// Bytes that are no answer with a head.
    pub rest: Vec<u8>,
    /// The end of the connection.
    pub end: End,
}

/// Sends a case to a server and reads all that comes back.
pub fn exchange(port: u16, case: &Case, names: &[(String, &str)]) -> Result<Outcome, String> {
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|e| format!("connect: {e}"))?;
    let timeouts = stream.set_read_timeout(Some(Duration::from_millis(200)));
    timeouts.and_then(|()| stream.set_nodelay(true)).map_err(|e| e.to_string())?;
    // A server that refuses early closes before it has read all: its answer comes all the same.
    let _ = stream.write_all(&case.bytes);
    let (bytes, end) = read(&mut stream, case.cut);
    // A damaged method is no HEAD.
    let head = case.bytes.windows(5).any(|w| w == b"HEAD ");
    let methods: Vec<_> =
        case.methods.iter().map(|m| if m == "HEAD" && !head { "GET" } else { m }).collect();
    Ok(parse(&bytes, &methods, end, names))
}

/// Reads until the server closes. Where the request breaks off, the sending direction is closed,
/// but not before the server has answered what it can.
fn read(stream: &mut TcpStream, mut cut: bool) -> (Vec<u8>, End) {
    let began = Instant::now();
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while began.elapsed() < PATIENCE {
        match stream.read(&mut buffer) {
            Ok(0) => return (bytes, End::Closed),
            Ok(len) => bytes.extend_from_slice(&buffer[..len]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if std::mem::take(&mut cut) {
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
            Err(_) => return (bytes, End::Closed),
        }
    }
    (bytes, End::Open)
}

fn parse(bytes: &[u8], methods: &[&str], end: End, names: &[(String, &str)]) -> Outcome {
    let mut rest = bytes;
    let mut answers = Vec::new();
    let mut methods = methods.iter().copied();
    let mut method = methods.next().unwrap_or("GET");
    while rest.starts_with(b"HTTP/") {
        let Some(head) = rest.windows(4).position(|w| w == b"\r\n\r\n") else { break };
        let text: String = rest[..head].iter().map(|byte| char::from(*byte)).collect();
        rest = &rest[head + 4..];
        let mut answer = of_head(&text);
        let interim = answer.status().starts_with('1') && answer.status() != "101";
        if !interim {
            body(&mut answer, method, &mut rest);
            method = methods.next().unwrap_or("GET");
        }
        alike(&mut answer, names);
        answers.push(answer);
    }
    Outcome { answers, rest: replaced(rest, names), end }
}

fn of_head(text: &str) -> Answer {
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default().to_string();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        (name.to_string(), value.to_string())
    };
    let fields = lines.map(field).collect();
    Answer { line, fields, body: Vec::new(), trailers: Vec::new(), whole: true }
}

fn body(answer: &mut Answer, method: &str, rest: &mut &[u8]) {
    if method == "HEAD" || matches!(answer.status(), "204" | "304") {
        return;
    }
    if answer.field("Transfer-Encoding").is_some() {
        answer.whole = chunks(answer, rest).is_some();
    } else if let Some(len) = answer.field("Content-Length").and_then(|v| v.parse::<usize>().ok()) {
        answer.whole = rest.len() >= len;
        let (own, behind) = rest.split_at(len.min(rest.len()));
        answer.body = own.to_vec();
        *rest = behind;
    } else {
        answer.body = std::mem::take(rest).to_vec();
    }
    if answer.field("Content-Encoding") == Some("gzip") && !answer.body.is_empty() {
        let mut text = Vec::new();
        // The degree of compression is no difference.
        if answer.status() != "206"
            && GzDecoder::new(&answer.body[..]).read_to_end(&mut text).is_ok()
        {
            answer.body = text;
        }
    }
}

fn chunks(answer: &mut Answer, rest: &mut &[u8]) -> Option<()> {
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        *rest = &rest[line + 2..];
        if size == 0 {
            break;
        }
        answer.body.extend_from_slice(rest.get(..size)?);
        *rest = rest.get(size + 2..)?;
    }
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let text = String::from_utf8_lossy(&rest[..line]).into_owned();
        *rest = &rest[line + 2..];
        if text.is_empty() {
            return Some(());
        }
        answer.trailers.push(text);
    }
}

/// The length of the run of such characters: a number that a server draws by itself.
fn run_of(bytes: &[u8], of: fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|b| of(b)).count()
}

fn replaced(bytes: &[u8], names: &[(String, &str)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    'next: while let Some(&byte) = rest.first() {
        for (name, with) in names {
            if rest.starts_with(name.as_bytes()) {
                out.extend_from_slice(with.as_bytes());
                rest = &rest[name.len()..];
                continue 'next;
            }
        }
        // The boundary of several ranges.
        let digits = run_of(rest, u8::is_ascii_digit);
        if digits == 20 {
            out.extend_from_slice(b"BOUNDARY");
            rest = &rest[20..];
        } else {
            let len = digits.max(1);
            out.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            let _ = byte;
        }
    }
    out
}

/// Removes natural differences: names, ports, times, random numbers.
fn alike(answer: &mut Answer, names: &[(String, &str)]) {
    answer.body = replaced(&answer.body, names);
    for (name, value) in &mut answer.fields {
        let lower = name.to_ascii_lowercase();
        let text: Vec<u8> = value.chars().map(|c| c as u32 as u8).collect();
        *value = replaced(&text, names).iter().map(|byte| char::from(*byte)).collect();
        match lower.as_str() {
            "date" if !value.ends_with("2020 00:00:01 GMT") => *value = "DATE".into(),
            "set-cookie" if value.starts_with("who=") && value.len() > 28 => {
                value.replace_range(4..26, "UID");
            }
            // A body with the server's name differs by the length of the name.
            "content-length" => {
                let error = answer.body.windows(8).any(|w| w == b"<center>");
                if error || answer.line.split(' ').nth(1).is_some_and(|s| s >= "300") {
                    *value = "LENGTH".into();
                }
            }
            _ => {}
        }
    }
    // Both answer within a second of each other, not within the same.
    let now = answer.field("Cache-Control").is_some_and(|v| v.starts_with("max-age"));
    for (name, value) in &mut answer.fields {
        if name == "Expires" && now {
            *value = "SOON".into();
        }
    }
}
