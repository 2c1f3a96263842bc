//! TLS of a server: its directives, the sessions of its clients, and what variables tell of them.

mod established;
mod server;
mod settings;
mod shared;
pub mod variables;

pub use established::{Established, NoEntry, Secured};
pub use server::{Engine, ServerTls, Verify, compile};
pub use settings::{SslSettings, directives};
pub use shared::SslShared;
