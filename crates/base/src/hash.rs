//! Tables by hash for what every request looks up: a fast hash with a secret of the process.
//!
//! It is not meant for names that clients make up and that are then kept: who measures long enough
//! may come to know which of those collide. The tables of the standard library are for these. Here
//! are names of what exists anyway (files, servers), and hashes that are one-way already.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// A table whose keys are hashed fast.
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

/// A number that the system drew.
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
