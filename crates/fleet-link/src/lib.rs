//! The shared state process: rounds with the engine (Redis or Valkey), and the only connections to
//! it. `fleet` decides what is sent and what an answer means.
//!
//! The crate `redis` blocks, and so runs on threads of the process's pool ([`caller`]). The loop
//! stays free for signals. Questions about strict limits have a connection of their own, because a
//! round with many keys may take longer than their workers wait.
#![forbid(unsafe_code)]

mod caller;
mod link;
mod strict;

use std::rc::Rc;

use base::log::Log;
use fleet::{Fleet, Node, Settings};

pub use crate::caller::Caller;
pub use crate::link::Secrets;

/// Runs rounds for ever.
pub async fn run(fleet: Rc<Fleet>, secrets: Secrets, log: Log) {
    let Some(settings) = fleet.settings().cloned() else { return };
    let name = format!("{:016x}", fleet.status().node(random()));
    let name = (name, &*os::process::hostname());
    let node = Node::new(settings.clone(), fleet.status().clone(), fleet.parts(), name);
    if let Some((zones, questions)) = fleet.strict() {
        event::spawn(strict::run(zones, questions, Caller::new(&settings, &secrets)));
    }
    let caller = Caller::new(&settings, &secrets);
    let mut process = Process { node, settings, log, caller };
    loop {
        let pause_ms = process.round().await;
        event::sleep(pause_ms).await;
    }
}

/// A number that no other server of the fleet has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Each state has a seed of its own from the system.
    RandomState::new().hash_one(std::process::id())
}

struct Process {
    node: Node,
    settings: Settings,
    log: Log,
    caller: Caller,
}

impl Process {
    /// A round; the milliseconds until the next one.
    async fn round(&mut self) -> u64 {
        let begun = base::time::exact_ms();
        if !self.caller.is_connected() {
            let made = self.caller.attempt(self.caller.retry_ms()).await;
            base::time::update();
            match made {
                Ok(true) => self.node.joined(),
                Ok(false) => {}
                Err(failure) => self.node.failed(base::time::now_ms(), &failure.reason),
            }
        }
        if self.caller.is_connected() {
            base::time::update();
            let calls = self.node.begin(base::time::now_ms());
            let began_us = base::time::exact_us();
            let outcome = self.caller.exchange(calls).await;
            base::time::update();
            let took_us = base::time::exact_us().saturating_sub(began_us);
            if !self.node.end(base::time::now_ms(), took_us, outcome) {
                self.caller.disconnect();
            }
        }
        for (level, line) in self.node.lines() {
            base::log!(self.log, level, None, "{line}");
        }
        if self.caller.is_connected() && self.node.has_more() {
            return 0;
        }
        let took_ms = base::time::exact_ms().saturating_sub(begun);
        // A slow engine gets a rest, too.
        self.settings.interval_ms.saturating_sub(took_ms).max(self.settings.interval_ms / 10)
    }
}
