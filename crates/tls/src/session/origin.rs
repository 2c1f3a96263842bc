//! The origin of a direction's keys. A session goes to another process as the origins of its keys,
//! and in TLS 1.3 the next keys come from the origin of those before (RFC 8446 section 7.2).
//!
//! rustls gives the keys of an established session, but not the traffic secrets of TLS 1.3; its key
//! log gets them during the handshake ([`Capturing`]).

use std::cell::RefCell;
use std::sync::Arc;

use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use zeroize::Zeroizing;

use crate::KeyLog;
use crate::record::{Cipher, Keys, Material};

type Secret = Zeroizing<Vec<u8>>;

/// The first traffic secrets of the two sides, as far as a handshake has come to them.
#[derive(Default)]
pub(super) struct Captured {
    pub client: Option<Secret>,
    pub server: Option<Secret>,
}

thread_local! {
    /// Those of the handshake that runs on this thread.
    static CAPTURED: RefCell<Captured> = RefCell::default();
}

impl Captured {
    /// Forgets those of another handshake.
    pub fn forget() {
        CAPTURED.take();
    }

    /// Takes those that came since then.
    pub(crate) fn absorb(&mut self) {
        let Captured { client, server } = CAPTURED.take();
        self.client = client.or(self.client.take());
        self.server = server.or(self.server.take());
    }
}

/// The library's key log: keeps the traffic secrets, and passes lines to a log of the
/// configuration's.
#[derive(Debug)]
pub(crate) struct Capturing(Option<KeyLog>);

impl Capturing {
    /// For a configuration with this log.
    pub fn shared(log: Option<KeyLog>) -> Arc<dyn rustls::KeyLog> {
        Arc::new(Capturing(log))
    }
}

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

impl rustls::KeyLog for Capturing {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if matches!(label, CLIENT | SERVER) {
            let kept = Some(Zeroizing::new(secret.to_vec()));
            CAPTURED.with_borrow_mut(|captured| match label {
                CLIENT => captured.client = kept,
                _ => captured.server = kept,
            });
        }
        if let Some(log) = &self.0 {
            log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        self.0.is_some() || matches!(label, CLIENT | SERVER)
    }
}

/// See the module.
pub(super) struct Origin {
    /// TLS 1.3: the traffic secret.
    secret: Option<Secret>,
    /// The bytes of the keys. They go with the secret, because the process that a session comes to
    /// would need a tenth of its time for making them anew.
    material: Material,
}

impl Origin {
    /// The origin of keys of TLS 1.2.
    pub fn of(material: Material) -> Origin {
        Origin { secret: None, material }
    }

    /// The origin of the keys that a handshake of TLS 1.3 gave; `None` if they are of another
    /// secret.
    pub fn checked(suite: u16, secret: Option<Secret>, material: Material) -> Option<Origin> {
        let secret = secret?;
        let is_its = derived(suite, &secret)? == material;
        is_its.then_some(Origin { secret: Some(secret), material })
    }

    /// The keys, from the record of this number on; [`Origin::make`] completes them.
    pub fn keys(&self, sequence: u64) -> Keys {
        Keys::to_make(self.secret.is_some(), sequence, self.material.cipher)
    }

    /// Completes keys that [`Origin::keys`] gave.
    pub fn make(&self, keys: &mut Keys) -> Option<()> {
        keys.make(&self.material).ok()
    }

    /// The next keys of TLS 1.3, which become these.
    pub fn next(&mut self, suite: u16) -> Option<Keys> {
        let secret = self.secret.as_mut()?;
        let mut next = Zeroizing::new(vec![0; secret.len()]);
        expand(&*expander(suite_13(suite)?, secret)?, b"traffic upd", &mut next)?;
        self.material = derived(suite, &next)?;
        *secret = next;
        Some(self.keys(0))
    }

    /// Appends it to a session's state.
    pub fn put(&self, out: &mut Vec<u8>) {
        let Material { cipher, iv, .. } = &self.material;
        let secret = self.secret.as_ref().map_or(&[][..], |secret| secret);
        for bytes in [secret, &[*cipher as u8], self.material.key(), iv] {
            out.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(bytes);
        }
    }

    /// Reads one of a session of TLS 1.3, or 1.2; `None` if it is none of this suite's.
    pub fn get<'a>(
        is_13: bool,
        suite: u16,
        mut bytes: impl FnMut() -> Option<&'a [u8]>,
    ) -> Option<Origin> {
        let secret = bytes()?;
        let &[cipher] = bytes()? else { return None };
        let cipher = Cipher::numbered(cipher)?;
        let material = Material::of(cipher, bytes()?, bytes()?)?;
        let fits = match is_13 {
            true => cipher_13(suite)? == cipher && is_whole(suite_13(suite)?, secret),
            false => secret.is_empty(),
        };
        let secret = is_13.then(|| Zeroizing::new(secret.to_vec()));
        fits.then_some(Origin { secret, material })
    }
}

/// The bytes of a secret's keys (RFC 8446 section 7.3).
fn derived(suite: u16, secret: &[u8]) -> Option<Material> {
    let cipher = cipher_13(suite)?;
    let expander = expander(suite_13(suite)?, secret)?;
    let mut key = Zeroizing::new(vec![0; cipher.key_len()]);
    expand(&*expander, b"key", &mut key)?;
    let mut iv = [0; 12];
    expand(&*expander, b"iv", &mut iv)?;
    Material::of(cipher, &key, &iv)
}

fn cipher_13(suite: u16) -> Option<Cipher> {
    Some(match suite {
        0x1301 => Cipher::Aes128Gcm,
        0x1302 => Cipher::Aes256Gcm,
        0x1303 => Cipher::Chacha20Poly1305,
        _ => return None,
    })
}

fn suite_13(number: u16) -> Option<&'static Tls13CipherSuite> {
    let suites = crate::kdf::suites().iter().filter_map(SupportedCipherSuite::tls13);
    suites.into_iter().find(|suite| u16::from(suite.common.suite) == number)
}

/// What a secret is expanded with; `None` if it is not as long as the suite's hash. Making it is
/// half of the work of an expansion, so several expansions of a secret share one.
fn expander(suite: &Tls13CipherSuite, secret: &[u8]) -> Option<Box<dyn HkdfExpander>> {
    is_whole(suite, secret).then(|| suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret)))
}

/// Whether a secret is as long as the suite's hash.
fn is_whole(suite: &Tls13CipherSuite, secret: &[u8]) -> bool {
    secret.len() == suite.common.hash_provider.output_len()
}

/// HKDF-Expand-Label without a context (RFC 8446 section 7.1).
fn expand(expander: &dyn HkdfExpander, label: &[u8], out: &mut [u8]) -> Option<()> {
    let out_len = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_len = [u8::try_from(b"tls13 ".len() + label.len()).ok()?];
    expander.expand_slice(&[&out_len, &label_len, b"tls13 ", label, &[0]], out).ok()
}
