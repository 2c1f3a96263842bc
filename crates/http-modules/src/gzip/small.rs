//! Deflate for bodies that are small and wholly there: one block, made in one go.
//!
//! A general compressor has 128 KB of hash table to clear before each stream, which takes longer
//! than to compress a kilobyte. This one has 4 KB, sees all of its input at once, and writes
//! straight behind what is there. RFC 1951 and 1952 say what it writes.

use std::cell::RefCell;

use mem::{Buf, Chain};

use super::code::{Codes, Plan};
use super::deflate::{Compressor, Settings};
use super::symbols::{self, Bits};
use crate::compress::coder::{Broken, Coder, Job, Until};

/// Bodies up to this size.
pub const LEN_MAX: usize = 4096;

const HASH_BITS: u32 = 11;
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 258;

/// A repetition of three bytes that is further back than this is no shorter than the three.
const FAR: usize = 512;

/// A match of this length is seldom outdone, so fewer earlier places are tried after it.
const GOOD: usize = 8;

/// The effort spent on finding matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Repetitions are looked for so far back.
    pub window: usize,
    /// The number of earlier places of which the longest match is taken.
    pub chain: usize,
    /// A match that is no longer than this is given up for a longer one at the next byte.
    pub lazy: usize,
}

/// The tables, which are kept for the next body.
pub struct Encoder {
    /// By hash of three bytes: the last place where they stood, plus one.
    head: [u16; 1 << HASH_BITS],
    /// For each place, one more than the place before it with the same hash.
    before: [u16; LEN_MAX],
    tokens: Vec<Token>,
    plan: Plan,
}

/// A byte, or a length above the distance that it is to be copied from.
#[derive(Clone, Copy)]
struct Token(u32);

impl Token {
    fn copy(len: usize, distance: usize) -> Token {
        Token((len as u32) << 16 | distance as u32)
    }
}

#[derive(Clone, Copy, Default)]
struct Match {
    len: usize,
    distance: usize,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            head: [0; 1 << HASH_BITS],
            before: [0; LEN_MAX],
            tokens: Vec::with_capacity(LEN_MAX),
            plan: Plan::default(),
        }
    }
}

impl Encoder {
    /// Appends `input`, which is no longer than [`LEN_MAX`], to `out` as a whole gzip stream.
    pub fn gzip(&mut self, input: &[u8], effort: Effort, out: &mut Vec<u8>) {
        const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        debug_assert!(input.len() <= LEN_MAX);
        out.extend_from_slice(&HEADER);
        self.block(input, effort, out);
        out.extend_from_slice(&zlib_rs::crc32::crc32(0, input).to_le_bytes());
        out.extend_from_slice(&(input.len() as u32).to_le_bytes());
    }

    /// The one block, in whichever of the three forms is shortest.
    fn block(&mut self, input: &[u8], effort: Effort, out: &mut Vec<u8>) {
        self.plan.clear();
        self.tokenize(input, effort);
        let dynamic = self.plan.make();
        let fixed = self.plan.bits_with(symbols::fixed());
        // Behind the block's three bits a stored one begins with a whole byte.
        let stored = 5 + 32 + 8 * input.len();
        let mut bits = Bits::new(out);
        if stored <= dynamic.min(fixed) {
            bits.put(0b001, 3);
            bits.finish();
            let len = input.len() as u16;
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&(!len).to_le_bytes());
            out.extend_from_slice(input);
            return;
        }
        if fixed <= dynamic {
            bits.put(0b011, 3);
            write(&self.tokens, symbols::fixed(), &mut bits);
        } else {
            bits.put(0b101, 3);
            self.plan.write_codes(&mut bits);
            write(&self.tokens, self.plan.codes(), &mut bits);
        }
        bits.finish();
    }

    fn tokenize(&mut self, input: &[u8], effort: Effort) {
        self.tokens.clear();
        self.head.fill(0);
        // The match of the byte before, which a longer one may still take the place of.
        let mut held: Option<Match> = None;
        let mut at = 0;
        while at < input.len() {
            let found = self.find(input, at, held.map_or(0, |m| m.len), effort);
            let taken = match held.take() {
                Some(m) if found.len == 0 => Some((m, at - 1 + m.len)),
                before => {
                    if before.is_some() {
                        self.push_byte(input[at - 1]);
                    }
                    match found.len {
                        0 => self.push_byte(input[at]),
                        len if len <= effort.lazy => held = Some(found),
                        _ => {}
                    }
                    (found.len > effort.lazy).then(|| (found, at + found.len))
                }
            };
            at += 1;
            if let Some((m, end)) = taken {
                self.push_copy(m);
                for at in at..end {
                    self.enter(input, at);
                }
                at = end;
            }
        }
        debug_assert!(held.is_none(), "no match reaches beyond the end");
    }

    fn push_byte(&mut self, byte: u8) {
        self.plan.count_literal(byte);
        self.tokens.push(Token(byte.into()));
    }

    fn push_copy(&mut self, m: Match) {
        self.plan.count_copy(m.len, m.distance);
        self.tokens.push(Token::copy(m.len, m.distance));
    }

    /// Notes what stands at a place. What stood there before, by the same hash.
    fn enter(&mut self, input: &[u8], at: usize) -> usize {
        let Some(&[a, b, c]) = input.get(at..).and_then(|rest| rest.first_chunk()) else {
            return 0;
        };
        let key = u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9e37_79b1);
        let slot = &mut self.head[(key >> (32 - HASH_BITS)) as usize];
        let last = std::mem::replace(slot, at as u16 + 1);
        self.before[at] = last;
        last.into()
    }

    /// The longest match for a place, if it is longer than `than`; enters the place.
    fn find(&mut self, input: &[u8], at: usize, than: usize, effort: Effort) -> Match {
        let mut place = self.enter(input, at);
        let rest = &input[at..(at + MATCH_MAX).min(input.len())];
        let mut best = Match { len: than.max(MATCH_MIN - 1), distance: 0 };
        let chain = if than >= GOOD { effort.chain / 4 } else { effort.chain };
        for _ in 0..chain {
            let Some(from) = place.checked_sub(1) else { break };
            let distance = at - from;
            if distance > effort.window || best.len >= rest.len() {
                break;
            }
            // Only one that is longer is of use: its end is looked at first.
            if input[from + best.len] == rest[best.len] {
                let len = common(&input[from..], rest);
                if len > best.len && (len > MATCH_MIN || distance <= FAR) {
                    best = Match { len, distance };
                }
            }
            place = self.before[from].into();
        }
        if best.distance == 0 { Match::default() } else { best }
    }
}

/// The length of the common beginning of both.
fn common(a: &[u8], b: &[u8]) -> usize {
    let (mut len, a) = (0, &a[..a.len().min(b.len())]);
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, _) = b.as_chunks::<8>();
    for (a, b) in a8.iter().zip(b8) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return len + differ.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a_rest.iter().zip(&b[len..]).take_while(|(a, b)| a == b).count()
}

fn write(tokens: &[Token], codes: &Codes, bits: &mut Bits) {
    for Token(token) in tokens {
        let len = (token >> 16) as usize;
        if len == 0 {
            codes.put_literal(*token as usize, bits);
        } else {
            codes.put_copy(len, (token & 0xffff) as usize, bits);
        }
    }
    codes.put_literal(symbols::END, bits);
}

thread_local! {
    static ENCODER: RefCell<Option<Box<Encoder>>> = const { RefCell::new(None) };
}

/// Compresses a body that is said to be small when all of it is there; one that turns out larger,
/// or is to go out in pieces, by the general compressor.
pub struct Small {
    settings: Settings,
    held: Chain,
    general: Option<Compressor>,
    totals: (u64, u64),
    ended: bool,
}

impl Small {
    /// One that has not begun.
    pub fn new(settings: Settings) -> Small {
        Small { settings, held: Chain::new(), general: None, totals: (0, 0), ended: false }
    }

    fn encode(&mut self, out: &mut Chain) {
        let input = self.held.take();
        let len = input.len();
        let gathered: Vec<u8>;
        let bytes = match input.front().and_then(Buf::memory) {
            Some(bytes) if bytes.len() as u64 == len => bytes,
            _ => {
                gathered = input.iter().filter_map(Buf::memory).flatten().copied().collect();
                &gathered
            }
        };
        let out = out.writer_for(bytes.len() + 64);
        let before = out.len();
        ENCODER.with_borrow_mut(|encoder| {
            let encoder = encoder.get_or_insert_with(|| Box::new(Encoder::default()));
            encoder.gzip(bytes, self.settings.effort(), out);
        });
        self.totals = (len, (out.len() - before) as u64);
        self.ended = true;
    }
}

impl Coder for Small {
    fn run(&mut self, Job { input, until, out, limit }: Job<'_>) -> Result<bool, Broken> {
        if let Some(general) = &mut self.general {
            return general.run(Job { input, until, out, limit });
        }
        self.held.append(input);
        let is_small = self.held.len() <= LEN_MAX as u64;
        match until {
            Until::Free if is_small => return Ok(true),
            Until::Ended if is_small => {
                if self.held.iter().any(|buf| buf.memory().is_none()) {
                    return Err(Broken);
                }
                self.encode(out);
                return Ok(true);
            }
            _ => {}
        }
        *input = self.held.take();
        let general = self.general.insert(Compressor::take(self.settings));
        general.run(Job { input, until, out, limit })
    }

    fn ended(&self) -> bool {
        self.general.as_ref().map_or(self.ended, Compressor::ended)
    }

    fn totals(&self) -> (u64, u64) {
        self.general.as_ref().map_or(self.totals, Compressor::totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    use crate::compress::coder::tests::{self, noise};

    const EFFORT: Effort = Effort { window: 1 << 15, chain: 64, lazy: 32 };

    fn gzip(input: &[u8], effort: Effort) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Encoder::default().gzip(input, effort, &mut out);
        out.split_off(6)
    }

    fn unzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn streams_can_be_read() {
        let text = include_bytes!("small.rs");
        let mut inputs: Vec<Vec<u8>> = vec![
            Vec::new(),
            b"a".to_vec(),
            b"abc".to_vec(),
            vec![b'x'; LEN_MAX],
            noise(LEN_MAX),
            (0..=255).cycle().take(LEN_MAX).collect(),
            b"abcabcabcabcabcabcabcab".to_vec(),
        ];
        inputs.extend((0..64).map(|n| text[n * 60..n * 120].to_vec()));
        inputs.push(text[..LEN_MAX].to_vec());
        let lazy = [0, 8, 258];
        for effort in lazy.map(|lazy| Effort { chain: 4 + lazy, lazy, ..EFFORT }) {
            // One encoder for all: nothing of one body is left in the next.
            let mut encoder = Encoder::default();
            for input in &inputs {
                let mut out = Vec::new();
                encoder.gzip(input, effort, &mut out);
                assert!(out.len() <= input.len() + 23, "{}", input.len());
                assert!(unzip(&out) == *input, "{} bytes, {effort:?}", input.len());
            }
        }
    }

    #[test]
    fn it_is_a_coder_like_others() {
        let settings = Settings { level: 5, window_bits: 15, mem_level: 8 };
        tests::streams_can_be_read(
            |_| Box::new(Small::new(settings)),
            super::super::tests::unzip_so_far,
        );
    }

    #[test]
    fn pieces_are_gathered() {
        let settings = Settings { level: 5, window_bits: 15, mem_level: 8 };
        let (mut z, mut out) = (Small::new(settings), Chain::new());
        for piece in [&b"one "[..], b"two "] {
            let done = tests::run(&mut z, &mut tests::chain(&[piece]), (Until::Free, 10), &mut out);
            assert_eq!((done, out.len(), z.ended()), (Ok(true), 0, false));
        }
        assert_eq!(
            tests::run(&mut z, &mut tests::chain(&[b"three"]), (Until::Ended, 10), &mut out),
            Ok(true)
        );
        let out = tests::bytes(&out);
        assert_eq!((unzip(&out), z.totals()), (b"one two three".to_vec(), (13, out.len() as u64)));
    }

    #[test]
    fn nothing_is_copied_from_beyond_the_window() {
        let mut input = noise(300);
        input.extend(noise(300));
        let wide = gzip(&input, EFFORT).len();
        let narrow = gzip(&input, Effort { window: 256, ..EFFORT });
        assert!(wide < 400 && narrow.len() >= 600, "{wide} {}", narrow.len());
        assert_eq!(unzip(&narrow), input);
    }

    /// A code may have no more than 15 bits, however rare a byte is.
    #[test]
    fn codes_are_not_too_long() {
        let (mut a, mut b) = (1, 1);
        let mut input = Vec::new();
        for byte in 0..16u8 {
            input.extend(std::iter::repeat_n(byte, a));
            (a, b) = (b, a + b);
        }
        input.truncate(LEN_MAX);
        // Without repetitions: counts stay what they are.
        let none = Effort { chain: 0, ..EFFORT };
        assert_eq!(unzip(&gzip(&input, none)), input);
    }

    #[test]
    fn it_is_about_as_small_as_what_others_make() {
        for text in [&include_bytes!("small.rs")[..], include_bytes!("mod.rs")] {
            for len in [400, 1000, 2000, 4000] {
                let text = &text[..len];
                let mut z = flate2::read::GzEncoder::new(text, flate2::Compression::new(9));
                let mut theirs = Vec::new();
                z.read_to_end(&mut theirs).unwrap();
                let ours = gzip(text, EFFORT);
                assert_eq!(unzip(&ours), text);
                assert!(ours.len() * 100 <= theirs.len() * 101, "{}/{}", ours.len(), theirs.len());
            }
        }
    }
}
