//! Clients over UDP: several sockets each, with several questions under way at a time.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Load;
use super::content::{self, Tag, invert};
use super::counts::{Ending, Kind, one};
use crate::backends::locked;
use testkit::rng::Rng;

/// Sockets of a client at a time.
const SOCKETS: usize = 6;
/// The most questions that a session sends at once.
const BURST: usize = 12;
/// The largest datagram, about.
const LARGEST: usize = 8 << 10;
/// An answer that takes longer is lost.
const WAIT: Duration = Duration::from_millis(1500);
/// A socket stays open for so long after its session: no other session may get its port while Weir
/// remembers it, and an answer that comes then is one too many.
const LINGER: Duration = Duration::from_secs(4);
/// A session whose answers are all lost for so many turns, away from kills, is dead.
const DEAD_AFTER: u32 = 4;

/// A question, and the answers that are still to come, a bit each.
struct Question {
    sent: Instant,
    due: u16,
    answers: u8,
    answer_len: u16,
    given_up: bool,
}

/// One session: one socket.
struct Session {
    socket: UdpSocket,
    kind: Kind,
    number: u64,
    questions: BTreeMap<u32, Question>,
    /// Those that are too short for a tag, with their times.
    short: Vec<(Vec<u8>, Instant)>,
    /// Short ones that were counted as lost.
    short_late: Vec<Vec<u8>>,
    next: u32,
    turns_left: usize,
    silent_turns: u32,
    newest: u32,
    received: u64,
    is_wrong: bool,
}

/// One client, until the load ends.
pub fn client(load: &Load, number: u64) {
    let mut rng = Rng::new(content::mix(load.seed ^ number << 40));
    let mut session = load.session_base + (number << 32);
    let mut open: Vec<Session> = Vec::new();
    let mut lingering: VecDeque<(Instant, Session)> = VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    while !load.is_over() {
        while open.len() < SOCKETS {
            session += 1;
            match Session::open(load, session, &mut rng) {
                Ok(new) => open.push(new),
                Err(e) => {
                    locked(&load.counts.failures).push(format!("a client's socket: {e}"));
                    return;
                }
            }
        }
        for session in &mut open {
            session.ask(load, &mut rng);
        }
        let until = Instant::now() + WAIT;
        for session in &mut open {
            session.collect(load, until, &mut buffer);
            session.end_turn(load);
        }
        for n in (0..open.len()).rev() {
            if open[n].turns_left == 0 {
                lingering.push_back((Instant::now(), open.swap_remove(n)));
            }
        }
        while lingering.front().is_some_and(|(since, _)| since.elapsed() > LINGER) {
            if let Some((_, session)) = lingering.pop_front() {
                session.close(load, &mut buffer);
            }
        }
        // The sessions over TCP need some of the processors, too.
        std::thread::sleep(Duration::from_millis(rng.below(load.rest_ms) as u64));
    }
    std::thread::sleep(WAIT);
    for session in open.into_iter().chain(lingering.into_iter().map(|(_, session)| session)) {
        session.close(load, &mut buffer);
    }
}

impl Session {
    fn open(load: &Load, number: u64, rng: &mut Rng) -> std::io::Result<Self> {
        let kind = if rng.percent(60) { Kind::Kept } else { Kind::Answered };
        let port = match kind {
            Kind::Kept => load.ports.kept,
            _ => load.ports.answered,
        };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        Ok(Self {
            socket,
            kind,
            number,
            questions: BTreeMap::new(),
            short: Vec::new(),
            short_late: Vec::new(),
            next: 0,
            turns_left: 1 + rng.below(40),
            silent_turns: 0,
            newest: 0,
            received: 0,
            is_wrong: false,
        })
    }

    /// Sends some questions at once.
    fn ask(&mut self, load: &Load, rng: &mut Rng) {
        let udp = &load.counts.udp;
        let draw = |rng: &mut Rng| match rng.below(4) {
            0 => rng.below(Tag::LEN),
            1 => Tag::LEN + rng.below(200),
            2 => Tag::LEN + rng.below(1400),
            _ => Tag::LEN + rng.below(LARGEST),
        };
        // Datagrams of one length may travel joined.
        let alike = rng.percent(30).then(|| draw(rng));
        for _ in 0..1 + rng.below(BURST) {
            let len = alike.unwrap_or_else(|| draw(rng));
            let (bytes, due) = if len < Tag::LEN {
                let mut bytes = vec![0; len];
                let place = content::mix(self.number ^ u64::from(self.next));
                content::Content::new(place, 0).fill(0, &mut bytes);
                self.short.push((bytes.clone(), Instant::now()));
                (bytes, 1)
            } else {
                let many = self.kind == Kind::Kept && rng.percent(30);
                let answers = if many { 1 + rng.below(5) as u8 } else { 1 };
                let answer_len = draw(rng).max(Tag::LEN) as u16;
                let sequence = self.next;
                let tag = Tag { session: self.number, sequence, answer: 0, answers, answer_len };
                let due = (1 << answers) - 1;
                let sent = Instant::now();
                let question = Question { sent, due, answers, answer_len, given_up: false };
                self.questions.insert(sequence, question);
                (tag.datagram(len), u64::from(answers))
            };
            self.next += 1;
            one(&udp.sent);
            udp.due.fetch_add(due, Ordering::Relaxed);
            // A refusal of an earlier one may be told here: it is lost, as its answer will tell.
            if self.socket.send(&bytes).is_err() {
                let _ = self.socket.send(&bytes);
            }
        }
    }

    fn waits(&self) -> bool {
        let due = |q: &Question| q.due != 0 && !q.given_up;
        !self.short.is_empty() || self.questions.values().any(due)
    }

    /// Reads answers until all are there or it is time.
    fn collect(&mut self, load: &Load, until: Instant, buffer: &mut [u8]) {
        let before = self.received;
        let mut any = false;
        while self.waits() {
            // What has come is read even if others took all of the time.
            let left = until.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let _ = self.socket.set_read_timeout(Some(left));
            match self.socket.recv(buffer) {
                Ok(len) => {
                    any = true;
                    self.take(load, &mut buffer[..len]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) if Instant::now() >= until => break,
                Err(_) => {}
            }
        }
        self.silent_turns = if any || self.received > before { 0 } else { self.silent_turns + 1 };
    }

    /// Compares an answer to what is due.
    fn take(&mut self, load: &Load, bytes: &mut [u8]) {
        let udp = &load.counts.udp;
        one(&udp.answers);
        self.received += bytes.len() as u64;
        if bytes.len() < Tag::LEN {
            invert(bytes);
            if let Some(at) = self.short.iter().position(|(short, _)| short == bytes) {
                self.short.swap_remove(at);
            } else if let Some(at) = self.short_late.iter().position(|short| short == bytes) {
                self.short_late.swap_remove(at);
                one(&udp.late);
            } else {
                self.wrong(load, format!("nobody asked for these {} bytes", bytes.len()));
            }
            return;
        }
        let Some(tag) = Tag::read(bytes) else {
            let begin = &bytes[..Tag::LEN];
            return self.wrong(load, format!("{} damaged bytes: {begin:02x?} …", bytes.len()));
        };
        if tag.session != self.number {
            return self.wrong(load, format!("an answer to another session: {tag:?}"));
        }
        let Some(question) = self.questions.get_mut(&tag.sequence) else {
            return self.wrong(load, format!("an answer without a question: {tag:?}"));
        };
        let bit = 1_u16.checked_shl(u32::from(tag.answer).wrapping_sub(1)).unwrap_or(0);
        let is_its = tag.answers == question.answers
            && tag.answer_len == question.answer_len
            && bytes.len() == usize::from(tag.answer_len);
        if !is_its || question.due & bit == 0 {
            return self.wrong(load, format!("an answer that is not due: {tag:?}"));
        }
        question.due &= !bit;
        if question.given_up {
            one(&udp.late);
        } else if tag.sequence < self.newest {
            one(&udp.out_of_order);
        }
        self.newest = self.newest.max(tag.sequence);
    }

    fn wrong(&mut self, load: &Load, what: String) {
        self.is_wrong = true;
        let text = format!("{:?}, session {:x}: {what}", self.kind, self.number);
        locked(&load.counts.wrong).push(text);
    }

    /// Counts what has not come.
    fn end_turn(&mut self, load: &Load) {
        self.turns_left = self.turns_left.saturating_sub(1);
        let counts = &load.counts;
        let mut near_kill = false;
        let mut peace = 0;
        let mut settle = |sent: Instant, answers: u64, lost: u64| {
            if counts.near_kill(sent) {
                near_kill = true;
            } else {
                peace += answers;
            }
            if lost > 0 {
                counts.lost(sent, lost);
            }
        };
        for (short, sent) in self.short.drain(..) {
            settle(sent, 1, 1);
            self.short_late.push(short);
        }
        for question in self.questions.values_mut().filter(|q| !q.given_up) {
            let lost = u64::from(question.due.count_ones());
            settle(question.sent, u64::from(question.answers), lost);
            question.given_up = true;
        }
        counts.udp.due_in_peace.fetch_add(peace, Ordering::Relaxed);
        if near_kill {
            self.silent_turns = 0;
        }
        if self.silent_turns >= DEAD_AFTER {
            let text = format!(
                "{:?}, session {:x}: no answer for {DEAD_AFTER} turns of {WAIT:?}",
                self.kind, self.number
            );
            locked(&counts.failures).push(text);
            self.turns_left = 0;
        }
    }

    /// Reads what has come behind the last turn, and counts the session.
    fn close(mut self, load: &Load, buffer: &mut [u8]) {
        let _ = self.socket.set_nonblocking(true);
        while let Ok(len) = self.socket.recv(buffer) {
            self.take(load, &mut buffer[..len]);
        }
        // What was wrong is told already.
        let ending = if self.is_wrong { Ending::GivenUp } else { Ending::Done };
        load.counts.ended(self.kind, ending, self.received);
    }
}
