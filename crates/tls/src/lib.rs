//! TLS: sessions without I/O, keys and certificates, their verification, and the settings' own
//! languages. The types of rustls stay inside of this crate.
#![forbid(unsafe_code)]

pub mod certified;
mod client;
mod error;
mod info;
mod record;
mod server;
mod session;

pub use client::{ClientConfig, ClientOptions};
pub use error::Error;
pub use info::Info;
pub use record::MAX_PLAIN;
pub use server::{ServerConfig, ServerOptions, VerifyMode};
pub use session::{Received, Session};
