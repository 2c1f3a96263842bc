//! SHA-256 and SHA-384 as compressions, whose states can be kept.

use zeroize::Zeroize;

/// The block of the larger hash.
pub(super) const BLOCK_MAX: usize = 128;
/// The output of the larger hash.
pub(super) const LENGTH_MAX: usize = 48;

/// A hash of the SHA-2 family.
pub(super) trait Algorithm: Send + Sync + 'static {
    /// The chaining value.
    type State: Copy + Zeroize + Send + Sync;
    /// The chaining value before the first block.
    const START: Self::State;
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bytes of the message's length at the end of the last block.
    const LENGTH_FIELD: usize;
    /// Bytes of the output.
    const LENGTH: usize;

    /// Compresses the first [`Self::BLOCK`] bytes of `block` into `state`.
    fn compress(state: &mut Self::State, block: &[u8; BLOCK_MAX]);

    /// Writes the output, [`Self::LENGTH`] bytes.
    fn write(state: &Self::State, out: &mut [u8; LENGTH_MAX]);
}

#[derive(Debug)]
pub(super) struct Sha256;

impl Algorithm for Sha256 {
    type State = [u32; 8];
    const START: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    const BLOCK: usize = 64;
    const LENGTH_FIELD: usize = 8;
    const LENGTH: usize = 32;

    fn compress(state: &mut [u32; 8], block: &[u8; BLOCK_MAX]) {
        let block: &[u8; 64] = block.first_chunk().expect("64 is less than 128");
        sha2::compress256(state, std::slice::from_ref(block.into()));
    }

    fn write(state: &[u32; 8], out: &mut [u8; LENGTH_MAX]) {
        for (out, word) in out.chunks_exact_mut(4).zip(state) {
            out.copy_from_slice(&word.to_be_bytes());
        }
    }
}

#[derive(Debug)]
pub(super) struct Sha384;

impl Algorithm for Sha384 {
    type State = [u64; 8];
    const START: [u64; 8] = [
        0xcbbb_9d5d_c105_9ed8,
        0x629a_292a_367c_d507,
        0x9159_015a_3070_dd17,
        0x152f_ecd8_f70e_5939,
        0x6733_2667_ffc0_0b31,
        0x8eb4_4a87_6858_1511,
        0xdb0c_2e0d_64f9_8fa7,
        0x47b5_481d_befa_4fa4,
    ];
    const BLOCK: usize = 128;
    const LENGTH_FIELD: usize = 16;
    const LENGTH: usize = 48;

    fn compress(state: &mut [u64; 8], block: &[u8; BLOCK_MAX]) {
        sha2::compress512(state, std::slice::from_ref(block.into()));
    }

    fn write(state: &[u64; 8], out: &mut [u8; LENGTH_MAX]) {
        // The last two words of the state are no part of SHA-384's output.
        for (out, word) in out.chunks_exact_mut(8).zip(state) {
            out.copy_from_slice(&word.to_be_bytes());
        }
    }
}

/// A message that is being hashed.
pub(super) struct Hashing<A: Algorithm> {
    state: A::State,
    block: [u8; BLOCK_MAX],
    /// Bytes of `block` that are filled, fewer than a block.
    filled: usize,
    /// Bytes of the message, with those that led to the first state.
    total: u64,
}

impl<A: Algorithm> Hashing<A> {
    /// Continues from a state behind `total` bytes, a multiple of the block.
    pub fn from(state: A::State, total: usize) -> Hashing<A> {
        Hashing { state, block: [0; BLOCK_MAX], filled: 0, total: total as u64 }
    }

    /// Appends bytes to the message.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = &mut self.block[self.filled..A::BLOCK];
            let (now, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = rest;
            if self.filled == A::BLOCK {
                A::compress(&mut self.state, &self.block);
                self.filled = 0;
            }
        }
    }

    /// Writes the hash of the message, [`Algorithm::LENGTH`] bytes.
    pub fn finish(mut self, out: &mut [u8; LENGTH_MAX]) {
        self.block[self.filled] = 0x80;
        self.block[self.filled + 1..].fill(0);
        if self.filled + 1 + A::LENGTH_FIELD > A::BLOCK {
            A::compress(&mut self.state, &self.block);
            self.block.fill(0);
        }
        let bits = (self.total * 8).to_be_bytes();
        self.block[A::BLOCK - bits.len()..A::BLOCK].copy_from_slice(&bits);
        A::compress(&mut self.state, &self.block);
        A::write(&self.state, out);
    }
}

impl<A: Algorithm> Drop for Hashing<A> {
    fn drop(&mut self) {
        self.state.zeroize();
        self.block[..].zeroize();
    }
}
