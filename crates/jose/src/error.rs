//! Reasons for which tokens and keys are refused. No text has bytes of either.

use std::fmt;

/// The part of a token, or the document, that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The JOSE header.
    Header,
    /// The encrypted content encryption key.
    EncryptedKey,
    /// The initialization vector of the content.
    Iv,
    /// The ciphertext.
    Ciphertext,
    /// The authentication tag.
    Tag,
    /// The payload of a signed token.
    Payload,
    /// The signature.
    Signature,
    /// The claims: a payload or plaintext that has to be a JSON object.
    Claims,
    /// A document with keys.
    Keys,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Header => "JOSE header",
            Part::EncryptedKey => "encrypted key",
            Part::Iv => "initialization vector",
            Part::Ciphertext => "ciphertext",
            Part::Tag => "authentication tag",
            Part::Payload => "payload",
            Part::Signature => "signature",
            Part::Claims => "claims",
            Part::Keys => "keys",
        })
    }
}

/// The reason for which a token or a document with keys is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The token is longer than [`crate::Limits`] allows.
    TokenTooLong,
    /// The token has not the number of parts that this one of its kind has.
    Parts {
        /// Parts that a token of the kind has: 3 of a JWS, 5 of a JWE.
        expected: usize,
    },
    /// The part is no base64url without padding.
    Base64(Part),
    /// The part is no JSON object that is unambiguous.
    Json {
        /// The part.
        part: Part,
        /// What is wrong.
        what: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// A member of the header is missing, or has the wrong type or length.
    Header(&'static str),
    /// The algorithm is `none`.
    AlgNone,
    /// The algorithm is not supported.
    Algorithm(&'static str),
    /// The header has a `crit` member.
    Critical,
    /// The header has a `zip` member that is not supported, or the plaintext, decompressed, is
    /// malformed or longer than a token may be.
    Compressed,
    /// No key of the set has the token's `kid`.
    UnknownKid,
    /// No key of the set fits the token's algorithm.
    NoKey,
    /// The key that fits is shorter than the algorithm requires.
    KeyTooShort {
        /// The number of bytes that the algorithm requires.
        bytes: usize,
    },
    /// The signature does not verify.
    Signature,
    /// The token cannot be decrypted: the key, or any byte of the token, is another.
    Decryption,
    /// A claim has the wrong type, or is out of range.
    Claim(&'static str),
    /// `exp` has passed.
    Expired,
    /// `nbf` is still to come.
    NotYetValid,
    /// A key of a document cannot be read.
    Key {
        /// Its place in the set, from 0.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A document has more keys than a set may have.
    TooManyKeys,
    /// A document has no key that can be used.
    NoUsableKey,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TokenTooLong => f.write_str("the token is too long"),
            Error::Parts { expected: 3 } => f.write_str("the token is no JWS: it needs 3 parts"),
            Error::Parts { expected } => {
                write!(f, "the token is no JWE: it needs {expected} parts")
            }
            Error::Base64(part) => write!(f, "the {part} is no valid base64url"),
            Error::Json { part, what, line, column } => {
                write!(f, "the {part}: {what} at line {line} column {column}")
            }
            Error::Header(what) => write!(f, "the JOSE header: {what}"),
            Error::AlgNone => f.write_str("the token is not signed: its algorithm is none"),
            Error::Algorithm(what) => f.write_str(what),
            Error::Critical => {
                f.write_str("the JOSE header has critical extensions, which are not supported")
            }
            Error::Compressed => f.write_str(
                "the token's compression is not supported, malformed, or expands too far",
            ),
            Error::UnknownKid => f.write_str("no key has the key id of the token"),
            Error::NoKey => f.write_str("no key fits the algorithm of the token"),
            Error::KeyTooShort { bytes } => {
                write!(f, "the key is too short: the algorithm requires {bytes} bytes")
            }
            Error::Signature => f.write_str("the signature is invalid"),
            Error::Decryption => f.write_str("the token cannot be decrypted"),
            Error::Claim(what) => f.write_str(what),
            Error::Expired => f.write_str("the token has expired"),
            Error::NotYetValid => f.write_str("the token is not valid yet"),
            Error::Key { index, what } => write!(f, "key {index}: {what}"),
            Error::TooManyKeys => f.write_str("the set has too many keys"),
            Error::NoUsableKey => f.write_str("the set has no usable key"),
        }
    }
}

impl std::error::Error for Error {}
