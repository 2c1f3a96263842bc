//! Balancing methods, one file each, and what binds clients to servers.

pub mod hash;
pub mod ip_hash;
pub mod least_conn;
pub mod least_time;
pub mod random;
mod ring;
mod sessions;
pub mod sticky;

/// After so many servers that cannot be asked a method gives up, and round robin chooses.
const TRIES_MAX: u32 = 20;
