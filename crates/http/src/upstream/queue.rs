//! `queue`: requests that find no server wait until one has room for them.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;

use super::balance::Way;
use super::group::Group;
use super::lease::Lease;
use super::peer::Peer;
use super::wire::either;
use crate::request::Request;

/// How often to look whether another worker gave a server back, milliseconds.
const LOOK_MS: u64 = 50;

/// The queue of an upstream, in this worker.
pub(crate) struct Queue {
    max: usize,
    timeout_ms: u64,
    waiting: Cell<usize>,
}

/// A place in the queue.
struct Place<'a>(&'a Queue, &'a Group);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        let servers = &self.1.servers;
        servers.waiting.set(servers.waiting.get() - 1);
    }
}

impl Queue {
    pub fn new(max: usize, timeout_ms: u64) -> Queue {
        Queue { max, timeout_ms, waiting: Cell::new(0) }
    }

    /// Waits for a server; `None` when the queue is full or the time is over.
    pub async fn wait(
        &self,
        r: &mut Request,
        group: &Group,
        lease: &mut Lease,
    ) -> Option<Rc<Peer>> {
        if self.waiting.get() >= self.max {
            r.log(Level::Error, format_args!("upstream queue is full"));
            return None;
        }
        self.waiting.set(self.waiting.get() + 1);
        let servers = &group.servers;
        servers.waiting.set(servers.waiting.get() + 1);
        let _place = Place(self, group);
        let until = now_ms().saturating_add(self.timeout_ms);
        loop {
            let left = until.saturating_sub(now_ms());
            if left == 0 {
                r.log(Level::Error, format_args!("upstream queue timed out"));
                return None;
            }
            either(servers.freed.notified(), event::sleep(left.min(LOOK_MS))).await;
            lease.begin_again(Way::begin(group.balancer.as_ref(), r));
            if let Some(peer) = lease.take_next(r) {
                return Some(peer);
            }
        }
    }
}
