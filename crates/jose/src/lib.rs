//! JSON Web Tokens and the keys that check them, without I/O: JWS (RFC 7515) and JWE (RFC 7516) in
//! the compact form, JWK and JWK sets (RFC 7517), the algorithms of RFC 7518 and RFC 8037.
//!
//! Tokens come from clients, so everything here that reads one refuses what is ambiguous:
//!
//! - A key's type decides which algorithms it can be used with. The token's `alg` only chooses
//!   among those, so that a public key is never the secret of an HMAC. `none` is no algorithm.
//! - `crit`, `zip`, `b64` and PBES2 are refused: no extension is understood here, compressed
//!   plaintexts can expand without bound, and a client must not choose a number of iterations.
//! - Keys that a token carries or points to (`jwk`, `jku`, `x5c`, `x5u`) are never read.
//! - Base64url has no padding and no spare bits, JSON has no member twice and a bounded depth, so
//!   that no two readers see different tokens.
//! - Keys are as long as the RFCs require: RSA of 2048 bits, HMAC secrets as long as the hash.
//!
//! No error text contains bytes of a token or key, so that all of them may be logged.
#![forbid(unsafe_code)]

mod alg;
mod base64url;
mod claims;
mod error;
mod header;
mod json;
mod jwe;
mod jwk;
mod jws;

pub use alg::{ContentEncryption, KeyManagement, Signing};
pub use claims::{check_times, parse_claims};
pub use error::{Error, Part};
pub use header::{Limits, parse_header};
pub use json::parse_object;
pub use jwe::{Decrypted, decrypt};
pub use jwk::{Key, KeySet};
pub use jws::{Verified, verify};

/// Decrypts a token and verifies the signed token inside (RFC 7519 section 11.2).
///
/// # Errors
/// Either token is refused.
pub fn decrypt_nested(
    token: &[u8],
    keys: &KeySet,
    limits: Limits,
) -> Result<(Decrypted, Verified), Error> {
    let outer = decrypt(token, keys, limits)?;
    let inner = verify(&outer.plaintext, keys, limits)?;
    Ok((outer, inner))
}

#[cfg(test)]
mod tests;
