//! The name of a client of SMTP, as name servers tell it.

use base::log::{Level, lossy};
use engine::Client;
use mail_proto::ClientHost;
use net::resolver::Failure;
use upstream::resolver::Resolving;

use crate::session::MailSession;

/// Looks the name up, and whether it leads back to the address.
pub(crate) async fn find(s: &MailSession) -> ClientHost {
    let lookup = s.server.confs.get::<Resolving>().cloned().unwrap_or_default().lookup();
    let Some(resolver) = &lookup.resolver else { return ClientHost::Unavailable };
    let Some(ip) = s.address().ip_addr() else { return ClientHost::TempUnavail };
    s.now("in resolving client address");
    let name = match resolver.name(ip, lookup.timeout_ms).await {
        Ok(name) => name,
        Err(failure) => {
            s.log(Level::Error, format_args!("{ip} could not be resolved ({failure})"));
            return without_name(failure);
        }
    };
    let Some(host) = ClientHost::from_ptr(&name) else {
        let name = lossy(&name);
        s.log(Level::Error, format_args!("{ip} resolved to invalid host name \"{name}\""));
        return ClientHost::TempUnavail;
    };
    s.now("in resolving client hostname");
    match resolver.addresses(&name, lookup.timeout_ms).await {
        Ok(found) if found.list.contains(&ip) => host,
        Ok(_) => ClientHost::Unavailable,
        Err(failure) => {
            let name = lossy(&name);
            s.log(Level::Error, format_args!("\"{name}\" could not be resolved ({failure})"));
            without_name(failure)
        }
    }
}

fn without_name(failure: Failure) -> ClientHost {
    match failure {
        Failure::NotFound => ClientHost::Unavailable,
        _ => ClientHost::TempUnavail,
    }
}
