//! Checks of the servers that listen for TLS.

use std::rc::Rc;

use conf::ConfError;
use engine::addresses::{Built, Listen, ListenAddress};

use super::expiry::Expiries;
use super::server::SecureServer;

/// Checks that the servers of addresses with TLS have certificates, and warns of those that end
/// soon.
///
/// # Errors
/// One has none, and does not refuse handshakes.
pub fn check<T: SecureServer>(
    servers: &[Built<T>],
    listens: &[Listen<T>],
) -> Result<(), ConfError> {
    Expiries::of(servers.iter().map(|built| &built.server)).warn_at_load();
    let addresses = listens.iter().flat_map(|listen| &listen.addresses);
    for address in addresses.filter(|a| a.ssl || a.quic) {
        let name = if address.quic { "quic" } else { "ssl" };
        let is_default = |s: &&Built<T>| Rc::ptr_eq(&s.server, &address.default);
        let Some(default) = servers.iter().find(is_default) else { continue };
        let (_, default) = default.server.name_and_tls();
        if default.has_certificates() {
            continue;
        }
        for server in servers {
            let is_here =
                |l: &&ListenAddress| l.spec.addr == address.addr && l.spec.quic == address.quic;
            let Some(listen) = server.listens.iter().find(is_here) else { continue };
            // With a default server that refuses, the others must be able to answer.
            let (_, tls) = server.server.name_and_tls();
            let lacks = !tls.has_certificates() && !tls.rejects;
            if lacks && (is_default(&server) || default.rejects) {
                let of = format!("the \"listen ... {name}\" directive");
                let m = format!("no \"ssl_certificate\" is defined for {of}");
                return Err(ConfError::at(&listen.at, m));
            }
        }
    }
    check_versions(servers)
}

/// QUIC speaks TLS 1.3 alone (RFC 9001 section 4.2).
fn check_versions<T: SecureServer>(servers: &[Built<T>]) -> Result<(), ConfError> {
    for server in servers {
        let Some(listen) = server.listens.iter().find(|listen| listen.spec.quic) else { continue };
        let (_, tls) = server.server.name_and_tls();
        if tls.config.as_ref().is_some_and(|config| !config.has_13()) {
            let m = "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive";
            return Err(ConfError::at(&listen.at, m));
        }
    }
    Ok(())
}
