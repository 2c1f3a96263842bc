//! HTTP/3 with clients.

#![allow(clippy::unwrap_used, clippy::panic)]

mod http3;
mod http3_frames;
mod http3_limits;
mod http3_network;
mod http3_removed;
mod http3_strays;
mod http3_unconfirmed;
mod http3_upgrade;
