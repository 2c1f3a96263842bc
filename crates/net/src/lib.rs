//! Addresses, listening sockets and their inheritance, the byte stream of a connection
//! ([`Transport`]), relays between two of them, the DNS resolver, and the ids and forwarding of
//! QUIC datagrams.
#![forbid(unsafe_code)]

pub mod addr;
pub mod cidr;
pub mod inherit;
pub mod ip;
pub mod listen;
pub mod listeners;
pub mod moves;
pub mod proxy_header;
pub mod quic_id;
pub mod quic_relay;
pub mod relay;
pub mod resolver;
pub mod spec;
pub mod transport;
pub mod watchdog;
pub mod wiped;

pub use cidr::{Cidr, Origin};
pub use inherit::Inherited;
pub use listeners::Listeners;
pub use os::socket::Kind;
pub use spec::{Deferral, Keepalive, ListenSpec};
pub use transport::Transport;
