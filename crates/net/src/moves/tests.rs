use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use event::testing::until;
use proto::handover::{Client, Leased, Part, Session, Way, Word};

use super::*;

/// Runs a test on every driver.
fn run<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in event::testing::real_drivers() {
        let options = event::Options { driver, ..event::Options::default() };
        event::Loop::new(options).unwrap().block_on(body()).unwrap();
    }
}

#[derive(Default)]
struct Counts {
    moved: Cell<usize>,
    received: Cell<usize>,
    /// Those that were sent or received in each turn of the loop.
    by_turn: RefCell<HashMap<u64, usize>>,
    /// Connections that have rested.
    rested: Cell<usize>,
    /// Connections of the worker that leaves that are not its own any more, or have said so.
    ended: Cell<usize>,
    /// Those whose offer nobody took while the process was kept and receivers were counted on.
    kept: Cell<usize>,
    stayed: RefCell<Vec<Stay>>,
}

impl Counts {
    fn count_in_turn(&self) {
        *self.by_turn.borrow_mut().entry(event::turn()).or_default() += 1;
    }

    fn most_in_a_turn(&self) -> usize {
        self.by_turn.borrow().values().copied().max().unwrap_or(0)
    }
}

impl Tally for Counts {
    fn sent(&self, _: Kind) {
        self.moved.set(self.moved.get() + 1);
        self.count_in_turn();
    }

    fn received(&self, _: Kind, _: u64) {
        self.received.set(self.received.get() + 1);
        self.count_in_turn();
    }

    fn stayed(&self, _: Kind, why: Stay) {
        self.stayed.borrow_mut().push(why);
    }
}

/// A taker that keeps what it serves, or refuses.
#[derive(Default)]
struct Served {
    refusal: Option<Refusal>,
    connections: Rc<RefCell<Vec<Connection>>>,
}

/// The bytes of a connection that wait for its server, and its descriptors.
type Connection = (Vec<u8>, [OwnedFd; 2]);

impl Taker for Served {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let Message::Session(session) = message else { panic!("a session") };
        let fds = ends(fds)?;
        let (pending, served) = (session.up.pending.to_vec(), self.connections.clone());
        match self.refusal {
            Some(why) => Err(why),
            None => Ok(Box::new(move || served.borrow_mut().push((pending, fds)))),
        }
    }
}

pub(super) fn session(pending: &[u8]) -> Message<'_> {
    let client = Client {
        listener: b"",
        local: b"",
        peer: b"",
        real_peer: None,
        number: 1,
        age_ms: 0,
        requests: 0,
        moved_in: 0,
        proxy: None,
        tls: None,
        handshake: None,
    };
    let way = |pending| Way { pending, ended: false, closed: false, rate: None };
    Message::Session(Box::new(Session {
        client,
        server: None,
        values: Vec::new(),
        bytes: (0, 0),
        attempts: Vec::new(),
        leased: Leased { group: b"", server: b"" },
        server_tls: None,
        up: way(pending),
        down: way(b""),
        silent_ms: 0,
    }))
}

/// Two ends of a queue for two workers.
pub(super) fn channels() -> (Channel, Channel) {
    let one = Channel::new().unwrap();
    let dup = |fd: &OwnedFd| fd.try_clone().unwrap();
    let other = Channel { sends: dup(&one.sends), receives: dup(&one.receives) };
    (one, other)
}

/// A session of a worker that leaves, with this to be sent; the client's end. One that stays writes
/// "stays" to its client.
fn connection(moves: &Rc<Moves>, counts: &Rc<Counts>, pending: Vec<u8>) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (moves, own) = (moves.clone(), counts.clone());
    event::spawn(async move {
        let candidate = moves.candidate(Kind::Session).unwrap();
        let never = std::pin::pin!(std::future::pending::<()>());
        assert!(candidate.unless_due(never).await.is_none());
        let mut moved = false;
        if let Some(turn) = candidate.turn() {
            own.rested.set(own.rested.get() + 1);
            let message = session(&pending);
            let offered = turn.offer(&message, &[ours.as_fd(), ours.as_fd()]).await;
            let is_kept = offered.is_err() && event::is_held() && moves.has_receiver();
            own.kept.set(own.kept.get() + usize::from(is_kept));
            moved = offered.is_ok_and(Offered::give_up);
        }
        if !moved {
            (&ours).write_all(b"stays").unwrap();
        }
        drop(ours);
        own.ended.set(own.ended.get() + 1);
    });
    theirs
}

/// A worker that leaves with so many sessions.
fn leaving(channel: Channel, count: usize, pending: Vec<u8>) -> (Rc<Counts>, Vec<UnixStream>) {
    let (_, counts, clients) = leaving_worker(channel, count, pending);
    (counts, clients)
}

fn leaving_worker(
    channel: Channel,
    count: usize,
    pending: Vec<u8>,
) -> (Rc<Moves>, Rc<Counts>, Vec<UnixStream>) {
    let counts = Rc::new(Counts::default());
    let moves = Moves::new(channel, counts.clone(), None);
    let clients = (0..count).map(|_| connection(&moves, &counts, pending.clone())).collect();
    let own = moves.clone();
    event::spawn(async move {
        event::testing::turns(2).await;
        own.leave(false);
    });
    (moves, counts, clients)
}

/// A worker that serves, until this is dropped.
struct Receiver {
    moves: Rc<Moves>,
    counts: Rc<Counts>,
    connections: Rc<RefCell<Vec<Connection>>>,
}

impl Receiver {
    /// It refuses all, or takes all.
    fn new(channel: Channel, refusal: Option<Refusal>) -> Receiver {
        let counts = Rc::new(Counts::default());
        let served = Served { refusal, ..Served::default() };
        let connections = served.connections.clone();
        let moves = Moves::new(channel, counts.clone(), None);
        moves.take_by(Kind::Session, Rc::new(served));
        moves.serve();
        Receiver { moves, counts, connections }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.moves.receiving.take().into_iter().for_each(event::task::cancel);
    }
}

// Tests of one process share its descriptors, of which it may have 1024: a connection here takes
// four. Without one for a message, its receiver drops that, and the connection stays.

#[test]
fn connections_go_to_a_worker_that_serves() {
    run(|| async {
        // More than may be on their way at a time; messages of both forms.
        for (count, len) in [(AT_ONCE + 16, 100), (20, 300_000)] {
            let (one, other) = channels();
            let receiver = Receiver::new(other, None);
            let (counts, clients) = leaving(one, count, vec![7; len]);
            let settled = || receiver.counts.received.get() + counts.stayed.borrow().len();
            until(|| settled() == count).await;
            assert_eq!(counts.moved.get(), count, "{:?}", counts.stayed.borrow());
            for (pending, [client, _]) in receiver.connections.borrow_mut().drain(..) {
                assert_eq!(pending, vec![7; len]);
                UnixStream::from(client).write_all(b"moved").unwrap();
            }
            for mut client in clients {
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                assert_eq!(all, b"moved");
            }
        }
    });
}

#[test]
fn what_is_refused_stays() {
    run(|| async {
        for (refusal, why) in [
            (Refusal::Configuration, Stay::Configuration),
            (Refusal::Off, Stay::Off),
            (Refusal::Version, Stay::Receiver),
        ] {
            let (one, other) = channels();
            let receiver = Receiver::new(other, Some(refusal));
            let (counts, clients) = leaving(one, 2, b"x".to_vec());
            until(|| counts.ended.get() == 2).await;
            assert_eq!(*counts.stayed.borrow(), [why, why]);
            for mut client in clients {
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                assert_eq!(all, b"stays");
            }
            assert_eq!((counts.moved.get(), receiver.counts.received.get()), (0, 0));
        }
    });
}

/// Receives the next message of a queue by hand: its bytes, and the socket of the reply.
async fn next(channel: &Channel) -> (Vec<u8>, OwnedFd, Vec<OwnedFd>) {
    let mut buf = vec![0; proto::handover::INLINE_MAX];
    loop {
        match os::socket::recv_fds(&channel.receives, &mut buf) {
            Ok((len, mut fds)) => {
                buf.truncate(len);
                return (buf, fds.remove(0), fds);
            }
            Err(_) => event::testing::turns(1).await,
        }
    }
}

fn say(reply: &OwnedFd, word: Word) {
    say_all(reply, &[word]);
}

fn say_all(reply: &OwnedFd, words: &[Word]) {
    os::socket::send(reply, &Word::write_all(words), false).unwrap();
}

/// The messages of the connections that are offered in one.
pub(super) fn parts(bytes: &[u8]) -> Vec<Message<'_>> {
    let Ok(Message::Many(parts)) = Message::read(bytes) else { panic!("connections") };
    parts.iter().map(|part| Message::read(part.message).unwrap()).collect()
}

/// A message that offers these, each with so many descriptors.
fn many(messages: &[(&[u8], u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let parts = messages.iter().map(|(message, ends)| Part { ends: *ends, message }).collect();
    assert!(Message::Many(parts).write(&mut bytes));
    bytes
}

#[test]
fn the_death_of_a_receiver_loses_nothing() {
    run(|| async {
        // Before its reply, behind it, and with a word that is none.
        for replies in [&[][..], &[Word::Takes], &[Word::Yours(0)]] {
            let (one, other) = channels();
            let (counts, mut clients) = leaving(one, 1, b"x".to_vec());
            let (hello, reply, _) = next(&other).await;
            assert_eq!(Message::read(&hello), Ok(Message::Hello));
            say(&reply, Word::Takes);
            let (message, reply, fds) = next(&other).await;
            assert!(matches!(parts(&message)[..], [Message::Session(_)]));
            assert_eq!(fds.len(), 2);
            replies.iter().for_each(|word| say(&reply, *word));
            drop((reply, fds));
            until(|| !counts.stayed.borrow().is_empty()).await;
            assert_eq!(*counts.stayed.borrow(), [Stay::Receiver]);
            let mut all = Vec::new();
            clients.remove(0).read_to_end(&mut all).unwrap();
            assert_eq!(all, b"stays");
        }
    });
}

#[test]
fn a_receiver_of_another_version_refuses_all() {
    run(|| async {
        let (one, other) = channels();
        let (counts, clients) = leaving(one, 3, b"x".to_vec());
        let (_, reply, _) = next(&other).await;
        say(&reply, Word::Refuses(Refusal::Version));
        until(|| counts.ended.get() == 3).await;
        assert_eq!(*counts.stayed.borrow(), [Stay::Receiver; 3]);
        drop(clients);
    });
}

#[test]
fn a_receiver_that_hangs_is_waited_for_once() {
    // The waits take four seconds: on one driver.
    let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
    let body = async {
        let (one, other) = channels();
        let count = AT_ONCE + 16;
        let (counts, clients) = leaving(one, count, b"x".to_vec());
        // It says that it is there, and reads nothing else.
        let (_, reply, _) = next(&other).await;
        say(&reply, Word::Takes);
        until(|| counts.ended.get() == count).await;
        assert_eq!(counts.stayed.borrow().len(), count);
        assert!(counts.stayed.borrow().iter().all(|why| *why == Stay::Receiver));
        assert_eq!(counts.rested.get(), AT_ONCE, "those of the first batch");
        // The queue holds no descriptors of those that rested: each client sees the end.
        for mut client in clients {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"stays");
        }
    };
    event_loop.block_on(body).unwrap();
}

/// Connections behind the time-out go to the receivers that answer.
#[test]
fn one_of_several_receivers_hangs() {
    // The wait takes two seconds: on one driver.
    let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
    let body = async {
        let (one, other) = channels();
        let (moves, counts, mut clients) = leaving_worker(one, 8, b"x".to_vec());
        let (_, reply, _) = next(&other).await;
        say(&reply, Word::Takes);
        let _unanswered = next(&other).await;
        let receiver = Receiver::new(other, None);
        until(|| counts.ended.get() == 8).await;
        // More than one if the machine stood still.
        assert!(counts.stayed.borrow().contains(&Stay::Receiver));
        move_later(&moves, &counts, &mut clients).await;
        until(|| receiver.counts.received.get() == counts.moved.get()).await;
    };
    event_loop.block_on(body).unwrap();
}

/// Opens connections until one has moved. The next question is not waited for.
async fn move_later(moves: &Rc<Moves>, counts: &Rc<Counts>, clients: &mut Vec<UnixStream>) {
    let (moved, mut ended) = (counts.moved.get(), counts.ended.get());
    while counts.moved.get() == moved {
        moves.asked_ms.set(0);
        clients.push(connection(moves, counts, b"later".to_vec()));
        ended += 1;
        until(|| counts.ended.get() == ended).await;
    }
}

/// The process is kept until what nobody reads was dropped, and nothing is closed until it is known
/// that nobody receives. Later connections go to a receiver that answers again.
#[test]
fn a_receiver_that_stood_still_is_asked_again() {
    // The waits take four seconds: on one driver.
    let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
    let body = async {
        let (one, other) = channels();
        let (moves, counts, mut clients) = leaving_worker(one, 1, b"x".to_vec());
        let (_, reply, _) = next(&other).await;
        say(&reply, Word::Takes);
        until(|| counts.ended.get() == 1).await;
        assert_eq!((counts.moved.get(), counts.kept.get()), (0, 1));
        until(|| !event::is_held()).await;
        assert!(!moves.has_receiver());
        let mut all = Vec::new();
        clients.remove(0).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"stays");

        let receiver = Receiver::new(other, None);
        move_later(&moves, &counts, &mut clients).await;
        until(|| receiver.counts.received.get() == 1).await;
        assert!(moves.has_receiver() && !event::is_held());
    };
    event_loop.block_on(body).unwrap();
}

/// A turn that was given back goes to another connection, and the one that had it is counted once
/// if it stays.
#[test]
fn a_turn_that_was_given_back_is_counted() {
    run(|| async {
        let (one, other) = channels();
        let _receiver = Receiver::new(other, None);
        let counts = Rc::new(Counts::default());
        let moves = Moves::new(one, counts.clone(), None);
        let mut lines: Vec<Line> = (0..=AT_ONCE).map(|_| Line::default()).collect();
        lines.iter_mut().for_each(|line| line.stand(&moves, Kind::Http2));
        moves.leave(false);
        until(|| lines.iter().filter(|line| !line.waits()).count() == AT_ONCE).await;
        assert!(lines[AT_ONCE].waits());
        for line in &mut lines {
            until(|| !line.waits()).await;
            let turn = line.decision().unwrap().unwrap();
            line.lapse(turn);
        }
        assert_eq!((moves.resting.get(), counts.stayed.borrow().len()), (0, 0));

        let [stays, moves_later, ..] = lines.as_mut_slice() else { panic!("two") };
        stays.stays(Stay::State);
        stays.stays(Stay::State);
        moves_later.stand(&moves, Kind::Http2);
        until(|| !moves_later.waits()).await;
        drop(moves_later.decision());
        moves_later.stays(Stay::State);
        assert_eq!(*counts.stayed.borrow(), [Stay::State]);
    });
}

/// A reply is about several connections; they go, and arrive, a few in each turn of the loop.
#[test]
fn a_turn_of_the_loop_has_few_steps() {
    run(|| async {
        let count = 2 * PER_TURN + 8;
        let (one, other) = channels();
        let (counts, clients) = leaving(one, count, b"x".to_vec());
        let (_, hello, _) = next(&other).await;
        say(&hello, Word::Takes);
        let (mut offered, mut there) = (Vec::new(), 0);
        while there < count {
            let one = next(&other).await;
            let parts = parts(&one.0).len();
            say_all(&one.1, &vec![Word::Takes; parts]);
            there += parts;
            offered.push(one);
        }
        assert!(offered.len() < count, "several go in one message");
        until(|| counts.ended.get() == count).await;
        assert_eq!(counts.moved.get(), count);
        assert!(counts.most_in_a_turn() <= PER_TURN, "{}", counts.most_in_a_turn());
        drop((offered, clients));

        let (one, other) = channels();
        let receiver = Receiver::new(other, None);
        let mut message = Vec::new();
        assert!(session(b"x").write(&mut message));
        let pair = many(&[(&message, 2), (&message, 2)]);
        let all: Vec<OwnedFd> = (0..count / 2).map(|_| send(&one, &pair, 4)).collect();
        for ours in &all {
            assert_eq!(replies(ours).await, Some(vec![Word::Takes; 2]));
        }
        all.iter().for_each(|ours| [0, 1].into_iter().for_each(|i| say(ours, Word::Yours(i))));
        until(|| receiver.counts.received.get() == count).await;
        let most = receiver.counts.most_in_a_turn();
        assert!(most <= PER_TURN, "{most}");
    });
}

/// A message by hand, as from a sender; our end of its reply.
fn send(channel: &Channel, bytes: &[u8], count: usize) -> OwnedFd {
    let (ours, theirs) = os::socket::message_pair().unwrap();
    let (end, _other) = UnixStream::pair().unwrap();
    let mut fds = vec![theirs.as_fd()];
    fds.extend(std::iter::repeat_n(end.as_fd(), count));
    os::socket::send_fds(&channel.sends, bytes, &fds).unwrap();
    ours
}

async fn replies(fd: &OwnedFd) -> Option<Vec<Word>> {
    let mut words = [0; 16];
    loop {
        match os::socket::recv(fd, &mut words) {
            Ok(n) => return Word::read_all(&words[..n]),
            Err(_) => event::testing::turns(1).await,
        }
    }
}

#[test]
fn hostile_messages_are_refused_and_a_lost_sender_is_not_replaced() {
    run(|| async {
        let (one, other) = channels();
        let receiver = Receiver::new(other, None);
        let mut message = Vec::new();
        assert!(session(b"x").write(&mut message));
        let mut long = Vec::new();
        assert!(Message::Long(99).write(&mut long));
        let whole = many(&[(&message, 2)]);
        let mut later = whole.clone();
        later[9] += 1;
        let both = many(&[(&message, u32::MAX), (&message, 4)]);
        let too_many = many(&vec![(&b""[..], 0); 257]);
        for (bytes, count, why) in [
            (&b"none"[..], 2, Refusal::Other),
            (&later, 2, Refusal::Version),
            // By itself, and in two.
            (&message, 2, Refusal::Other),
            (&many(&[(&whole, 2)]), 2, Refusal::Other),
            (&whole, 1, Refusal::Other),
            (&whole, 0, Refusal::Other),
            (&many(&[(&message, 1)]), 1, Refusal::Other),
            (&both, 3, Refusal::Other),
            (&many(&[]), 0, Refusal::Other),
            (&too_many, 0, Refusal::Other),
            // The last descriptor is no file.
            (&many(&[(&long, 3)]), 3, Refusal::Other),
            (&many(&[(&long, 0)]), 0, Refusal::Other),
        ] {
            let ours = send(&one, bytes, count);
            assert_eq!(replies(&ours).await, Some(vec![Word::Refuses(why)]), "{count}");
        }
        // The sender dies, or goes on by itself, before its last word.
        let ours = send(&one, &whole, 2);
        assert_eq!(replies(&ours).await, Some(vec![Word::Takes]));
        drop(ours);
        let ours = send(&one, &whole, 2);
        assert_eq!(replies(&ours).await, Some(vec![Word::Takes]));
        say(&ours, Word::Yours(0));
        until(|| receiver.counts.received.get() == 1).await;
        assert_eq!(receiver.connections.borrow().len(), 1);
        // One is given up, one is refused, and the sender dies before it has given up the third.
        let three = many(&[(&message, 2), (&long, 1), (&message, 2)]);
        let ours = send(&one, &three, 5);
        let refused = Word::Refuses(Refusal::Other);
        assert_eq!(replies(&ours).await, Some(vec![Word::Takes, refused, Word::Takes]));
        say(&ours, Word::Yours(2));
        drop(ours);
        until(|| receiver.counts.received.get() == 2).await;
        event::testing::turns(3).await;
        assert_eq!(receiver.connections.borrow().len(), 2);
    });
}

/// Connections that end before their message is sent are offered to nobody.
#[test]
fn no_message_is_sent_without_connections() {
    run(|| async {
        let (one, other) = channels();
        let counts = Rc::new(Counts::default());
        let moves = Moves::new(one, counts.clone(), None);
        let mut line = Line::default();
        line.stand(&moves, Kind::Session);
        moves.leave(false);
        let (_, hello, _) = next(&other).await;
        say(&hello, Word::Takes);
        until(|| !line.waits()).await;
        let turn = line.decision().unwrap().unwrap();
        let (end, _other) = UnixStream::pair().unwrap();
        let (message, ends) = (session(b"x"), [end.as_fd(), end.as_fd()]);
        let mut offer = Box::pin(turn.offer(&message, &ends));
        let waits = poll_fn(|cx| Poll::Ready(offer.as_mut().poll(cx).is_pending()));
        assert!(waits.await);
        drop(offer);
        until(|| moves.outbox.borrow().is_empty()).await;
        let received = os::socket::recv_fds(&other.receives, &mut [0; 256]);
        assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(moves.resting.get(), 0);
    });
}

/// Of connections that are offered together, each learns its own fate.
#[test]
fn some_of_a_message_move_and_some_stay() {
    run(|| async {
        let (one, other) = channels();
        let (counts, mut clients) = leaving(one, 4, b"x".to_vec());
        let (_, hello, _) = next(&other).await;
        say(&hello, Word::Takes);
        let (message, reply, mut fds) = next(&other).await;
        assert_eq!((parts(&message).len(), fds.len()), (4, 8));
        let refused = Word::Refuses(Refusal::Configuration);
        say_all(&reply, &[Word::Takes, refused, Word::Takes, Word::Takes]);
        let mut given = Vec::new();
        while given.len() < 3 {
            given.extend(replies(&reply).await.unwrap());
        }
        assert_eq!(given, [0, 2, 3].map(Word::Yours));
        until(|| counts.ended.get() == 4).await;
        assert_eq!(*counts.stayed.borrow(), [Stay::Configuration]);
        // Those that nobody has served yet are the receiver's.
        for (i, mut client) in clients.drain(..).enumerate() {
            let mut own: Vec<_> = fds.drain(..2).map(UnixStream::from).collect();
            if i != 1 {
                own[0].write_all(b"moved").unwrap();
            }
            drop(own);
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert_eq!(all, if i == 1 { &b"stays"[..] } else { b"moved" });
        }
    });
}
