//! A map from addresses to values, as the sorted list of the addresses at which the value changes.

/// An address as a number.
pub(super) trait Number: Copy + Ord {
    const ZERO: Self;

    /// The last number that shares the first `bits` bits with this one.
    fn last_of_network(self, bits: u8) -> Self;
    fn next(self) -> Option<Self>;
    /// The first 16 bits.
    fn high(self) -> usize;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            const ZERO: Self = 0;

            fn last_of_network(self, bits: u8) -> Self {
                self | <$type>::MAX.checked_shr(bits.into()).unwrap_or(0)
            }

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn high(self) -> usize {
                (self >> (<$type>::BITS - 16)) as usize
            }
        }
    };
}

number!(u32);
number!(u128);

/// With this many changes or more, the first 16 bits of an address lead to the few that matter.
const INDEX_FROM: usize = 1024;

/// A list of changes.
pub(super) struct Flat<T> {
    /// The address at which each value begins; the first is 0.
    starts: Vec<T>,
    /// The value that begins there.
    values: Vec<u32>,
    /// For long lists: the position at which the addresses with each first 16 bits begin, and the
    /// end.
    index: Vec<u32>,
}

impl<T: Number> Flat<T> {
    /// One value for all addresses.
    pub fn new(value: u32) -> Self {
        Flat { starts: vec![T::ZERO], values: vec![value], index: Vec::new() }
    }

    /// From networks with their numbers of bits and values, each once; 0 is the value outside of
    /// all.
    pub(crate) fn of_networks(mut networks: Vec<(T, u8, u32)>) -> Self {
        networks.sort_unstable();
        let mut flat = Flat::new(0);
        // The networks around the place that was reached, the innermost last: their ends and
        // values.
        let mut around: Vec<(T, u32)> = Vec::new();
        for (start, bits, value) in networks {
            while let Some(&(end, _)) = around.last()
                && end < start
            {
                around.pop();
                flat.leave(end, &around);
            }
            flat.change(start, value);
            around.push((start.last_of_network(bits), value));
        }
        while let Some((end, _)) = around.pop() {
            flat.leave(end, &around);
        }
        flat.finish();
        flat
    }

    /// Behind `end`, the network around counts again.
    fn leave(&mut self, end: T, around: &[(T, u32)]) {
        if let Some(next) = end.next() {
            self.change(next, around.last().map_or(0, |(_, value)| *value));
        }
    }

    /// From `start` on it is `value`. Called in order of `start`.
    pub fn change(&mut self, start: T, value: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    /// The end of building.
    pub fn finish(&mut self) {
        self.starts.shrink_to_fit();
        self.values.shrink_to_fit();
        if self.starts.len() < INDEX_FROM {
            return;
        }
        let mut at = 0;
        self.index = (0..0x1_0000)
            .map(|high| {
                at += self.starts[at..].iter().take_while(|s| s.high() < high).count();
                at as u32
            })
            .collect();
        self.index.push(self.starts.len() as u32);
    }

    /// The value for an address.
    pub fn find(&self, address: T) -> u32 {
        let high = address.high();
        let (from, to) = match (self.index.get(high), self.index.get(high + 1)) {
            (Some(from), Some(to)) => (*from as usize, *to as usize),
            _ => (0, self.starts.len()),
        };
        let after = from + self.starts[from..to].partition_point(|start| *start <= address);
        // The first change is at 0, so one lies before any address.
        self.values[after.max(1) - 1]
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.starts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_at_both_ends() {
        let flat = Flat::<u32>::of_networks(vec![
            (0, 8, 1),
            (0, 32, 2),
            (0xff00_0000, 8, 3),
            (0xffff_ffff, 32, 4),
        ]);
        for (address, want) in [
            (0, 2),
            (1, 1),
            (0x00ff_ffff, 1),
            (0x0100_0000, 0),
            (0xfeff_ffff, 0),
            (0xff00_0000, 3),
            (0xffff_fffe, 3),
            (0xffff_ffff, 4),
        ] {
            assert_eq!(flat.find(address), want, "{address:x}");
        }
    }

    #[test]
    fn everything_is_one_network() {
        let flat = Flat::<u128>::of_networks(vec![(0, 0, 5), (1, 128, 6)]);
        assert_eq!((flat.find(0), flat.find(1), flat.find(2), flat.find(u128::MAX)), (5, 6, 5, 5));
        assert_eq!(Flat::<u32>::of_networks(Vec::new()).find(7), 0);
    }

    #[test]
    fn a_long_list_is_indexed_and_finds_the_same() {
        let networks: Vec<_> = (0..5000u32).map(|n| (n * 850_009, 32, n % 3 + 1)).collect();
        let long = Flat::of_networks(networks.clone());
        assert!(!long.index.is_empty());
        let short = Flat { index: Vec::new(), ..Flat::of_networks(networks) };
        for n in 0..60_000u32 {
            let address = n.wrapping_mul(71_583);
            assert_eq!(long.find(address), short.find(address), "{address:x}");
        }
        for n in (0..5000u32).step_by(7) {
            assert_eq!(long.find(n * 850_009), n % 3 + 1);
        }
    }
}
