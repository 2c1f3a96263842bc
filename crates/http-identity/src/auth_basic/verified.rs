//! Passwords that were right a moment ago, so that a costly hash is not made for every request of a
//! page. Held are keyed digests of user, hash and password together: a changed line of the file is
//! another entry, and nothing can be read back.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;

use sha2::{Digest, Sha256};

/// The time for which a password need not be hashed again, in seconds.
const TRUST_SECS: u64 = 60;

const ENTRIES_MAX: usize = 1024;

type Tag = [u8; 32];

struct Verified {
    /// Drawn when the first password is verified; without it nothing is remembered.
    key: Option<Tag>,
    until: HashMap<Tag, u64>,
}

thread_local! {
    static VERIFIED: RefCell<Option<Verified>> = const { RefCell::new(None) };
}

fn draw() -> Option<Tag> {
    let mut key = [0; 32];
    std::fs::File::open("/dev/urandom").ok()?.read_exact(&mut key).ok()?;
    Some(key)
}

impl Verified {
    fn tag(&self, user: &[u8], hash: &[u8], password: &[u8]) -> Option<Tag> {
        let mut h = Sha256::new_with_prefix(self.key?);
        for part in [user, hash] {
            h.update((part.len() as u64).to_be_bytes());
            h.update(part);
        }
        Some(h.chain_update(password).finalize().into())
    }
}

fn with<T>(f: impl FnOnce(&mut Verified) -> T) -> T {
    VERIFIED.with(|v| {
        let mut v = v.borrow_mut();
        f(v.get_or_insert_with(|| Verified { key: draw(), until: HashMap::new() }))
    })
}

/// Whether this very password was verified a moment ago.
pub(super) fn holds(user: &[u8], hash: &[u8], password: &[u8]) -> bool {
    with(|v| {
        let tag = v.tag(user, hash, password);
        tag.and_then(|t| v.until.get(&t)).is_some_and(|until| base::time::now_ms() < *until)
    })
}

/// Remembers a password that was just verified.
pub(super) fn remember(user: &[u8], hash: &[u8], password: &[u8]) {
    with(|v| {
        let Some(tag) = v.tag(user, hash, password) else { return };
        let now = base::time::now_ms();
        if v.until.len() >= ENTRIES_MAX {
            v.until.retain(|_, until| now < *until);
        }
        if v.until.len() < ENTRIES_MAX {
            v.until.insert(tag, now + TRUST_SECS * 1000);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_and_only_for_a_while() {
        base::time::pin(1_000, 1_000);
        assert!(!holds(b"u", b"h", b"p"));
        remember(b"u", b"h", b"p");
        assert!(holds(b"u", b"h", b"p"));
        for (user, hash, password) in
            [("u", "h", "q"), ("v", "h", "p"), ("u", "hp", ""), ("uh", "", "p")]
        {
            assert!(!holds(user.as_bytes(), hash.as_bytes(), password.as_bytes()));
        }
        base::time::pin(1_000 + TRUST_SECS * 1000, 1_000);
        assert!(!holds(b"u", b"h", b"p"));
        for i in 0..2 * ENTRIES_MAX {
            remember(b"u", &i.to_be_bytes(), b"p");
        }
        assert!(with(|v| v.until.len()) <= ENTRIES_MAX);
        base::time::unpin();
    }
}
