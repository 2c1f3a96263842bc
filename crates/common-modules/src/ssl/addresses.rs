//! Checks of the servers that listen for TLS.

use std::rc::Rc;

use conf::ConfError;
use engine::addresses::{Listen, ListenAddress};

use super::server::ServerTls;

/// A server, its addresses, and its TLS.
pub struct Secure<'a, T> {
    /// The server.
    pub server: &'a Rc<T>,
    /// The addresses that it listens on.
    pub addresses: &'a [ListenAddress],
    /// Its TLS.
    pub tls: &'a ServerTls,
}

/// Checks that the servers of addresses with TLS have certificates.
///
/// # Errors
/// One has none, and does not refuse handshakes.
pub fn check<T>(servers: &[Secure<'_, T>], listens: &[Listen<T>]) -> Result<(), ConfError> {
    for address in listens.iter().flat_map(|listen| &listen.addresses).filter(|a| a.ssl) {
        let is_default = |s: &&Secure<'_, T>| Rc::ptr_eq(s.server, &address.default);
        let Some(default) = servers.iter().find(is_default) else { continue };
        if default.tls.has_certificates() {
            continue;
        }
        for server in servers {
            let is_here = |l: &&ListenAddress| l.spec.addr == address.addr;
            let Some(listen) = server.addresses.iter().find(is_here) else { continue };
            // With a default server that refuses, the others must be able to answer.
            let lacks = !server.tls.has_certificates() && !server.tls.rejects;
            if lacks && (is_default(&server) || default.tls.rejects) {
                let (file, line) = (listen.at.pos.file.display(), listen.at.pos.line);
                let m = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in";
                return Err(ConfError::at(&listen.at, format!("{m} {file}:{line}")));
            }
        }
    }
    Ok(())
}
