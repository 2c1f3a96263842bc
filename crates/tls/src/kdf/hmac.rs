//! HMAC (RFC 2104) with a key whose two padded blocks are compressed once: a message of one block
//! then costs two compressions, not four.

use zeroize::Zeroize;

use super::hash::{Algorithm, BLOCK_MAX, Hashing, LENGTH_MAX};

/// A key, as the states behind its padded blocks.
pub(super) struct Keyed<A: Algorithm> {
    inner: A::State,
    outer: A::State,
}

impl<A: Algorithm> Keyed<A> {
    pub fn new(key: &[u8]) -> Keyed<A> {
        let mut padded = [0; BLOCK_MAX];
        if key.len() > A::BLOCK {
            let mut hashed = [0; LENGTH_MAX];
            let mut hashing = Hashing::<A>::from(A::START, 0);
            hashing.update(key);
            hashing.finish(&mut hashed);
            padded[..A::LENGTH].copy_from_slice(&hashed[..A::LENGTH]);
            hashed[..].zeroize();
        } else {
            padded[..key.len()].copy_from_slice(key);
        }
        let (mut inner, mut outer) = (A::START, A::START);
        padded.iter_mut().for_each(|byte| *byte ^= 0x36);
        A::compress(&mut inner, &padded);
        padded.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        A::compress(&mut outer, &padded);
        padded[..].zeroize();
        Keyed { inner, outer }
    }

    /// Writes the tag of the concatenated parts, [`Algorithm::LENGTH`] bytes.
    pub fn tag<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>, out: &mut [u8; LENGTH_MAX]) {
        let mut hashing = Hashing::<A>::from(self.inner, A::BLOCK);
        parts.into_iter().for_each(|part| hashing.update(part));
        hashing.finish(out);
        let mut hashing = Hashing::<A>::from(self.outer, A::BLOCK);
        hashing.update(&out[..A::LENGTH]);
        hashing.finish(out);
    }
}

// Not derived: the algorithm itself is never cloned.
impl<A: Algorithm> Clone for Keyed<A> {
    fn clone(&self) -> Keyed<A> {
        Keyed { inner: self.inner, outer: self.outer }
    }
}

impl<A: Algorithm> Drop for Keyed<A> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}
