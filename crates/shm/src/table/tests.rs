use std::collections::HashMap;

use super::*;

impl Record for u64 {
    const WORDS: usize = 1;

    fn to_words(self) -> [u64; 4] {
        [self, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> u64 {
        words[0]
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Pair(u64, u64);

impl Record for Pair {
    const WORDS: usize = 2;

    fn to_words(self) -> [u64; 4] {
        [self.0, self.1, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Pair {
        Pair(words[0], words[1])
    }
}

const PAGE: usize = 4096;

#[test]
fn cells_fill_a_line() {
    assert_eq!(size_of::<Cell>(), CACHE_LINE);
    assert_eq!(size_of::<Head>(), CACHE_LINE);
    let table = Table::<Pair>::new(1 << 20).unwrap();
    assert!(table.capacity() > 15_000, "{}", table.capacity());
    assert_eq!(table.bytes(), 1 << 20);
}

#[test]
fn keys_of_all_lengths() {
    let table = Table::<Pair>::new(64 * PAGE).unwrap();
    let keys: Vec<Vec<u8>> = (0..200).map(|n| (0..n).map(|b| b as u8 ^ 0x5a).collect()).collect();
    let mut t = table.lock();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(t.find(table.key(key)), None);
        t.insert(table.key(key), Pair(n as u64, 7)).unwrap();
    }
    assert_eq!(t.len(), keys.len());
    for (n, key) in keys.iter().enumerate() {
        let entry = t.find(table.key(key)).unwrap();
        assert_eq!(t.value(entry), Some(Pair(n as u64, 7)));
    }
    // Keys that differ only at their end, in the entry's own cell and behind it.
    for len in [1, 8, 24, 25, 64, 65, 150] {
        let mut other = keys[len].clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(t.find(table.key(&other)), None, "{len}");
    }
}

#[test]
fn the_longest_key() {
    let table = Table::<u64>::new(64 * PAGE).unwrap();
    let key = vec![9; KEY_MAX];
    let mut t = table.lock();
    let entry = t.insert(table.key(&key), 5).unwrap();
    assert_eq!(t.find(table.key(&key)), Some(entry));
    let room = t.room();
    t.remove(entry);
    assert_eq!(t.room(), room + 1 + Table::<u64>::cells_more(KEY_MAX));
    assert_eq!(t.find(table.key(&key)), None);
}

#[test]
fn full_and_with_room_again() {
    let table = Table::<u64>::new(PAGE).unwrap();
    let mut t = table.lock();
    let mut count = 0u64;
    while t.insert(table.key(&count.to_le_bytes()), count).is_ok() {
        count += 1;
    }
    assert_eq!(count as usize, table.capacity());
    assert_eq!(t.insert(table.key(b"x"), 0), Err(Full));
    let oldest = t.oldest().unwrap();
    assert_eq!(t.value(oldest), Some(0));
    t.remove(oldest);
    // One cell is free: a key that needs two finds no room, and takes none.
    assert_eq!(t.insert(table.key(&[1; 33]), 0), Err(Full));
    t.insert(table.key(b"x"), 99).unwrap();
    assert_eq!(t.insert(table.key(b"y"), 0), Err(Full));
    assert_eq!(t.len() as u64, count);
}

#[test]
fn order_of_use() {
    let table = Table::<u64>::new(8 * PAGE).unwrap();
    let mut t = table.lock();
    let entries: Vec<_> =
        (0..4u64).map(|n| t.insert(table.key(&n.to_le_bytes()), n).unwrap()).collect();
    t.touch(entries[0]);
    t.touch(entries[2]);
    t.touch(entries[2]);
    let mut order = Vec::new();
    let mut at = t.oldest();
    while let Some(entry) = at {
        order.extend(t.value(entry));
        at = t.newer(entry);
    }
    assert_eq!(order, [1, 3, 0, 2]);
}

#[test]
fn names_of_entries_that_are_gone() {
    let table = Table::<u64>::new(8 * PAGE).unwrap();
    let mut t = table.lock();
    let gone = t.insert(table.key(b"a"), 1).unwrap();
    t.remove(gone);
    let other = t.insert(table.key(b"b"), 2).unwrap();
    assert_eq!(gone.cell, other.cell);
    assert_eq!(t.value(gone), None);
    t.set(gone, 9);
    t.touch(gone);
    t.remove(gone);
    assert_eq!(t.value(other), Some(2));
    assert_eq!(t.len(), 1);
}

/// A generator of numbers that are no better than the test needs.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn key_of(n: u64) -> Vec<u8> {
    vec![n as u8; 1 + (n as usize * 13) % 130]
}

#[test]
fn agrees_with_a_map() {
    let table = Table::<u64>::new(8 * PAGE).unwrap();
    let mut map: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut numbers = Numbers(7);
    for step in 0..20_000 {
        let key = key_of(numbers.below(200));
        let mut t = table.lock();
        let found = t.find(table.key(&key));
        assert_eq!(found.and_then(|e| t.value(e)), map.get(&key).copied());
        match (found, numbers.below(3)) {
            (None, _) => {
                while t.insert(table.key(&key), step).is_err() {
                    let oldest = t.oldest().unwrap();
                    let n = t.value(oldest).unwrap();
                    map.retain(|_, v| *v != n);
                    t.remove(oldest);
                }
                map.insert(key, step);
            }
            (Some(entry), 0) => {
                t.remove(entry);
                map.remove(&key);
            }
            (Some(entry), _) => t.touch(entry),
        }
        assert_eq!(t.len(), map.len());
    }
}

/// Breaks the table's chains in every way that a death in the middle of a change could, and more.
#[test]
fn is_put_in_order_after_a_death() {
    let table = Table::<u64>::new(8 * PAGE).unwrap();
    let mut numbers = Numbers(3);
    for round in 0..200 {
        let mut t = table.lock();
        for n in 0..60 {
            let key = key_of(n);
            if t.find(table.key(&key)).is_none() {
                let _ = t.insert(table.key(&key), n);
            }
        }
        let before = t.len();
        let head = table.head();
        for _ in 0..5 {
            let number = table.first + numbers.below(get(&head.fresh).into()) as u32;
            let cell = table.cell(number).unwrap();
            let to = numbers.below(2 * u64::from(table.cells)) as u32;
            match numbers.below(6) {
                0 => set(&cell.next, to),
                1 => set(&cell.newer, to),
                2 => set(&cell.older, to),
                3 => set(table.bucket(to), number),
                4 => set(&head.free, to),
                _ => set(&head.newest, to),
            }
        }
        if round % 4 == 0 {
            let number = table.first + numbers.below(get(&head.fresh).into()) as u32;
            set(&table.cell(number).unwrap().more, numbers.below(500) as u32);
        }
        t.whole = false;
        drop(t);
        let t = table.lock();
        if round % 4 != 0 {
            assert_eq!(t.len(), before);
        }
        let mut entries = 0;
        let mut at = t.oldest();
        while let Some(entry) = at {
            entries += 1;
            at = t.newer(entry);
        }
        assert_eq!(entries, t.len());
        let cells: u32 = (0..60)
            .map(key_of)
            .filter(|key| t.find(table.key(key)).is_some())
            .map(|key| 1 + Table::<u64>::cells_more(key.len()))
            .sum();
        if round % 4 != 0 {
            assert_eq!(cells + t.room(), table.cells);
            for n in 0..60 {
                let found = t.find(table.key(&key_of(n)));
                assert_eq!(found.and_then(|e| t.value(e)), Some(n), "round {round}");
            }
        }
    }
}

#[test]
fn a_table_of_the_least_size_works() {
    let table = Table::<u64>::new(0).unwrap();
    let mut t = table.lock();
    let entry = t.insert(table.key(b""), 1).unwrap();
    assert_eq!(t.find(table.key(b"")), Some(entry));
}

/// The order of use survives a death: otherwise the most active clients would be evicted.
#[test]
fn the_order_of_use_outlives_a_death() {
    let table = Table::<u64>::new(8 * PAGE).unwrap();
    let order = |t: &Locked<'_, u64>| {
        let mut found = Vec::new();
        let mut at = t.oldest();
        while let Some(entry) = at {
            found.push(t.value(entry).unwrap());
            at = t.newer(entry);
        }
        found
    };
    let mut t = table.lock();
    for n in 0..40 {
        t.insert(table.key(&key_of(n)), n).unwrap();
    }
    for n in [7, 3, 30] {
        let entry = t.find(table.key(&key_of(n))).unwrap();
        t.touch(entry);
    }
    let want = order(&t);
    assert_eq!(want[37..], [7, 3, 30]);
    drop(t);
    for n in [0, 3, 7, 20, 30, 39] {
        let mut t = table.lock();
        let entry = t.find(table.key(&key_of(n))).unwrap();
        let cell = table.cell(entry.cell).unwrap();
        // One direction, then the other: as an entry is unlinked.
        set(if n % 2 == 0 { &cell.older } else { &cell.newer }, NONE);
        t.whole = false;
        drop(t);
        assert_eq!(order(&table.lock()), want);
    }
    // Killed while it moved an entry to the newest end: that one is in no chain, and in use.
    let mut t = table.lock();
    let entry = t.find(table.key(&key_of(5))).unwrap();
    let cell = table.cell(entry.cell).unwrap();
    let (newer, older) = (get(&cell.newer), get(&cell.older));
    set(&table.cell(newer).unwrap().older, older);
    set(&table.cell(older).unwrap().newer, newer);
    t.whole = false;
    drop(t);
    assert_eq!(order(&table.lock()).last(), Some(&5));
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Expiry(u64);

impl Record for Expiry {
    const WORDS: usize = 3;
    const KEY_LEN: usize = 16;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Expiry {
        Expiry(words[0])
    }
}

/// A key of 16 bytes with `len` bytes behind it.
fn with_payload(n: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![n; 16];
    bytes.extend((0..len).map(|b| b as u8 | 1));
    bytes
}

#[test]
fn payloads_are_kept_and_not_compared() {
    let table = Table::<Expiry>::new(64 * PAGE).unwrap();
    let mut t = table.lock();
    for len in [0, 1, 39, 40, 41, 200] {
        let bytes = with_payload(len as u8, len);
        t.insert(table.key(&bytes), Expiry(len as u64)).unwrap();
    }
    t.repair();
    for len in [0, 1, 39, 40, 41, 200] {
        let key = [len as u8; 16];
        let entry = t.find(table.key(&key)).unwrap();
        assert_eq!(t.value(entry), Some(Expiry(len as u64)));
        assert_eq!(t.payload(entry).unwrap(), with_payload(len as u8, len)[16..]);
        assert_eq!(t.key_of::<16>(entry), Some(key));
        assert_eq!(t.key_of::<17>(entry), None);
        // With another payload behind it, it is still the same key.
        assert_eq!(t.find(table.key(&with_payload(len as u8, 7))), Some(entry));
        assert_eq!(t.find(table.key(&key[..15])), None);
    }
    assert_eq!(t.len(), 6);
}

#[test]
fn payloads_are_wiped() {
    let table = Table::<Expiry>::new(PAGE).unwrap();
    let mut t = table.lock();
    let (room, bytes) = (t.room(), with_payload(3, 400));
    let entry = t.insert(table.key(&bytes), Expiry(9)).unwrap();
    t.remove(entry);
    assert_eq!(t.payload(entry), None);
    assert_eq!(t.room(), room);
    let cells = (table.first..table.first + t.used()).filter_map(|n| table.cell(n));
    assert!(cells.flat_map(|cell| &cell.data).all(|word| word.load(Ordering::Relaxed) == 0));
}

/// A record whose keys are hashes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Hashed(u64);

impl Record for Hashed {
    const WORDS: usize = 1;
    const KEY_LEN: usize = 16;
    const KEY_IS_HASH: bool = true;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Hashed {
        Hashed(words[0])
    }
}

#[test]
fn keys_that_are_hashes_are_told_apart_by_all_their_bytes() {
    let table = Table::<Hashed>::new(64 * PAGE).unwrap();
    let mut t = table.lock();
    // The table sees the first eight bytes alone: all of these are in one bucket.
    let key = |n: u64| [7_u64.to_le_bytes(), n.to_le_bytes()].concat();
    for n in 0..20 {
        t.insert(table.key(&key(n)), Hashed(n)).unwrap();
    }
    for n in 0..20 {
        let entry = t.find(table.key(&key(n))).unwrap();
        assert_eq!(t.value(entry), Some(Hashed(n)));
    }
    assert!(t.find(table.key(&key(20))).is_none());
}
