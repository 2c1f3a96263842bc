//! The client of a request: its connection, and the way of the response to it.

use std::rc::Rc;

use engine::rates::Rates;
use os::SockAddr;

use crate::channel::Channel;
use crate::channel::conn::Conn;

/// The connection of a request, and how the response goes out on it.
pub struct ClientSide {
    /// The connection; `None` while the request is kept for reuse.
    pub(crate) conn: Option<Rc<Conn>>,
    /// The way to the client.
    pub(crate) channel: Channel,
    /// The client's address, where `realip` replaced the connection's.
    pub real_peer: Option<SockAddr>,
    /// The limits of how fast the response goes out.
    pub rates: Rates,
}

impl ClientSide {
    pub(super) fn new(conn: Rc<Conn>, channel: Channel) -> ClientSide {
        ClientSide { conn: Some(conn), channel, real_peer: None, rates: Rates::default() }
    }

    /// Clears the state of one request; the channel keeps its buffers.
    pub(super) fn reset(&mut self) {
        self.channel.reset();
        self.real_peer = None;
        self.rates = Rates::default();
    }

    /// The connection.
    pub(crate) fn conn(&self) -> &Rc<Conn> {
        self.conn.as_ref().expect("a request in use has its connection")
    }

    /// The client's address: the one `realip` found, else the connection's.
    pub(crate) fn address(&self) -> &SockAddr {
        self.real_peer.as_ref().unwrap_or_else(|| &self.conn().peer)
    }
}
