//! The client's byte stream when it has become another protocol's.

use std::future::Future;
use std::io;
use std::rc::Rc;

use event::Deadline;
use mem::{Chain, Page};
use net::Transport;

use super::conn::Conn;
use crate::h2;

/// The client's byte stream behind an upgrade.
pub(crate) enum Upgraded {
    /// A connection.
    Connection(Rc<Conn>),
    /// A stream of one.
    Stream(h2::Tunnel),
}

/// One end of a tunnel.
pub(crate) trait End {
    /// See [`Transport::try_recv_into`].
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>>;

    /// See [`Transport::try_send`].
    fn try_send(&self, chain: &mut Chain) -> io::Result<usize>;

    /// See [`Transport::has_unsent`].
    fn has_unsent(&self) -> bool;

    /// See [`Transport::readable`].
    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>>;

    /// See [`Transport::writable`].
    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>>;
}

impl End for Transport {
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        Transport::try_recv_into(self, page)
    }

    fn try_send(&self, chain: &mut Chain) -> io::Result<usize> {
        Transport::try_send(self, chain, None)
    }

    fn has_unsent(&self) -> bool {
        Transport::has_unsent(self)
    }

    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Transport::readable(self, deadline)
    }

    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Transport::writable(self, deadline)
    }
}
