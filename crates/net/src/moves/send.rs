//! The sender: offers connections, several in a message, and gives each up when it was taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use event::{Deadline, Fd, Notify};
use proto::handover::{INLINE_MAX, MESSAGE_MAX, Message, Part, Word};
use zeroize::Zeroize;

use super::candidates::Turn;
use super::{AT_ONCE, Moves, PER_TURN, REPLY_MS, Stay};
use crate::wiped::Wiped;

/// The room of a message for its parts: its own head needs little.
const PARTS_ROOM: usize = INLINE_MAX - 64;

/// The room that a part takes beside its message.
const PART_HEAD: usize = 8;

/// A connection that a receiver is ready to serve.
pub struct Offered {
    turn: Turn,
    taken: Taken,
}

/// What a receiver has taken.
struct Taken {
    /// The socket of the reply, which all connections of a message have in common. It closes with
    /// the last of them, so that the receiver drops those that nobody gives up.
    reply: Rc<Fd>,
    /// The number of the part.
    part: u8,
}

/// Connections that are about to be offered.
pub(super) type Outbox = RefCell<VecDeque<Packed>>;

/// A connection's part of a message.
pub(super) struct Packed {
    bytes: Written,
    /// Duplicates: the connection may end before the message is sent.
    fds: Vec<OwnedFd>,
    seat: Rc<Seat>,
}

/// Where a connection waits for what becomes of its offer.
#[derive(Default)]
struct Seat {
    outcome: Cell<Option<Result<Taken, Unsent>>>,
    settled: Notify,
    /// The connection waits no longer.
    is_left: Cell<bool>,
}

/// The connection's side of a seat.
struct Seated(Rc<Seat>);

impl Drop for Seated {
    fn drop(&mut self) {
        self.0.is_left.set(true);
        // What was taken is not given up.
        self.0.outcome.take();
    }
}

impl Turn {
    /// Offers the connection, which rests, with the descriptors of the client and of its server.
    /// The message is written before the wait, which keeps nothing of what it was made of.
    ///
    /// # Errors
    /// Nobody serves it but this process: it goes on here.
    pub fn offer(
        self,
        message: &Message<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> impl Future<Output = Result<Offered, ()>> + use<> {
        let packed = packed(message, fds);
        async move {
            match offer(&self.moves, packed).await {
                Ok(taken) => {
                    // A reply is about several connections.
                    self.moves.pace.step().await;
                    Ok(Offered { turn: self, taken })
                }
                Err(unsent) => {
                    self.failed(unsent);
                    Err(())
                }
            }
        }
    }

    fn failed(self, unsent: Unsent) {
        if matches!(unsent, Unsent::TimedOut) {
            // Connections that follow would rest in vain as long, one batch after the other, so
            // that none gets its turn now. Whether others receive is not known yet: until it is, no
            // connection is closed for want of a receiver.
            self.moves.is_unanswered.set(true);
            // The message lies in the queue, with the descriptors.
            self.moves.unread.set(Some(event::hold()));
        }
        self.stays(unsent.why());
    }
}

impl Moves {
    /// A receiver has not answered in time: asks whether another one does. If none does, what
    /// nobody has read is dropped: it would lie in the queue, which outlives this process, with its
    /// descriptors, and no client would see the end of its connection. The senders notice that by
    /// the sockets of their replies.
    pub(super) async fn ask_again(&self) {
        let is_there = hello(self, REPLY_MS).await;
        self.receives.set(is_there);
        if is_there {
            return;
        }
        self.is_unanswered.set(false);
        for _ in 0..UNREAD_MAX {
            // A message that is cut is dropped, with its descriptors.
            match os::socket::recv_fds(&self.channel.receives, &mut [0]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

/// Messages that are dropped at most: other workers may be sending.
const UNREAD_MAX: usize = 1024;

/// Why nobody serves what was offered.
#[derive(Clone, Copy)]
enum Unsent {
    /// No receiver answered in time.
    TimedOut,
    /// It was refused, or could not be sent.
    Stays(Stay),
}

impl Unsent {
    fn why(&self) -> Stay {
        match self {
            Unsent::TimedOut => Stay::Receiver,
            Unsent::Stays(why) => *why,
        }
    }
}

impl From<Stay> for Unsent {
    fn from(why: Stay) -> Unsent {
        Unsent::Stays(why)
    }
}

impl Offered {
    /// Gives the connection up: the receiver serves it from here on. `false`: the receiver is gone,
    /// and it goes on here.
    pub fn give_up(self) -> bool {
        let Taken { reply, part } = &self.taken;
        match os::socket::send(reply.fd(), &Word::Yours(*part).bytes(), false) {
            Ok(_) => {
                self.turn.sent();
                true
            }
            Err(_) => {
                self.turn.stays(Stay::Receiver);
                false
            }
        }
    }
}

/// Whether a worker receives messages of this version, and says so in time.
pub(super) async fn hello(moves: &Moves, wait_ms: u64) -> bool {
    let Some(bytes) = written(&Message::Hello) else { return false };
    let answer = ask(moves, bytes, &[], Deadline::in_ms(wait_ms)).await;
    answer.is_ok_and(|(_, words)| words == [Word::Takes])
}

/// Offers a connection, and waits until a receiver takes it.
async fn offer(
    moves: &Rc<Moves>,
    packed: Option<(Written, Vec<OwnedFd>)>,
) -> Result<Taken, Unsent> {
    let (bytes, fds) = packed.ok_or(Stay::State)?;
    let seated = Seated(Rc::default());
    let seat = seated.0.clone();
    moves.outbox.borrow_mut().push_back(Packed { bytes, fds, seat });
    if moves.outbox.borrow().len() == 1 {
        event::spawn(ship(moves.clone()));
    }
    loop {
        if let Some(outcome) = seated.0.outcome.take() {
            return outcome;
        }
        seated.0.settled.notified().await;
    }
}

/// The message of a part, and duplicates of its descriptors.
fn packed(message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Option<(Written, Vec<OwnedFd>)> {
    let duplicates = fds.iter().map(BorrowedFd::try_clone_to_owned);
    let mut all = duplicates.collect::<io::Result<Vec<_>>>().ok()?;
    let bytes = written(message)?;
    if bytes.len() + PART_HEAD <= PARTS_ROOM {
        return Some((bytes, all));
    }
    all.push(os::file::in_memory(&bytes).ok()?);
    let len = u32::try_from(bytes.len()).ok()?;
    Some((written(&Message::Long(len))?, all))
}

/// Sends the connections that are offered in this turn of the loop, and tells each what becomes of
/// it.
async fn ship(moves: Rc<Moves>) {
    // Others whose turn has come describe themselves behind the first one.
    event::task::yield_now().await;
    let parcel = parcel(&moves.outbox);
    if !moves.outbox.borrow().is_empty() {
        event::spawn(ship(moves.clone()));
    }
    if parcel.is_empty() {
        // All of them have ended.
        return;
    }
    let outcome = post(&moves, &parcel).await;
    let (reply, words) = match outcome {
        Ok((reply, words)) => (Rc::new(reply), words),
        Err(unsent) => {
            parcel.iter().for_each(|packed| packed.seat.settle(Err(unsent)));
            return;
        }
    };
    // A single refusal is for all.
    let all = words.first().filter(|_| words.len() == 1 && parcel.len() > 1);
    for (i, packed) in parcel.iter().enumerate() {
        let outcome = match (all.or(words.get(i)), u8::try_from(i)) {
            (Some(Word::Refuses(why)), _) => Err(Stay::from(*why).into()),
            (Some(Word::Takes), Ok(part)) if all.is_none() => {
                Ok(Taken { reply: reply.clone(), part })
            }
            // The receiver speaks another language.
            _ => Err(Stay::Receiver.into()),
        };
        packed.seat.settle(outcome);
    }
}

impl Seat {
    fn settle(&self, outcome: Result<Taken, Unsent>) {
        if !self.is_left.get() {
            self.outcome.set(Some(outcome));
            self.settled.notify_one();
        }
    }
}

/// Takes as many connections as go in one message.
fn parcel(outbox: &Outbox) -> Vec<Packed> {
    let mut outbox = outbox.borrow_mut();
    let (mut room, mut fds) = (PARTS_ROOM, os::socket::PASSED_MAX - 1);
    let mut parcel: Vec<Packed> = Vec::with_capacity(PER_TURN);
    while let Some(next) = outbox.front() {
        let len = next.bytes.len() + PART_HEAD;
        let fits = len <= room && next.fds.len() <= fds && parcel.len() < PER_TURN;
        // One that is too large by itself cannot be sent, and learns it.
        if !fits && !parcel.is_empty() {
            break;
        }
        let Some(next) = outbox.pop_front() else { break };
        if next.seat.is_left.get() {
            continue;
        }
        room = room.saturating_sub(len);
        fds = fds.saturating_sub(next.fds.len());
        parcel.push(next);
    }
    parcel
}

/// Sends a message of these connections, and waits for the words about them.
async fn post(moves: &Moves, parcel: &[Packed]) -> Result<(Fd, Vec<Word>), Unsent> {
    let parts = parcel.iter().map(|packed| Part {
        ends: u32::try_from(packed.fds.len()).unwrap_or(u32::MAX),
        message: &packed.bytes,
    });
    let bytes = written(&Message::Many(parts.collect())).ok_or(Stay::State)?;
    let fds: Vec<_> = parcel.iter().flat_map(|packed| &packed.fds).map(AsFd::as_fd).collect();
    ask(moves, bytes, &fds, Deadline::in_ms(REPLY_MS)).await
}

/// Puts a message into the queue, and waits for the words of the receiver that has taken it out.
async fn ask(
    moves: &Moves,
    bytes: Written,
    fds: &[BorrowedFd<'_>],
    until: Deadline,
) -> Result<(Fd, Vec<Word>), Unsent> {
    let (reply, theirs) = os::socket::message_pair().map_err(|_| Stay::State)?;
    enqueue(moves, &bytes, theirs, fds, until).await?;
    drop(bytes);
    let reply = Fd::new(reply);
    loop {
        // Another process has to run first.
        reply.readable(until).await.map_err(|_| Unsent::TimedOut)?;
        let mut words = [0; WORDS_MAX];
        match os::socket::recv_message(reply.fd(), &mut words) {
            // None where the receiver has died.
            Ok(len) => {
                let words = Word::read_all(words.get(..len).unwrap_or_default());
                return Ok((reply, words.ok_or(Stay::Receiver)?));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Stay::Receiver.into()),
        }
    }
}

/// Room for the words about a message's parts.
const WORDS_MAX: usize = 2 * PER_TURN;

thread_local! {
    /// Where messages are written, so that no copy is left behind in memory that has grown.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The room of recycled memory for a message: most describe a connection in less.
const SPARE_ROOM: usize = 4096;

/// Messages whose memory is kept for later ones, as many as connections rest at a time.
const SPARE_MAX: usize = AT_ONCE;

thread_local! {
    /// Memory of messages that were sent. Otherwise each would take a piece of memory between those
    /// of the connections that have left, for which the allocator looks through all of these.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The bytes of a message.
pub struct Written(Wiped);

impl Written {
    fn copied(from: &[u8]) -> Written {
        if from.len() > SPARE_ROOM {
            return Written(from.to_vec().into());
        }
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let mut bytes = spare.unwrap_or_else(|| Vec::with_capacity(SPARE_ROOM));
        bytes.extend_from_slice(from);
        Written(bytes.into())
    }
}

impl std::ops::Deref for Written {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let bytes = self.0.emptied();
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if bytes.capacity() == SPARE_ROOM && spare.len() < SPARE_MAX {
                spare.push(bytes);
            }
        });
    }
}

/// The bytes of a message; `None` if it is too long.
pub fn written(message: &Message<'_>) -> Option<Written> {
    SCRATCH.with_borrow_mut(|scratch| {
        // Memory is taken for what is written only.
        scratch.reserve_exact(4 * MESSAGE_MAX);
        let fits = message.write(scratch);
        let bytes = fits.then(|| Written::copied(scratch));
        scratch.as_mut_slice().zeroize();
        scratch.clear();
        bytes
    })
}

/// Puts the message into the queue, and waits for room while it is full.
async fn enqueue(
    moves: &Moves,
    bytes: &[u8],
    theirs: OwnedFd,
    fds: &[BorrowedFd<'_>],
    until: Deadline,
) -> Result<(), Unsent> {
    let mut all = vec![theirs.as_fd()];
    all.extend_from_slice(fds);
    loop {
        match os::socket::send_fds(&moves.channel.sends, bytes, &all) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Full, or too many descriptors on their way: a receiver changes both.
            Err(e) if is_full(&e) => {
                let now = base::time::now_ms();
                if until.at_ms() <= now {
                    return Err(Unsent::TimedOut);
                }
                event::sleep(FULL_MS).await;
            }
            Err(_) => return Err(Stay::State.into()),
        }
    }
}

/// The wait for room in the queue, milliseconds. Readiness is not waited for, because room may be
/// too little for this message.
const FULL_MS: u64 = 2;

fn is_full(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(os::errno::ETOOMANYREFS)
}
