//! Identifiers of requests, which no other request has.

use std::cell::RefCell;
use std::hash::Hasher;
use std::io::Read;

/// A source of identifiers: a counter hashed under a random key, which the first use in a process
/// draws, so that workers of one master differ.
struct Ids {
    key: [u8; 16],
    count: u64,
}

impl Ids {
    fn new() -> Ids {
        let mut key = [0; 16];
        let drawn = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut key));
        if drawn.is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let nanos = now.map_or(0, |t| t.as_nanos());
            key = (nanos ^ u128::from(std::process::id()) << 96).to_ne_bytes();
        }
        Ids { key, count: 0 }
    }

    fn next(&mut self) -> [u8; 16] {
        let mut half = || {
            self.count += 1;
            // SipHash, whose key would be zero: the random one goes first into what is hashed.
            let mut hash = std::hash::DefaultHasher::new();
            hash.write(&self.key);
            hash.write_u64(self.count);
            hash.finish()
        };
        (u128::from(half()) << 64 | u128::from(half())).to_be_bytes()
    }
}

/// The next identifier.
pub fn next() -> [u8; 16] {
    thread_local!(static IDS: RefCell<Option<Ids>> = const { RefCell::new(None) });
    IDS.with(|ids| ids.borrow_mut().get_or_insert_with(Ids::new).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_differ() {
        let (mut a, mut b) = (Ids::new(), Ids::new());
        assert_ne!(a.key, b.key);
        let all: std::collections::HashSet<_> =
            (0..100).flat_map(|_| [a.next(), b.next()]).collect();
        assert_eq!(all.len(), 200);
    }
}
