//! TLS of a server: its directives, the sessions of its clients, and what variables tell of them.

pub mod addresses;
mod client_status;
mod established;
mod expiry;
pub mod handshake;
mod server;
pub mod settings;
mod shared;
mod stapling;
pub mod variables;

pub use client_status::{ClientStatus, OcspMode, OcspZone, OcspZones};
pub use established::{Established, NoEntry, Secured};
pub use expiry::{Expiries, Known, Ordered, report};
pub use server::{Compiled, Engine, SecureServer, ServerTls, Verify};
pub use settings::SslSettings;
pub use shared::SslShared;
pub use stapling::Stapler;
