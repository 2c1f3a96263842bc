//! The program that the kernel asks for the socket of a datagram, and the same in Rust.
//!
//! ```text
//!  short header:  byte 0, id of 16 bytes                      ─┐
//!  long header:   byte 0, version, length of the id, id       ─┴─► ours: socket `index`
//!                                                                  other: its hash % count
//!  too short for QUIC:                                             a random one
//! ```
//!
//! A client chooses the id of its first datagrams, at random. They go by that id and not by the
//! kernel's hash of the addresses, for two reasons: the group may hold more sockets than there are
//! workers (see [`crate::listeners`]), which the kernel's hash would choose as well; and a client
//! whose address changes during its handshake stays with its worker.

use os::filter::{Step, With};

use super::{INDEX_SHIFT, Key, LEN, MULTIPLIERS, PLACES_MAX, SHIFTS, ZERO_BITS};

/// The shortest datagram whose id is read, bytes: a long header's and the whole of an id behind it.
/// None that is shorter is QUIC's, whose packets hold 20 bytes behind the id and more.
const SHORTEST: u32 = LONG_ID + LEN as u32;
/// The offsets of ids, and of the length of one.
const SHORT_ID: u32 = 1;
const LONG_ID: u32 = 6;
const LONG_ID_LEN: u32 = 5;
/// The bit of a long header.
const IS_LONG: u32 = 0x80;

/// The words of the program's memory.
const LEFT: u32 = 0;
const RIGHT: u32 = 1;
const ID_LEN: u32 = 2;
const WORD: u32 = 3;

/// The program for a group whose first `count` sockets belong to workers.
pub fn program(key: &Key, count: usize) -> Vec<Step> {
    let count = count.clamp(1, PLACES_MAX) as u32;
    let mut steps = vec![
        // X = where the id stands; memory has its length.
        Step::set_x(SHORT_ID),
        Step::byte(0),
        Step::if_any_of(IS_LONG, 0, 3),
        Step::set_x(LONG_ID),
        Step::byte(LONG_ID_LEN),
        Step::jump(1),
        Step::set(LEN as u32),
        Step::store(ID_LEN),
        Step::word_behind_x(8),
        Step::store(WORD),
        Step::word_behind_x(0),
        Step::store(LEFT),
        Step::word_behind_x(4),
        Step::store(RIGHT),
    ];
    let (mut left, mut right) = (LEFT, RIGHT);
    for round in key.mask {
        // A is the right half.
        steps.push(Step::xor(With::Value(round)));
        for (multiplier, shift) in MULTIPLIERS.into_iter().zip(SHIFTS) {
            steps.extend([
                Step::multiply(With::Value(multiplier)),
                Step::to_x(),
                Step::shift_right(shift),
                Step::xor(With::X),
            ]);
        }
        steps.extend([Step::recall_x(left), Step::xor(With::X), Step::store(left)]);
        (left, right) = (right, left);
    }
    let mixed = right;
    steps.extend([
        Step::recall(ID_LEN),
        Step::if_equal(LEN as u32, 0, 7),
        Step::recall(WORD),
        Step::recall_x(mixed),
        Step::xor(With::X),
        Step::if_any_of((1 << ZERO_BITS) - 1, 3, 0),
        Step::shift_right(INDEX_SHIFT),
        Step::if_at_least(count, 1, 0),
        Step::give(),
        // None of ours, or one of a worker that there is no more.
        Step::recall(mixed),
        Step::modulo(count),
        Step::give(),
    ]);
    let head = [
        Step::length(),
        Step::if_at_least(SHORTEST, 3, 0),
        Step::random(),
        Step::modulo(count),
        Step::give(),
    ];
    steps.splice(0..0, head);
    steps
}

/// The number of the socket that a datagram belongs to, of `count`; nothing where any will do.
pub fn socket_of(key: &Key, count: usize, datagram: &[u8]) -> Option<usize> {
    let count = count.clamp(1, PLACES_MAX);
    if datagram.len() < SHORTEST as usize {
        return None;
    }
    let is_long = u32::from(*datagram.first()?) & IS_LONG != 0;
    let at = if is_long { LONG_ID } else { SHORT_ID } as usize;
    let is_whole = !is_long || usize::from(*datagram.get(LONG_ID_LEN as usize)?) == LEN;
    let id = datagram.get(at..at + LEN)?;
    if is_whole
        && let Some(read) = super::read(key, id)
        && usize::from(read.place.index) < count
    {
        return Some(usize::from(read.place.index));
    }
    let random = *id.first_chunk()?;
    Some(key.mix(random) as usize % count)
}
