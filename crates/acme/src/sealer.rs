//! Encryption of an issuer's files on the engine of `shared_state`: AES-256-GCM under keys from the
//! secrets in the files that `sync=` names.
//!
//! The first secret seals, and all of them open. So a secret is replaced in three steps, each on
//! all servers: the new one is added behind the old one, then put first, and then the old one goes.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use pki::issue::hmac_sha256;

/// Encrypts files.
pub(crate) struct Sealer {
    /// The key that seals comes first.
    keys: Vec<RandomizedNonceKey>,
    /// The names of the fleet and the issuer.
    context: String,
}

/// The text of a file from the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub text: Vec<u8>,
    /// Another key than the first one has sealed it.
    pub is_old: bool,
}

impl Sealer {
    /// A sealer of these secrets; `None` if there is none, or one is of no use.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s [u8]>, context: String) -> Option<Sealer> {
        let key = |secret: &[u8]| {
            let key = hmac_sha256(secret, b"weir: files of an ACME issuer");
            RandomizedNonceKey::new(&AES_256_GCM, &key).ok()
        };
        let keys = secrets.into_iter().map(key).collect::<Option<Vec<_>>>()?;
        (!keys.is_empty()).then_some(Sealer { keys, context })
    }

    fn aad(&self, name: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("{} {name}", self.context).into_bytes())
    }

    /// Seals a file.
    pub fn seal(&self, name: &str, text: &[u8]) -> Option<Vec<u8>> {
        let (key, mut sealed) = (self.keys.first()?, text.to_vec());
        let nonce = key.seal_in_place_append_tag(self.aad(name), &mut sealed).ok()?;
        Some([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Opens a file; `None` if none of the keys has sealed it under this name.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Option<Opened> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let with = |key: &RandomizedNonceKey| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = rest.to_vec();
            let len = key.open_in_place(nonce, self.aad(name), &mut text).ok()?.len();
            text.truncate(len);
            Some(text)
        };
        let mut keys = self.keys.iter().enumerate();
        let (n, text) = keys.find_map(|(n, key)| Some((n, with(key)?)))?;
        Some(Opened { text, is_old: n > 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(secrets: &[&[u8]], context: &str) -> Sealer {
        Sealer::new(secrets.iter().copied(), context.to_owned()).unwrap()
    }

    fn text(opened: Option<Opened>) -> Option<Vec<u8>> {
        opened.map(|opened| opened.text)
    }

    #[test]
    fn files_are_of_their_key_name_and_fleet() {
        let own = sealer(&[b"secret"], "p one");
        let sealed = own.seal("a.key", b"text").unwrap();
        assert_ne!(sealed, own.seal("a.key", b"text").unwrap());
        assert!(!sealed.windows(4).any(|part| part == b"text"));
        assert_eq!(text(own.open("a.key", &sealed)).as_deref(), Some(&b"text"[..]));
        assert_eq!(own.open("b.key", &sealed), None);
        assert_eq!(sealer(&[b"other"], "p one").open("a.key", &sealed), None);
        assert_eq!(sealer(&[b"secret"], "q one").open("a.key", &sealed), None);
        assert_eq!(own.open("a.key", &sealed[..sealed.len() - 1]), None);
        assert_eq!(own.open("a.key", b""), None);
        assert!(Sealer::new([], "p one".to_owned()).is_none());
    }

    #[test]
    fn a_secret_is_replaced_in_steps_at_which_all_servers_open_all_files() {
        let steps: [&[&[u8]]; 4] = [&[b"old"], &[b"old", b"new"], &[b"new", b"old"], &[b"new"]];
        let steps = steps.map(|secrets| sealer(secrets, "p one"));
        for pair in steps.windows(2) {
            for (from, to) in [(0, 1), (1, 0)] {
                let sealed = pair[from].seal("a.key", b"text");
                // The old secret goes when no file is sealed with it any more.
                if let (Some(sealed), false) = (sealed, pair[to].keys.len() < pair[from].keys.len())
                {
                    assert_eq!(text(pair[to].open("a.key", &sealed)).unwrap(), b"text");
                }
            }
        }
        let sealed = steps[1].seal("a.key", b"text").unwrap();
        let is_old = |sealer: &Sealer| sealer.open("a.key", &sealed).map(|opened| opened.is_old);
        assert_eq!(steps.each_ref().map(is_old), [Some(false), Some(false), Some(true), None]);
    }
}
