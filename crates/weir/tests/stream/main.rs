//! Sessions of TCP and UDP, which `stream` forwards.

#![allow(clippy::unwrap_used, clippy::panic)]

mod health;
mod mqtt;
mod pass;
#[cfg(feature = "script")]
mod scripts;
mod session_drop;
mod sessions;
mod stream_site;
mod tls;
mod udp;
mod udp_batches;
mod udp_limits;
mod udp_removed;
