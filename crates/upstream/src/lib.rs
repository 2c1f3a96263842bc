//! Groups of servers for sessions of any engine: the servers and what workers share of them,
//! balancing methods, idle connections, names that change, health checks, the rows of the API.
//!
//! ```text
//!   block ──▶ upstreams ──▶ group ─┬─ servers  (in a zone) ◀─ names, health, api
//!  (settings)  (by name)           ├─ balance  picker ─▶ lease ─▶ server ─▶ back
//!                                  ├─ queue    sessions that wait for a server
//!                                  └─ pool     idle connections ◀─▶ handover between workers
//!                                               connections over HTTP/2 that exchanges share (h2)
//! ```
//!
//! The crate knows a session only as an [`engine::Client`] (address, evaluation of a string, log),
//! and no protocol except that of [`http_client`], for the server's own requests, and [`h2`], where
//! the frames of many exchanges share a connection. [`upstreams`] has the groups by name, [`group`]
//! one group, [`directives`] the setters of `upstream` blocks, which an engine lists in its own
//! table of directives.
//!
//! **Shared state** ([`servers`]). A group's servers are rows of words (`shm::Rows`), in a zone
//! that all workers see or in memory of the worker's own; the code is the same. A worker reads the
//! rows into lists when their version has changed, because the resolver, a health check or the API
//! changed the set of servers. Words that change with each request (connections, failures, weights)
//! are never copied. Exchanges in flight are counted per worker, so that the master can subtract
//! those of a dead one. A reload with the same settings of a zone's upstreams continues in the same
//! memory; with other settings the zone is made anew, and servers in both keep their state.
//!
//! **One leader.** Work that is needed once for all workers (names, health checks) is done by the
//! leader of a zone's rows: a word with its process id, which the master clears when the worker
//! dies.
//!
//! **API.** It changes rows as the resolver does ([`api`]), and a thread writes a new `state` file
//! next to the old one, then renames it. The file is read when a zone is made. A reload that keeps
//! the zone continues with the zone's content, because a leaving worker may still be changing it.
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
