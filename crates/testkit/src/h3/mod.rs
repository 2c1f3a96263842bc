//! A blocking client of HTTP/3, on a connection of quinn-proto's.
//!
//! ```no_run
//! # use testkit::h3::Client;
//! # let port = 1;
//! let mut client = Client::connect(port, "localhost");
//! assert_eq!(client.get("/a.txt").body, b"hello");
//! ```
//!
//! Nothing hangs: every wait is limited by [`PATIENCE`](crate::PATIENCE).

mod client;
mod machine;
mod quic;
mod tamper;

pub use client::{Client, Response};
pub use machine::Machine;
pub use quic::{Options, Quic};
pub use quinn_proto::{ConnectionError, Dir, Side, StreamId};
pub use tamper::Script;
