//! Balancing methods and session affinity.

pub mod ip_hash;
pub mod methods;
mod sessions;
pub mod sticky;
