//! The sender: offers a connection, and gives it up when it was taken.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use event::{Deadline, Fd};
use proto::handover::{INLINE_MAX, MESSAGE_MAX, Message, Word};
use zeroize::{Zeroize, Zeroizing};

use super::candidates::Turn;
use super::{Moves, REPLY_MS, Stay};

/// A connection that a receiver is ready to serve.
pub struct Offered {
    turn: Turn,
    reply: Fd,
}

impl Turn {
    /// Offers the connection, which rests, with the descriptors of the client and of its server.
    ///
    /// # Errors
    /// Nobody serves it but this process: it goes on here.
    pub async fn offer(self, message: &Message<'_>, fds: &[BorrowedFd<'_>]) -> Result<Offered, ()> {
        match offer(&self.moves, message, fds, REPLY_MS).await {
            Ok(reply) => {
                // Replies come many at a time.
                self.moves.pace.step().await;
                Ok(Offered { turn: self, reply })
            }
            Err(unsent) => {
                if matches!(unsent, Unsent::TimedOut) {
                    // Connections that follow would rest in vain as long, one batch after the
                    // other, so that none gets its turn now. Whether others receive is not known
                    // yet: until it is, no connection is closed for want of a receiver.
                    self.moves.is_unanswered.set(true);
                    // The message lies in the queue, with the descriptors.
                    self.moves.unread.set(Some(event::hold()));
                }
                self.stays(unsent.why());
                Err(())
            }
        }
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
        match os::socket::send(self.reply.fd(), &Word::Yours.bytes(), false) {
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
    match offer(moves, &Message::Hello, &[], wait_ms).await {
        Ok(reply) => {
            // The receiver waits for it no longer.
            let _ = os::socket::send(reply.fd(), &Word::Yours.bytes(), false);
            true
        }
        Err(_) => false,
    }
}

/// Sends a message and waits until a receiver takes what it describes; the socket of the reply.
async fn offer(
    moves: &Moves,
    message: &Message<'_>,
    fds: &[BorrowedFd<'_>],
    wait_ms: u64,
) -> Result<Fd, Unsent> {
    let until = Deadline::in_ms(wait_ms);
    let bytes = written(message).ok_or(Stay::State)?;
    let (reply, theirs) = os::socket::message_pair().map_err(|_| Stay::State)?;
    if bytes.len() <= INLINE_MAX {
        enqueue(moves, &bytes, theirs, fds, until).await?;
    } else {
        let file = os::file::in_memory(&bytes).map_err(|_| Stay::State)?;
        let long = u32::try_from(bytes.len()).map_or(None, |len| written(&Message::Long(len)));
        let long = long.ok_or(Stay::State)?;
        let all: Vec<_> = fds.iter().copied().chain([file.as_fd()]).collect();
        enqueue(moves, &long, theirs, &all, until).await?;
    }
    drop(bytes);
    let reply = Fd::new(reply);
    // Another process has to run first.
    reply.readable(until).await.map_err(|_| Unsent::TimedOut)?;
    loop {
        let mut word = [0; 4];
        match os::socket::recv(reply.fd(), &mut word) {
            Ok(n) => {
                return match Word::read(word.get(..n).unwrap_or_default()) {
                    Some(Word::Takes) => Ok(reply),
                    Some(Word::Refuses(why)) => Err(Stay::from(why).into()),
                    // The receiver has died, or speaks another language.
                    Some(Word::Yours) | None => Err(Stay::Receiver.into()),
                };
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                reply.readable(until).await.map_err(|_| Unsent::TimedOut)?;
            }
            Err(_) => return Err(Stay::Receiver.into()),
        }
    }
}

thread_local! {
    /// Where messages are written, so that no copy is left behind in memory that has grown.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The bytes of a message; `None` if it is too long.
pub fn written(message: &Message<'_>) -> Option<Zeroizing<Vec<u8>>> {
    SCRATCH.with_borrow_mut(|scratch| {
        // Memory is taken for what is written only.
        scratch.reserve_exact(4 * MESSAGE_MAX);
        let fits = message.write(scratch);
        let bytes = fits.then(|| Zeroizing::new(scratch.clone()));
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
