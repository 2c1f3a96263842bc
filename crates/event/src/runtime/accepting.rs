//! Whether the driver reports connections of listeners: not while descriptors or memory have run
//! out, or another worker has the accept lock.

use crate::runtime::inner::{Inner, try_with};
use crate::runtime::room::descriptors_max;
use crate::state::index::NONE;
use crate::state::listening::Listening;
use crate::state::socks::bits;

/// When descriptors or memory have run out, accepting stops until a descriptor is closed through
/// the loop, but at most for this time, because others may be closed without the loop's knowledge.
const STARVED_MS: u64 = 10;

impl Inner {
    /// Begins or ends the driver's reports for a listener, as its state asks for.
    pub(crate) fn sync_listener(&mut self, listener: &dyn Listening) {
        let allowed = self.core.accept_listening
            && !listener.is_paused()
            && self.core.starved_until_ms.is_none()
            && !self.core.relief.is_short();
        let key = listener.key();
        let Some(entry) = self.core.socks.get(key) else { return };
        let wanted = allowed && entry.reader != NONE;
        let armed = entry.bits & bits::ARMED_READ != 0;
        if wanted == armed {
            return;
        }
        entry.bits ^= bits::ARMED_READ;
        if let Err(error) =
            self.driver.listen(&self.core, key, listener.fd(), wanted, listener.is_exclusive())
        {
            self.core.listen_failures.push(error);
        }
    }

    /// [`Inner::sync_listener`] for all listeners; forgets those that are closed.
    pub(crate) fn sync_listeners(&mut self) {
        let mut listeners = std::mem::take(&mut self.core.listeners);
        listeners.retain(|weak| match weak.upgrade() {
            Some(listener) => {
                self.sync_listener(&*listener);
                true
            }
            None => false,
        });
        self.core.listeners = listeners;
    }

    /// Ends the reports of listeners without an accepting task; the next accept begins them again.
    pub(crate) fn quiet_idle_listeners(&mut self) {
        if !self.core.idle_listeners.is_empty() {
            self.core.idle_listeners.clear();
            self.sync_listeners();
        }
    }

    /// Descriptors have run out: accepting stops until one is closed, or for [`STARVED_MS`]. The
    /// connections that have been parked longest are asked to close. Returns whether to log this,
    /// which happens once a second.
    pub(crate) fn starve(&mut self) -> bool {
        let core = &mut self.core;
        core.starved_until_ms = Some(base::time::now_ms() + STARVED_MS);
        // It may have been changed from outside.
        core.descriptors_max = descriptors_max();
        core.reclaim();
        let second = base::time::unix_secs();
        let due = std::mem::replace(&mut core.starved_logged, second) != second;
        self.sync_listeners();
        due
    }

    /// A descriptor was closed, or enough time has passed.
    pub(crate) fn feed(&mut self) {
        self.core.starved_until_ms = None;
        self.sync_listeners();
    }
}

/// Reports that a descriptor was closed outside the loop's knowledge (a cached file): accepting
/// that has stopped for want of one resumes.
pub fn descriptor_closed() {
    let _ = try_with(|inner| {
        if inner.core.starved_until_ms.is_some() {
            inner.feed();
        }
    });
}
