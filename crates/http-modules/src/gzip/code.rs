//! Huffman codes for one block: how long each symbol's is, and how the block says so.

use super::symbols::{self, Bits, DISTANCES, LITERALS};

/// Symbols of the code that lengths of codes are written in.
const LENGTHS: usize = 19;
/// In this order their own lengths are written (RFC 1951, section 3.2.7).
const ORDER: [usize; LENGTHS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// No code is longer, but those for lengths of codes, which have 7 bits at most.
const BITS_MAX: usize = 15;

/// The codes of both alphabets.
pub struct Codes {
    /// The length of each symbol's code in bits; 0 for one that does not occur.
    pub literal_bits: [u8; LITERALS + 2],
    /// The same of distances.
    pub distance_bits: [u8; DISTANCES],
    literals: [u16; LITERALS + 2],
    distances: [u16; DISTANCES],
}

impl Default for Codes {
    fn default() -> Codes {
        Codes {
            literal_bits: [0; LITERALS + 2],
            distance_bits: [0; DISTANCES],
            literals: [0; LITERALS + 2],
            distances: [0; DISTANCES],
        }
    }
}

impl Codes {
    /// Numbers the codes by their lengths.
    pub fn number(&mut self) {
        number(&self.literal_bits, &mut self.literals);
        number(&self.distance_bits, &mut self.distances);
    }

    /// Writes a literal, or the end of the block.
    #[inline]
    pub(crate) fn put_literal(&self, symbol: usize, bits: &mut Bits) {
        bits.put(self.literals[symbol].into(), self.literal_bits[symbol].into());
    }

    /// Writes that `len` bytes are to be copied from `distance` before.
    #[inline]
    pub(crate) fn put_copy(&self, len: usize, distance: usize, bits: &mut Bits) {
        let len = symbols::of_length(len);
        let code_bits = u32::from(self.literal_bits[len.symbol]);
        let code = u32::from(self.literals[len.symbol]);
        bits.put(code | len.extra << code_bits, code_bits + len.extra_bits);
        let distance = symbols::of_distance(distance);
        let code_bits = u32::from(self.distance_bits[distance.symbol]);
        let code = u32::from(self.distances[distance.symbol]);
        bits.put(code | distance.extra << code_bits, code_bits + distance.extra_bits);
    }
}

/// Gives out codes (section 3.2.2), the highest bit of each first.
fn number(bits: &[u8], codes: &mut [u16]) {
    let mut next = [0u16; BITS_MAX + 2];
    for &len in bits {
        next[usize::from(len) + 1] += u16::from(len > 0);
    }
    let mut code = 0u16;
    for next in &mut next {
        code = (code + *next) << 1;
        *next = code;
    }
    for (&len, to) in bits.iter().zip(codes) {
        if len > 0 {
            let next = &mut next[usize::from(len)];
            *to = next.reverse_bits() >> (16 - len);
            *next += 1;
        }
    }
}

/// Counts a block's symbols, and gives them codes.
#[derive(Default)]
pub struct Plan {
    counts: Counts,
    codes: Codes,
    /// The description of the codes at the block's head.
    heading: Heading,
    tree: Tree,
}

struct Counts {
    literals: [u16; LITERALS],
    distances: [u16; DISTANCES],
    /// Bits that go with symbols.
    extra: u32,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { literals: [0; LITERALS], distances: [0; DISTANCES], extra: 0 }
    }
}

impl Plan {
    /// For the next block.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.counts.literals[symbols::END] = 1;
    }

    /// A byte as it is.
    #[inline]
    pub(crate) fn count_literal(&mut self, byte: u8) {
        self.counts.literals[usize::from(byte)] += 1;
    }

    /// Bytes that are copied.
    #[inline]
    pub(crate) fn count_copy(&mut self, len: usize, distance: usize) {
        let (len, distance) = (symbols::of_length(len), symbols::of_distance(distance));
        self.counts.literals[len.symbol] += 1;
        self.counts.distances[distance.symbol] += 1;
        self.counts.extra += len.extra_bits + distance.extra_bits;
    }

    /// Gives all symbols that were counted codes. How many bits the block has then.
    pub fn make(&mut self) -> usize {
        let Plan { counts, codes, heading, tree } = self;
        tree.lengths(&counts.literals, BITS_MAX, &mut codes.literal_bits[..LITERALS]);
        tree.lengths(&counts.distances, BITS_MAX, &mut codes.distance_bits);
        codes.number();
        let head = heading.make(&codes.literal_bits[..LITERALS], &codes.distance_bits, tree);
        head + self.bits_with(&self.codes)
    }

    /// The length in bits of the counted symbols, with their extra bits, in these codes.
    pub(crate) fn bits_with(&self, codes: &Codes) -> usize {
        let bits = |counts: &[u16], bits: &[u8]| -> u32 {
            counts.iter().zip(bits).map(|(n, bits)| u32::from(*n) * u32::from(*bits)).sum()
        };
        let literals = bits(&self.counts.literals, &codes.literal_bits);
        let distances = bits(&self.counts.distances, &codes.distance_bits);
        (3 + literals + distances + self.counts.extra) as usize
    }

    /// Writes which codes the block has.
    pub(crate) fn write_codes(&self, bits: &mut Bits) {
        self.heading.write(bits);
    }

    /// The codes that [`Plan::make`] made.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }
}

/// The lengths of a block's codes, themselves coded (section 3.2.7).
#[derive(Default)]
struct Heading {
    literals: usize,
    distances: usize,
    lengths: usize,
    bits: [u8; LENGTHS],
    codes: [u16; LENGTHS],
    runs: Vec<Run>,
}

/// A length, or a symbol for a run of equal ones with how long it is.
#[derive(Clone, Copy)]
struct Run {
    symbol: u8,
    extra: u8,
}

impl Run {
    fn extra_bits(self) -> u32 {
        match self.symbol {
            16 => 2,
            17 => 3,
            18 => 7,
            _ => 0,
        }
    }
}

impl Heading {
    /// Makes the description, and gives its length in bits.
    fn make(&mut self, literal_bits: &[u8], distance_bits: &[u8], tree: &mut Tree) -> usize {
        let used = |bits: &[u8]| bits.iter().rposition(|b| *b > 0).map_or(0, |last| last + 1);
        self.literals = used(literal_bits).max(257);
        self.distances = used(distance_bits).max(1);
        let mut all = [0; LITERALS + DISTANCES];
        all[..self.literals].copy_from_slice(&literal_bits[..self.literals]);
        all[self.literals..][..self.distances].copy_from_slice(&distance_bits[..self.distances]);
        self.runs.clear();
        let mut rest = &all[..self.literals + self.distances];
        while let Some(&len) = rest.first() {
            let same = rest.iter().take_while(|l| **l == len).count();
            self.run(len, same);
            rest = &rest[same..];
        }
        let mut counts = [0; LENGTHS];
        self.runs.iter().for_each(|run| counts[usize::from(run.symbol)] += 1);
        tree.lengths(&counts, 7, &mut self.bits);
        number(&self.bits, &mut self.codes);
        let last = ORDER.iter().rposition(|symbol| self.bits[*symbol] > 0).unwrap_or(0);
        self.lengths = (last + 1).max(4);
        let runs = self.runs.iter();
        let runs =
            runs.map(|r| usize::from(self.bits[usize::from(r.symbol)]) + r.extra_bits() as usize);
        14 + 3 * self.lengths + runs.sum::<usize>()
    }

    fn run(&mut self, len: u8, mut count: usize) {
        if len > 0 {
            // A run repeats what stands before it.
            self.runs.push(Run { symbol: len, extra: 0 });
            count -= 1;
        }
        let (symbol, most) = if len > 0 { (16, 6) } else { (18, 138) };
        while count >= 3 {
            let part = count.min(most);
            let run = match part {
                3..=10 if symbol == 18 => Run { symbol: 17, extra: part as u8 - 3 },
                _ if symbol == 18 => Run { symbol: 18, extra: (part - 11) as u8 },
                _ => Run { symbol, extra: part as u8 - 3 },
            };
            self.runs.push(run);
            count -= part;
        }
        self.runs.extend(std::iter::repeat_n(Run { symbol: len, extra: 0 }, count));
    }

    fn write(&self, bits: &mut Bits) {
        bits.put(self.literals as u32 - 257, 5);
        bits.put(self.distances as u32 - 1, 5);
        bits.put(self.lengths as u32 - 4, 4);
        for symbol in &ORDER[..self.lengths] {
            bits.put(self.bits[*symbol].into(), 3);
        }
        for run in &self.runs {
            let symbol = usize::from(run.symbol);
            bits.put(self.codes[symbol].into(), self.bits[symbol].into());
            bits.put(run.extra.into(), run.extra_bits());
        }
    }
}

/// Room for the making of a code.
#[derive(Default)]
struct Tree {
    /// Count above symbol.
    leaves: Vec<u32>,
    /// Weights of nodes: those of the leaves first, by weight.
    weights: Vec<u32>,
    /// The node above each.
    above: Vec<u16>,
}

impl Tree {
    /// The lengths of a code for symbols that occur so often, none above `max`.
    fn lengths(&mut self, counts: &[u16], max: usize, bits: &mut [u8]) {
        bits.fill(0);
        self.leaves.clear();
        for (symbol, &count) in counts.iter().enumerate() {
            if count > 0 {
                self.leaves.push(u32::from(count) << 16 | symbol as u32);
            }
        }
        // Not all decoders take a code of one symbol, or none.
        let mut unused = (0u32..).filter(|symbol| counts[*symbol as usize] == 0);
        while self.leaves.len() < 2 {
            let Some(symbol) = unused.next() else { return };
            self.leaves.push(1 << 16 | symbol);
        }
        self.leaves.sort_unstable();
        let mut by_length = self.by_length(max);
        shorten(&mut by_length, max);
        let lengths = (1..=max).flat_map(|len| std::iter::repeat_n(len, by_length[len].into()));
        // The most frequent get the shortest.
        for (leaf, len) in self.leaves.iter().rev().zip(lengths) {
            bits[(leaf & 0xffff) as usize] = len as u8;
        }
    }

    /// The number of codes of each length in Huffman's tree; longer ones than `max` count as `max`.
    fn by_length(&mut self, max: usize) -> [u16; BITS_MAX + 1] {
        let Tree { leaves, weights, above } = self;
        let count = leaves.len();
        let nodes = 2 * count - 1;
        weights.clear();
        weights.extend(leaves.iter().map(|leaf| leaf >> 16));
        above.clear();
        above.resize(nodes, 0);
        // Nodes are made in the order of their weights: the lightest is the next leaf or the next
        // node.
        let (mut leaf, mut node) = (0, count);
        for new in count..nodes {
            let mut sum = 0;
            for _ in 0..2 {
                let takes_leaf = leaf < count && (node >= new || weights[leaf] <= weights[node]);
                let next = if takes_leaf { &mut leaf } else { &mut node };
                sum += weights[*next];
                above[*next] = new as u16;
                *next += 1;
            }
            weights.push(sum);
        }
        // From the root down, with depths in place of the nodes above.
        let mut by_length = [0; BITS_MAX + 1];
        above[nodes - 1] = 0;
        for at in (0..nodes - 1).rev() {
            above[at] = above[usize::from(above[at])] + 1;
            if at < count {
                by_length[usize::from(above[at]).min(max)] += 1;
            }
        }
        by_length
    }
}

/// Makes lengths a code again, of which some were cut to `max`: for each place too many, the
/// longest code below `max` becomes one bit longer, and shares its place with one of those.
fn shorten(by_length: &mut [u16; BITS_MAX + 1], max: usize) {
    let places = |by_length: &[u16; BITS_MAX + 1]| -> u32 {
        (1..=max).map(|len| u32::from(by_length[len]) << (max - len)).sum()
    };
    for _ in 1 << max..places(by_length) {
        let Some(len) = (1..max).rev().find(|len| by_length[*len] > 0) else { return };
        by_length[len] -= 1;
        by_length[len + 1] += 2;
        by_length[max] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(counts: &[u16], max: usize) -> Vec<u8> {
        let mut bits = vec![0; counts.len()];
        Tree::default().lengths(counts, max, &mut bits);
        bits
    }

    #[test]
    fn lengths_of_codes() {
        assert_eq!(lengths(&[5, 0, 1, 1, 2], 15), [1, 0, 3, 3, 2]);
        assert_eq!(lengths(&[1, 1, 1, 1], 15), [2; 4]);
        assert_eq!(lengths(&[0, 0, 7, 0], 15), [1, 0, 1, 0]);
        assert_eq!(lengths(&[0, 0, 0], 15), [1, 1, 0]);
    }

    #[test]
    fn no_code_is_longer_than_it_may_be() {
        let fibonacci = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597];
        for max in [5, 6, 7, 15] {
            let lengths = lengths(&fibonacci, max);
            assert!(lengths.iter().all(|len| (1..=max as u8).contains(len)), "{lengths:?}");
            let places: u32 = lengths.iter().map(|len| 1 << (max as u8 - len)).sum();
            assert_eq!(places, 1 << max, "{lengths:?}");
        }
    }

    /// The example of the RFC's section 3.2.2.
    #[test]
    fn codes_are_numbered() {
        let mut codes = [0; 8];
        number(&[3, 3, 3, 3, 3, 2, 4, 4], &mut codes);
        let want: [u16; 8] = [0b010, 0b110, 0b001, 0b101, 0b011, 0b00, 0b0111, 0b1111];
        assert_eq!(codes, want);
    }

    #[test]
    fn runs_of_lengths() {
        let runs = |len, count| {
            let mut heading = Heading::default();
            heading.run(len, count);
            heading.runs.iter().map(|r| (r.symbol, r.extra)).collect::<Vec<_>>()
        };
        assert_eq!(runs(0, 2), [(0, 0); 2]);
        assert_eq!(runs(0, 10), [(17, 7)]);
        assert_eq!(runs(0, 140), [(18, 127), (0, 0), (0, 0)]);
        assert_eq!(runs(9, 3), [(9, 0); 3]);
        assert_eq!(runs(9, 8), [(9, 0), (16, 3), (9, 0)]);
        assert_eq!(runs(9, 10), [(9, 0), (16, 3), (16, 0)]);
    }
}
