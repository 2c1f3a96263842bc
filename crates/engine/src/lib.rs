//! The parts that all engines (`http`, `stream`, `mail`) have in common: nothing here knows what is
//! said over a connection.
//!
//! An engine gives a type for its sessions ([`Session`]); tables of modules, configuration,
//! variables and regular expressions are generic over it.
#![forbid(unsafe_code)]

pub mod account;
pub mod addresses;
pub mod beat;
mod client;
pub mod cx;
pub mod flight;
pub mod flooders;
pub mod history;
pub mod ids;
pub mod life;
mod lifecycle;
pub mod live_debug;
pub mod logs;
pub mod merge;
pub mod metrics;
pub mod min_rate;
pub mod module;
pub mod names;
pub mod overload;
mod places;
pub mod rates;
pub mod regex;
pub mod sampler;
mod session;
pub mod settings;
pub mod slice;
pub mod stats;
pub mod status;
pub mod syslog;
mod temp_path;
pub mod tls_certificates;
pub mod tls_files;
pub mod tls_objects;
pub mod tls_settings;
pub mod told;
pub mod turns;
pub mod unconfirmed;
pub mod vars;
pub mod watch;
pub mod zones;

pub use client::Client;
pub use cx::{Cx, LoadEnv};
pub use lifecycle::{Engine, Help, Helper, SLOTS, Seat};
pub use metrics::Metrics;
pub use module::Module;
pub use places::{Place, Places};
pub use session::{Session, shared_in};
pub use stats::Stats;
pub use temp_path::TempPath;
