//! The configuration of a client's sessions, to servers behind this one.

use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::sign::CertifiedKey;

use crate::certified::Certified;
use crate::peer::SignatureOnly;
use crate::server::{provider, versions};
use crate::session::Capturing;
use crate::signatures::Schemes;
use crate::{ConfigError, KeyLog};

/// The settings of a client's sessions.
#[derive(Default)]
pub struct ClientOptions {
    /// The certificate to show where the server asks for one.
    pub certificate: Option<Certified>,
    /// The numbers of versions; all when empty.
    pub versions: Vec<u16>,
    /// The numbers of cipher suites in order of preference; all when empty.
    pub suites: Vec<u16>,
    /// The numbers of groups in order of preference; the usual ones when empty.
    pub groups: Vec<u16>,
    /// The numbers of signature schemes in order of preference; all when empty.
    pub signatures: Vec<u16>,
    /// Protocols for ALPN, best first.
    pub alpn: Vec<Vec<u8>>,
    /// Writes the keys of sessions, for debugging.
    pub key_log: Option<KeyLog>,
}

/// The configuration of a client's sessions; cheap to clone.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) named: Arc<rustls::ClientConfig>,
    pub(crate) nameless: Arc<rustls::ClientConfig>,
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientConfig")
    }
}

impl ClientConfig {
    /// Compiles the settings.
    ///
    /// # Errors
    /// No version or suite that can be had is left.
    pub fn new(options: ClientOptions) -> Result<ClientConfig, ConfigError> {
        let schemes = Schemes::new(&options.signatures);
        let provider = Arc::new(provider(&options.suites, &options.groups)?);
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(&options.versions))
            .map_err(|e| ConfigError::Library(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(SignatureOnly {
                authorities: Vec::new(),
                schemes: schemes.clone(),
            }));
        let mut named = match options.certificate {
            Some(certificate) => {
                builder.with_client_cert_resolver(Arc::new(Own(schemes.limit(&certificate.key))))
            }
            None => builder.with_no_client_auth(),
        };
        named.alpn_protocols = options.alpn;
        // [`crate::ClientSessions`] keeps them, by server.
        named.resumption = Resumption::disabled();
        named.enable_secret_extraction = true;
        named.key_log = Capturing::shared(options.key_log);
        let mut nameless = named.clone();
        nameless.enable_sni = false;
        Ok(ClientConfig { named: Arc::new(named), nameless: Arc::new(nameless) })
    }
}

impl ClientConfig {
    /// The same with other protocols that servers may choose by ALPN.
    pub fn with_alpn(&self, alpn: &[Vec<u8>]) -> ClientConfig {
        let with = |config: &Arc<rustls::ClientConfig>| {
            let mut config = rustls::ClientConfig::clone(config);
            config.alpn_protocols = alpn.to_vec();
            Arc::new(config)
        };
        ClientConfig { named: with(&self.named), nameless: with(&self.nameless) }
    }
}

/// The one certificate there is to show.
#[derive(Debug)]
struct Own(Arc<CertifiedKey>);

impl ResolvesClientCert for Own {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
