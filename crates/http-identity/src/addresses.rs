//! The addresses of servers that modules talk to themselves.

use std::pin::pin;

use base::log::lossy;
use event::{Deadline, Either, race};
use os::SockAddr;
use upstream::names::Lookup;
use upstream::url::{self, Url};

/// The addresses of a host, from `resolver`, or else from the system's resolver, which blocks and
/// so runs in a thread.
///
/// # Errors
/// There are none until the deadline; a text for the log.
pub(crate) async fn of(
    lookup: &Lookup,
    target: &Url,
    deadline: Deadline,
) -> Result<Vec<SockAddr>, String> {
    if let Some(address) = &target.addr {
        return Ok(vec![address.clone()]);
    }
    match race(pin!(resolve(lookup, target)), event::sleep_until(deadline)).await {
        Either::First(found) => found,
        Either::Second(()) => Err(format!("{} could not be resolved in time", lossy(&target.host))),
    }
}

async fn resolve(lookup: &Lookup, target: &Url) -> Result<Vec<SockAddr>, String> {
    let (host, port) = (target.host.clone(), target.port);
    let shown = lossy(&host).into_owned();
    match &lookup.resolver {
        Some(resolver) => match resolver.addresses(&host, lookup.timeout_ms).await {
            Ok(found) => Ok(found.list.into_iter().map(|ip| SockAddr::ip(ip, port)).collect()),
            Err(e) => Err(format!("{shown} could not be resolved ({e})")),
        },
        None => {
            let asked = event::pool::default().run_short(move || url::resolve(&host, port));
            match asked.await {
                Ok(list) if !list.is_empty() => Ok(list),
                _ => Err(format!("{shown} could not be resolved")),
            }
        }
    }
}
