//! Clients of HTTP/3: those of the site, some that move to other ports in the middle of responses,
//! and some that resume their sessions and ask in early data.
//!
//! A connection from its beginning to its end:
//!
//! ```text
//!  connecting ──▶ asking ──▶ leaving ──▶ closed by this side, or by the server
//!      │ early data  ▲          ▲
//!      └─────────────┘          └ GOAWAY, or enough requests
//! ```
//!
//! A killed worker takes its connections with it. The one in its place answers with stateless
//! resets, for which clients that have nothing to send ask every two seconds; without such an
//! answer, a connection is over when nothing came for fifteen.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use testkit::h3::{Client, ConnectionError, Options, Response, StreamId};

use super::tally::{Lane, PATIENCE, Tally};
use crate::asks::{Ask, Asker, Got};
use crate::client::Site;

/// Connections at once, of each kind.
const VISITORS: usize = 3;
const MOVERS: usize = 2;
const EARLY: usize = 2;
/// Requests at once on each.
const STREAMS: usize = 8;
/// The longest upload: several times what a stream has room for.
const UPLOAD_MAX: usize = 300_000;

/// The pauses in which a waiting client asks for a sign of the server, and its wait for one.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(15);
/// Stalls of the machine that explain a silence.
const STALLED: Duration = Duration::from_secs(5);
/// The longest wait of a turn.
const TURN: Duration = Duration::from_millis(20);
/// The shortest time between two moves, and how much longer it may be, ms.
const MOVE_MS: u64 = 500;
const MOVE_MORE_MS: usize = 3500;
/// The connections of a client of which one at least has to have its early data taken, and the
/// responses during one of which it has to have moved.
const EARLY_WITHIN: u64 = 30;
const MOVE_WITHIN: u64 = 1000;

/// Codes of HTTP/3 (RFC 9114 section 8.1).
const NO_ERROR: u64 = 0x100;
const REQUEST_REJECTED: u64 = 0x10b;
const REQUEST_CANCELLED: u32 = 0x10c;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Visitor,
    /// Its address changes; it resumes sessions.
    Mover,
    /// Its connections are short, and begin with early data.
    Early,
}

/// Starts the clients of the site's port and of the one that takes early data.
pub fn begin(port: u16, early: u16, site: &Arc<Site>, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let kinds = [
        (Kind::Visitor, VISITORS, port, "HTTP/3"),
        (Kind::Mover, MOVERS, port, "HTTP/3 from port to port"),
        (Kind::Early, EARLY, early, "HTTP/3 in early data"),
    ];
    let mut threads = Vec::new();
    for (kind, count, port, protocol) in kinds {
        for _ in 0..count {
            let n = threads.len();
            let lane = Lane::new(tally, protocol);
            let site = Arc::clone(site);
            threads.push(std::thread::spawn(move || Visitor::new(kind, n, port, site, lane).run()));
        }
    }
    threads
}

struct Visitor {
    kind: Kind,
    port: u16,
    lane: Lane,
    asker: Asker,
    /// The TLS configuration that its connections share, where they resume sessions.
    tls: Option<Arc<ClientConfig>>,
    /// When the next request may begin, if it has a turn already.
    turn: Option<Instant>,
    /// When it moves next.
    moves_at: Instant,
    /// Connections whose handshakes came to their end, those whose early data was taken, right
    /// responses, and moves.
    connections: u64,
    early: u64,
    right: u64,
    moves: u64,
}

/// A request that is under way.
struct Open {
    id: StreamId,
    ask: Ask,
    /// The body to be sent, and how much of it was.
    body: Vec<u8>,
    sent: usize,
    /// It is given up behind so many bytes of its body.
    reset_at: Option<usize>,
    /// The length of the response so far, and when it or the request moved last.
    got: usize,
    moved: Instant,
    /// Its speciality: the client moved meanwhile, or it was sent as early data.
    special: Option<&'static str>,
}

/// A connection.
struct Visit {
    client: Client,
    began: Instant,
    open: BTreeMap<u64, Open>,
    /// The handshake is at its end.
    connected: bool,
    /// No other request begins here.
    leaving: bool,
    /// It waits for the server's end.
    waits: bool,
    asked: usize,
    leaves_after: usize,
}

impl Visitor {
    fn new(kind: Kind, n: usize, port: u16, site: Arc<Site>, lane: Lane) -> Self {
        let asker = Asker {
            name: format!("h3-{port}-{n}"),
            upload_max: UPLOAD_MAX,
            calls: false,
            heads: true,
            site,
            watch: Some(Arc::new(lane.clone())),
            random: 0x9e37_79b9_7f4a_7c15 ^ (n as u64 + 1 + 100 * u64::from(port)),
            next: Vec::new(),
            faults: Vec::new(),
        };
        let early = kind == Kind::Early;
        let tls = (kind != Kind::Visitor).then(|| Options { early, ..Options::default() }.tls());
        let (turn, moves_at) = (None, Instant::now());
        let (connections, early, right, moves) = (0, 0, 0, 0);
        Self { kind, port, lane, asker, tls, turn, moves_at, connections, early, right, moves }
    }

    fn run(mut self) {
        while !self.is_over() {
            let since = Instant::now();
            // The client's own checks of the protocol panic.
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.visit())) else { continue };
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            self.lane.fault(since, &format!("wrong: {text}"));
            self.lane.tally.sleep(Duration::from_millis(100));
        }
        // A load that does not do what it is for finds nothing.
        if self.kind == Kind::Early && self.early == 0 && self.connections >= EARLY_WITHIN {
            let text = format!("HTTP/3: no early data taken on {} connections", self.connections);
            self.lane.tally.finding(text);
        }
        if self.kind == Kind::Mover && self.moves == 0 && self.right >= MOVE_WITHIN {
            let text = format!("HTTP/3: never moved within {} responses", self.right);
            self.lane.tally.finding(text);
        }
    }

    /// Whether no other request begins. An upload that has begun is deleted before.
    fn is_over(&self) -> bool {
        self.lane.tally.is_over() && self.asker.next.is_empty()
    }

    fn connect(&mut self) -> Visit {
        let options = Options {
            idle: Some(SILENCE),
            keep_alive: Some(KEEP_ALIVE),
            tls: self.tls.clone(),
            ..Options::default()
        };
        let leaves_after = match self.kind {
            Kind::Early => 1 + self.asker.below(20),
            _ if self.asker.below(10) == 0 => 1 + self.asker.below(40),
            _ => usize::MAX,
        };
        if self.kind == Kind::Early {
            // The handshake takes less time than a turn, and nothing is early behind it.
            let turn = *self.turn.get_or_insert_with(|| self.lane.tally.pace.turn());
            std::thread::sleep(turn.saturating_duration_since(Instant::now()));
        }
        let began = Instant::now();
        Visit {
            client: Client::start(self.port, &options),
            began,
            open: BTreeMap::new(),
            connected: false,
            leaving: false,
            waits: self.asker.below(4) == 0,
            asked: 0,
            leaves_after,
        }
    }

    /// A connection from its beginning to its end.
    fn visit(&mut self) {
        let mut visit = self.connect();
        loop {
            self.connected(&mut visit);
            if let Some(why) = visit.client.quic().lost().cloned() {
                return self.lost(visit, &why);
            }
            self.begins(&mut visit);
            if visit.asked >= visit.leaves_after && !visit.leaving {
                match self.kind {
                    Kind::Early => visit.leaving = true,
                    _ => return self.leaves(visit),
                }
            }
            if visit.open.is_empty() && (visit.leaving || self.is_over()) {
                // The server closes the connection behind its GOAWAY.
                let waits = visit.waits && visit.client.goaway.is_some() && !self.is_over();
                if !waits {
                    return visit.client.quic().close(NO_ERROR as u32);
                }
            }
            self.moves(&mut visit);
            let now = Instant::now();
            let due = self.turn.filter(|_| visit.may_begin(self.is_over()));
            let pause = due.map_or(TURN, |at| at.saturating_duration_since(now).min(TURN));
            visit.client.quic().turn_within(pause);
            self.connected(&mut visit);
            visit.client.look();
            if !self.looks(&mut visit) {
                return visit.client.quic().close(NO_ERROR as u32);
            }
        }
    }

    /// Sees whether the handshake came to its end, and what became of early data.
    fn connected(&mut self, visit: &mut Visit) {
        if visit.connected || !visit.client.quic().is_connected() {
            return;
        }
        visit.connected = true;
        self.connections += 1;
        if visit.open.is_empty() {
            return;
        }
        if visit.client.quic().inner().accepted_0rtt() {
            self.early += 1;
        } else {
            let again = std::mem::take(&mut visit.open).into_values().map(|open| open.ask);
            self.asker.next.extend(again);
            visit.client.begin_again();
        }
    }

    /// Begins a request, if there is room and time for one.
    fn begins(&mut self, visit: &mut Visit) {
        while visit.client.is_open() && visit.may_begin(self.is_over()) {
            let turn = *self.turn.get_or_insert_with(|| self.lane.tally.pace.turn());
            if turn > Instant::now() {
                return;
            }
            let ask = self.asker.next(visit.open.values().any(|open| open.ask.is_upload()));
            let is_safe = ask.method == "GET" || ask.method == "HEAD";
            if !visit.connected && !is_safe {
                return self.asker.next.push(ask);
            }
            self.turn = None;
            let gives_up = ask.method == "PUT" && self.asker.below(5) == 0;
            let open = visit.begin(ask, gives_up);
            visit.open.insert(open.id.into(), open);
            visit.asked += 1;
        }
    }

    /// Looks what came on all streams; false where one is stuck.
    fn looks(&mut self, visit: &mut Visit) -> bool {
        if let Some(first) = visit.client.goaway
            && !visit.leaving
        {
            visit.leaving = true;
            for open in visit.open.split_off(&first).into_values() {
                visit.client.give_up(open.id, REQUEST_CANCELLED);
                self.asker.next.push(open.ask);
            }
        }
        let ids: Vec<u64> = visit.open.keys().copied().collect();
        for id in ids {
            let Some(mut open) = visit.open.remove(&id) else { continue };
            if let Some(response) = visit.client.take_over(open.id) {
                // Nobody needs the rest of its body.
                if open.sent < open.body.len() {
                    visit.client.quic().reset(open.id, REQUEST_CANCELLED);
                }
                self.ended(&open, &response);
                continue;
            }
            open.goes_on(&mut visit.client);
            if open.is_given_up(&visit.client) && visit.connected {
                visit.client.give_up(open.id, REQUEST_CANCELLED);
                self.asker.leaves(&open.ask);
                continue;
            }
            if open.moved.elapsed() > PATIENCE {
                let what = format!("stuck: {} behind {} bytes", open.ask.what, open.got);
                self.lane.fault(open.moved, &what);
                self.asker.given_up(&open.ask);
                for other in std::mem::take(&mut visit.open).into_values() {
                    self.asker.leaves(&other.ask);
                }
                return false;
            }
            visit.open.insert(id, open);
        }
        true
    }

    /// A response is whole, or was given up by the server.
    fn ended(&mut self, open: &Open, response: &Response) {
        let ask = &open.ask;
        match response.reset {
            None => {
                let got = Got {
                    status: response.status,
                    body: &response.body,
                    grpc_status: None,
                    content_length: response.header("content-length"),
                };
                let right = self.asker.check(ask, &got, open.special.unwrap_or(ask.what));
                self.right += u64::from(right);
                self.asker.goes_on(ask, right);
            }
            Some(REQUEST_REJECTED) => self.asker.next.push(ask.clone()),
            Some(code) => {
                self.lane.fault(ask.since, &format!("{}: reset with code {code:#x}", ask.what));
                self.asker.given_up(ask);
            }
        }
    }

    /// The connection is over, and with it what was under way.
    fn lost(&mut self, visit: Visit, why: &ConnectionError) {
        let what = match why {
            ConnectionError::Reset => "stateless reset".to_string(),
            ConnectionError::TimedOut => format!("nothing came for {SILENCE:?}"),
            ConnectionError::ApplicationClosed(closed) => match closed.error_code.into_inner() {
                NO_ERROR if visit.leaving && visit.open.is_empty() => return,
                NO_ERROR if visit.leaving => "lost behind GOAWAY".to_string(),
                code => format!("closed with code {code:#x}"),
            },
            ConnectionError::ConnectionClosed(closed) => format!("closed: {}", closed.error_code),
            // The server has broken the rules.
            other => format!("wrong: {other}"),
        };
        let silent = matches!(why, ConnectionError::TimedOut);
        let fault = |since: Instant, text: &str| {
            let stalled = silent && self.lane.tally.stalls.since(since) > STALLED;
            self.lane.fault_unless(stalled, since, &format!("{text}: {what}"));
        };
        if !visit.connected {
            fault(visit.began, "connecting");
        } else if visit.open.is_empty() {
            // It may have been lost as long before as it takes to see that.
            let seen_within = if silent { SILENCE } else { KEEP_ALIVE };
            let since = Instant::now().checked_sub(seen_within).unwrap_or(visit.began);
            fault(since, "a connection");
        }
        for open in visit.open.into_values() {
            fault(open.ask.since, open.ask.what);
            self.asker.given_up(&open.ask);
        }
        self.lane.tally.sleep(Duration::from_millis(100));
    }

    /// Goes away from responses that come: with a word to the server, or without.
    fn leaves(&mut self, mut visit: Visit) {
        if self.asker.below(4) > 0 {
            visit.client.quic().close(NO_ERROR as u32);
        }
        for open in visit.open.into_values() {
            self.asker.leaves(&open.ask);
        }
    }

    /// Goes on from another port, in the middle of a response: with an id of the connection that
    /// was not used before, as one that knows that it moves, or with the same one.
    fn moves(&mut self, visit: &mut Visit) {
        let in_the_middle = visit.open.values().any(|open| open.got > 0);
        if self.kind != Kind::Mover || Instant::now() < self.moves_at || !in_the_middle {
            return;
        }
        let more = self.asker.below(MOVE_MORE_MS) as u64;
        self.moves_at = Instant::now() + Duration::from_millis(MOVE_MS + more);
        self.moves += 1;
        visit.client.quic().rebind();
        if self.asker.below(2) == 0 {
            visit.client.quic().inner().local_address_changed();
        }
        for open in visit.open.values_mut() {
            open.special = Some("moved meanwhile");
        }
    }
}

impl Visit {
    /// Whether another request may begin, when its turn comes.
    fn may_begin(&self, is_over: bool) -> bool {
        let has_room = self.open.len() < STREAMS && self.asked < self.leaves_after;
        has_room && !self.leaving && !is_over
    }

    /// Begins a request; one that is given up is in the middle of its body.
    fn begin(&mut self, ask: Ask, gives_up: bool) -> Open {
        let mut fields = Vec::new();
        if let Some(range) = &ask.range {
            fields.push(("range", &range[..]));
        }
        let upload = ask.upload.filter(|_| ask.method == "PUT").map(crate::asks::upload);
        let length = upload.as_ref().map(|body| body.len().to_string());
        // The end of the stream says the same.
        if let Some(length) = length.as_ref().filter(|_| self.asked.is_multiple_of(2)) {
            fields.push(("content-length", &length[..]));
        }
        let id = self.client.begin_with(ask.method, &ask.path, &fields);
        // An empty body is one, too: without it there is nothing to put.
        let body: Vec<u8> = match upload {
            Some(body) if body.is_empty() => Client::data(b""),
            Some(body) => body.chunks(16_384).flat_map(Client::data).collect(),
            None => Vec::new(),
        };
        let reset_at = gives_up.then_some(body.len() / 2);
        let special = (!self.connected).then_some("early data");
        let moved = ask.since;
        let mut open = Open { id, ask, body, sent: 0, reset_at, got: 0, moved, special };
        match open.body.is_empty() {
            true => self.client.quic().finish(id),
            false => open.goes_on(&mut self.client),
        }
        open
    }
}

impl Open {
    /// Sends what the stream takes, and sees how the response goes on.
    fn goes_on(&mut self, client: &mut Client) {
        if self.sent < self.body.len() {
            let end = self.reset_at.map_or(self.body.len(), |at| at.min(self.body.len()));
            let n = client.quic().write_some(self.id, &self.body[self.sent..end]);
            self.sent += n;
            if n > 0 {
                self.moved = Instant::now();
            }
            if self.sent == self.body.len() {
                client.quic().finish(self.id);
            }
        }
        let got = client.so_far(self.id).map_or(0, |r| r.body.len() + usize::from(r.status));
        if got > self.got {
            (self.got, self.moved) = (got, Instant::now());
        }
    }

    /// Whether this client wants no more of it.
    fn is_given_up(&self, client: &Client) -> bool {
        if self.ask.method == "PUT" {
            return self.reset_at.is_some_and(|at| self.sent >= at);
        }
        let whole_head = |r: &Response| r.status > 0;
        let Some(response) = client.so_far(self.id).filter(|r| whole_head(r)) else { return false };
        self.ask.reset_after.is_some_and(|most| response.body.len() >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asks::Expected;

    #[test]
    fn a_response_that_ends_is_judged_once() {
        let folder = std::env::temp_dir().join(format!("weir-bench-h3-{}", std::process::id()));
        let site = Arc::new(Site::new(folder.clone()).unwrap());
        let _ = std::fs::remove_dir_all(folder);
        let (tally, now) = (Tally::new(1000), Instant::now());
        let mut visitor =
            Visitor::new(Kind::Visitor, 0, 1, Arc::clone(&site), Lane::new(&tally, "test"));
        let ask = Ask {
            what: "auto",
            method: "GET",
            path: "/auto/small.txt".to_string(),
            range: None,
            upload: None,
            statuses: &[200],
            expected: Expected::File(1, 0..1024),
            reset_after: None,
            since: now,
        };
        let (id, body) =
            (StreamId::new(testkit::h3::Side::Client, testkit::h3::Dir::Bi, 0), vec![]);
        let open =
            Open { id, ask, body, sent: 0, reset_at: None, got: 0, moved: now, special: None };
        let whole = site.files()[1].1.clone();
        visitor.ended(&open, &Response { status: 200, body: whole.clone(), ..Response::default() });
        assert_eq!((tally.results().findings_all, tally.results().rows["test"].right), (0, 1));
        let cut = Response { status: 200, body: whole[1..].to_vec(), ..Response::default() };
        visitor.ended(&open, &cut);
        assert_eq!(tally.results().findings_all, 1, "a response that ends early");
        let rejected = Response { reset: Some(REQUEST_REJECTED), ..Response::default() };
        visitor.ended(&open, &rejected);
        assert_eq!((tally.results().findings_all, visitor.asker.next.len()), (1, 1), "asks again");
        let reset = Response { status: 200, reset: Some(0x102), ..Response::default() };
        visitor.ended(&open, &reset);
        assert_eq!(tally.results().findings_all, 2);
    }
}
