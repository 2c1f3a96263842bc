//! The parts that all engines (`http`, `stream`, `mail`) have in common: nothing here knows what is
//! said over a connection.
#![forbid(unsafe_code)]

mod client;

pub use client::Client;
