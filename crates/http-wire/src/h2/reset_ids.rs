//! The streams that we have reset: what was under way to them then is passed over for a while (RFC
//! 9113, section 5.1), and is no fault of the client's.

/// The streams that are looked after: the newest one that was reset, and those before it.
const STREAMS: u32 = 1024;

const WORDS: usize = STREAMS as usize / 64;

/// Which of the last streams we have reset.
#[derive(Default)]
pub struct ResetIds {
    /// A bit for each stream, by its number.
    bits: [u64; WORDS],
    newest: u32,
}

/// The bit of a stream, and the word with it.
fn place(id: u32) -> (usize, u64) {
    let n = (id / 2) as usize % STREAMS as usize;
    (n / 64, 1 << (n % 64))
}

impl ResetIds {
    /// Streams that another process has told of by [`ResetIds::newest`] and [`ResetIds::bits`];
    /// bits that are not all there are of no use.
    pub fn resumed(newest: u32, bits: &[u8]) -> ResetIds {
        let (words, _) = bits.as_chunks::<8>();
        match <[[u8; 8]; WORDS]>::try_from(words) {
            Ok(words) => ResetIds { bits: words.map(u64::from_be_bytes), newest },
            Err(_) => ResetIds::default(),
        }
    }

    /// The newest stream that was reset; 0 if none was.
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// A bit for each stream.
    pub fn bits(&self) -> Vec<u8> {
        self.bits.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn covers(&self, id: u32) -> bool {
        self.newest.checked_sub(id).is_some_and(|age| age / 2 < STREAMS)
    }

    /// A stream is reset. One that is too old is forgotten at once.
    pub fn insert(&mut self, id: u32) {
        if let Some(ahead) = id.checked_sub(self.newest) {
            // The streams between take the places of the oldest ones.
            for n in 0..(ahead / 2).min(STREAMS) {
                let (word, bit) = place(id - 2 * n);
                self.bits[word] &= !bit;
            }
            self.newest = id;
        }
        if self.covers(id) {
            let (word, bit) = place(id);
            self.bits[word] |= bit;
        }
    }

    /// Whether we have reset a stream, as far as that is known.
    pub fn contains(&self, id: u32) -> bool {
        let (word, bit) = place(id);
        self.covers(id) && self.bits[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_streams_are_known() {
        let mut ids = ResetIds::default();
        assert!(!ids.contains(0) && !ids.contains(1));
        for id in [1, 5, 7, 3, 127, 129] {
            ids.insert(id);
        }
        let all = || (1..4_000).step_by(2);
        let known = |ids: &ResetIds| all().filter(|id| ids.contains(*id)).collect::<Vec<_>>();
        assert_eq!(known(&ids), [1, 3, 5, 7, 127, 129]);
        // The bits of old streams are those of new ones.
        ids.insert(2_051);
        assert_eq!(known(&ids), [5, 7, 127, 129, 2_051]);
        ids.insert(3);
        assert_eq!(known(&ids).len(), 5, "it is too old");
        ids.insert(2_175);
        assert_eq!(known(&ids), [129, 2_051, 2_175]);
        ids.insert(u32::MAX / 2);
        assert!(known(&ids).is_empty() && ids.contains(u32::MAX / 2));
        (0..2_000).for_each(|n| ids.insert(2 * n + 1));
        assert!(known(&ids).is_empty());
    }

    #[test]
    fn they_are_the_same_in_another_process() {
        let mut ids = ResetIds::default();
        [1, 5, 2_051, 2_047].into_iter().for_each(|id| ids.insert(id));
        let other = ResetIds::resumed(ids.newest(), &ids.bits());
        assert!((1..4_000).step_by(2).all(|id| ids.contains(id) == other.contains(id)));
        assert!(other.contains(2_047) && !other.contains(3));
        let none = ResetIds::resumed(5, b"short");
        assert_eq!(none.newest(), 0);
    }

    #[test]
    fn all_streams_of_a_connection_can_be_reset_at_once() {
        let mut ids = ResetIds::default();
        (0..5_000).for_each(|n| ids.insert(2 * n + 1));
        assert_eq!((0..5_000).filter(|n| ids.contains(2 * n + 1)).count(), STREAMS as usize);
    }
}
