//! HTTP/2 with clients.

#![allow(clippy::unwrap_used, clippy::panic)]

#[cfg(feature = "script")]
#[path = "../common/scripts.rs"]
mod scripted;

mod http2;
mod http2_priority;
mod http2_repeated;
mod http2_stalls;
mod http2_turns;
mod moves;
#[cfg(feature = "script")]
mod scripts;
mod tunnel_moves;
