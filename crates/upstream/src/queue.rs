//! `queue`: sessions that find no server wait until one has room for them.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;

use engine::Client;
use engine::metrics::word;

use crate::balance::{AnyPicker, Balancer};
use crate::lease::Lease;
use crate::peer::Peer;
use crate::servers::Servers;

/// Interval of looking for servers that other workers gave back, milliseconds.
const LOOK_MS: u64 = 50;

/// The queue of an upstream, in this worker.
pub struct Queue {
    max: usize,
    timeout_ms: u64,
    waiting: Cell<usize>,
}

/// One session in the queue.
struct Waiting<'a>(&'a Queue, &'a Servers);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.1.waiting.set(self.1.waiting.get() - 1);
        if let Some(counters) = self.1.group_meter().and_then(|meter| meter.of_queue()) {
            counters.sub(word::PROCESSING, 1);
        }
    }
}

impl Queue {
    pub(crate) fn new(max: usize, timeout_ms: u64) -> Queue {
        Queue { max, timeout_ms, waiting: Cell::new(0) }
    }

    /// The number of sessions that may wait.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Waits for a server; `None` when the queue is full or the time is over, which is logged.
    pub async fn wait(
        &self,
        client: &mut dyn Client,
        balancer: &dyn Balancer,
        servers: &Servers,
        lease: &mut Lease,
    ) -> Option<Rc<Peer>> {
        if self.waiting.get() >= self.max {
            client.log(Level::Error, format_args!("upstream queue is full"));
            if let Some(counters) = servers.group_meter().and_then(|meter| meter.counters()) {
                counters.add(word::REJECTED, 1);
            }
            return None;
        }
        self.waiting.set(self.waiting.get() + 1);
        servers.waiting.set(servers.waiting.get() + 1);
        if let Some(counters) = servers.group_meter().and_then(|meter| meter.of_queue()) {
            counters.add(word::PROCESSING, 1);
        }
        let _waiting = Waiting(self, servers);
        let until = now_ms().saturating_add(self.timeout_ms);
        loop {
            let left = until.saturating_sub(now_ms());
            if left == 0 {
                client.log(Level::Error, format_args!("upstream queue timed out"));
                return None;
            }
            event::race(servers.freed.notified(), event::sleep(left.min(LOOK_MS))).await;
            lease.begin_again(AnyPicker::begin(balancer, client));
            if let Some(peer) = lease.take_next(client) {
                return Some(peer);
            }
        }
    }
}
