//! The acme process: the keys that it reads while it is privileged, and its main task.

use std::path::PathBuf;
use std::rc::Rc;

use engine::{Help, Seat};
use event::side_by_side;
use http::server::HttpMain;

use crate::board::Board;
use crate::directives::{Acme, BadKeyFile, decode_key, read};
use crate::issuer::{AccountKey, ExternalKey};
use crate::keep::Keeper;
use crate::session::Trouble;

/// In the master: whether an acme process is needed, that is whether any certificate is to be
/// ordered.
pub(crate) fn wants(main: &HttpMain) -> bool {
    let acme = main.confs.get::<Acme>();
    acme.is_some_and(|acme| acme.issuers.iter().any(|issuer| !issuer.orders.is_empty()))
}

/// In the acme process, before it drops its privileges: reads the key files that the configuration
/// names. The master does not keep the keys, so that no worker inherits them. An error is stored,
/// and reported when the key is used.
pub(crate) fn prepare(main: &HttpMain) {
    for issuer in main.confs.get::<Acme>().iter().flat_map(|acme| &acme.issuers) {
        if let AccountKey::File(path) = &issuer.account_key {
            let text = read(path).map_err(|e| {
                Trouble::permanent(format!("account key \"{}\": {e}", path.display()))
            });
            let _ = issuer.secrets.account_key.set(text);
        }
        if let Some((_, ExternalKey::File(path))) = &issuer.external {
            let key = read(path).and_then(|text| decode_key(&text).map_err(BadKeyFile::External));
            let key = key.map_err(|e| {
                Trouble::permanent(format!("external account key \"{}\": {e}", path.display()))
            });
            let _ = issuer.secrets.external_key.set(key);
        }
        if let Some(shared) = &issuer.shared {
            let secrets = fleet_link::Secrets::read(&shared.engine).and_then(|secrets| {
                let read = |path: &PathBuf| {
                    let shown = path.display();
                    read(path).map_err(|e| format!("key of \"sync\" \"{shown}\": {e}"))
                };
                Ok((secrets, shared.keys.iter().map(read).collect::<Result<_, _>>()?))
            });
            let _ = issuer.secrets.shared.set(secrets);
        }
    }
}

/// The main task: runs all issuers concurrently until the process is to exit.
pub(crate) fn run(main: &Rc<HttpMain>, seat: &Seat) -> Help {
    let mut all = Vec::new();
    if let Some(acme) = main.confs.get::<Acme>()
        && let Some(shared) = &acme.shared
    {
        let orders = acme.issuers.iter().flat_map(|issuer| &issuer.orders);
        let keys: Vec<&str> = orders.map(|order| order.key.as_str()).collect();
        let board = Rc::new(Board::new(shared, &keys, &seat.log));
        if main.metrics.is_on() {
            board.keep_history(&main.stats);
        }
        for issuer in acme.issuers.iter().filter(|issuer| !issuer.orders.is_empty()) {
            let keeper = Keeper::new(issuer, &board, &seat.log);
            all.push(keeper.run(main.life.gate.clone()));
        }
    }
    Box::pin(side_by_side(all.into_iter(), usize::MAX))
}
