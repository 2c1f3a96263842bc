//! Clients of the mixed load over HTTP/2: several requests at once on each connection, answers
//! checked byte for byte, streams reset and connections left in the middle.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use testkit::h2::{self, Frame, Wire, code, kind};

use crate::asks::{Ask, Asker, Expected, Got, message, upload};
use crate::client::{PATIENCE, Site, Watch, connect};
use crate::tls;

/// Connections at once.
const CLIENTS: usize = 4;
/// Requests at once on each.
const STREAMS: usize = 8;
/// Requests that a killed worker may take with it.
pub const LOST_MAX: usize = CLIENTS * STREAMS;
/// The longest upload: the first window of a stream has room for it.
const UPLOAD_MAX: usize = 60_000;

/// Clients of a kind.
#[derive(Clone)]
pub struct Clients {
    /// Where they ask.
    pub port: u16,
    /// Over TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Calls of gRPC instead of the site's files.
    pub calls: bool,
    /// The observer, in place of a list of faults.
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
            let asker = Asker {
                name: format!("h2-{id}"),
                upload_max: UPLOAD_MAX,
                calls: clients.calls,
                heads: false,
                site,
                watch: clients.watch.clone(),
                random: 0x9e37_79b9_7f4a_7c15 ^ (id as u64 + 1),
                next: Vec::new(),
                faults: Vec::new(),
            };
            Visitor { clients, stop, asker }.run()
        })
    };
    (0..count).map(one).collect()
}

struct Visitor {
    clients: Clients,
    stop: Arc<AtomicBool>,
    asker: Asker,
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
            self.asker.fault(since, &what);
            std::thread::sleep(Duration::from_millis(100));
        }
        let faults = self.asker.faults.iter();
        faults.map(|what| format!("HTTP/2: {what}")).collect()
    }

    /// Whether no other request begins. An upload that has begun is deleted before.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && self.asker.next.is_empty()
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
        let leaves_after =
            if self.asker.below(10) == 0 { 1 + self.asker.below(40) } else { usize::MAX };
        loop {
            while !leaving && !self.is_over() && open.len() < STREAMS {
                if let Some(watch) = &self.clients.watch {
                    watch.pace();
                }
                let ask = self.asker.next(open.values().any(Ask::is_upload));
                let id = client.next_stream();
                let sent = client.try_send_frames(&frames(&client, id, &ask));
                open.insert(id, ask);
                asked += 1;
                // Whatever the server has said before its end is read below.
                leaving |= sent.is_err();
            }
            if asked >= leaves_after {
                open.into_values().for_each(|ask| self.asker.leaves(&ask));
                return Ok(());
            }
            if open.is_empty() {
                return Ok(());
            }
            let Some(frame) = client.frame() else {
                let what = if leaving { "lost behind GOAWAY" } else { "cut" };
                for ask in open.into_values() {
                    self.asker.fault(ask.since, &format!("{}: {what}", ask.what));
                    self.asker.given_up(&ask);
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
                    self.asker.fault(began, &format!("GOAWAY with code {}", frame.number(4)));
                }
                let last = frame.number(0) & 0x7fff_ffff;
                self.asker.next.extend(open.split_off(&(last.saturating_add(1))).into_values());
            }
            kind::RST_STREAM => {
                // One behind a whole answer says that the rest of the request is not needed.
                let Some(ask) = open.remove(&frame.stream) else { return };
                if frame.number(0) == code::REFUSED_STREAM {
                    return self.asker.next.push(ask);
                }
                let code = frame.number(0);
                self.asker.fault(ask.since, &format!("{}: reset with code {code}", ask.what));
                self.asker.given_up(&ask);
            }
            kind::HEADERS | kind::DATA => {
                let id = frame.stream;
                let (Some(ask), Some(answer)) = (open.get(&id), client.so_far(id)) else { return };
                if answer.ended {
                    let ask = ask.clone();
                    let grpc_status = answer.trailer("grpc-status");
                    let got = Got {
                        status: answer.status,
                        body: &answer.body,
                        grpc_status: grpc_status.or(answer.header("grpc-status")),
                        content_length: answer.header("content-length"),
                    };
                    let right = self.asker.check(&ask, &got, ask.what);
                    open.remove(&id);
                    self.asker.goes_on(&ask, right);
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
