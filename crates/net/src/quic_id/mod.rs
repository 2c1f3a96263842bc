//! The connection ids of QUIC that this server issues, and the socket that a datagram belongs to.
//!
//! ```text
//!  0        8            12      16
//!  ├ random ┼ place word ┼ tag ──┤     place = index 10 | slot 10 | half 1 | 0 … 0 (11 bits)
//!                                      word  = place ^ mix(random)
//!                                      tag   = SipHash(random, word), cut to 4 bytes
//! ```
//!
//! A client takes its connection to another address, or its router does, and only the id says then
//! whose the datagram is: which worker reads it (*index*), and which process has the connection
//! (*slot*, see [`Place`]). The kernel reads the index from the id by a classic BPF program
//! ([`program`]), for which no privilege is needed; it knows our ids by their eleven zero bits.
//! User space reads all of it and checks the tag.
//!
//! `mix` hides the place from those who watch the ids of a connection: it is a keyed Feistel
//! network, cheap in a kernel's program, and no cipher. Who breaks it learns the number of a
//! worker.

mod program;

use std::hash::Hasher;

pub use self::program::{program, socket_of};

/// The length of an id, bytes.
pub const LEN: usize = 16;

/// The most workers, and slots, that an id has room for.
pub const PLACES_MAX: usize = 1 << 10;

/// The rounds of the network.
const ROUNDS: usize = 6;
/// Odd numbers with their bits spread, those of xxHash.
const MULTIPLIERS: [u32; 2] = [0x9e37_79b1, 0x85eb_ca77];
const SHIFTS: [u32; 2] = [15, 13];

/// The bits of a place word: zero at its end.
const ZERO_BITS: u32 = 11;
const HALF_SHIFT: u32 = 11;
const SLOT_SHIFT: u32 = 12;
const INDEX_SHIFT: u32 = 22;

/// The key of a server's ids. All processes that read each other's ids have the same one.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: [u8; Key::LEN],
    mask: [u32; ROUNDS],
    tag: [u64; 2],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// The length of the secret that it is made of, bytes.
    pub const LEN: usize = 32;

    /// The key of a secret, of which every byte is random.
    pub fn new(secret: &[u8; Key::LEN]) -> Key {
        let (parts, _) = secret.as_chunks::<8>();
        let [a, b, tag @ ..] = [0, 1, 2, 3].map(|i| u64::from_le_bytes(parts[i]));
        let mask = std::array::from_fn(|round| {
            let mut hasher = sip([a, b]);
            hasher.write_u64(round as u64);
            hasher.finish() as u32
        });
        Key { secret: *secret, mask, tag }
    }

    /// A key from the system's random numbers.
    pub fn random() -> Key {
        let mut secret = [0; Key::LEN];
        os::random::fill(&mut secret);
        Key::new(&secret)
    }

    /// The secret that it was made of, to be handed to another process.
    pub fn secret(&self) -> &[u8; Key::LEN] {
        &self.secret
    }

    fn mix(&self, random: [u8; 8]) -> u32 {
        let [a, b, c, d, e, f, g, h] = random;
        let (mut left, mut right) =
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        for key in self.mask {
            let mut f = right ^ key;
            for (multiplier, shift) in MULTIPLIERS.into_iter().zip(SHIFTS) {
                f = f.wrapping_mul(multiplier);
                f ^= f >> shift;
            }
            (left, right) = (right, left ^ f);
        }
        right
    }

    fn tag(&self, random: [u8; 8], word: u32) -> u32 {
        let mut hasher = sip(self.tag);
        hasher.write_u64(u64::from_le_bytes(random));
        hasher.write_u32(word);
        hasher.finish() as u32
    }
}

/// SipHash-2-4, whose key the other hashers of the standard library do not take.
#[allow(deprecated)]
fn sip([a, b]: [u64; 2]) -> std::hash::SipHasher {
    std::hash::SipHasher::new_with_keys(a, b)
}

/// The process and the place that a connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the worker, and of its socket; below [`PLACES_MAX`].
    pub index: u16,
    /// The number of the process that has the connection, as long as that lives; below
    /// [`PLACES_MAX`].
    pub slot: u16,
    /// Changes with each upgrade of the binary.
    pub half: bool,
}

/// A connection id of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Id(pub [u8; LEN]);

/// An id that may be one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// The place that it names.
    pub place: Place,
    /// It is one of ours; without this, it is one of 2,048 that only look so to the kernel.
    pub is_genuine: bool,
}

impl Id {
    /// The id of a connection at `place`.
    pub fn new(key: &Key, place: Place, random: [u8; 8]) -> Id {
        let Place { index, slot, half } = place;
        let index = u32::from(index) % PLACES_MAX as u32;
        let slot = u32::from(slot) % PLACES_MAX as u32;
        let plain = index << INDEX_SHIFT | slot << SLOT_SHIFT | u32::from(half) << HALF_SHIFT;
        let word = plain ^ key.mix(random);
        let mut id = [0; LEN];
        id[..8].copy_from_slice(&random);
        id[8..12].copy_from_slice(&word.to_be_bytes());
        id[12..].copy_from_slice(&key.tag(random, word).to_be_bytes());
        Id(id)
    }
}

/// Reads an id; nothing where it is none of ours for certain.
pub fn read(key: &Key, id: &[u8]) -> Option<Read> {
    let id: &[u8; LEN] = id.try_into().ok()?;
    let [random @ .., _, _, _, _, _, _, _, _] = *id;
    let [_, _, _, _, _, _, _, _, w0, w1, w2, w3, tag @ ..] = *id;
    let word = u32::from_be_bytes([w0, w1, w2, w3]);
    let plain = word ^ key.mix(random);
    if plain & ((1 << ZERO_BITS) - 1) != 0 {
        return None;
    }
    let ten_bits = |shift: u32| (plain >> shift) as u16 % PLACES_MAX as u16;
    let (index, slot) = (ten_bits(INDEX_SHIFT), ten_bits(SLOT_SHIFT));
    let half = plain >> HALF_SHIFT & 1 != 0;
    let is_genuine = key.tag(random, word) == u32::from_be_bytes(tag);
    Some(Read { place: Place { index, slot, half }, is_genuine })
}

#[cfg(test)]
mod tests;
