//! Clients of the mixed load over HTTP/2: several requests at once on each connection, answers
//! checked byte for byte, streams reset and connections left in the middle.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::h2::{self, Frame, Response, Wire, code, kind};

use crate::client::{PATIENCE, PLACES, Site, Watch, connect};
use crate::tls;

/// Connections at once.
const CLIENTS: usize = 4;
/// Requests at once on each.
const STREAMS: usize = 8;
/// Requests that a killed worker may take with it.
pub const LOST_MAX: usize = CLIENTS * STREAMS;
/// The longest upload: the first window of a stream has room for it.
const UPLOAD_MAX: usize = 60_000;

/// The longest message of a call, and of its answer.
const CALL_MAX: usize = 20_000;
const REPLY_MAX: usize = 1_000;

/// Clients of a kind.
#[derive(Clone)]
pub struct Clients {
    /// Where they ask.
    pub port: u16,
    /// Over TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Calls of gRPC instead of the site's files.
    pub calls: bool,
    /// Who looks on, in place of a list of faults.
    pub watch: Option<Arc<dyn Watch>>,
    /// The limit of a wait for a frame.
    pub patience: Duration,
}

/// Clients that work until they are to stop, and the faults that they found.
pub type Others = Vec<JoinHandle<Vec<String>>>;

/// Starts the clients of the mixed load.
pub fn begin(port: u16, site: &Arc<Site>, stop: &Arc<AtomicBool>) -> Others {
    let clients = Clients { port, tls: None, calls: false, watch: None, patience: PATIENCE };
    begin_some(CLIENTS, &clients, site, stop)
}

/// Starts so many of these.
pub fn begin_some(
    count: usize,
    clients: &Clients,
    site: &Arc<Site>,
    stop: &Arc<AtomicBool>,
) -> Others {
    let one = |id: usize| {
        let (clients, site, stop) = (clients.clone(), Arc::clone(site), Arc::clone(stop));
        std::thread::spawn(move || {
            let id = id + usize::from(clients.port) * 100;
            let random = 0x9e37_79b9_7f4a_7c15 ^ (id as u64 + 1);
            let (next, faults) = (Vec::new(), Vec::new());
            Visitor { id, clients, site, stop, random, next, faults }.run()
        })
    };
    (0..count).map(one).collect()
}

/// The answer to a call: the message's bytes, inverted and repeated as far as its number says.
pub fn reply(message: &[u8]) -> Vec<u8> {
    let Some((number, rest)) = message.get(5..).and_then(|m| m.split_at_checked(2)) else {
        return Vec::new();
    };
    let len = usize::from(u16::from_be_bytes([number[0], number[1]]));
    let mut out = vec![0];
    out.extend_from_slice(&(len as u32).to_be_bytes());
    out.extend(rest.iter().chain(number).cycle().take(len).map(|b| !b));
    out
}

/// A call's message, which no other one resembles.
fn message(seed: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&((len + 2) as u32).to_be_bytes());
    out.extend_from_slice(&((seed * 7919 % REPLY_MAX) as u16).to_be_bytes());
    out.extend((0..len).map(|i| (i / 3 * 31 + seed * 13 + (seed >> 7)) as u8));
    out
}

/// The body of an answer.
#[derive(Clone)]
enum Expected {
    /// Any.
    Any,
    Page,
    /// A part of a file.
    File(usize, std::ops::Range<usize>),
    Upload(usize),
    /// The reply to a call's message.
    Call(usize, usize),
}

/// A request, and the answers to it that are right.
#[derive(Clone)]
struct Ask {
    what: &'static str,
    method: &'static str,
    path: String,
    range: Option<String>,
    upload: Option<usize>,
    statuses: &'static [u16],
    expected: Expected,
    /// Bytes of the answer behind which the stream is reset.
    reset_after: Option<usize>,
    /// When it was sent.
    since: Instant,
}

struct Visitor {
    id: usize,
    clients: Clients,
    site: Arc<Site>,
    stop: Arc<AtomicBool>,
    random: u64,
    /// Requests that come before others: the rest of an upload, and those to be repeated.
    next: Vec<Ask>,
    faults: Vec<String>,
}

fn upload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 253) as u8).collect()
}

impl Visitor {
    fn run(mut self) -> Vec<String> {
        while !self.is_over() {
            let since = Instant::now();
            // The client's own checks of the protocol panic.
            let visited = catch_unwind(AssertUnwindSafe(|| self.visit()));
            let what = match visited {
                Ok(Ok(())) => continue,
                Ok(Err(e)) => format!("not connected: {e}"),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
                    // What came before it is in the text, too.
                    let text = text.split("; before:").next().unwrap_or(text);
                    let stuck = if text.starts_with("waited") { "stuck: " } else { "wrong: " };
                    format!("{stuck}{text}")
                }
            };
            self.fault(since, &what);
            std::thread::sleep(Duration::from_millis(100));
        }
        self.faults
    }

    /// Whether no other request begins. An upload that has begun is deleted before.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && self.next.is_empty()
    }

    fn fault(&mut self, since: Instant, what: &str) {
        match &self.clients.watch {
            Some(watch) => watch.fault(since, what, ""),
            None => self.faults.push(format!("HTTP/2: {what}")),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as usize) % limit.max(1)
    }

    /// A connection from its beginning to its end.
    fn visit(&mut self) -> std::io::Result<()> {
        let socket = connect(self.clients.port, self.clients.patience)?;
        let (mut wire, scheme) = match &self.clients.tls {
            None => (Wire::over(socket.try_clone()?, socket), "http"),
            Some(config) => {
                let (copy, mut socket) = (socket.try_clone()?, socket);
                let session = ClientConnection::new(Arc::clone(config), tls::client::name());
                let mut session = session.map_err(std::io::Error::other)?;
                while session.is_handshaking() {
                    session.complete_io(&mut socket)?;
                }
                (Wire::over(StreamOwned::new(session, socket), copy), "https")
            }
        };
        let patience = self.clients.patience;
        let options =
            h2::Options { scheme: scheme.to_string(), patience, ..h2::Options::default() };
        wire.send([h2::PREFACE, &Frame::settings(&options.settings).encode()].concat())?;
        let mut client = h2::Client::already_on(wire, options);
        let mut open: BTreeMap<u32, Ask> = BTreeMap::new();
        let began = Instant::now();
        let (mut leaving, mut asked) = (false, 0);
        let leaves_after = if self.below(10) == 0 { 1 + self.below(40) } else { usize::MAX };
        loop {
            while !leaving && !self.is_over() && open.len() < STREAMS {
                if let Some(watch) = &self.clients.watch {
                    watch.pace();
                }
                let ask = self.next.pop().unwrap_or_else(|| self.choose(&open));
                let ask = Ask { since: Instant::now(), ..ask };
                let id = client.next_stream();
                let sent = client.try_send_frames(&frames(&client, id, &ask));
                open.insert(id, ask);
                asked += 1;
                // Whatever the server has said before its end is read below.
                leaving |= sent.is_err();
            }
            if asked >= leaves_after {
                open.into_values().for_each(|ask| self.leaves(&ask));
                return Ok(());
            }
            if open.is_empty() {
                return Ok(());
            }
            let Some(frame) = client.frame() else {
                let what = if leaving { "lost behind GOAWAY" } else { "cut" };
                for ask in open.into_values() {
                    self.fault(ask.since, &format!("{}: {what}", ask.what));
                    self.given_up(&ask);
                }
                return Ok(());
            };
            leaving |= frame.kind == kind::GOAWAY;
            self.take(&frame, began, &mut client, &mut open);
        }
    }

    fn take(
        &mut self,
        frame: &Frame,
        began: Instant,
        client: &mut h2::Client,
        open: &mut BTreeMap<u32, Ask>,
    ) {
        match frame.kind {
            kind::GOAWAY => {
                if frame.number(4) != code::NO_ERROR {
                    self.fault(began, &format!("GOAWAY with code {}", frame.number(4)));
                }
                let last = frame.number(0) & 0x7fff_ffff;
                self.next.extend(open.split_off(&(last.saturating_add(1))).into_values());
            }
            kind::RST_STREAM => {
                // One behind a whole answer says that the rest of the request is not needed.
                let Some(ask) = open.remove(&frame.stream) else { return };
                if frame.number(0) == code::REFUSED_STREAM {
                    return self.next.push(ask);
                }
                let code = frame.number(0);
                self.fault(ask.since, &format!("{}: reset with code {code}", ask.what));
                self.given_up(&ask);
            }
            kind::HEADERS | kind::DATA => {
                let id = frame.stream;
                let (Some(ask), Some(answer)) = (open.get(&id), client.so_far(id)) else { return };
                if answer.ended {
                    let ask = ask.clone();
                    let right = self.check(&ask, answer);
                    open.remove(&id);
                    self.goes_on(&ask, right);
                } else if ask.reset_after.is_some_and(|most| answer.body.len() >= most) {
                    if let (Some(watch), Some(ask)) = (&self.clients.watch, open.remove(&id)) {
                        watch.given_up(ask.since);
                    }
                    open.remove(&id);
                    let _ = client.try_send_frames(&[Frame::reset(id, code::CANCEL)]);
                }
            }
            _ => {}
        }
    }

    /// A request that may be asked for beside those that are open.
    fn choose(&mut self, open: &BTreeMap<u32, Ask>) -> Ask {
        if self.clients.calls {
            return self.call();
        }
        let place = PLACES[self.below(PLACES.len())];
        let site = Arc::clone(&self.site);
        let n = site.draw(&mut |limit| self.below(limit));
        let (name, len) = (self.site.files()[n].0, self.site.files()[n].1.len());
        let reset_after = (self.below(12) == 0).then(|| self.below(len + 1));
        let ask = |what, path: String, statuses, expected| Ask {
            what,
            method: "GET",
            path,
            range: None,
            upload: None,
            statuses,
            expected,
            reset_after: None,
            since: Instant::now(),
        };
        let file =
            |what, range| ask(what, format!("/{place}/{name}"), &[200], Expected::File(n, range));
        match self.below(100) {
            0..70 => Ask { reset_after, ..file(place, 0..len) },
            70..80 if len > 0 => {
                let from = self.below(len);
                let to = from + 1 + self.below(len - from);
                let range = Some(format!("bytes={from}-{}", to - 1));
                Ask { range, statuses: &[206], ..file("range", from..to) }
            }
            80..86 => ask("page", "/page/page.html".to_string(), &[200], Expected::Page),
            86..89 => ask("listed", "/listed/".to_string(), &[200], Expected::Any),
            89..92 => ask("none", "/auto/none.txt".to_string(), &[404], Expected::Any),
            _ if !self.uploads(open) => {
                let len = [0, 10, 5_000, UPLOAD_MAX][self.below(4)];
                let path = format!("/put/h2-{}", self.id);
                let put = ask("put", path, &[201, 204], Expected::Any);
                Ask { method: "PUT", upload: Some(len), ..put }
            }
            _ => file("auto", 0..len),
        }
    }

    /// A unary call.
    fn call(&mut self) -> Ask {
        let (seed, short) = (self.below(1 << 30), self.below(10) > 0);
        let len = self.below(if short { 500 } else { CALL_MAX });
        let reset_after = (self.below(20) == 0).then_some(0);
        Ask {
            what: "call",
            method: "POST",
            path: "/soak.Echo/Call".to_string(),
            range: None,
            upload: None,
            statuses: &[200],
            expected: Expected::Call(seed, len),
            reset_after,
            since: Instant::now(),
        }
    }

    /// Whether an upload is under way: there is one name for each client.
    fn uploads(&self, open: &BTreeMap<u32, Ask>) -> bool {
        open.values().chain(&self.next).any(|ask| ask.path.starts_with("/put/"))
    }

    /// Whether an answer is right.
    fn check(&mut self, ask: &Ask, answer: &Response) -> bool {
        if !ask.statuses.contains(&answer.status) {
            self.fault(ask.since, &format!("{}: status {}", ask.what, answer.status));
            return false;
        }
        let same = match &ask.expected {
            Expected::Any => true,
            Expected::Page if self.site.is_page_without_part(&answer.body) => {
                self.fault(ask.since, "page: status 502 of a part");
                return false;
            }
            Expected::Page => answer.body == self.site.page(),
            Expected::File(n, range) => answer.body == self.site.files()[*n].1[range.clone()],
            Expected::Upload(len) => answer.body == upload(*len),
            Expected::Call(seed, len) => {
                let status = answer.trailer("grpc-status").or(answer.header("grpc-status"));
                if status != Some("0") {
                    let text = status.unwrap_or("none").to_string();
                    self.fault(ask.since, &format!("call: grpc-status {text}"));
                    return false;
                }
                answer.body == reply(&message(*seed, *len))
            }
        };
        if !same {
            self.fault(ask.since, &format!("{}: another body", ask.what));
        } else if let Some(watch) = &self.clients.watch {
            watch.right(ask.since, ask.what);
        }
        same
    }

    /// The next step of an upload.
    fn goes_on(&mut self, ask: &Ask, right: bool) {
        match (ask.method, ask.upload) {
            ("PUT", Some(len)) if right => self.next.push(Ask {
                what: "got",
                method: "GET",
                statuses: &[200],
                expected: Expected::Upload(len),
                ..ask.clone()
            }),
            ("PUT" | "GET", Some(_)) => self.given_up(ask),
            _ => {}
        }
    }

    /// The client goes away.
    fn leaves(&mut self, ask: &Ask) {
        if let Some(watch) = &self.clients.watch {
            watch.given_up(ask.since);
        }
        self.given_up(ask);
    }

    /// Nothing more comes of a request: a file that it may have left is deleted.
    fn given_up(&mut self, ask: &Ask) {
        if ask.path.starts_with("/put/") {
            self.next.push(Ask {
                what: "delete",
                method: "DELETE",
                upload: None,
                statuses: &[204, 404],
                expected: Expected::Any,
                ..ask.clone()
            });
        }
    }
}

/// The frames of a request.
fn frames(client: &h2::Client, id: u32, ask: &Ask) -> Vec<Frame> {
    let range = ask.range.as_deref().map(|range| ("range", range));
    let mut fields: Vec<(&str, &str)> = range.into_iter().collect();
    if let Expected::Call(seed, len) = ask.expected {
        fields.extend([("content-type", "application/grpc"), ("te", "trailers")]);
        let head = client.head(ask.method, &ask.path, &fields);
        let message = message(seed, len);
        let parts = message.chunks(16_384);
        let last = parts.len() - 1;
        let parts = parts.enumerate().map(|(n, part)| Frame::data(id, part, n == last));
        return std::iter::once(Frame::headers(id, head, false)).chain(parts).collect();
    }
    let body = ask.upload.filter(|_| ask.method == "PUT").map(upload).unwrap_or_default();
    let head = client.head(ask.method, &ask.path, &fields);
    let mut frames = vec![Frame::headers(id, head, ask.method != "PUT")];
    if ask.method == "PUT" {
        frames.extend(body.chunks(16_384).map(|part| Frame::data(id, part, false)));
        // An empty body is one, too: without it there is nothing to put.
        frames.push(Frame::data(id, b"", true));
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor() -> Visitor {
        let folder = std::env::temp_dir().join(format!("weir-bench-h2-{}", std::process::id()));
        let site = Arc::new(Site::new(folder.clone()).unwrap());
        let _ = std::fs::remove_dir_all(folder);
        let stop = Arc::new(AtomicBool::new(false));
        let clients = Clients { port: 0, tls: None, calls: false, watch: None, patience: PATIENCE };
        Visitor { id: 1, clients, site, stop, random: 5, next: Vec::new(), faults: Vec::new() }
    }

    fn answer(status: u16, body: &[u8]) -> Response {
        Response { status, body: body.to_vec(), ended: true, ..Response::default() }
    }

    #[test]
    fn other_statuses_and_bodies_are_faults() {
        let mut visitor = visitor();
        let whole = visitor.site.files()[1].1.clone();
        let expected = Expected::File(1, 3..9);
        let ask = Ask {
            what: "range",
            method: "GET",
            path: "/auto/small.txt".to_string(),
            range: None,
            upload: None,
            statuses: &[206],
            expected,
            reset_after: None,
            since: Instant::now(),
        };
        assert!(visitor.check(&ask, &answer(206, &whole[3..9])));
        assert!(!visitor.check(&ask, &answer(206, &whole[3..8])));
        assert!(!visitor.check(&ask, &answer(200, &whole[3..9])));
        assert_eq!(visitor.faults, ["HTTP/2: range: another body", "HTTP/2: range: status 200"]);
    }

    #[test]
    fn replies_belong_to_their_calls() {
        let one = message(5, 100);
        assert_eq!(one[1..5], (one.len() as u32 - 5).to_be_bytes());
        let answer = reply(&one);
        assert_eq!(answer.len(), 5 + 5 * 7919 % REPLY_MAX);
        assert_ne!(answer, reply(&message(5 + REPLY_MAX, 100)), "of the same length");
        assert!(reply(b"short").is_empty());
    }

    #[test]
    fn an_upload_ends_with_its_deletion() {
        let mut visitor = visitor();
        let open = BTreeMap::new();
        let chosen: Vec<Ask> = (0..1000).map(|_| visitor.choose(&open)).collect();
        let put = chosen.iter().find(|ask| ask.method == "PUT").unwrap();
        visitor.goes_on(put, true);
        assert!(visitor.uploads(&open), "no second upload to the same name");
        let got = visitor.next.pop().unwrap();
        assert_eq!((got.method, got.statuses), ("GET", &[200][..]));
        visitor.goes_on(&got, true);
        let delete = visitor.next.pop().unwrap();
        assert_eq!((delete.method, &delete.path), ("DELETE", &put.path));
        visitor.goes_on(&delete, true);
        assert!(visitor.next.is_empty());
        visitor.given_up(put);
        assert_eq!(visitor.next.pop().unwrap().method, "DELETE");
    }
}
