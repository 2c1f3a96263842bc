//! A server's TLS, compiled from its directives.

use std::sync::Arc;

use conf::ConfError;
use engine::tls_files::{self as files, Named};
use tls::certified::Certified;
use tls::pem::Passwords;
use tls::session_cache::CacheUse;
use tls::verify::{Purpose, Rules, Store, Verdict};
use tls::x509::Certificate;
use tls::{
    ServerConfig, ServerOptions, SessionCache, SessionContext, TicketKey, Tickets, VerifyMode,
};

use super::settings::{SslSettings, VerifyClient};
use super::shared::SslShared;

/// A server's TLS.
pub struct ServerTls {
    /// The configuration of its sessions; `None` where it has no certificate.
    pub config: Option<ServerConfig>,
    /// It refuses handshakes.
    pub rejects: bool,
    /// Whether clients need certificates.
    pub verify: Verify,
}

/// The verification of clients.
pub struct Verify {
    /// Whether they are asked, and what is done with the answer.
    pub mode: VerifyClient,
    depth: u32,
    store: Store,
}

impl Verify {
    /// Whether clients are asked for certificates.
    pub fn is_on(&self) -> bool {
        self.mode != VerifyClient::Off
    }

    /// Verifies what a client showed, its own certificate first.
    pub fn check(&self, chain: &[Arc<Certificate>]) -> Verdict {
        let now = base::time::unix_secs().cast_signed();
        self.store.verify(chain, &Rules { purpose: Purpose::Client, depth: self.depth, now })
    }
}

/// Time for which a session may be resumed, by default, in seconds.
const TIMEOUT_S: u64 = 300;
/// The most early data, as in OpenSSL.
const EARLY_DATA_MAX: u32 = 16 * 1024;

/// Loads files and compiles a server's settings. `alpn` are the engine's protocols.
///
/// # Errors
/// A file cannot be read or used, or the settings do not go together.
pub fn compile(
    s: &SslSettings,
    shared: &SslShared,
    alpn: &[&[u8]],
) -> Result<ServerTls, ConfError> {
    let rejects = s.reject.unwrap_or(false);
    let verify = verify(s)?;
    let names = s.certificates.as_deref().unwrap_or_default();
    if names.is_empty() {
        return Ok(ServerTls { config: None, rejects, verify });
    }
    let certificates = certificates(names, s)?;
    let context = context(&certificates, s, &verify);
    let timeout_s = u32::try_from(s.timeout_s.unwrap_or(TIMEOUT_S)).unwrap_or(u32::MAX);
    let authorities = match s.client_certificate {
        Some(_) => verify.store.certificates().iter().map(|c| c.subject().der().to_vec()).collect(),
        None => Vec::new(),
    };
    let early_data = s.early_data.unwrap_or(false);
    let options = ServerOptions {
        certificates,
        versions: s.protocols.clone().unwrap_or_default(),
        prefer_server_ciphers: s.prefer_server_ciphers.unwrap_or(false),
        alpn: alpn.iter().map(|name| name.to_vec()).collect(),
        verify: match verify.mode {
            VerifyClient::Off => VerifyMode::Off,
            _ => VerifyMode::Ask,
        },
        authorities,
        record_size: s.buffer_size.unwrap_or(0),
        max_early_data: if early_data { EARLY_DATA_MAX } else { 0 },
        compress_certificates: s.compression.unwrap_or(false),
        tickets: tickets(s, shared, context.clone(), timeout_s)?,
        sessions: Some(sessions(s, shared, context, timeout_s)),
        ..ServerOptions::default()
    };
    let config = ServerConfig::new(options).map_err(ConfError::new)?;
    Ok(ServerTls { config: Some(config), rejects, verify })
}

fn certificates(names: &[Named], s: &SslSettings) -> Result<Vec<Certified>, ConfError> {
    let keys = s.keys.as_deref().unwrap_or_default();
    if keys.len() < names.len() {
        let name = names[keys.len()].word.lossy().into_owned();
        let m = format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"");
        return Err(ConfError::at(&names[keys.len()].word, m));
    }
    let none = Passwords::none();
    let passwords = s.passwords.as_ref().unwrap_or(&none);
    names.iter().zip(keys).map(|(name, key)| files::certified(name, key, passwords)).collect()
}

fn verify(s: &SslSettings) -> Result<Verify, ConfError> {
    let mode = s.verify.unwrap_or_default();
    let mut store = Store::default();
    for named in [&s.client_certificate, &s.trusted_certificate].into_iter().flatten() {
        files::trust(&mut store, named)?;
    }
    if let Some(named) = &s.crl {
        files::revoke(&mut store, named)?;
    }
    let has_trust = s.client_certificate.is_some() || s.trusted_certificate.is_some();
    if mode != VerifyClient::Off && mode != VerifyClient::OptionalNoCa && !has_trust {
        return Err(ConfError::new("no ssl_client_certificate for ssl_verify_client"));
    }
    let depth = u32::try_from(s.depth.unwrap_or(1)).unwrap_or(u32::MAX);
    Ok(Verify { mode, depth, store })
}

/// Sessions of this server are good for servers with the same certificates and the same
/// verification alone.
fn context(certificates: &[Certified], s: &SslSettings, verify: &Verify) -> SessionContext {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for certified in certificates {
        parts.extend(certified.chain().next().map(<[u8]>::to_vec));
    }
    parts.push(vec![verify.mode as u8]);
    parts.push(verify.depth.to_be_bytes().to_vec());
    parts.extend(verify.store.certificates().iter().map(|c| c.der().to_vec()));
    parts.push(s.crl.as_ref().map_or(Vec::new(), |crl| crl.word.bytes().to_vec()));
    SessionContext::new(parts.iter().map(Vec::as_slice))
}

fn tickets(
    s: &SslSettings,
    shared: &SslShared,
    context: SessionContext,
    timeout_s: u32,
) -> Result<Option<Tickets>, ConfError> {
    // Early data must not be taken twice: a session is then kept here, and given out once.
    if !s.tickets.unwrap_or(true) || s.early_data == Some(true) {
        return Ok(None);
    }
    if let Some(files) = &s.ticket_keys {
        let load =
            |named: &Named| TicketKey::load(&named.path).map_err(|e| ConfError::at(&named.word, e));
        let keys = files.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        return Ok(Tickets::with_keys(keys, context, timeout_s));
    }
    let zone = match s.cache.as_ref().map(|cache| cache.resolve()) {
        Some(CacheUse::Shared(zone)) => shared.zone(&zone.name),
        _ => None,
    };
    let keys = zone.map(tls::SharedSessions::ticket_keys).or(shared.keys());
    Ok(keys.map(|keys| Tickets::with_shared(keys, context, timeout_s)))
}

fn sessions(
    s: &SslSettings,
    shared: &SslShared,
    context: SessionContext,
    timeout_s: u32,
) -> SessionCache {
    match s.cache.as_ref().map_or(CacheUse::None, |cache| cache.resolve()) {
        CacheUse::Off => SessionCache::off(),
        CacheUse::None => SessionCache::none(),
        CacheUse::Builtin(sessions) => SessionCache::builtin(sessions, context, timeout_s),
        CacheUse::Shared(zone) => match shared.zone(&zone.name) {
            Some(zone) => SessionCache::shared(zone, context, timeout_s),
            None => SessionCache::none(),
        },
    }
}

/// A server without TLS of its own.
impl Default for ServerTls {
    fn default() -> ServerTls {
        let verify = Verify { mode: VerifyClient::Off, depth: 1, store: Store::default() };
        ServerTls { config: None, rejects: false, verify }
    }
}
