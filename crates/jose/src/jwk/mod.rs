//! Keys and sets of keys (RFC 7517), with the members of RFC 7518 section 6 and RFC 8037.

mod material;
mod rsa_public;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{ContentEncryption, Error, KeyManagement, Part, Signing, json};
pub(crate) use material::{AgreementCurve, Material, RsaPrivate};
pub(crate) use rsa_public::Padding;

/// Keys of a set: without a `kid`, a token is tried with all that fit it.
const KEYS_MAX: usize = 256;

/// A key, with what it may be used for.
pub struct Key {
    kid: Option<String>,
    alg: Alg,
    /// `use` and `key_ops` allow signatures.
    signs: bool,
    /// `use` and `key_ops` allow encryption.
    encrypts: bool,
    pub(crate) material: Material,
}

/// The one algorithm that a key is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alg {
    Any,
    Signing(Signing),
    KeyManagement(KeyManagement),
    /// A shared key for the content itself, as RFC 7520 section 5.6 has it.
    Content(ContentEncryption),
}

/// Why a key is not in the set.
enum Flaw {
    /// It is of a kind or size that is not supported. RFC 7517 section 5 has such keys ignored.
    Unsupported(&'static str),
    /// It is malformed, and so may be the rest.
    Malformed(&'static str),
}

impl Key {
    fn parse(members: &Map<String, Value>) -> Result<Key, Flaw> {
        let text = |name: &str, wrong| match members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(Flaw::Malformed(wrong)),
        };
        let kid = text("kid", "kid is no string")?.map(str::to_owned);
        let alg = match text("alg", "alg is no string")? {
            None => Alg::Any,
            Some(name) => {
                let signing = Signing::parse(name).map(Alg::Signing);
                let management = KeyManagement::parse(name).map(Alg::KeyManagement);
                let content = ContentEncryption::parse(name).map(Alg::Content);
                let any = signing.or(management).or(content);
                any.map_err(|_| Flaw::Unsupported("its algorithm is not supported"))?
            }
        };
        let (mut signs, mut encrypts) = match text("use", "use is no string")? {
            None => (true, true),
            Some("sig") => (true, false),
            Some("enc") => (false, true),
            Some(_) => return Err(Flaw::Unsupported("its use is neither sig nor enc")),
        };
        if let Some(ops) = members.get("key_ops") {
            let has = operations(ops)?;
            signs &= has.signs;
            encrypts &= has.encrypts;
        }
        let material = Material::parse(members)?;
        let key = Key { kid, alg, signs, encrypts, material };
        let fits = match key.alg {
            Alg::Any => true,
            Alg::Signing(alg) => key.material.can_sign(alg),
            Alg::KeyManagement(alg) => key.material.is_of(alg),
            Alg::Content(_) => key.material.is_of(KeyManagement::Direct),
        };
        if fits { Ok(key) } else { Err(Flaw::Malformed("its alg does not fit its type")) }
    }

    /// The key's id.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Whether the key may verify signatures of the algorithm.
    pub(crate) fn verifies(&self, alg: Signing) -> bool {
        self.signs
            && (self.alg == Alg::Any || self.alg == Alg::Signing(alg))
            && self.material.can_sign(alg)
    }

    /// Whether the key may decrypt tokens of the algorithms.
    pub(crate) fn decrypts(&self, alg: KeyManagement, enc: ContentEncryption) -> bool {
        let is_for = match self.alg {
            // RFC 8725 section 3.2: nobody is to choose it for a key that does not ask for it.
            Alg::Any => alg != KeyManagement::Rsa1_5,
            Alg::Signing(_) => false,
            Alg::KeyManagement(only) => only == alg,
            Alg::Content(only) => alg == KeyManagement::Direct && only == enc,
        };
        self.encrypts && is_for && self.material.can_decrypt(alg)
    }
}

/// What is public of a key: the material stays out of logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

struct Operations {
    signs: bool,
    encrypts: bool,
}

/// RFC 7517 section 4.3. A key that only signs verifies nothing here, and one that only encrypts
/// decrypts nothing.
fn operations(ops: &Value) -> Result<Operations, Flaw> {
    let wrong = || Flaw::Malformed("key_ops is no list of different strings");
    let mut names: Vec<&str> = Vec::new();
    for op in ops.as_array().ok_or_else(wrong)? {
        let name = op.as_str().ok_or_else(wrong)?;
        if names.contains(&name) {
            return Err(wrong());
        }
        names.push(name);
    }
    let decrypting = ["decrypt", "unwrapKey", "deriveKey", "deriveBits"];
    let encrypts = names.iter().any(|name| decrypting.contains(name));
    Ok(Operations { signs: names.contains(&"verify"), encrypts })
}

fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    parts.into_iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// Keys from one or several documents.
#[derive(Clone, Default)]
pub struct KeySet {
    keys: Vec<Arc<Key>>,
    ignored: Vec<Error>,
    fingerprint: [u8; 32],
}

/// What is public of the keys. The fingerprint stays out of logs, too: a secret that is easy to
/// guess could be tried against it.
impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KeySet");
        shown.field("keys", &self.keys).field("ignored", &self.ignored).finish_non_exhaustive()
    }
}

impl KeySet {
    /// Reads a set (`{"keys":[…]}`) or a single key.
    ///
    /// Keys of a set whose type, curve, algorithm or size is not supported are left out (RFC 7517
    /// section 5), because providers publish keys for several purposes; see [`KeySet::ignored`].
    ///
    /// # Errors
    /// The document or a key is malformed, or no usable key is left.
    pub fn parse(text: &[u8]) -> Result<KeySet, Error> {
        let members = json::parse_object(text, Part::Keys)?;
        let mut set = KeySet { fingerprint: fingerprint([text]), ..KeySet::default() };
        let Some(keys) = members.get("keys") else {
            set.add(0, &members)?;
            return match set.ignored.pop() {
                None => Ok(set),
                Some(why) => Err(why),
            };
        };
        let malformed = |index| Error::Key { index, what: "it is no JSON object" };
        let keys = keys.as_array().ok_or(Error::NoUsableKey)?;
        if keys.len() > KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        for (index, key) in keys.iter().enumerate() {
            set.add(index, key.as_object().ok_or_else(|| malformed(index))?)?;
        }
        if set.keys.is_empty() { Err(Error::NoUsableKey) } else { Ok(set) }
    }

    fn add(&mut self, index: usize, members: &Map<String, Value>) -> Result<(), Error> {
        match Key::parse(members) {
            Ok(key) => self.keys.push(Arc::new(key)),
            Err(Flaw::Unsupported(what)) => self.ignored.push(Error::Key { index, what }),
            Err(Flaw::Malformed(what)) => return Err(Error::Key { index, what }),
        }
        Ok(())
    }

    /// The keys of several documents as one set. The keys themselves are shared, not copied.
    ///
    /// # Errors
    /// The set would have too many keys.
    pub fn merged(sets: &[Arc<KeySet>]) -> Result<Arc<KeySet>, Error> {
        if let [only] = sets {
            return Ok(only.clone());
        }
        let keys: Vec<_> = sets.iter().flat_map(|set| set.keys.iter().cloned()).collect();
        let ignored = sets.iter().flat_map(|set| set.ignored.iter().copied()).collect();
        if keys.len() > KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        let fingerprint = fingerprint(sets.iter().map(|set| &set.fingerprint[..]));
        Ok(Arc::new(KeySet { keys, ignored, fingerprint }))
    }

    /// A hash (SHA-256) of the documents that the keys are from: another one for other keys.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// The keys that can be used, in the order of the document.
    pub fn keys(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// The keys that were left out, each with the reason.
    pub fn ignored(&self) -> &[Error] {
        &self.ignored
    }

    /// The keys that a token may have been made with: those that `fits` accepts, and with a `kid`
    /// only those with the same one, or without any.
    pub(crate) fn candidates(
        &self,
        kid: Option<&str>,
        fits: impl Fn(&Key) -> bool,
    ) -> Result<Vec<&Key>, Error> {
        let is_named = |key: &&Arc<Key>| match (kid, key.kid()) {
            (Some(wanted), Some(kid)) => kid == wanted,
            _ => true,
        };
        let mut named = self.keys.iter().filter(is_named).peekable();
        if named.peek().is_none() {
            return Err(Error::UnknownKid);
        }
        let fitting: Vec<&Key> = named.filter(|key| fits(key)).map(Arc::as_ref).collect();
        if fitting.is_empty() { Err(Error::NoKey) } else { Ok(fitting) }
    }
}

#[cfg(test)]
mod tests;
