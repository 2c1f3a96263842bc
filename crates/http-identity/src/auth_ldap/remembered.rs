//! Passwords that were right a moment ago. Held are keyed digests of all that the answer depended
//! on: server, user, password, and the values of `require`. Nothing can be read back, and wrong
//! passwords are never held, so that one that was just set is right at once.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::server::Required;

type Tag = [u8; 32];

/// `auth_ldap_cache_enabled`: the passwords that this worker knows.
pub(super) struct Remembered {
    expiration_ms: u64,
    size: usize,
    /// Drawn when a worker needs it first, so that no two have the same.
    key: OnceCell<Tag>,
    until: RefCell<HashMap<Tag, u64>>,
}

fn draw() -> Tag {
    let mut key = [0; 32];
    os::random::fill(&mut key);
    key
}

impl Remembered {
    pub(super) fn new(expiration_ms: u64, size: usize) -> Remembered {
        Remembered { expiration_ms, size, key: OnceCell::new(), until: RefCell::default() }
    }

    /// The digest of a question to a server.
    pub(super) fn tag(&self, server: &str, user: &[u8], password: &[u8], of: &Required) -> Tag {
        let mut hash = Sha256::new_with_prefix(self.key.get_or_init(draw));
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        for part in [server.as_bytes(), user, password] {
            add(part);
        }
        for list in [&of.users, &of.groups] {
            add(&(list.len() as u64).to_be_bytes());
            list.iter().for_each(|value| add(value));
        }
        if let Some(dn) = &of.user_dn {
            add(dn);
        }
        hash.finalize().into()
    }

    pub(super) fn holds(&self, tag: &Tag) -> bool {
        let now = base::time::now_ms();
        self.until.borrow().get(tag).is_some_and(|until| now < *until)
    }

    pub(super) fn put(&self, tag: Tag) {
        let now = base::time::now_ms();
        let mut until = self.until.borrow_mut();
        if until.len() >= self.size {
            until.retain(|_, until| now < *until);
        }
        if until.len() >= self.size {
            let oldest = until.iter().min_by_key(|(_, until)| **until).map(|(tag, _)| *tag);
            oldest.and_then(|tag| until.remove(&tag));
        }
        until.insert(tag, now + self.expiration_ms);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn required(users: &[&'static str], groups: &[&'static str]) -> Required {
        let list = |list: &[&'static str]| -> Vec<Bytes> {
            list.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
        };
        Required { user_dn: None, users: list(users), groups: list(groups) }
    }

    #[test]
    fn only_the_same_question_is_remembered_and_only_for_a_while() {
        base::time::pin(1_000, 1_000);
        let remembered = Remembered::new(500, 100);
        let tag = |server: &str, user: &str, password: &str, required: &Required| {
            remembered.tag(server, user.as_bytes(), password.as_bytes(), required)
        };
        let plain = required(&[], &["g"]);
        remembered.put(tag("s", "u", "p", &plain));
        assert!(remembered.holds(&tag("s", "u", "p", &plain)));
        for other in [
            tag("t", "u", "p", &plain),
            tag("s", "v", "p", &plain),
            tag("s", "u", "q", &plain),
            tag("s", "up", "", &plain),
            tag("s", "u", "p", &required(&["g"], &[])),
            tag("s", "u", "p", &required(&[], &["h"])),
            tag("s", "u", "p", &Required { user_dn: Some(Bytes::new()), ..required(&[], &["g"]) }),
        ] {
            assert!(!remembered.holds(&other));
        }
        base::time::pin(1_500, 1_500);
        assert!(!remembered.holds(&tag("s", "u", "p", &plain)));
        base::time::unpin();
    }

    #[test]
    fn the_oldest_goes_when_it_is_full() {
        let remembered = Remembered::new(500, 100);
        for i in 0..250_u64 {
            base::time::pin(1_000 + i, 1_000);
            remembered.put(remembered.tag("s", &i.to_be_bytes(), b"p", &required(&[], &[])));
            assert!(remembered.until.borrow().len() <= 100);
        }
        let holds = |i: u64| {
            remembered.holds(&remembered.tag("s", &i.to_be_bytes(), b"p", &required(&[], &[])))
        };
        assert!(holds(249) && holds(150) && !holds(149));
        base::time::unpin();
    }
}
