//! A server's TLS, compiled from its directives.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Word};
use engine::Session;
use engine::settings::ConfSet;
use engine::tls_certificates::{Certificates, Unusable, shown};
use engine::tls_files::{self as files, Named};
use engine::tls_objects::Trust;
use engine::tls_settings::{self, Algorithms};
use event::Pool;
use pki::verify::{Purpose, Rules, Verdict};
use pki::x509::Certificate;
use tls::certified::Certified;
use tls::conf_command::Command;
use tls::session_cache::CacheUse;
use tls::{
    ServerConfig, ServerOptions, SessionCache, SessionContext, TicketKey, Tickets, VerifyMode,
};
use upstream::names::Lookup;

use super::client_status::{ClientStatus, client_status};
use super::expiry::Term;
use super::handshake::Names;
use super::settings::{SslSettings, VerifyClient};
use super::shared::SslShared;
use super::stapling::{self, Stapler, staplers};

/// A server's TLS.
#[derive(Default)]
pub struct ServerTls {
    /// The configuration of its sessions, unless it has no certificate or one that changes.
    pub config: Option<ServerConfig>,
    /// Certificates that depend on the client.
    pub changing: Option<Changing>,
    /// It refuses handshakes.
    pub rejects: bool,
    /// Whether clients need certificates.
    pub verify: Verify,
    /// The ends of its certificates.
    pub(super) terms: Vec<Term>,
    /// The certificates whose staples are fetched.
    pub(super) staplers: Vec<Rc<Stapler>>,
    /// The look-up of clients' certificates.
    pub(super) client_status: Option<ClientStatus>,
    /// The pool whose threads sign.
    pub(super) threads: Option<Pool>,
}

/// A server whose clients may speak TLS.
pub trait SecureServer {
    /// Its first name, which may be empty, and its TLS.
    fn name_and_tls(&self) -> (&Bytes, &ServerTls);
}

impl ServerTls {
    /// Has staples fetched that are due: for each handshake.
    pub fn update_staples(&self, lookup: impl Fn() -> Lookup) {
        self.staplers.iter().for_each(|stapler| stapler.update(&lookup));
        if let Some(changing) = &self.changing {
            changing.staples.update(&lookup);
        }
    }

    /// Whether [`super::Established::look_up`] asks anybody.
    pub fn looks_up_clients(&self) -> bool {
        self.client_status.is_some()
    }
}

/// The verification of clients.
#[derive(Default)]
pub struct Verify {
    /// Whether they are asked, and what is done with the answer.
    pub mode: VerifyClient,
    depth: u32,
    /// Clients are told the names of the first file's certificates.
    trust: Rc<Trust>,
}

impl Verify {
    /// Whether clients are asked for certificates.
    pub fn is_on(&self) -> bool {
        self.mode != VerifyClient::Off
    }

    /// Verifies what a client showed, its own certificate first.
    pub fn check(&self, chain: &[Arc<Certificate>]) -> Verdict {
        let now = base::time::unix_secs().cast_signed();
        self.trust.store.verify(chain, &Rules { purpose: Purpose::Client, depth: self.depth, now })
    }
}

/// Time for which a session may be resumed, by default, in seconds.
const TIMEOUT_S: u64 = 300;
/// The most early data, which is also what is passed over where a session is not there any more.
/// Clients send up to 16 KB; the library counts a record with what sealing adds to it, and again
/// for each look for the one behind it.
const EARLY_DATA_MAX: u32 = 128 * 1024;

/// Sessions that a worker keeps for a server with early data that has no cache.
const EARLY_SESSIONS: usize = 4096;

/// The engine that a server belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Engine {
    /// Its name: sessions of one engine are not resumed in another.
    pub name: &'static str,
    /// The protocols that clients may choose by ALPN, best first.
    pub alpn: &'static [&'static [u8]],
}

/// The TLS of servers with these settings.
type Known = (Rc<SslSettings>, Engine, Rc<ServerTls>);

/// The TLS of an engine's servers, by the settings, which several of them may share.
#[derive(Default)]
pub struct Compiled(RefCell<Vec<Known>>);

impl Compiled {
    /// The TLS of a server with this configuration; `at` is its directive.
    ///
    /// # Errors
    /// A file cannot be read or used, or the settings do not go together.
    pub fn of(&self, set: &ConfSet, engine: Engine, at: &Word) -> Result<Rc<ServerTls>, ConfError> {
        let Some(settings) = set.get_rc::<SslSettings>() else { return Ok(Rc::default()) };
        let mut all = self.0.borrow_mut();
        let is_same = |s: &Rc<SslSettings>, e: &Engine| Rc::ptr_eq(s, &settings) && *e == engine;
        if let Some((_, _, tls)) = all.iter().find(|(s, e, _)| is_same(s, e)) {
            return Ok(tls.clone());
        }
        let shared = set.get_rc::<SslShared>().unwrap_or_default();
        let tls = Rc::new(compile(&settings, &shared, engine).map_err(|e| e.or_at(at))?);
        all.push((settings, engine, tls.clone()));
        Ok(tls)
    }
}

/// Loads files and compiles a server's settings.
///
/// # Errors
/// A file cannot be read or used, or the settings do not go together.
fn compile(
    s: &Rc<SslSettings>,
    shared: &Rc<SslShared>,
    engine: Engine,
) -> Result<ServerTls, ConfError> {
    let rejects = s.reject.unwrap_or(false);
    let names = s.certificates.as_deref().unwrap_or_default();
    if names.is_empty() {
        // Its sessions are those of the default server, but it may want certificates.
        let verify = Verify { mode: s.verify.unwrap_or_default(), ..Verify::default() };
        return Ok(ServerTls { rejects, verify, ..ServerTls::default() });
    }
    let commands = s.commands.as_deref().unwrap_or_default();
    let algorithms = tls_settings::algorithms(
        s.protocols.as_deref(),
        s.ciphers.clone(),
        s.groups.clone(),
        commands,
    )?;
    let verify = verify(s, algorithms.security_level)?;
    let own = Commanded::of(commands, s)?;
    let client_status = client_status(s)?;
    let threads = s.threads.clone().flatten();
    let recipe = Recipe { settings: s.clone(), shared: shared.clone(), algorithms, own, engine };
    let pairs = pairs(names, s)?;
    let is_fixed = |(_, text): &Pair| text.0.as_const().is_some() && text.1.as_const().is_some();
    if !pairs.iter().all(is_fixed) {
        let folder = s.folder.clone().unwrap_or_default();
        let passwords = s.passwords.clone().unwrap_or_default();
        let terms = s.certificate_cache.unwrap_or_default();
        let changing = Changing {
            names: pairs.into_iter().map(|(_, names)| names).collect(),
            certificates: Certificates::new(folder, passwords, terms),
            staples: stapling::Changing::new(s)?,
            recipe,
            made: RefCell::default(),
        };
        let changing = Some(changing);
        let (config, terms, staplers) = Default::default();
        return Ok(ServerTls {
            config,
            changing,
            rejects,
            verify,
            terms,
            staplers,
            client_status,
            threads,
        });
    }
    let passwords = s.passwords.clone().unwrap_or_default();
    let load = |((name, key), _): &Pair| {
        let certified = files::certified(name, key, &passwords)?;
        recipe
            .check_strength(&certified, &name.shown())
            .map_err(|e| ConfError::at(&name.word, e.to_string()))?;
        Ok(certified)
    };
    let mut certificates = pairs.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let term =
        |((name, _), certified): (&(Named, _), _)| Term::of(&name.word, name.shown(), certified);
    let mut terms: Vec<Term> = names.iter().zip(&certificates).filter_map(term).collect();
    if let Some((file, certified)) = &recipe.own.certificate {
        terms.extend(Term::of(&names[0].0.word, file.clone(), certified));
    }
    let staplers = staplers(s, names, &mut certificates, &verify.trust.store)?;
    let config = Some(recipe.config(certificates, &verify)?);
    let changing = None;
    Ok(ServerTls { config, changing, rejects, verify, terms, staplers, client_status, threads })
}

/// A certificate and its key: their names as they stand in the configuration, and with variables.
type Pair = ((Named, Named), (Template, Template));

fn pairs(names: &[(Named, Template)], s: &SslSettings) -> Result<Vec<Pair>, ConfError> {
    let keys = s.keys.as_deref().unwrap_or_default();
    if keys.len() < names.len() {
        let word = &names[keys.len()].0.word;
        let name = word.lossy();
        let m = format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"");
        return Err(ConfError::at(word, m));
    }
    let pair = |((name, n), (key, k)): (&(Named, Template), &(Named, Template))| {
        ((name.clone(), key.clone()), (n.clone(), k.clone()))
    };
    Ok(names.iter().zip(keys).map(pair).collect())
}

/// All settings of a configuration but its certificates.
struct Recipe {
    settings: Rc<SslSettings>,
    shared: Rc<SslShared>,
    algorithms: Algorithms,
    own: Commanded,
    engine: Engine,
}

impl Recipe {
    /// Checks that a certificate reaches the level of security, in the words of nginx.
    fn check_strength(&self, certified: &Certified, name: &str) -> Result<(), Unusable> {
        let bits = self.algorithms.security_bits();
        if bits == 0 || certified.security_bits() >= bits {
            return Ok(());
        }
        Err(Unusable::Weak(name.to_owned()))
    }

    fn config(
        &self,
        mut certificates: Vec<Certified>,
        verify: &Verify,
    ) -> Result<ServerConfig, ConfError> {
        let Recipe { settings: s, shared, algorithms, own, engine: Engine { name: engine, alpn } } =
            self;
        // A command's certificate takes the place of the directive's, as the last of its kind.
        certificates.extend(own.certificate.iter().map(|(_, certified)| certified.clone()));
        let context = context(engine, &certificates, s, verify);
        let timeout_s = u32::try_from(s.timeout_s.unwrap_or(TIMEOUT_S)).unwrap_or(u32::MAX);
        let authorities = match s.client_certificate {
            Some(_) => {
                let told = verify.trust.store.certificates().iter().take(verify.trust.first);
                told.map(|c| c.subject().der().to_vec()).collect()
            }
            None => Vec::new(),
        };
        let early_data = s.early_data.unwrap_or(false);
        let options = ServerOptions {
            certificates,
            versions: algorithms.versions.clone(),
            suites: algorithms.suites.clone(),
            groups: algorithms.groups.clone(),
            signatures: algorithms.signatures.clone(),
            prefer_server_ciphers: own.prefers.or(s.prefer_server_ciphers).unwrap_or(false),
            alpn: match &s.alpn {
                Some(own) => own.clone(),
                None => alpn.iter().map(|name| name.to_vec()).collect(),
            },
            verify: match verify.mode {
                VerifyClient::Off => VerifyMode::Off,
                _ => VerifyMode::Ask,
            },
            authorities,
            record_size: s.buffer_size.unwrap_or(0),
            max_early_data: if early_data { EARLY_DATA_MAX } else { 0 },
            compress_certificates: own.compression.or(s.compression).unwrap_or(false),
            tickets: match own.tickets.or(s.tickets) {
                Some(false) => None,
                _ => tickets(s, shared, context, timeout_s)?,
            },
            ticket_count: own.ticket_count,
            sessions: Some(sessions(s, shared, context, timeout_s)),
            key_log: s.key_log.clone(),
        };
        ServerConfig::new(options).map_err(|e| ConfError::new(e.to_string()))
    }
}

/// Certificates whose files are named by variables.
pub struct Changing {
    names: Vec<(Template, Template)>,
    certificates: Certificates,
    staples: stapling::Changing,
    recipe: Recipe,
    /// Configurations whose certificates stand in the names themselves (`data:`), newest last: the
    /// same names are the same certificates.
    made: RefCell<Vec<Made>>,
}

/// A configuration with the names of its certificates.
struct Made {
    names: Names,
    config: ServerConfig,
    staplers: Vec<Rc<Stapler>>,
}

/// Configurations kept: the certificates of a server change rarely.
const MADE_MAX: usize = 4;

impl Changing {
    /// The names of the certificates and their keys for `s`.
    pub fn names_for<S: Session>(&self, s: &mut S) -> Vec<(Bytes, Bytes)> {
        self.names.iter().map(|(name, key)| (name.eval(s), key.eval(s))).collect()
    }
}

impl ServerTls {
    /// The configuration with certificates of these names ([`Changing::names_for`]).
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub(crate) async fn config_with(
        &self,
        changing: &Changing,
        names: &[(Bytes, Bytes)],
    ) -> Result<ServerConfig, Unusable> {
        let is_data = |name: &Bytes| name.starts_with(b"data:");
        let is_fixed = names.iter().all(|(name, key)| is_data(name) && is_data(key));
        if is_fixed
            && let Some(made) = changing.made.borrow().iter().find(|made| made.names == names)
        {
            made.staplers.iter().for_each(|stapler| stapler.shown());
            return Ok(made.config.clone());
        }
        let (mut certificates, mut staplers) = (Vec::new(), Vec::new());
        for (name, key) in names {
            let certified = changing.certificates.get(name, key).await?;
            let (lossy, s) = (base::log::lossy(name), &changing.recipe.settings);
            changing.recipe.check_strength(&certified, shown(&lossy))?;
            let store = &self.verify.trust.store;
            let (certified, stapler) =
                changing.staples.with_staple(s, certified, store, shown(&lossy));
            certificates.push(certified);
            staplers.extend(stapler);
        }
        staplers.iter().for_each(|stapler| stapler.shown());
        let config = changing.recipe.config(certificates, &self.verify);
        let config = config.map_err(|e| Unusable::Settings(e.message))?;
        if is_fixed {
            let mut made = changing.made.borrow_mut();
            if made.len() >= MADE_MAX {
                made.remove(0);
            }
            made.push(Made { names: names.to_vec(), config: config.clone(), staplers });
        }
        Ok(config)
    }

    /// Whether it has certificates.
    pub fn has_certificates(&self) -> bool {
        self.config.is_some() || self.changing.is_some()
    }
}

/// The rest of what `ssl_conf_command` sets.
#[derive(Default)]
struct Commanded {
    /// With the name of its file.
    certificate: Option<(String, Certified)>,
    prefers: Option<bool>,
    tickets: Option<bool>,
    ticket_count: Option<u32>,
    compression: Option<bool>,
}

impl Commanded {
    fn of(commands: &[Command], s: &SslSettings) -> Result<Commanded, ConfError> {
        let mut own = Commanded::default();
        let passwords = s.passwords.clone().unwrap_or_default();
        own.certificate = files::commanded(commands, &passwords)?;
        for command in commands {
            match command {
                Command::ServerPreference(on) => own.prefers = Some(*on),
                Command::SessionTickets(on) => own.tickets = Some(*on),
                Command::TicketCount(count) => own.ticket_count = Some(*count),
                Command::CertificateCompression(on) => own.compression = Some(*on),
                _ => {}
            }
        }
        Ok(own)
    }
}

fn verify(s: &SslSettings, security_level: Option<u8>) -> Result<Verify, ConfError> {
    let mode = s.verify.unwrap_or_default();
    let named: Vec<_> = s.client_certificate.iter().chain(&s.trusted_certificate).collect();
    let trust = files::trust(&named, s.crl.as_ref(), security_level)?;
    if mode != VerifyClient::Off && mode != VerifyClient::OptionalNoCa && named.is_empty() {
        return Err(ConfError::new("no ssl_client_certificate for ssl_verify_client"));
    }
    let depth = u32::try_from(s.depth.unwrap_or(1)).unwrap_or(u32::MAX);
    Ok(Verify { mode, depth, trust })
}

/// Sessions of this server are good for servers with the same certificates and the same
/// verification alone.
fn context(
    engine: &str,
    certificates: &[Certified],
    s: &SslSettings,
    verify: &Verify,
) -> SessionContext {
    // Sessions of another engine are no use here, as its rules differ.
    let mut parts: Vec<Vec<u8>> = vec![engine.as_bytes().to_vec()];
    for certified in certificates {
        parts.extend(certified.chain().next().map(<[u8]>::to_vec));
    }
    parts.push(vec![verify.mode as u8]);
    parts.push(verify.depth.to_be_bytes().to_vec());
    parts.extend(verify.trust.store.certificates().iter().map(|c| c.der().to_vec()));
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
    if s.early_data == Some(true) {
        return Ok(None);
    }
    if let Some(files) = &s.ticket_keys {
        let load = |named: &Named| {
            TicketKey::load(&named.path).map_err(|e| ConfError::at(&named.word, e.to_string()))
        };
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
        // What tickets would do: see `tickets`. No other process knows the sessions, so that none
        // can be taken twice.
        CacheUse::None if s.early_data == Some(true) && s.tickets != Some(false) => {
            SessionCache::builtin(EARLY_SESSIONS, context, timeout_s)
        }
        CacheUse::None => SessionCache::none(),
        CacheUse::Builtin(sessions) => SessionCache::builtin(sessions, context, timeout_s),
        CacheUse::Shared(zone) => match shared.zone(&zone.name) {
            Some(zone) => SessionCache::shared(zone, context, timeout_s),
            None => SessionCache::none(),
        },
    }
}
