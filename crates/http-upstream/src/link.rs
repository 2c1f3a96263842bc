//! The connection and the server lease of an exchange, until both are released.

use std::rc::Rc;

use upstream::balance::ServerOutcome;
use upstream::lease::Lease;
use upstream::peer::Peer;
use upstream::pool::{Owner, Pool, Use};
use upstream::wire::Wire;

/// The connection, the lease and the protocol of an exchange.
pub(crate) struct Link {
    pub wire: Option<Wire>,
    pub peer: Rc<Peer>,
    pub pool: Option<Rc<Pool>>,
    pub tag: usize,
    pub apart: bool,
    pub owner: Option<Rc<Owner>>,
    pub lease: Lease,
}

impl Link {
    /// The exchange has succeeded: releases the server, and keeps the connection if it is reusable.
    pub fn finish(&mut self, reusable: bool, gate: &event::Gate) {
        self.lease.done(ServerOutcome::Ok);
        // A stream only closes itself; other exchanges use its connection.
        let wire = self.wire.take();
        if let (Some(Wire::Conn(conn)), Some(pool), true) = (wire, &self.pool, reusable) {
            let of = Use { tag: self.tag, apart: self.apart, owner: self.owner.as_ref() };
            pool.put(conn, &self.peer.spec.addr, of, gate);
        }
    }
}
