//! Balancing methods and session affinity.

pub mod ip_hash;
pub mod methods;
mod sessions;
mod sessions_part;
pub mod sticky;
