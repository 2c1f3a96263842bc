//! Hash tables for the look-ups of every request: a fast hash with a secret of the process.
//!
//! Not for names that clients choose and the server keeps: a client that measures long enough can
//! find names that collide. The tables of the standard library are for those. Here the keys are
//! names of existing things (files, servers) or values that are one-way hashes already.
//! [`stable`] is for values that processes compare.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// A hash table with a fast hash.
pub type Table<K, V> = HashMap<K, V, Fast>;

/// The hash of a [`Table`].
#[derive(Clone, Debug)]
pub struct Fast(SeedableRandomState);

impl Default for Fast {
    fn default() -> Fast {
        static SECRET: OnceLock<SharedSeed> = OnceLock::new();
        let secret = SECRET.get_or_init(|| SharedSeed::from_u64(random()));
        Fast(SeedableRandomState::with_seed(random(), secret))
    }
}

impl BuildHasher for Fast {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

/// A hash without a secret, the same in all processes of a binary. Another binary may have another
/// one, which has to be harmless.
pub fn stable(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// A random number of the system's.
fn random() -> u64 {
    std::hash::RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_hashes_in_its_own_way() {
        let (mut a, mut b) = (Table::default(), Table::default());
        a.insert(&b"name"[..], 1);
        b.insert(&b"name"[..], 2);
        assert_eq!((a.get(&b"name"[..]), b.get(&b"name"[..])), (Some(&1), Some(&2)));
        assert_ne!(a.hasher().hash_one(b"name"), b.hasher().hash_one(b"name"));
        let copy = a.clone();
        assert_eq!(a.hasher().hash_one(b"name"), copy.hasher().hash_one(b"name"));
    }
}
