//! The peer's certificate in the handshake: its key must have signed it. The chain is looked at
//! afterwards, by [`crate::x509`]'s rules: the answer to a bad one may be an HTTP response.

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};

use crate::x509::{Certificate, SCHEMES, Version, verify_handshake_signature};

/// Takes every certificate whose key signed the handshake.
#[derive(Debug, Default)]
pub(crate) struct SignatureOnly {
    /// The names of authorities that a client is told.
    pub authorities: Vec<DistinguishedName>,
}

fn check(
    version: Version,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let certificate = Certificate::parse(Bytes::copy_from_slice(certificate))
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let scheme = u16::from(signed.scheme);
    crate::signatures::note_peer(scheme);
    match verify_handshake_signature(&certificate, version, scheme, message, signed.signature()) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)),
    }
}

fn schemes() -> Vec<SignatureScheme> {
    SCHEMES.iter().map(|&scheme| SignatureScheme::from(scheme)).collect()
}

impl ClientCertVerifier for SignatureOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _end: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        check(Version::Tls12, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        check(Version::Tls13, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

impl ServerCertVerifier for SignatureOnly {
    fn verify_server_cert(
        &self,
        _end: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _staple: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        check(Version::Tls12, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        check(Version::Tls13, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}
