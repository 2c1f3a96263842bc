//! QUIC (RFC 9000 to 9002) to clients: datagrams of the worker's sockets to connections and
//! their streams. The protocol's machine is quinn-proto's; the loop, the sockets, the clock and
//! the choice of the server by the client's hello are ours.
//!
//! ```text
//!  socket ─▶ endpoint ─▶ hello ─▶ (the engine chooses a server) ─▶ connection ─▶ its protocol
//!    ▲          │                                                     │ ▲
//!    └──────────┴── datagrams of all connections that have something ─┘ │ streams
//!                                                                      requests
//! ```
//!
//! One task a socket does all of it: it receives what is there, gives each connection its
//! datagrams, has its protocol look at what came, and sends what there is to send, for all
//! connections together. A task of a request that writes to a stream puts its connection on the
//! endpoint's list.
//!
//! A worker that leaves reads its sockets no more, and goes on with its connections: the worker
//! that has taken its place passes on what is for them (`net::quic_relay`).

#![forbid(unsafe_code)]

mod clock;
mod congestion;
mod connection;
mod endpoint;
mod ids;
mod initial;
mod off_path;
mod outbox;
mod parting;
mod settings;
mod timers;

pub use connection::{Connection, Ended, Gone, Read, Session, stream_id};
pub use endpoint::{Begin, Chosen, Client, Endpoint, Place, Server};
pub use initial::Hello;
pub use parting::Parting;
pub use quinn_proto::{Dir, StreamId};
pub use settings::{Choice, Settings, Transport};
