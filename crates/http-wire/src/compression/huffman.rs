//! The Huffman code (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and
//! longer ones follow shorter ones. So the lengths are the whole table; the rest is computed from
//! them at compile time.
//!
//! Decoding looks at the next eleven bits at a time, which hold two symbols of most texts. Codes
//! that are longer belong to bytes that are rare in fields.

use super::Malformed;

/// Bits of each symbol's code; the last symbol is EOS.
#[rustfmt::skip]
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The symbol that ends a text and never stands in one.
const EOS: usize = 256;

/// The longest code.
const BITS_MAX: usize = 30;

/// The shortest code: a text is at most 8/5 of its encoded form.
const BITS_MIN: usize = 5;

/// Bits that decoding looks at.
const LOOK: usize = 12;

/// Where the codes of each length begin.
struct Canonical {
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
    /// Index in `symbols` of the first symbol of a length.
    start: [u16; BITS_MAX + 2],
    /// The first code of a length.
    code: [u32; BITS_MAX + 2],
}

const CANONICAL: Canonical = canonical();
static LONG: Canonical = CANONICAL;

const fn canonical() -> Canonical {
    let mut c = Canonical { symbols: [0; 257], start: [0; BITS_MAX + 2], code: [0; BITS_MAX + 2] };
    let (mut bits, mut n, mut code) = (1, 0, 0);
    while bits <= BITS_MAX {
        c.start[bits] = n as u16;
        c.code[bits] = code;
        let mut symbol = 0;
        while symbol < BITS.len() {
            if BITS[symbol] as usize == bits {
                c.symbols[n] = symbol as u16;
                n += 1;
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        bits += 1;
    }
    c.start[bits] = n as u16;
    assert!(n == 257 && code == 1 << (BITS_MAX + 1), "the code is complete");
    c
}

/// The symbol whose code begins the left-aligned `window`, and its length.
const fn first_symbol(c: &Canonical, window: u64, from_bits: usize) -> (usize, usize) {
    let mut bits = from_bits;
    while bits < BITS_MAX {
        let nth = (window >> (64 - bits)).wrapping_sub(c.code[bits] as u64);
        if nth < (c.start[bits + 1] - c.start[bits]) as u64 {
            return (c.symbols[c.start[bits] as usize + nth as usize] as usize, bits);
        }
        bits += 1;
    }
    let nth = (window >> (64 - BITS_MAX)) - c.code[BITS_MAX] as u64;
    (c.symbols[c.start[BITS_MAX] as usize + nth as usize] as usize, BITS_MAX)
}

/// The symbols in the next `LOOK` bits: one or two symbols, or none where the code is longer.
#[derive(Clone, Copy)]
struct Step {
    symbols: [u8; 2],
    /// Bits of all of the symbols; 0: none.
    bits: u8,
    /// Bits of the first one, and in the upper half the number of symbols.
    first: u8,
}

static STEPS: [Step; 1 << LOOK] = steps();

const fn steps() -> [Step; 1 << LOOK] {
    let mut steps = [Step { symbols: [0; 2], bits: 0, first: 0 }; 1 << LOOK];
    let mut at = 0;
    while at < steps.len() {
        let window = (at as u64) << (64 - LOOK);
        let (one, bits) = first_symbol(&CANONICAL, window, BITS_MIN);
        if bits <= LOOK {
            let (two, more) = first_symbol(&CANONICAL, window << bits, BITS_MIN);
            let both = bits + more <= LOOK;
            steps[at] = Step {
                symbols: [one as u8, if both { two as u8 } else { 0 }],
                bits: (if both { bits + more } else { bits }) as u8,
                first: bits as u8 | if both { 2 << 4 } else { 1 << 4 },
            };
        }
        at += 1;
    }
    steps
}

/// A symbol's code, and its length in the lowest byte.
static CODES: [u64; 256] = codes();

const fn codes() -> [u64; 256] {
    let mut codes = [0; 256];
    let mut n = 0;
    while n < 257 {
        let symbol = CANONICAL.symbols[n] as usize;
        if symbol != EOS {
            let bits = BITS[symbol] as usize;
            let code = CANONICAL.code[bits] as u64 + n as u64 - CANONICAL.start[bits] as u64;
            codes[symbol] = code << 8 | bits as u64;
        }
        n += 1;
    }
    codes
}

/// Bits that are read but not decoded, left-aligned.
struct Reader<'a> {
    rest: &'a [u8],
    bits: u64,
    /// The number of them; lower bits of `bits` may hold what follows.
    len: usize,
}

impl Reader<'_> {
    /// Holds at least 56 bits afterwards, or all there are.
    #[inline]
    fn fill(&mut self) {
        self.bits |= next_bits(self.rest) >> self.len;
        let bytes = ((63 - self.len) >> 3).min(self.rest.len());
        self.rest = &self.rest[bytes..];
        self.len += bytes * 8;
    }

    /// The bits, and ones behind the last of them: padding is the beginning of EOS.
    #[inline]
    fn window(&self) -> u64 {
        self.bits | u64::MAX >> self.len
    }

    #[inline]
    fn skip(&mut self, bits: usize) {
        self.bits <<= bits;
        self.len -= bits;
    }

    /// Takes a symbol whose code is longer than `LOOK`.
    #[cold]
    fn long(&mut self) -> Result<u8, Malformed> {
        self.fill();
        let (symbol, bits) = first_symbol(&LONG, self.window(), LOOK + 1);
        if symbol == EOS || bits > self.len {
            return Err(Malformed::Huffman);
        }
        self.skip(bits);
        Ok(symbol as u8)
    }
}

/// The first 64 bits of `text`, with zeros behind a shorter one.
#[inline]
fn next_bits(text: &[u8]) -> u64 {
    if let Some(first) = text.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let len = text.len();
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << (64 - 8 * len);
    }
    text.iter().zip([56, 48, 40]).fold(0, |bits, (byte, at)| bits | u64::from(*byte) << at)
}

/// Bytes that `decode` wants for a text whose encoded form has `len`. It stores two at a time, so
/// there is one more than the text can have.
pub(crate) fn room(len: usize) -> usize {
    len * 8 / BITS_MIN + 1
}

/// Decodes `input` into `text`, which has the room for it: the length of the text.
pub(crate) fn decode(input: &[u8], text: &mut [u8]) -> Result<usize, Malformed> {
    let mut at = 0;
    let mut reader = Reader { rest: input, bits: 0, len: 0 };
    loop {
        reader.fill();
        if reader.len < LOOK {
            break;
        }
        // Five steps where no bits are missing.
        for _ in 0..5 {
            if reader.len < LOOK {
                break;
            }
            let step = &STEPS[(reader.bits >> (64 - LOOK)) as usize];
            if step.bits == 0 {
                text[at] = reader.long()?;
                at += 1;
                break;
            }
            text[at..at + 2].copy_from_slice(&step.symbols);
            at += usize::from(step.first >> 4);
            reader.skip(usize::from(step.bits));
        }
    }
    // Two symbols at most are left, and the padding.
    loop {
        let window = reader.window();
        let step = &STEPS[(window >> (64 - LOOK)) as usize];
        let bits = usize::from(step.first & 15);
        if step.bits == 0 || bits > reader.len {
            // Section 5.2 allows seven bits; nginx lets a whole byte pass, and some send it.
            let padding = reader.len <= 8 && window == u64::MAX;
            return if padding { Ok(at) } else { Err(Malformed::Huffman) };
        }
        text[at] = step.symbols[0];
        at += 1;
        reader.skip(bits);
    }
}

/// Bytes of the encoded form of `text`.
#[inline]
pub(crate) fn encoded_len(text: &[u8], map: impl Fn(u8) -> u8) -> usize {
    let bits: usize = text.iter().map(|b| usize::from(BITS[usize::from(map(*b))])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded form of `text`.
#[inline]
pub(crate) fn encode(text: &[u8], map: impl Fn(u8) -> u8, out: &mut Vec<u8>) {
    // Less than 32 bits wait between two symbols, and a code has 30 at most.
    let (mut waiting, mut len) = (0u64, 0);
    for byte in text {
        let code = CODES[usize::from(map(*byte))];
        let bits = code as u8;
        waiting = waiting << bits | code >> 8;
        len += u32::from(bits);
        if len >= 32 {
            len -= 32;
            out.extend_from_slice(&((waiting >> len) as u32).to_be_bytes());
        }
    }
    if len > 0 {
        let padded = waiting << (64 - len) | u64::MAX >> len;
        out.extend_from_slice(&padded.to_be_bytes()[..len.div_ceil(8) as usize]);
    }
}
