//! Balancing methods, and the affinity of clients to servers.

pub mod ip_hash;
pub mod methods;
mod sessions;
pub mod sticky;
