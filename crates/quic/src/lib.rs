//! QUIC (RFC 9000 to 9002) to clients: from the datagrams of the worker's sockets to connections
//! and their streams. The protocol machine is quinn-proto, which does no I/O: packets, loss,
//! congestion, streams. The loop, the sockets, the clock and the choice of the server by the
//! client's hello are ours.
//!
//! ```text
//!  socket ─▶ endpoint ─▶ hello ─▶ (the engine chooses a server) ─▶ connection ─▶ its protocol
//!    ▲          │                                                     │ ▲
//!    └──────────┴── datagrams of all connections that have something ─┘ │ streams
//!                                                                      requests
//! ```
//!
//! `listen … quic` has a datagram socket for each worker. One task per socket ([`endpoint`]) reads
//! the available datagrams (joined by the kernel where it can), dispatches them to connections,
//! runs the protocol of each connection that has something, then sends all pending datagrams in one
//! batch, with as many datagrams of one client in a call as there are. A request's task that writes
//! to a stream later puts its connection on the endpoint's list.
//!
//! **A new client.** Its first packets are opened before there is a connection ([`initial`]),
//! because the hello in them names the server (`http::quic_listen`). With the server known, the
//! handshake has the certificates, verification and sessions of any other TLS connection
//! (`tls::quic`).
//!
//! # Which process gets a datagram
//!
//! **By connection id.** Our ids (`net::quic_id`) contain the worker's number and the process. The
//! kernel finds the socket by the number, with a classic BPF filter on the reuseport group. The
//! worker that reads the datagram finds another process by the rest of the id. A leaving worker no
//! longer reads its sockets but keeps its connections: its successor forwards their datagrams
//! (`net::quic_relay`) over a pair of sockets that the master made before it forked the leaving
//! worker, or that a new binary got from the old one. A datagram with the id of a process that has
//! ended is answered with a stateless reset at once.
//!
//! **An address that a reload removes** keeps its connections. While workers of the earlier
//! configurations live, the current ones read its sockets and forward their datagrams; all else is
//! dropped ([`Parting`], `net::listeners::removal`). The master keeps the sockets until then, so
//! that an address that comes back gets the same ones: new sockets would be in one group with the
//! old ones, which nobody reads, and the kernel would give clients to both. When the whole server
//! ends, no worker follows; each one continues to read for its own connections and refuses new
//! ones. Two things are lost: connections of an older worker if the server ends while its
//! successors leave too; and, after a reload from a single address to the wildcard address, new
//! clients of that address, as long as older workers live.
//!
//! # Addresses of clients
//!
//! **A client may migrate.** Its packets may come from a new address; `$remote_addr` is the last
//! address that it has validated. quinn-proto does not report this, so the packet keys look for the
//! frames of path validation while an address is not validated (`tls::quic::PathWatch`).
//!
//! **A client that has not validated its address gets at most three times the bytes that it sent**
//! (RFC 9000 section 8). Otherwise an attacker could forge a victim's address, send little, and
//! have the server flood the victim (amplification). quinn-proto may send one datagram too many, so
//! a connection is asked only for as many datagrams as the budget allows ([`connection`]), until
//! the handshake keys have opened a packet, which proves the address.
//!
//! **Off-path probes.** The answer to a PATH_CHALLENGE from another address leaves only if three
//! times as many bytes came from there ([`off_path`]).
//!
//! # Limits
//!
//! **Small frames cost budget.** For every 32 received bytes one frame is free. A session charges
//! each further frame to the budget of useless frames (`Connection::surplus_frames`), because many
//! tiny frames cost more than they bring: path challenges, retired ids, and pieces of a stream with
//! gaps between them, for which quinn-proto needs ten times their memory and eight times the work
//! of their datagrams. quinn-proto has its own limits for ids to be retired and for the pieces of a
//! stream.
//!
//! **A panic costs little.** One task serves all connections of a socket, so it catches panics
//! itself. A panic in a request ends its stream, one in the connection's own work ends that
//! connection, whose client gets stateless resets, and one over a datagram without a connection
//! costs that datagram ([`endpoint`]).
//!
//! # In the engine
//!
//! **Accounting.** A connection counts among `worker_connections` without having a socket of its
//! own (`event::Socketless`). At the end of each turn its session reports its state (busy, idle, or
//! owing a handshake or a header section) and the time of its next timeout
//! (`client_header_timeout`, `keepalive_timeout`). One task per connection waits until the loop
//! asks for the connection's end or that time comes, and then has the endpoint run the connection.
//! Frames without use are charged to the same accounts as over HTTP/2 (`http_wire::address`).
//!
//! **Unacknowledged responses.** When QUIC has taken a whole response, its request is over and
//! nothing waits for the client any more. Until the end is acknowledged the session samples once a
//! second how many bytes the client has acknowledged (`http::h3`), and resets such streams when
//! `send_timeout` or `send_min_rate` is exceeded. The count comes from our congestion controller
//! (`quic::congestion`), because quinn-proto reports it nowhere else.

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
