//! UDP sessions.
//!
//! ```text
//!  socket ─▶ endpoint ─(client, local address)─▶ inbox ─▶ session's relay ─▶ server's socket
//!     ▲                                                        │
//!     └────────────────────── answers ◀────────────────────────┘
//! ```
//!
//! Each worker has a socket for each address, and the kernel keeps a client's datagrams at one
//! worker. An *endpoint* ([`endpoint`]) is such a socket with the sessions of its clients. A
//! session begins with a datagram from a client that has none; its key is the client's address and
//! the local one. It has an inbox, and a connected socket to its server, whose port nobody else
//! knows.
//!
//! The phases of a session are polled at once and become a task only if they wait. Once the proxy
//! serves it, the session is an entry of the worker's [`table`] and has no task: one task waits for
//! all sockets to servers together (`event::FdSet`) and for the next of the table's timers. So an
//! idle session has no task, no future and no slot of the loop. A client's datagram runs its
//! session (`stream::proxy::datagrams`) at once, within the task that received it. The first answer
//! of a server settles the choice: what another attempt would need is dropped.
//!
//! **Batches.** Datagrams of many clients are received in one call (`recvmmsg`). The answers of all
//! sessions that run in a turn leave in one (`sendmmsg`, [`outbox`]), before any of these sessions
//! ends and before the table's task waits. The kernel may join received datagrams of one length
//! (`UDP_GRO`); consecutive answers of one length to one client leave joined (`UDP_SEGMENT`).
//!
//! **Too many sessions**: [`sessions`] chooses the one to end.
//!
//! **Reload.** A leaving worker gives each session's client a connected socket of its own
//! ([`own_socket`]). The kernel prefers it to the common socket, so the session continues, with the
//! same socket to its server. The successor starts to receive only then: a pipe from worker to
//! worker by way of the master closes at that moment (`Seat::alone`), so that no datagram begins a
//! second session. If the reload removed the address, the leaving worker connects the common socket
//! with itself (`os::datagram::deafen`), so that the kernel refuses what new clients send; a worker
//! that gets the socket back by a later reload undoes that. `net::listeners` says what happens to
//! sockets when the workers become fewer.

pub(crate) mod client;
pub(crate) mod datagrams;
pub(crate) mod endpoint;
mod inbox;
mod outbox;
mod own_socket;
pub(crate) mod relay;
pub(crate) mod sessions;
pub(crate) mod table;
mod timers;

pub use self::client::{Client, Held};
pub use self::datagrams::Datagrams;
