//! The client's byte stream when it has become another protocol's.

use std::rc::Rc;

use super::conn::Conn;
use crate::{h2, h3};

/// The client's byte stream behind an upgrade.
pub enum Upgraded {
    /// The whole connection, of HTTP/1.
    Connection(Rc<Conn>),
    /// A stream of one.
    Stream(h2::Tunnel),
    /// A stream of one over QUIC.
    Quic(h3::Tunnel),
}
