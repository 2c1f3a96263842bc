//! Certificates and private keys in PEM, read as OpenSSL reads them, with nginx's messages.
//!
//! Text around the blocks and blocks of other kinds are passed over. A key may be in the form of
//! PKCS#8, PKCS#1 or SEC 1, plain or encrypted. nginx asks for a missing password on its terminal;
//! here that is an error.

mod block;
mod der;
mod encrypted;
mod error;
mod key;
mod legacy;
mod passwords;
mod source;

pub use error::Error;
pub use key::PrivateKey;
pub use passwords::{BadPasswords, Passwords};
pub use source::{Secret, Source, read_secret};

pub(crate) use block::{Block, Blocks};

/// Reads a certificate and the rest of its chain, each in DER: the first certificate of the text
/// and those behind it. A first one in OpenSSL's own form, with settings of trust behind it, is
/// taken without them: they do not concern the one who shows it.
///
/// # Errors
/// There is none, or what looks like one cannot be read.
pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    const FIRST: &str = "PEM_read_bio_X509_AUX()";
    const OTHER: &str = "PEM_read_bio_X509()";
    let mut chain = Vec::new();
    for block in Blocks::new(text) {
        let function = if chain.is_empty() { FIRST } else { OTHER };
        let block = block.map_err(|reason| Error::new(function, reason))?;
        let wanted = match block.label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => true,
            b"TRUSTED CERTIFICATE" => chain.is_empty(),
            _ => false,
        };
        if wanted {
            let certificate = certificate(&block).map_err(|reason| Error::new(function, reason))?;
            chain.push(certificate);
        }
    }
    if chain.is_empty() {
        return Err(Error::new(FIRST, error::NO_CERTIFICATE));
    }
    Ok(chain)
}

/// The certificate of a block, if it has the outer form of one. What follows it is left out.
fn certificate(block: &Block<'_>) -> Result<Vec<u8>, &'static str> {
    if block.is_encrypted() {
        return Err(error::BAD_PASSWORD_READ);
    }
    let mut reader = der::Reader::new(&block.data);
    let whole = reader.whole(der::SEQUENCE).ok_or(error::NO_X509)?;
    let mut parts = der::Reader::new(whole).sequence().ok_or(error::NO_X509)?;
    for tag in [der::SEQUENCE, der::SEQUENCE, der::BIT_STRING] {
        parts.take(tag).ok_or(error::NO_X509)?;
    }
    Ok(whole.to_vec())
}

/// Reads the first private key of the text. Passwords are tried in their order.
///
/// # Errors
/// There is no key, or it cannot be read, or none of the passwords opens it.
pub fn private_key(text: &[u8], passwords: &Passwords) -> Result<PrivateKey, Error> {
    const FUNCTION: &str = "PEM_read_bio_PrivateKey()";
    let fail = |reason| Err(Error::new(FUNCTION, reason));
    for block in Blocks::new(text) {
        let block = match block {
            Ok(block) => block,
            Err(reason) => return fail(reason),
        };
        if block.label == b"ENCRYPTED PRIVATE KEY" {
            let Some(encrypted) = encrypted::Encrypted::parse(&block.data) else {
                return fail(error::NO_KEY);
            };
            return match passwords.open(|password| encrypted.open(password)) {
                Ok(key) => Ok(key),
                Err(reason) => fail(reason),
            };
        }
        // Other labels are those of parameters, certificates and public keys.
        let is_key = block.label.strip_suffix(b"PRIVATE KEY").is_some();
        if !is_key {
            continue;
        }
        if block.is_encrypted() {
            let legacy = match legacy::Legacy::parse(&block) {
                Ok(legacy) => legacy,
                Err(reason) => return fail(reason),
            };
            return match passwords.open(|password| legacy.open(&block.data, password)) {
                Ok(key) => Ok(key),
                Err(reason) => fail(reason),
            };
        }
        return match PrivateKey::from_der(&block.data) {
            Some(key) => Ok(key),
            None => fail(error::NO_KEY),
        };
    }
    fail(error::NO_KEY)
}

#[cfg(test)]
mod tests;
