//! HTTP/3 with clients.

#![allow(clippy::unwrap_used, clippy::panic)]

#[cfg(feature = "script")]
#[path = "../common/scripts.rs"]
mod scripted;

mod http3;
mod http3_frames;
mod http3_limits;
mod http3_network;
mod http3_removed;
mod http3_strays;
mod http3_unconfirmed;
mod http3_upgrade;
#[cfg(feature = "script")]
mod scripts;
