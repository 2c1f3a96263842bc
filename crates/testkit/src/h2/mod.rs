//! A blocking client and a scripted server of HTTP/2. The client shows the wire, judges the
//! server's frames, and can send what no client should.
//!
//! ```no_run
//! # use testkit::h2::{Client, Frame, code};
//! # let port = 1;
//! let mut client = Client::tcp(port);
//! assert_eq!(client.get("/a.txt").body, b"hello");
//! client.send_frame(&Frame::window_update(0, 0));
//! assert_eq!(client.goaway().code, code::PROTOCOL_ERROR);
//! client.wait_for_close();
//! ```
//!
//! Header blocks are decoded by another implementation than the server's. A test that reads
//! frames fails where the server breaks a rule: see `judge.rs`. Nothing hangs: every wait is
//! limited by [`PATIENCE`](crate::PATIENCE).

mod client;
mod fields;
mod frame;
pub(crate) mod judge;
mod response;
pub mod scan;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use client::{Client, Options, Windows};
pub use fields::{Fields, block, indexed, integer, literal, literal_indexed, string, table_size};
pub use frame::{Frame, PREFACE, code, flag, kind, setting};
pub use response::{GoAway, Response};
pub use server::{Came, Peer, Reply, Request, origin, scripted};
pub use wire::{Ended, Wire};
