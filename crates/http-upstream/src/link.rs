//! The connection and the server of an exchange, until both are given back.

use std::rc::Rc;

use os::SockAddr;
use upstream::balance::ServerOutcome;
use upstream::lease::Lease;
use upstream::pool::Pool;
use upstream::wire::Wire;

/// The means of an exchange that are given back at its end.
pub(crate) struct Link {
    pub wire: Option<Wire>,
    pub addr: SockAddr,
    pub pool: Option<Rc<Pool>>,
    pub tag: usize,
    pub lease: Lease,
}

impl Link {
    /// The exchange ended well: the connection is kept where that is possible.
    pub fn finish(&mut self, reusable: bool, gate: &event::Gate) {
        self.lease.done(ServerOutcome::Ok);
        // A stream leaves its connection, which others use.
        let wire = self.wire.take();
        if let (Some(Wire::Conn(conn)), Some(pool), true) = (wire, &self.pool, reusable) {
            pool.put(conn, &self.addr, self.tag, gate);
        }
    }
}
