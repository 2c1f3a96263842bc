//! The peer's certificate in the handshake: its key must have signed it. The chain is looked at
//! afterwards, by [`pki::x509`]'s rules: the answer to a bad one may be an HTTP response.

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerMisbehaved, SignatureScheme,
};

use crate::signatures::Schemes;
use pki::x509::{Certificate, Version, is_scheme_for, verify_handshake_signature};

/// Takes every certificate whose key signed the handshake.
#[derive(Debug, Default)]
pub(crate) struct SignatureOnly {
    /// The names of authorities that a client is told.
    pub authorities: Vec<DistinguishedName>,
    /// The schemes that the peer may sign with.
    pub schemes: Schemes,
}

impl SignatureOnly {
    fn check(
        &self,
        version: Version,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if !self.schemes.allows(signed.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        let certificate = Certificate::parse(Bytes::copy_from_slice(certificate))
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let (scheme, signature) = (u16::from(signed.scheme), signed.signature());
        if !is_scheme_for(&certificate, version, scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        crate::signatures::note_peer(scheme);
        match verify_handshake_signature(&certificate, version, scheme, message, signature) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature)),
        }
    }
}

/// The part of the library's traits that is the same for both ends.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.check(Version::Tls12, message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            self.check(Version::Tls13, message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.schemes.told()
        }
    };
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
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // RFC 8446 section 4.4.2: the library takes entries without a certificate.
        if end.is_empty() || intermediates.iter().any(|certificate| certificate.is_empty()) {
            return Err(rustls::Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
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

    signatures!();
}
