//! Groups of servers that sessions are passed to, whatever the engine: the servers and what workers
//! share of them, balancing methods, idle connections, names that change, health checks, the rows
//! of the API.
//!
//! ```text
//!   block ──▶ upstreams ──▶ group ─┬─ servers  (in a zone) ◀─ names, health, api
//!  (settings)  (by name)           ├─ balance  picker ─▶ lease ─▶ server ─▶ back
//!                                  ├─ queue    sessions that wait for a server
//!                                  └─ pool     idle connections ◀─▶ handover between workers
//!                                               connections over HTTP/2 that exchanges share (h2)
//! ```
//!
//! An engine asks on behalf of an [`engine::Client`] and does the talking itself: nothing here
//! knows what is said over a connection, but [`http_client`] for the server's own requests, and
//! [`h2`], where the frames of many exchanges share one.
#![forbid(unsafe_code)]

pub mod api;
pub mod balance;
pub mod block;
pub mod directives;
pub mod failure;
pub mod group;
pub mod h2;
mod handover;
pub mod health;
pub mod http_client;
pub mod lease;
pub mod names;
pub mod ocsp_client;
pub mod peer;
pub mod pool;
pub mod queue;
pub mod resolver;
mod server_line;
pub mod servers;
pub mod socket;
pub mod ssl;
pub mod ssl_directives;
mod state_file;
pub mod upstreams;
pub mod url;
pub mod wire;
mod zone;

pub use group::Group;
pub use upstreams::{GroupRef, NoPort, Target, Upstreams};
