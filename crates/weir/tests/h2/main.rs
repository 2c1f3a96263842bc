//! HTTP/2 with clients.

#![allow(clippy::unwrap_used, clippy::panic)]

mod http2;
mod http2_priority;
mod http2_repeated;
mod http2_stalls;
mod http2_turns;
