//! Stand-ins: certificates of earlier configurations that are used until new ones are issued.

use base::time::unix_secs;

use super::times;
use crate::board::Board;
use crate::folder::Folder;
use crate::issuer::Issuer;
use crate::progress::Progress;
use crate::zone::Shown;

/// Publishes the certificates in the issuer's directory that are not configured any more but cover
/// names of orders without a certificate.
pub(super) fn show(issuer: &Issuer, folder: &Folder, board: &Board) {
    let is_missing = |id: &str| folder.read(&format!("{id}.crt")).is_none();
    let missing: Vec<_> = issuer.orders.iter().filter(|order| is_missing(&order.id)).collect();
    if missing.is_empty() {
        return;
    }
    for name in folder.list(".crt") {
        let Some(id) = name.strip_suffix(".crt") else { continue };
        let is_wanted = issuer.orders.iter().any(|order| order.id == id);
        if is_wanted || !is_from(issuer, folder, id) {
            continue;
        }
        let Some(pair) = folder.pair(id) else { continue };
        let until = times(&pair).map_or(0, |(_, until)| until);
        let shown = Shown {
            key: format!("{}/{id}", issuer.name),
            chain: pair.chain,
            private: pair.private,
            until,
            is_stand_in: true,
            ..Shown::default()
        };
        if until > unix_secs().cast_signed()
            && missing.iter().any(|order| shown.covers(order, &order.names))
        {
            board.stand_in(&shown.key.clone(), |place| *place = shown);
        }
    }
}

/// Whether the certificate is from the issuer's server, because several issuers may share the
/// directory.
pub(super) fn is_from(issuer: &Issuer, folder: &Folder, id: &str) -> bool {
    let text = folder.read(&format!("{id}.state")).unwrap_or_default();
    let settings = Progress::parse(&text).settings;
    // Files of nginx-acme have no state.
    settings.is_empty() || settings.split(' ').next() == Some(&issuer.uri)
}
