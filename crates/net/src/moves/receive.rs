//! The receiver: takes connections out of the queue, and serves those that their sender gives up.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use event::{Deadline, Fd};
use os::limits::ShortSlices;
use proto::handover::{INLINE_MAX, MESSAGE_MAX, Message, PARTS_MAX, Part, Refusal, Unread, Word};
use zeroize::Zeroize;

use super::{Kind, Moves, Ready, YOURS_MS};
use crate::wiped::Wiped;

/// A receiver keeps its buffer and its short time slices for this time after a message,
/// milliseconds: most often another message follows at once, and fresh memory for the buffer costs
/// more than a message.
const READY_MS: u64 = 100;

/// The time slices of a worker while connections arrive, nanoseconds. Workers that leave compete
/// with it for the processors. With short slices it has one again sooner, and a request that comes
/// meanwhile waits less.
const SLICE_NS: u64 = 100_000;

/// The receiving end of the queue, which other processes have as well.
pub(super) struct Queue(Fd);

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.part();
    }
}

impl Queue {
    pub(super) fn of(moves: &Moves) -> io::Result<Queue> {
        Ok(Queue(Fd::new(moves.channel.receives.try_clone()?)))
    }
}

/// What a receiver needs only while messages come.
struct Receiving {
    buf: Vec<u8>,
    _slices: Option<ShortSlices>,
}

impl Receiving {
    fn new() -> Receiving {
        // The memory is touched as far as messages are long.
        Receiving { buf: vec![0; INLINE_MAX], _slices: ShortSlices::of(SLICE_NS) }
    }
}

/// Receives until the task is cancelled.
pub(super) async fn run(moves: Rc<Moves>, queue: Queue) {
    let queue_fd = &queue.0;
    let mut receiving = None;
    loop {
        loop {
            // Before the message is there: this task may be cancelled while it waits.
            moves.pace.step().await;
            let buf = &mut receiving.get_or_insert_with(Receiving::new).buf;
            match os::socket::recv_fds(queue_fd.fd(), buf) {
                Ok((len, fds)) => {
                    take(&moves, buf.get(..len).unwrap_or_default(), fds);
                    buf.get_mut(..len).unwrap_or_default().zeroize();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The descriptors were closed with it, which its sender notices.
                Err(_) => buf.zeroize(),
            }
        }
        let soon = Deadline::in_ms(READY_MS);
        let waited = match queue_fd.readable(soon).await {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                receiving = None;
                queue_fd.readable(Deadline::NEVER).await
            }
            waited => waited,
        };
        if waited.is_err() {
            return;
        }
    }
}

/// Handles one message. Its first descriptor is the socket of the reply.
fn take(moves: &Rc<Moves>, bytes: &[u8], fds: Vec<OwnedFd>) {
    let mut fds = fds.into_iter();
    let Some(reply) = fds.next() else { return };
    let (words, arrivals) = match parts(bytes, fds.len()) {
        Ok(parts) => prepared(moves, &parts, fds),
        Err(word) => (vec![word], Vec::new()),
    };
    // A sender that waited for too long has closed its end.
    if os::socket::send(&reply, &Word::write_all(&words), false).is_err() {
        return;
    }
    if arrivals.iter().any(Option::is_some) {
        event::spawn(serve(moves.clone(), Fd::new(reply), arrivals));
    }
}

/// The parts of a message that came with so many descriptors, which are all theirs.
///
/// # Errors
/// The word about all of it.
fn parts(bytes: &[u8], fds: usize) -> Result<Vec<Part<'_>>, Word> {
    let parts = match read(bytes) {
        Ok(Message::Many(parts)) => parts,
        Ok(Message::Hello) => return Err(Word::Takes),
        Ok(_) => return Err(Word::Refuses(Refusal::Other)),
        Err(why) => return Err(Word::Refuses(why)),
    };
    let ends = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.ends as usize));
    match ends == fds && (1..=PARTS_MAX).contains(&parts.len()) {
        true => Ok(parts),
        false => Err(Word::Refuses(Refusal::Other)),
    }
}

/// A connection that waits for the sender's last word.
struct Arrival {
    kind: Kind,
    moved_in: u64,
    ready: Ready,
}

/// Prepares to serve all parts, each with the next ones of the descriptors; the word about each.
fn prepared(
    moves: &Moves,
    parts: &[Part<'_>],
    mut fds: impl Iterator<Item = OwnedFd>,
) -> (Vec<Word>, Vec<Option<Arrival>>) {
    // `run` has waited for one step before it received the message. The others count in this turn.
    moves.pace.spend(parts.len().saturating_sub(1));
    let prepared = parts.iter().map(|part| {
        let own = fds.by_ref().take(part.ends as usize).collect();
        match prepare(moves, part.message, own) {
            Ok(arrival) => (Word::Takes, Some(arrival)),
            Err(why) => (Word::Refuses(why), None),
        }
    });
    prepared.unzip()
}

/// Prepares to serve the connection that a part of a message describes.
fn prepare(moves: &Moves, bytes: &[u8], mut fds: Vec<OwnedFd>) -> Result<Arrival, Refusal> {
    let long;
    let message = match read(bytes)? {
        Message::Long(len) => {
            long = content(len as usize, &fds.pop().ok_or(Refusal::Other)?)?;
            read(&long)?
        }
        message => message,
    };
    let kind = Kind::of(&message).ok_or(Refusal::Other)?;
    let taker = moves.taker(kind).ok_or(Refusal::Configuration)?;
    let ready = taker.take(&message, fds)?;
    Ok(Arrival { kind, moved_in: message.moved_in(), ready })
}

fn read(bytes: &[u8]) -> Result<Message<'_>, Refusal> {
    Message::read(bytes).map_err(|why| match why {
        Unread::Version(_) | Unread::Kind(_) => Refusal::Version,
        Unread::Malformed => Refusal::Other,
    })
}

/// The content of a message's file.
fn content(len: usize, file: &OwnedFd) -> Result<Wiped, Refusal> {
    if len > MESSAGE_MAX {
        return Err(Refusal::Other);
    }
    let mut content = Wiped::from(vec![0; len]);
    let mut pos = 0;
    while let Some(rest) = content.get_mut(pos..).filter(|rest| !rest.is_empty()) {
        match os::file::read_at(file, rest, pos as u64) {
            Ok(n @ 1..) => pos += n,
            _ => return Err(Refusal::Other),
        }
    }
    Ok(content)
}

/// Serves each connection once its sender has given it up.
async fn serve(moves: Rc<Moves>, reply: Fd, mut arrivals: Vec<Option<Arrival>>) {
    let until = Deadline::in_ms(YOURS_MS);
    // The sender has to run first.
    let (mut waits, mut is_late) = (true, false);
    while arrivals.iter().any(Option::is_some) {
        if std::mem::take(&mut waits) && reply.readable(until).await.is_err() {
            // The sender may have said it while this process stood still: that counts, and what it
            // says from now on fails, so that it goes on serving.
            is_late = true;
            let _ = os::socket::shutdown_read(reply.fd());
        }
        let mut word = [0; 4];
        match os::socket::recv_message(reply.fd(), &mut word) {
            Ok(n) => {
                let Some(Word::Yours(part)) = Word::read(word.get(..n).unwrap_or_default()) else {
                    return;
                };
                let arrival = arrivals.get_mut(usize::from(part)).and_then(Option::take);
                let Some(arrival) = arrival else { return };
                moves.pace.step().await;
                moves.tally.received(arrival.kind, arrival.moved_in);
                (arrival.ready)();
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && !is_late => waits = true,
            Err(_) => return,
        }
    }
}
