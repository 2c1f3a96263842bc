//! Services: SRV records (RFC 2782) and the addresses of the hosts that they name.

use std::net::IpAddr;

use bytes::Bytes;
use proto::dns::Data;

use super::{Failure, QueryKind, Resolver, canonical, within};
use base::time::unix_secs;

/// Interval between queries for a service without addresses, seconds.
const AGAIN_SECS: u64 = 10;

/// A host of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The host name that the record names.
    pub name: Bytes,
    /// The port there.
    pub port: u16,
    /// Hosts with the lowest are preferred.
    pub priority: u16,
    /// Its share among those of one priority; at least 1.
    pub weight: u16,
    /// The host's addresses, or why they are not known.
    pub addresses: Result<Vec<IpAddr>, Failure>,
}

/// A service's hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Services {
    /// By priority. At least one has an address.
    pub hosts: Vec<Host>,
    /// Until when this is good, seconds of the Unix epoch.
    pub valid: u64,
}

/// Why a service has no addresses, with the hosts that were named, if any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoService {
    /// The reason for all.
    pub failure: Failure,
    /// The hosts, each with its own.
    pub hosts: Vec<Host>,
    /// When to ask again, seconds of the Unix epoch.
    pub valid: u64,
}

/// Hosts of a service that are resolved.
const HOSTS_MAX: usize = 256;

/// The name under which a service is looked for: a short one means TCP.
fn full_name(service: &[u8], domain: &[u8]) -> Bytes {
    let name = match service.contains(&b'.') {
        true => [service, domain].join(&b'.'),
        false => [b"_", service, b"._tcp.", domain].concat(),
    };
    canonical(&name)
}

impl Resolver {
    /// The hosts of a service of a domain, waiting `timeout_ms` at most.
    ///
    /// # Errors
    /// The name servers' reason, or that no host has an address.
    pub async fn service(
        &self,
        service: &[u8],
        domain: &[u8],
        timeout_ms: u64,
    ) -> Result<Services, NoService> {
        let name = full_name(service, domain);
        let found = match within(timeout_ms, self.lookup(&name, QueryKind::Service)).await {
            Ok(found) => found,
            Err(failure) => {
                let valid = unix_secs() + self.config().valid.unwrap_or(AGAIN_SECS);
                return Err(NoService { failure, hosts: Vec::new(), valid });
            }
        };
        let mut valid = found.valid;
        let mut hosts = Vec::new();
        for record in found.data.iter().take(HOSTS_MAX) {
            let Data::Srv { priority, weight, port, target } = record else { continue };
            let addresses = match self.addresses(target, timeout_ms).await {
                Ok(found) => {
                    valid = valid.min(found.valid);
                    Ok(found.list)
                }
                Err(failure) => Err(failure),
            };
            let (port, priority, weight) = (*port, *priority, (*weight).max(1));
            hosts.push(Host { name: canonical(target), port, priority, weight, addresses });
        }
        hosts.sort_by_key(|h| h.priority);
        if hosts.iter().any(|h| h.addresses.is_ok()) {
            return Ok(Services { hosts, valid });
        }
        let mut reasons = hosts.iter().filter_map(|h| h.addresses.as_ref().err().copied());
        let first = reasons.next().unwrap_or(Failure::NotFound);
        let failure = match reasons.any(|f| f == Failure::NotFound) {
            true => Failure::NotFound,
            false => first,
        };
        let valid = unix_secs() + self.config().valid.unwrap_or(AGAIN_SECS);
        Err(NoService { failure, hosts, valid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_services() {
        assert_eq!(full_name(b"http", b"A.example."), "_http._tcp.a.example");
        assert_eq!(full_name(b"_x._udp", b"a.example"), "_x._udp.a.example");
    }
}
