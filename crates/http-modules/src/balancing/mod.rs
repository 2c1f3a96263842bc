//! Balancing methods, one file each, and what binds clients to servers.

mod drawn;
pub mod hash;
pub mod ip_hash;
pub mod least_conn;
pub mod least_time;
pub mod random;
mod ring;
mod sessions;
pub mod sticky;
