//! Clients of TLS 1.3, for the loads and the program that makes handshakes.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error};
use testkit::AnyCertificate;

/// A configuration that leaves servers no choice, so that all do the same work: TLS 1.3, X25519,
/// AES-256-GCM. It resumes sessions; whether any are offered is up to its store. It takes every
/// certificate: the client's work is not measured, and it shares a processor with the backend.
pub fn config() -> Result<ClientConfig, Error> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_256_GCM_SHA384];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let verified = builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate));
    Ok(verified.with_no_client_auth())
}

/// The name that clients ask for.
pub fn name() -> ServerName<'static> {
    ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]))
}
