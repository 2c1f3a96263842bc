//! Random traffic over connections that move at random points, while receivers fail in all ways
//! that the design knows. Every byte is compared, in both directions.
//!
//! ```text
//!  test ── client's bytes ──▶ worker 1, 2, 3, … one after the other ──▶ test
//!       ◀─────────────────────────────────────────── server's bytes ──
//! ```
//!
//! A step is a piece that an end sends, or a connection's turn to move. `WEIR_MOVES_STEPS=10000000
//! WEIR_MOVES_SEED=7 cargo test -p weir-net --release simulation` runs longer than the tests do.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::future::boxed;
use event::{Deadline, Sock};
use mem::Chain;
use proto::handover::{Message, Refusal, Session, Way, Word};

use super::tests::{channels, parts, session};
use super::*;
use crate::Transport;
use crate::relay::wait::{Event, Times, held};
use crate::relay::{Flow, Resting, withdraw};
use crate::transport::contract_tests::{Kind as Carrier, transports};

const STEPS: u64 = 4_000;

/// Connections at a time.
const CONNECTIONS: usize = 6;

/// The longest piece that is sent at once.
const PIECE: u64 = 40_000;

/// SplitMix64.
struct Random(Cell<u64>);

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// A number below `end`.
    fn below(&self, end: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        mixed(self.0.get()) % end
    }
}

/// The bytes `from..to` of a stream.
fn bytes(stream: u64, from: u64, to: u64) -> Vec<u8> {
    let word = |n: u64| mixed(stream ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    let words = (from / 8..=to / 8).flat_map(word);
    words.skip((from % 8) as usize).take((to - from) as usize).collect()
}

/// A connection of the test.
struct Line {
    number: u64,
    /// Its workers died with it: its streams may end anywhere.
    is_lost: Cell<bool>,
    /// The bytes of each direction, once all were sent.
    sent: [Cell<Option<u64>>; 2],
    /// Ends that have seen the end of the other one.
    ended: Cell<usize>,
}

/// The outcomes of moves.
#[derive(Default, Debug)]
struct Outcomes {
    moved: u64,
    received: u64,
    stayed: [u64; Stay::ALL.len()],
    /// Connections that ended with all their bytes, and that died.
    whole: u64,
    lost: u64,
    long: u64,
    half_closed: u64,
}

impl Outcomes {
    fn add(&mut self, other: &Outcomes) {
        self.stayed.iter_mut().zip(other.stayed).for_each(|(sum, n)| *sum += n);
        self.whole += other.whole;
        self.lost += other.lost;
        self.long += other.long;
        self.half_closed += other.half_closed;
    }
}

struct World {
    random: Random,
    steps: Cell<u64>,
    last_step: u64,
    lines: RefCell<Vec<Rc<Line>>>,
    outcomes: RefCell<Outcomes>,
}

impl Tally for World {
    fn sent(&self, _: Kind) {
        self.outcomes.borrow_mut().moved += 1;
    }

    fn received(&self, _: Kind, _: u64) {
        self.outcomes.borrow_mut().received += 1;
    }

    fn stayed(&self, _: Kind, why: Stay) {
        self.outcomes.borrow_mut().stayed[why as usize] += 1;
    }
}

impl World {
    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    fn is_over(&self) -> bool {
        self.steps.get() >= self.last_step
    }

    fn line(&self, number: u64) -> Option<Rc<Line>> {
        self.lines.borrow().iter().find(|line| line.number == number).cloned()
    }
}

/// The worker's side of a connection.
struct Relay {
    number: u64,
    client: Transport,
    server: Transport,
    up: Resting,
    down: Resting,
    closed: [bool; 2],
}

impl Relay {
    /// Carries bytes until both directions have ended, or another worker has it.
    async fn run(self, world: Rc<World>, moves: Rc<Moves>) {
        let Relay { number, client, server, up, down, mut closed } = self;
        let mut up = Flow::resumed(&client, &server, up);
        let mut down = Flow::resumed(&server, &client, down);
        let mut candidate = moves.candidate(Kind::Session);
        loop {
            if let Err(e) = up.go().and_then(|_| down.go()) {
                let is_lost = world.line(number).is_none_or(|line| line.is_lost.get());
                assert!(is_lost, "{e} {closed:?} {} {}", up.ended, down.ended);
                return;
            }
            let done = [up.is_done(), down.is_done()];
            for (i, to) in [&server, &client].into_iter().enumerate() {
                if done[i] && !std::mem::replace(&mut closed[i], true) {
                    let _ = to.shutdown_write();
                }
            }
            if done == [true; 2] {
                return;
            }
            if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
                event::task::yield_now().await;
                continue;
            }
            let never = Times { client: Times::NEVER, server: Times::NEVER, look: Times::NEVER };
            let wait = boxed(|| held(&up, &down, never));
            if let Some(event) = unless_due(candidate.as_ref(), wait).await {
                // For example descriptors that select cannot watch.
                assert!(!matches!(event, Event::Failed(_)), "{event:?}");
                continue;
            }
            let Some(turn) = candidate.take().and_then(|candidate| candidate.turn()) else {
                continue;
            };
            world.step();
            if let Err(why) = withdraw(&client, &server).await {
                turn.stays(why);
                event::task::yield_now().await;
                candidate = moves.candidate(Kind::Session);
                continue;
            }
            up.take_received();
            down.take_received();
            let empty = |from, to| Flow::new(from, to, Chain::new());
            let up_rests = std::mem::replace(&mut up, empty(&client, &server)).rest();
            let down_rests = std::mem::replace(&mut down, empty(&server, &client)).rest();
            let rests = (&up_rests, &down_rests);
            if offer(&world, turn, number, (&client, &server), rests, closed).await {
                client.part();
                server.part();
                return;
            }
            (up, down) = (
                Flow::resumed(&client, &server, up_rests),
                Flow::resumed(&server, &client, down_rests),
            );
            // Here a connection gets another turn.
            candidate = moves.candidate(Kind::Session);
        }
    }
}

/// Offers a connection that rests.
async fn offer(
    world: &World,
    turn: Turn,
    number: u64,
    (client, server): (&Transport, &Transport),
    (up, down): (&Resting, &Resting),
    closed: [bool; 2],
) -> bool {
    let (Ok(tls), Ok(server_tls)) = (client.copy_session(), server.copy_session()) else {
        turn.stays(Stay::State);
        return false;
    };
    let (up, down) = (up.copy(), down.copy());
    let ways = [up.way(closed[0]), down.way(closed[1])];
    world.outcomes.borrow_mut().half_closed += u64::from(ways[0].ended || ways[1].ended);
    world.outcomes.borrow_mut().long +=
        u64::from(ways.iter().any(|way| way.pending.len() > proto::handover::INLINE_MAX));
    let [up, down] = ways;
    let Message::Session(mut message) = session(b"") else { panic!("a session") };
    message.client.number = number;
    message.client.tls = tls.as_ref().map(|tls| tls.sealed());
    message.server_tls = server_tls.as_ref().map(|tls| tls.sealed());
    (message.up, message.down) = (up, down);
    let fds = [client.descriptor(), server.descriptor()];
    match turn.offer(&Message::Session(message), &fds).await {
        Ok(offered) => offered.give_up(),
        Err(()) => false,
    }
}

/// Takes connections into a worker.
struct Relays {
    world: Rc<World>,
    moves: RefCell<std::rc::Weak<Moves>>,
}

impl Taker for Relays {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let Message::Session(session) = message else { panic!("a session") };
        let Session { client: of, server_tls, up, down, .. } = &**session;
        let moves = self.moves.borrow().upgrade().ok_or(Refusal::Other)?;
        let [client, server] = ends(fds)?;
        // A configuration may refuse any of them.
        match self.world.random.below(24) {
            0 => return Err(Refusal::Configuration),
            1 => return Err(Refusal::Off),
            _ => {}
        }
        let (client, session) = Transport::resumed(Sock::of_client(client), of.tls.as_ref())?;
        let (server, server_session) =
            Transport::resumed(Sock::of_server(server), server_tls.as_ref())?;
        let closed = |way: &Way<'_>| way.closed;
        let relay = Relay {
            number: of.number,
            client,
            server,
            up: Resting::of(up, 0),
            down: Resting::of(down, 0),
            closed: [closed(up), closed(down)],
        };
        let world = self.world.clone();
        Ok(Box::new(move || {
            relay.client.arrived(session);
            relay.server.arrived(server_session);
            event::spawn(relay.run(world, moves));
        }))
    }
}

fn worker(world: &Rc<World>, channel: Channel) -> Rc<Moves> {
    let moves = Moves::new(channel, world.clone(), None);
    let relays = Relays { world: world.clone(), moves: RefCell::new(Rc::downgrade(&moves)) };
    moves.take_by(Kind::Session, Rc::new(relays));
    moves
}

/// A receiver that fails: it takes some messages out of the queue.
async fn fail(world: Rc<World>, channel: Channel, messages: u64) {
    let mut buf = vec![0; proto::handover::INLINE_MAX];
    let mut left = messages;
    // Without messages for some turns there is nobody who sends.
    let mut patience = 50;
    while left > 0 && patience > 0 {
        let Ok((len, mut fds)) = os::socket::recv_fds(&channel.receives, &mut buf) else {
            patience -= 1;
            event::testing::turns(1).await;
            continue;
        };
        let reply = fds.remove(0);
        let say = |words: &[Word]| os::socket::send(&reply, &Word::write_all(words), false).is_ok();
        if Message::read(&buf[..len]) == Ok(Message::Hello) {
            say(&[Word::Takes]);
            continue;
        }
        let parts = parts(&buf[..len]);
        left -= 1;
        match world.random.below(7) {
            // It dies before its reply, or behind it.
            0 => {}
            1 => {
                say(&vec![Word::Takes; parts.len()]);
            }
            2 => {
                say(&[Word::Refuses(Refusal::Version)]);
            }
            3 => {
                let _ = os::socket::send(&reply, b"???", false);
            }
            // It has no word about the last one.
            4 => {
                say(&vec![Word::Refuses(Refusal::Off); parts.len() - 1]);
            }
            // Both die: the sender has given them up. Not each time, or few connections would last.
            5 if world.random.below(2) == 0 => {
                // The state of a longer one is in its file.
                let is_known = |part: &Message<'_>| matches!(part, Message::Session(_));
                if parts.iter().all(is_known) && say(&vec![Word::Takes; parts.len()]) {
                    lose(&world, &reply, &parts).await;
                }
            }
            // It is slow, and then dies.
            _ => event::testing::turns(3).await,
        }
    }
}

/// Loses the connections that the sender gives up, all of them or some.
async fn lose(world: &World, reply: &OwnedFd, parts: &[Message<'_>]) {
    let mut wanted = 1 + world.random.below(parts.len() as u64);
    loop {
        let mut word = [0; 4];
        match os::socket::recv(reply, &mut word) {
            Ok(n) => {
                let Some(Word::Yours(part)) = Word::read(&word[..n]) else { return };
                let Message::Session(session) = &parts[usize::from(part)] else {
                    panic!("a session")
                };
                let line = world.line(session.client.number);
                line.expect("a connection of the test").is_lost.set(true);
                wanted = wanted.saturating_sub(1);
            }
            // Every connection that was given up until now is marked: this receiver dies with them.
            Err(_) if wanted == 0 => return,
            Err(_) => event::testing::turns(1).await,
        }
    }
}

/// Sends a stream in pieces, beginning at `pos`, until its turn has come to end.
async fn write(world: Rc<World>, line: Rc<Line>, end: Rc<Transport>, way: usize, mut pos: u64) {
    let stream = line.number * 2 + way as u64;
    let last = pos + world.random.below(20 * PIECE);
    while pos < last && !world.is_over() && !line.is_lost.get() {
        let n = 1 + world.random.below(1 << world.random.below(16)).min(PIECE);
        let mut chain = Chain::new();
        chain.write(&bytes(stream, pos, pos + n));
        if end.send(&mut chain, Deadline::NEVER).await.is_err() {
            // Known a little later.
            event::testing::until(|| line.is_lost.get()).await;
            break;
        }
        pos += n;
        world.step();
        match world.random.below(6) {
            0 => event::testing::turns(world.random.below(30) as u32).await,
            1 => event::task::next_turn().await,
            _ => {}
        }
    }
    line.sent[way].set(Some(pos));
    let _ = end.shutdown_write();
}

/// Compares what comes.
async fn read(world: Rc<World>, line: Rc<Line>, end: Rc<Transport>, way: usize) {
    let stream = line.number * 2 + way as u64;
    let mut pos = 0;
    loop {
        // One that does not read for a while lets bytes gather everywhere.
        if world.random.below(10) == 0 {
            event::testing::turns(world.random.below(60) as u32).await;
        }
        let Ok(page) = end.recv(1, Deadline::NEVER).await else { break };
        if page.is_empty() {
            break;
        }
        let to = pos + page.len() as u64;
        assert!(page[..] == bytes(stream, pos, to), "{pos} to {to} of {} {way}", line.number);
        pos = to;
    }
    if !line.is_lost.get() {
        // A line that is lost may be known to be so a little later.
        let whole = || line.sent[way].get() == Some(pos) || line.is_lost.get();
        event::testing::until(whole).await;
    }
    line.ended.set(line.ended.get() + 1);
}

/// Begins a connection that this worker serves.
async fn connect(world: &Rc<World>, moves: &Rc<Moves>, number: u64) {
    let carrier = |n: u64| if n == 0 { Carrier::Plain } else { Carrier::Tls };
    let (client, near) = transports(carrier(world.random.below(2))).await;
    let (far, server) = transports(carrier(world.random.below(2))).await;
    for end in [&client, &near, &far, &server] {
        // Small buffers cut records, and fill.
        if world.random.below(2) == 0 {
            let _ = os::socket::set_sndbuf(end.descriptor(), 4096);
        }
    }
    let line = Rc::new(Line {
        number,
        is_lost: Cell::new(false),
        sent: [const { Cell::new(None) }; 2],
        ended: Cell::new(0),
    });
    world.lines.borrow_mut().push(line.clone());
    // Bytes that were read and not sent: some make a message that does not fit the queue.
    let ahead = world.random.below(4) * world.random.below(150_000);
    let mut pending = Chain::new();
    if ahead > 0 {
        pending.write(&bytes(number * 2, 0, ahead));
    }
    let (up, down) = (Resting::new(pending), Resting::default());
    let relay = Relay { number, client: near, server: far, up, down, closed: [false; 2] };
    event::spawn(relay.run(world.clone(), moves.clone()));
    let (client, server) = (Rc::new(client), Rc::new(server));
    event::spawn(write(world.clone(), line.clone(), client.clone(), 0, ahead));
    event::spawn(write(world.clone(), line.clone(), server.clone(), 1, 0));
    event::spawn(read(world.clone(), line.clone(), server, 0));
    event::spawn(read(world.clone(), line, client, 1));
}

/// Takes the connections that have ended out of the world.
fn reap(world: &World) {
    let over = |line: &mut Rc<Line>| line.ended.get() == 2;
    for line in world.lines.borrow_mut().extract_if(.., over) {
        let outcomes = &mut *world.outcomes.borrow_mut();
        match line.is_lost.get() {
            true => outcomes.lost += 1,
            false => outcomes.whole += 1,
        }
    }
}

async fn simulate(world: Rc<World>) {
    let (one, other) = channels();
    let again = || Channel {
        sends: one.sends.try_clone().expect("a descriptor"),
        receives: other.receives.try_clone().expect("a descriptor"),
    };
    let mut now = worker(&world, again());
    now.serve();
    let mut number = 0;
    while !world.is_over() {
        while world.lines.borrow().len() < CONNECTIONS {
            connect(&world, &now, number).await;
            number += 1;
        }
        event::testing::turns(1 + world.random.below(60) as u32).await;
        // A reload: the next worker serves; before it, some receiver may fail.
        let next = worker(&world, again());
        now.leave(false);
        if world.random.below(2) == 0 {
            fail(world.clone(), again(), 1 + world.random.below(4)).await;
        }
        next.serve();
        now = next;
        reap(&world);
    }
    event::testing::until(|| {
        reap(&world);
        world.lines.borrow().is_empty()
    })
    .await;
}

fn from_environ(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn every_byte_arrives_whatever_fails() {
    let seed = from_environ("WEIR_MOVES_SEED", 1);
    let last_step = from_environ("WEIR_MOVES_STEPS", STEPS);
    let mut all = Outcomes::default();
    for (i, driver) in event::testing::real_drivers().into_iter().enumerate() {
        let world = Rc::new(World {
            random: Random(Cell::new(seed.wrapping_add(i as u64))),
            steps: Cell::new(0),
            last_step,
            lines: RefCell::default(),
            outcomes: RefCell::default(),
        });
        let options = event::Options { driver, ..event::Options::default() };
        let mut event_loop = event::Loop::new(options).unwrap();
        event_loop.block_on(simulate(world.clone())).unwrap();
        let outcomes = world.outcomes.take();
        println!("{driver:?}, seed {seed}, {} steps: {outcomes:?}", world.steps.get());
        assert_eq!(outcomes.stayed[Stay::Protocol as usize], 0, "{outcomes:?}");
        assert!(outcomes.received > 20 && outcomes.moved >= outcomes.received, "{outcomes:?}");
        all.add(&outcomes);
    }
    let refused = [Stay::Configuration, Stay::Off, Stay::Receiver];
    assert!(refused.iter().all(|why| all.stayed[*why as usize] > 0), "{all:?}");
    assert!(all.whole > 0 && all.lost > 0 && all.long > 0 && all.half_closed > 0, "{all:?}");
}
