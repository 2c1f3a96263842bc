//! Clients of TLS 1.3, for the loads and the program that makes handshakes.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// Takes every certificate: the client's work is not measured, and it has a processor to share with
/// the backend.
#[derive(Debug)]
struct Unchecked;

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}

/// A configuration that leaves servers no choice, so that all do the same work: TLS 1.3, X25519,
/// AES-256-GCM. It resumes sessions; whether any are offered is up to its store.
pub fn config() -> Result<ClientConfig, Error> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_256_GCM_SHA384];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let verified = builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked));
    Ok(verified.with_no_client_auth())
}

/// The name that clients ask for.
pub fn name() -> ServerName<'static> {
    ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]))
}
