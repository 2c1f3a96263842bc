//! Leftovers: TXT records of orders that were broken off, and files of orders that are no longer
//! configured.

use base::log;
use base::log::Level;
use event::{Either, race, side_by_side};

use super::{Keeper, ORDERS, certificates, now, stand_in};
use crate::challenges::{Stage, TRIES_MAX, withdraw};

/// The time for all removals at the begin, in milliseconds: orders wait for it, and a program that
/// hangs is no reason that certificates end.
const CLEAN_UP_MS: u64 = 60_000;

/// The time for which the files of an order that is no longer configured are kept after the end of
/// its certificate, or if it never had one, after their last change, in seconds. Servers get a new
/// configuration one after the other, and one of them may still serve the certificate.
const KEPT_S: i64 = 30 * 86_400;

/// The ends of an order's files. That of the state is removed last, because it says whose they are.
const ENDS: [&str; 6] = ["next.key", "next.crt", "challenges", "key", "crt", "state"];

impl Keeper {
    pub(super) fn stage(&self) -> Stage<'_> {
        Stage { issuer: &self.issuer, board: &self.board, folder: &self.folder, log: &self.log }
    }

    /// Called when this host becomes the leader: removes TXT records of orders that are not in
    /// progress. Those of the others are removed at their ends. What takes too long is left for the
    /// order's end, or for the next leader.
    pub(super) async fn clean_up(&self) {
        self.clean_up_within(CLEAN_UP_MS).await;
    }

    pub(super) async fn clean_up_within(&self, ms: u64) {
        let (stage, left) = (self.stage(), self.left());
        let removing = left.iter().map(|id| withdraw(&stage, id, TRIES_MAX));
        let done = race(side_by_side(removing, ORDERS), event::sleep(ms)).await;
        if let Either::Second(()) = done {
            let (name, s) = (&self.issuer.name, ms / 1000);
            let m = format_args!("acme: TXT records are not removed after {s} s");
            log!(self.log, Level::Warn, None, "{m}, issuer: \"{name}\"");
        }
    }

    /// The orders that may have left TXT records.
    fn left(&self) -> Vec<String> {
        let settings = self.settings();
        let is_idle = |id: &str| {
            let progress = self.progress(id, &settings);
            progress.order.is_none() && !progress.asked
        };
        let own = self.issuer.orders.iter().map(|order| order.id.clone());
        let mut left: Vec<_> = own.filter(|id| is_idle(id)).collect();
        // With `sync`, no other issuer has files here.
        if self.issuer.shared.is_some() {
            for name in self.folder.list(".challenges") {
                let id = name.trim_end_matches(".challenges");
                if !self.is_configured(id) {
                    left.push(id.to_owned());
                }
            }
        }
        left
    }

    fn is_configured(&self, id: &str) -> bool {
        self.issuer.orders.iter().any(|order| order.id == id)
    }

    /// Removes the files of orders that are no longer configured, after a while. With `sync` alone,
    /// because other servers and the engine would keep them for ever, too.
    pub(super) fn drop_ended(&self) {
        for name in self.folder.list(".state") {
            let Some(id) = name.strip_suffix(".state") else { continue };
            if self.account == id
                || self.is_configured(id)
                || !stand_in::is_from(&self.issuer, &self.folder, id)
                || self.is_kept(id)
            {
                continue;
            }
            for end in ENDS {
                let name = format!("{id}.{end}");
                if !self.folder.has(&name, None) {
                    self.folder.remove(&name);
                }
            }
        }
    }

    fn is_kept(&self, id: &str) -> bool {
        let until = match self.folder.read(&format!("{id}.crt")) {
            Some(chain) => {
                let chain = certificates(&chain);
                chain.and_then(|chain| chain.first()?.not_after().unix())
            }
            None => self.folder.changed_at(&format!("{id}.state")),
        };
        until.is_none_or(|until| now() < until.saturating_add(KEPT_S))
    }
}
