//! A client and a server that talk in memory, for tests.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use testkit::AnyCertificate;

/// A server's configuration for one version, without a cache and without tickets.
pub(crate) fn server(version: &'static SupportedProtocolVersion) -> ServerConfig {
    let certificate = include_bytes!("../../tests/certificates/one.der");
    let key = include_bytes!("../../tests/certificates/one.key");
    let key = PrivateKeyDer::try_from(key.as_slice()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.as_slice().into()], key)
        .unwrap();
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config
}

/// A client's configuration for one version, with rustls's own store of sessions.
pub(crate) fn client(version: &'static SupportedProtocolVersion) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth()
}

/// Connects to `one.test`, sends a byte each way, and returns the kind of the handshake.
pub(crate) fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> HandshakeKind {
    let name = ServerName::try_from("one.test").unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() || server.wants_write() {
        bytes.clear();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    assert_eq!(client.handshake_kind(), server.handshake_kind());
    server.handshake_kind().unwrap()
}
