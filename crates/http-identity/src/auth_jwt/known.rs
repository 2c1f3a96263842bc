//! Signed tokens that this worker has verified: a client that keeps sending one costs a hash, not
//! a signature. Only the verdict about the signature is kept. Times and required values are checked
//! at each request, and a token that was refused is verified anew.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use jose::{Error, KeySet};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::TokenType;
use super::check::{self, Accepted};

/// Tokens of a generation. The older of the two generations goes when the younger one is full, so
/// that tokens in use stay.
const TOKENS_MAX: usize = 512;
/// Longer tokens are verified each time, because they take memory.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// Bytes of a generation, as [`weight`] estimates them: 1,024 tokens of 8 KB could take 100 MB.
const BYTES_MAX: usize = 4 << 20;

/// A hash of the keys and the token.
type Name = [u8; 32];

#[derive(Default)]
struct Known {
    young: HashMap<Name, Rc<Accepted>>,
    /// Bytes of the younger generation.
    bytes: usize,
    old: HashMap<Name, Rc<Accepted>>,
}

/// The memory that claims take, roughly: that of an entry of a map or list and its allocations is
/// several times its text's.
fn weight(value: &Value) -> usize {
    const ENTRY: usize = 128;
    ENTRY
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(weight).sum(),
            Value::Object(members) => weight_of(members),
            _ => 0,
        }
}

fn weight_of(members: &Map<String, Value>) -> usize {
    members.iter().map(|(name, value)| name.len() + weight(value)).sum()
}

impl Known {
    fn get(&mut self, name: &Name) -> Option<Rc<Accepted>> {
        if let Some(token) = self.young.get(name) {
            return Some(token.clone());
        }
        let token = self.old.remove(name)?;
        self.put(*name, token.clone());
        Some(token)
    }

    fn put(&mut self, name: Name, token: Rc<Accepted>) {
        // The name, and the table's own entry.
        let bytes = size_of::<Name>() + size_of::<Accepted>() + weight_of(&token.claims);
        if self.young.len() >= TOKENS_MAX || self.bytes + bytes > BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.young.insert(name, token);
    }

    /// Its bytes stay counted, so that the generation ends a little earlier.
    fn forget(&mut self, name: &Name) {
        self.young.remove(name);
        self.old.remove(name);
    }
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Checks a token as [`check::check`] does. Other keys are another question: a token is known only
/// under the documents whose keys have verified it.
pub(super) fn check(
    token: &[u8],
    keys: &KeySet,
    token_type: TokenType,
    leeway_s: u64,
) -> Result<Rc<Accepted>, Error> {
    if token_type != TokenType::Signed || token.len() > TOKEN_BYTES_MAX {
        return check::check(token, keys, token_type, leeway_s).map(Rc::new);
    }
    let name = Sha256::new().chain_update(keys.fingerprint()).chain_update(token).finalize();
    let name = name.into();
    let Some(known) = KNOWN.with_borrow_mut(|known| known.get(&name)) else {
        let accepted = Rc::new(check::check(token, keys, token_type, leeway_s)?);
        KNOWN.with_borrow_mut(|known| known.put(name, accepted.clone()));
        return Ok(accepted);
    };
    match jose::check_times(&known.claims, base::time::unix_secs(), leeway_s) {
        Ok(()) => Ok(known),
        Err(e) => {
            KNOWN.with_borrow_mut(|known| known.forget(&name));
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(claims: serde_json::Value) -> Rc<Accepted> {
        let claims = claims.as_object().cloned().unwrap_or_default();
        Rc::new(Accepted { claims, payload: None })
    }

    fn keys(secret: &str) -> KeySet {
        KeySet::parse(format!("{{\"kty\":\"oct\",\"k\":\"{secret}\"}}").as_bytes()).unwrap()
    }

    /// RFC 7515 appendix A.1: HS256, and an `exp` in 2011.
    const TOKEN: &[u8] = b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
        eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290\
        Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const SECRET: &str = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T\
        -1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    const CENTURY_S: u64 = 3_200_000_000;

    #[test]
    fn a_token_is_verified_once() {
        let keys = keys(SECRET);
        let check = |leeway_s| super::check(TOKEN, &keys, TokenType::Signed, leeway_s);
        let first = check(CENTURY_S).unwrap();
        assert!(Rc::ptr_eq(&first, &check(CENTURY_S).unwrap()));
        // The times are those of each request.
        assert_eq!(check(0).err(), Some(Error::Expired));
        assert!(!Rc::ptr_eq(&first, &check(CENTURY_S).unwrap()));
    }

    #[test]
    fn other_keys_know_nothing_of_it() {
        let (own, other) = (keys(SECRET), keys(&SECRET.replace("AyM1", "AyM2")));
        let check = |keys: &KeySet| super::check(TOKEN, keys, TokenType::Signed, CENTURY_S);
        assert!(check(&own).is_ok());
        assert!(check(&other).is_err() && check(&other).is_err());
        let changed = [TOKEN, b"A"].concat();
        assert!(super::check(&changed, &own, TokenType::Signed, CENTURY_S).is_err());
        // The same document, read again, is the same keys.
        assert_eq!(own.fingerprint(), keys(SECRET).fingerprint());
        assert_ne!(own.fingerprint(), other.fingerprint());
    }

    #[test]
    fn tokens_in_use_stay_and_others_go() {
        let mut known = Known::default();
        let name = |n: usize| -> Name { Sha256::digest(n.to_le_bytes()).into() };
        for n in 0..10 * TOKENS_MAX {
            known.put(name(n), token(json!({ "n": n })));
            assert!(known.get(&name(0)).is_some(), "{n}");
        }
        assert!(known.young.len() + known.old.len() <= 2 * TOKENS_MAX);
        assert!(known.get(&name(1)).is_none());
        known.forget(&name(0));
        assert!(known.get(&name(0)).is_none());
    }

    #[test]
    fn bytes_are_bounded_as_well() {
        let mut known = Known::default();
        // A token of 8 KB has room for so many claims.
        let claims: Map<String, Value> = (0..700).map(|n| (n.to_string(), json!(1))).collect();
        assert!(weight_of(&claims) > 10 * TOKEN_BYTES_MAX);
        for n in 0..TOKENS_MAX {
            known.put(Sha256::digest(n.to_le_bytes()).into(), token(json!(claims)));
            let held = known.young.len() + known.old.len();
            assert!(held * weight_of(&claims) <= 2 * BYTES_MAX, "{n}: {held}");
        }
        assert!(known.young.len() + known.old.len() > 40);
        assert_eq!(weight(&json!({ "ab": ["c", 1] })), 4 * 128 + 3);
    }
}
