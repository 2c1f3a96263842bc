//! Request targets and hosts.

mod host;

pub use host::{Host, validate_host};
