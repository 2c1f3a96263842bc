//! The choice of a server for a session.

use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use engine::Client;
use upstream::balance::{AnyPicker, ServerOutcome};
use upstream::lease::Lease;
use upstream::peer::Peer;
use upstream::socket::SocketConf;

use super::conf::ProxyConf;
use crate::session::StreamSession;

/// The servers to try for a session, and the remaining attempts.
pub(crate) struct Choice {
    pub(super) lease: Lease,
    pub(super) others: Others,
}

/// State for choosing another server.
pub(crate) struct Others {
    /// The name for the log while no server is chosen.
    pub(super) name: Bytes,
    /// The server name for TLS.
    pub(super) host: Bytes,
    /// The socket settings with our own address, if variables give one for all servers.
    pub(super) bound: Option<Box<SocketConf>>,
    pub(super) tries: u32,
    pub(super) start_ms: u64,
}

impl Choice {
    pub(super) fn new(picker: AnyPicker, (name, host): (Bytes, Bytes), conf: &ProxyConf) -> Choice {
        let mut tries = picker.tries();
        if conf.next_upstream_tries > 0 {
            tries = tries.min(u32::try_from(conf.next_upstream_tries).unwrap_or(u32::MAX));
        }
        let others = Others { name, host, bound: None, tries, start_ms: now_ms() };
        Choice { lease: Lease::new(picker, None), others }
    }
}

impl Others {
    /// The next server; `None`, which is logged, if none is available.
    pub(super) fn take_next(&self, lease: &mut Lease, s: &mut StreamSession) -> Option<Rc<Peer>> {
        let peer = lease.take_next(s);
        s.exchanges.begin(peer.clone(), &self.name);
        if peer.is_none() {
            s.log(Level::Error, format_args!("no live upstreams while connecting to upstream"));
        }
        peer
    }

    /// Whether to try another server after a failure.
    pub(super) fn may_go_on(
        &mut self,
        lease: &mut Lease,
        s: &StreamSession,
        conf: &ProxyConf,
    ) -> bool {
        let is_single = lease.is_single();
        if lease.done(ServerOutcome::Failed) {
            let m = "upstream server temporarily disabled while connecting to upstream";
            s.log(Level::Warn, format_args!("{m}"));
        }
        let timeout = conf.next_upstream_timeout;
        self.tries = if is_single { 0 } else { self.tries.saturating_sub(1) };
        let in_time = timeout == 0 || now_ms().saturating_sub(self.start_ms) < timeout;
        self.tries > 0 && conf.next_upstream && in_time
    }
}
