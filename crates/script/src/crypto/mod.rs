//! Cryptography: the module `crypto`, and the global `crypto` of the Web Cryptography API.

mod aes;
mod digest;
mod hashes;
mod web;

pub(crate) use hashes::{EXPORTS, module};
pub use web::install;
