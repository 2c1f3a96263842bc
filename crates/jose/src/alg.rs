//! The algorithms' names (RFC 7518 sections 3, 4 and 5, RFC 8037, RFC 9864).

use crate::Error;

/// A hash, by its number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// An algorithm of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// HMAC: `HS256` and so on.
    Hmac(Hash),
    /// RSASSA-PKCS1-v1_5: `RS256` and so on.
    RsaPkcs1(Hash),
    /// RSASSA-PSS: `PS256` and so on.
    RsaPss(Hash),
    /// ECDSA with the curve that belongs to the hash: `ES256` with P-256 and so on.
    Ecdsa(Hash),
    /// `EdDSA` with Ed25519.
    Ed25519,
}

impl Signing {
    /// Reads the name.
    ///
    /// # Errors
    /// The algorithm is `none` or not supported.
    pub fn parse(name: &str) -> Result<Signing, Error> {
        use Hash::{Sha256, Sha384, Sha512};
        Ok(match name {
            "HS256" => Signing::Hmac(Sha256),
            "HS384" => Signing::Hmac(Sha384),
            "HS512" => Signing::Hmac(Sha512),
            "RS256" => Signing::RsaPkcs1(Sha256),
            "RS384" => Signing::RsaPkcs1(Sha384),
            "RS512" => Signing::RsaPkcs1(Sha512),
            "PS256" => Signing::RsaPss(Sha256),
            "PS384" => Signing::RsaPss(Sha384),
            "PS512" => Signing::RsaPss(Sha512),
            "ES256" => Signing::Ecdsa(Sha256),
            "ES384" => Signing::Ecdsa(Sha384),
            "ES512" => Signing::Ecdsa(Sha512),
            "EdDSA" | "Ed25519" => Signing::Ed25519,
            "Ed448" => return Err(Error::Algorithm("signatures with Ed448 are not supported")),
            "none" => return Err(Error::AlgNone),
            _ => return Err(Error::Algorithm("the algorithm of the signature is not supported")),
        })
    }
}

/// How the key that encrypts the content is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyManagement {
    /// `dir`: it is the shared key.
    Direct,
    /// `A128KW` and so on, with the number of bytes of the wrapping key.
    AesKw(usize),
    /// `A128GCMKW` and so on, with the number of bytes of the wrapping key.
    AesGcmKw(usize),
    /// `ECDH-ES`: both sides agree on it.
    EcdhEs,
    /// `ECDH-ES+A128KW` and so on: both sides agree on the wrapping key, whose number of bytes this
    /// is.
    EcdhEsAesKw(usize),
    /// `RSA1_5`: RSAES-PKCS1-v1_5. Only keys whose own `alg` says so are taken for it, because its
    /// padding has told attackers about plaintexts (RFC 8725 section 3.2).
    Rsa1_5,
    /// `RSA-OAEP`, with SHA-1.
    RsaOaep,
    /// `RSA-OAEP-256` and so on.
    RsaOaepSha2(Hash),
}

impl KeyManagement {
    /// Reads the name.
    ///
    /// # Errors
    /// The algorithm is not supported.
    pub fn parse(name: &str) -> Result<KeyManagement, Error> {
        Ok(match name {
            "dir" => KeyManagement::Direct,
            "A128KW" => KeyManagement::AesKw(16),
            "A192KW" => KeyManagement::AesKw(24),
            "A256KW" => KeyManagement::AesKw(32),
            "A128GCMKW" => KeyManagement::AesGcmKw(16),
            "A192GCMKW" => KeyManagement::AesGcmKw(24),
            "A256GCMKW" => KeyManagement::AesGcmKw(32),
            "RSA-OAEP" => KeyManagement::RsaOaep,
            "RSA-OAEP-256" => KeyManagement::RsaOaepSha2(Hash::Sha256),
            "RSA-OAEP-384" => KeyManagement::RsaOaepSha2(Hash::Sha384),
            "RSA-OAEP-512" => KeyManagement::RsaOaepSha2(Hash::Sha512),
            "RSA1_5" => KeyManagement::Rsa1_5,
            "ECDH-ES" => KeyManagement::EcdhEs,
            "ECDH-ES+A128KW" => KeyManagement::EcdhEsAesKw(16),
            "ECDH-ES+A192KW" => KeyManagement::EcdhEsAesKw(24),
            "ECDH-ES+A256KW" => KeyManagement::EcdhEsAesKw(32),
            name if name.starts_with("PBES2-") => {
                return Err(Error::Algorithm(
                    "PBES2 is not supported: the token would choose the cost of its check",
                ));
            }
            _ => {
                return Err(Error::Algorithm(
                    "the algorithm of the encrypted key is not supported",
                ));
            }
        })
    }
}

impl KeyManagement {
    /// The name of an algorithm that derives a wrapping key, which that key depends on.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            KeyManagement::EcdhEsAesKw(16) => Some("ECDH-ES+A128KW"),
            KeyManagement::EcdhEsAesKw(24) => Some("ECDH-ES+A192KW"),
            KeyManagement::EcdhEsAesKw(32) => Some("ECDH-ES+A256KW"),
            _ => None,
        }
    }
}

/// How the content is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentEncryption {
    /// AES in CBC mode with an HMAC: `A128CBC-HS256` and so on, by the hash.
    CbcHmac(Hash),
    /// `A128GCM` and so on, with the number of bytes of the key.
    Gcm(usize),
}

impl ContentEncryption {
    /// Reads the name.
    ///
    /// # Errors
    /// The encryption is not supported.
    pub fn parse(name: &str) -> Result<ContentEncryption, Error> {
        Ok(match name {
            "A128CBC-HS256" => ContentEncryption::CbcHmac(Hash::Sha256),
            "A192CBC-HS384" => ContentEncryption::CbcHmac(Hash::Sha384),
            "A256CBC-HS512" => ContentEncryption::CbcHmac(Hash::Sha512),
            "A128GCM" => ContentEncryption::Gcm(16),
            "A192GCM" => ContentEncryption::Gcm(24),
            "A256GCM" => ContentEncryption::Gcm(32),
            _ => return Err(Error::Algorithm("the encryption of the content is not supported")),
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ContentEncryption::CbcHmac(Hash::Sha256) => "A128CBC-HS256",
            ContentEncryption::CbcHmac(Hash::Sha384) => "A192CBC-HS384",
            ContentEncryption::CbcHmac(Hash::Sha512) => "A256CBC-HS512",
            ContentEncryption::Gcm(16) => "A128GCM",
            ContentEncryption::Gcm(24) => "A192GCM",
            ContentEncryption::Gcm(_) => "A256GCM",
        }
    }

    /// The number of bytes of the key.
    pub(crate) fn key_bytes(self) -> usize {
        match self {
            ContentEncryption::CbcHmac(hash) => hash.bytes(),
            ContentEncryption::Gcm(bytes) => bytes,
        }
    }
}
