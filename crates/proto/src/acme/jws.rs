//! Signed requests: JSON Web Signatures (RFC 7515) as RFC 8555 section 6.2 wants them, and JSON Web
//! Keys with their thumbprints (RFC 7638).

use base::json::Object;
use sha2::{Digest, Sha256};

use super::base64url;

/// A key that signs.
pub trait Signer {
    /// The algorithm's name (`ES256`).
    fn algorithm(&self) -> &'static str;

    /// The public key: a JSON object with the members that RFC 7638 section 3.2 requires, sorted
    /// and without spaces.
    fn jwk(&self) -> String;

    /// The signature of a message.
    ///
    /// # Errors
    /// The key does not sign.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignFailed>;
}

/// A key that has not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignFailed;

impl std::fmt::Display for SignFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("signing failed")
    }
}

impl std::error::Error for SignFailed {}

/// The fingerprint of a public key.
pub fn thumbprint(key: &dyn Signer) -> String {
    base64url(&Sha256::digest(key.jwk()))
}

/// The text that answers a challenge (RFC 8555 section 8.1).
pub fn key_authorization(token: &str, key: &dyn Signer) -> String {
    format!("{token}.{}", thumbprint(key))
}

/// The signer of a request.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    /// A key that the server may not know.
    Key,
    /// An account, by its URL.
    Account(&'a str),
}

/// A request's body. Without a payload it asks for the resource (POST-as-GET).
pub(super) fn request(
    key: &dyn Signer,
    by: By<'_>,
    nonce: Option<&str>,
    url: &str,
    payload: Option<&str>,
) -> Result<Vec<u8>, SignFailed> {
    let jwk = matches!(by, By::Key).then(|| key.jwk());
    let header = header(key.algorithm(), jwk.as_deref(), |o| {
        if let By::Account(account) = by {
            o.text("kid", account.as_bytes());
        }
        if let Some(nonce) = nonce {
            o.text("nonce", nonce.as_bytes());
        }
        o.text("url", url.as_bytes());
    });
    let unsigned = Unsigned::new(&header, payload.unwrap_or_default());
    Ok(unsigned.with(&key.sign(unsigned.message().as_bytes())?))
}

/// The binding of a new account to one that its owner has with the server already (RFC 8555 section
/// 7.3.4). `mac` is HMAC with SHA-256 under the key that the server gave for `kid`.
pub fn external_account(
    kid: &str,
    mac: impl Fn(&[u8]) -> Vec<u8>,
    account: &dyn Signer,
    url: &str,
) -> String {
    let header = header("HS256", None, |o| {
        o.text("kid", kid.as_bytes());
        o.text("url", url.as_bytes());
    });
    let unsigned = Unsigned::new(&header, &account.jwk());
    let jws = unsigned.with(&mac(unsigned.message().as_bytes()));
    String::from_utf8(jws).expect("base64 within JSON is ASCII")
}

/// A protected header. The key is JSON itself, so it comes as the last member.
fn header(algorithm: &str, jwk: Option<&str>, fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    Object::write(&mut out, |o| {
        o.text("alg", algorithm.as_bytes());
        fill(o);
    });
    if let Some(jwk) = jwk {
        out.pop();
        out.extend_from_slice(b",\"jwk\":");
        out.extend_from_slice(jwk.as_bytes());
        out.push(b'}');
    }
    out
}

/// A request before its signature: header and payload, each in base64.
struct Unsigned {
    header: String,
    payload: String,
}

impl Unsigned {
    fn new(header: &[u8], payload: &str) -> Unsigned {
        Unsigned { header: base64url(header), payload: base64url(payload.as_bytes()) }
    }

    /// The text that is signed.
    fn message(&self) -> String {
        format!("{}.{}", self.header, self.payload)
    }

    /// The whole in JSON.
    fn with(&self, signature: &[u8]) -> Vec<u8> {
        let signature = base64url(signature);
        let mut out = Vec::new();
        Object::write(&mut out, |o| {
            o.text("protected", self.header.as_bytes());
            o.text("payload", self.payload.as_bytes());
            o.text("signature", signature.as_bytes());
        });
        out
    }
}
