//! Cryptography: the module `crypto`, and the global `crypto` of the Web Cryptography API.

mod digest;
mod hashes;

pub use hashes::{EXPORTS, module};
