//! The configuration of a server's sessions.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, SignatureScheme};

use crate::certificate_compression::compressors;
use crate::certified::Certified;
use crate::peer::SignatureOnly;
use crate::record::MAX_PLAIN;
use crate::session::Capturing;
use crate::signatures::Schemes;
use crate::{ConfigError, KeyLog, SessionCache, Tickets};

/// Whether the client is asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyMode {
    /// It is not.
    #[default]
    Off,
    /// It is asked. Whether one came, and whether it is good, is decided after the handshake.
    Ask,
}

/// The settings of a server's sessions.
#[derive(Default)]
pub struct ServerOptions {
    /// The certificates to choose from by the client's signature algorithms.
    pub certificates: Vec<Certified>,
    /// The numbers of versions; all when empty.
    pub versions: Vec<u16>,
    /// The numbers of cipher suites in order of preference; all when empty.
    pub suites: Vec<u16>,
    /// The numbers of groups in order of preference; the usual ones when empty.
    pub groups: Vec<u16>,
    /// The numbers of signature schemes in order of preference; all when empty.
    pub signatures: Vec<u16>,
    /// Our order of suites counts, not the client's.
    pub prefer_server_ciphers: bool,
    /// Protocols for ALPN, best first.
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients are asked for certificates.
    pub verify: VerifyMode,
    /// The names of authorities that the client is told, in DER.
    pub authorities: Vec<Vec<u8>>,
    /// The most data in a record; 0 is the protocol's limit.
    pub record_size: usize,
    /// The most early data that is taken; 0 for none.
    pub max_early_data: u32,
    /// Certificates are sent compressed to clients that can take them so.
    pub compress_certificates: bool,
    /// The tickets sent after a full handshake of TLS 1.3; two by default.
    pub ticket_count: Option<u32>,
    /// Seals sessions into tickets.
    pub tickets: Option<Tickets>,
    /// Keeps sessions.
    pub sessions: Option<SessionCache>,
    /// Writes the keys of sessions, for debugging.
    pub key_log: Option<KeyLog>,
}

/// The most early data that is passed over. Clients of OpenSSL's servers send up to 16 KB; the
/// library counts a record again whenever it looks for the one behind it.
const EARLY_DATA_SKIPPED: u32 = 128 * 1024;

/// The number of TLS 1.3.
const TLS13: u16 = 0x0304;

/// The configuration of a server's sessions; cheap to clone.
#[derive(Clone)]
pub struct ServerConfig {
    pub(crate) inner: Arc<rustls::ServerConfig>,
    /// For sessions of TLS 1.3, where that keeps them by other means.
    inner_13: Option<Arc<rustls::ServerConfig>>,
    /// For clients that resume sessions of TLS 1.3, once there was one.
    inner_resuming: Arc<OnceLock<Arc<rustls::ServerConfig>>>,
    pub(crate) record_size: usize,
    choice: Arc<Choice>,
    has_13: bool,
    /// Early data is taken.
    pub(crate) has_early_data: bool,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerConfig")
    }
}

impl ServerConfig {
    /// Compiles the settings.
    ///
    /// # Errors
    /// No version, suite or group that can be had is left.
    pub fn new(options: ServerOptions) -> Result<ServerConfig, ConfigError> {
        let provider = Arc::new(provider(&options.suites, &options.groups)?);
        let builder = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(&options.versions))
            .map_err(|e| ConfigError::Library(e.to_string()))?;
        let schemes = Schemes::new(&options.signatures);
        let builder = match options.verify {
            VerifyMode::Off => builder.with_no_client_auth(),
            VerifyMode::Ask => builder.with_client_cert_verifier(Arc::new(SignatureOnly {
                authorities: options.authorities.into_iter().map(DistinguishedName::from).collect(),
                schemes: schemes.clone(),
            })),
        };
        let mut certificates = options.certificates;
        // Of several for keys of one kind OpenSSL keeps the last.
        certificates.reverse();
        certificates.sort_by_key(Certified::order);
        let choice = Arc::new(Choice { certificates, schemes });
        let mut inner = builder.with_cert_resolver(choice.clone());
        inner.ignore_client_order = options.prefer_server_ciphers;
        inner.alpn_protocols = options.alpn;
        // Early data is never taken with tickets that hold the session, so that the limit is that
        // of what is passed over: a client may have a ticket of another server of this name.
        inner.max_early_data_size = match options.tickets {
            Some(_) => EARLY_DATA_SKIPPED,
            None => options.max_early_data,
        };
        let has_tickets = options.tickets.is_some();
        let sessions = options.sessions.unwrap_or_else(SessionCache::none);
        inner.session_storage = sessions.store();
        // The library takes early data with sessions of its own store alone.
        let ids_13 = match (&options.tickets, options.max_early_data) {
            (None, 0) => sessions.ids(),
            _ => None,
        };
        if let Some(tickets) = options.tickets {
            inner.ticketer = tickets.producer();
        }
        if let Some(count) = options.ticket_count {
            inner.send_tls13_tickets = count as usize;
        }
        inner.cert_compressors = compressors(options.compress_certificates);
        inner.key_log = Capturing::shared(options.key_log);
        // A session goes on in our own record layer.
        inner.enable_secret_extraction = true;
        let record_size = match options.record_size {
            0 => MAX_PLAIN,
            size => size.min(MAX_PLAIN),
        };
        let has_13 = options.versions.is_empty() || options.versions.contains(&TLS13);
        let inner_13 = ids_13.filter(|_| has_13).map(|ids| {
            let mut inner = inner.clone();
            inner.ticketer = ids;
            inner.max_early_data_size = EARLY_DATA_SKIPPED;
            Arc::new(inner)
        });
        let has_early_data = options.max_early_data > 0 && !has_tickets;
        let inner = Arc::new(inner);
        Ok(ServerConfig {
            inner,
            inner_13,
            inner_resuming: Arc::default(),
            record_size,
            choice,
            has_13,
            has_early_data,
        })
    }

    /// The same for a client that offers TLS 1.3: it is told the time for which its sessions are
    /// kept here. One that `resumes` a session has others in reserve: it gets one ticket at most,
    /// as from OpenSSL, which saves the work and the bytes of the second.
    pub fn for_13(mut self, resumes: bool) -> ServerConfig {
        if let Some(inner) = self.inner_13.take() {
            self.inner = inner;
        }
        if resumes && self.inner.send_tls13_tickets > 1 {
            let resuming = self.inner_resuming.get_or_init(|| {
                let mut inner = (*self.inner).clone();
                inner.send_tls13_tickets = 1;
                Arc::new(inner)
            });
            self.inner = resuming.clone();
        }
        self
    }

    /// Whether TLS 1.3 can be negotiated.
    pub fn has_13(&self) -> bool {
        self.has_13
    }

    /// Whether a certificate's key can sign a handshake of TLS 1.3 with one of these schemes.
    pub fn can_sign_13(&self, schemes: &[u16]) -> bool {
        // Schemes with PKCS#1 padding and with SHA-1 or SHA-224 are for certificates alone there
        // (RFC 8446 section 4.2.3).
        let is_of_13 = |n: &&u16| n.to_be_bytes()[1] != 1 && n.to_be_bytes()[0] > 3;
        let offered = schemes.iter().filter(is_of_13).map(|&n| SignatureScheme::from(n));
        self.choice.find(&offered.filter(|&s| self.choice.schemes.allows(s)).collect::<Vec<_>>())
    }
}

pub(crate) fn versions(numbers: &[u16]) -> Vec<&'static rustls::SupportedProtocolVersion> {
    let wanted = |version: &&&rustls::SupportedProtocolVersion| {
        numbers.is_empty() || numbers.contains(&u16::from(version.version))
    };
    rustls::ALL_VERSIONS.iter().filter(wanted).copied().collect()
}

/// The library's algorithms, in the order of the settings.
pub(crate) fn provider(suites: &[u16], groups: &[u16]) -> Result<CryptoProvider, ConfigError> {
    let mut provider = aws_lc_rs::default_provider();
    let all = crate::kdf::suites();
    let find = |n: u16| all.iter().find(|s| u16::from(s.suite()) == n).copied();
    if suites.is_empty() {
        let default = provider.cipher_suites.iter();
        provider.cipher_suites = default.filter_map(|s| find(s.suite().into())).collect();
    } else {
        provider.cipher_suites = suites.iter().filter_map(|&n| find(n)).collect();
        if provider.cipher_suites.is_empty() {
            return Err(ConfigError::NoCipher);
        }
    }
    if !groups.is_empty() {
        let find =
            |n: &u16| aws_lc_rs::ALL_KX_GROUPS.iter().find(|g| u16::from(g.name()) == *n).copied();
        provider.kx_groups = groups.iter().filter_map(find).collect();
        if provider.kx_groups.is_empty() {
            return Err(ConfigError::NoGroup);
        }
    }
    Ok(provider)
}

/// The first of the certificates whose key can sign as both ends want.
#[derive(Debug)]
struct Choice {
    certificates: Vec<Certified>,
    schemes: Schemes,
}

impl Choice {
    /// Whether a key can sign with one of these schemes.
    fn find(&self, schemes: &[SignatureScheme]) -> bool {
        self.certificates.iter().any(|c| c.key.key.choose_scheme(schemes).is_some())
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let both = |scheme: &&SignatureScheme| self.schemes.allows(**scheme);
        let offered: Vec<_> = hello.signature_schemes().iter().filter(both).copied().collect();
        let fits = |c: &&Certified| c.key.key.choose_scheme(&offered).is_some();
        let chosen = self.certificates.iter().find(fits).or_else(|| self.certificates.first());
        let shown = chosen.map(|c| c.shown(|| crate::unix_secs().cast_signed()))?;
        crate::signatures::note_own(&shown);
        Some(self.schemes.limit(&shown))
    }
}
