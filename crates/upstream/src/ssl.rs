//! TLS to upstreams: its settings, and the handshake of a connection.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use base::log::Level;
use bytes::Bytes;
use conf::ConfError;
use conf::template::Template;
use engine::metrics::word;
use engine::tls_certificates::{CacheTerms, Certificates, Unusable};
use engine::tls_files::{self as files, Named};
use engine::tls_objects::Trust;
use engine::tls_settings::{self, Algorithms};
use event::{Deadline, Either};
use net::Transport;
use os::SockAddr;
use pki::pem::Passwords;
use pki::verify::{self, Purpose, Rules, check_address, check_host};
use pki::x509::{Certificate, Malformed};
use tls::certified::Certified;
use tls::ciphers::Ciphers;
use tls::conf_command::Command;
use tls::protocols::Version;
use tls::{ClientConfig, ClientOptions, ClientSessions, KeyLog, Session};

use crate::peer::Peer;

engine::settings! {
    /// The `…_ssl_…` directives of one level.
    #[derive(Clone)]
    pub struct SslDraft {
        /// `…_ssl_session_reuse`
        pub session_reuse: Option<bool>,
        /// `…_ssl_protocols`
        pub protocols: Option<Vec<Version>>,
        /// `…_ssl_ciphers`
        pub ciphers: Option<Ciphers>,
        /// `…_ssl_conf_command`
        pub commands: Option<Vec<Command>>,
        /// `…_ssl_name`
        pub name: Option<Template>,
        /// `…_ssl_server_name`
        pub server_name: Option<bool>,
        /// `…_ssl_verify`
        pub verify: Option<bool>,
        /// `…_ssl_verify_depth`
        pub depth: Option<u64>,
        /// `…_ssl_trusted_certificate`
        pub trusted: Option<Named>,
        /// Further files of that kind, where a block takes several.
        pub trusted_more: Option<Vec<Named>>,
        /// `…_ssl_crl`
        pub crl: Option<Named>,
        /// `…_ssl_certificate`, with its variables.
        pub certificate: Option<(Named, Template)>,
        /// `…_ssl_certificate_key`, with its variables.
        pub key: Option<(Named, Template)>,
        /// The folder of names of files that are relative.
        pub folder: Option<PathBuf>,
        /// `…_ssl_certificate_cache`
        pub cache: Option<Option<CacheTerms>>,
        /// `…_ssl_key_log`
        pub key_log: Option<KeyLog>,
        /// `…_ssl_password_file`
        pub passwords: Option<Passwords>,
    }
}

/// The TLS of connections to the servers of a location.
pub struct UpstreamTls {
    config: ClientConfig,
    sessions: Option<ClientSessions>,
    sends_name: bool,
    /// The name of the server, unless it is that of the address.
    pub name: Option<Template>,
    verify: Option<Verify>,
    /// The certificate to show, where it depends on the request.
    pub changing: Option<Changing>,
}

struct Verify {
    trust: Rc<Trust>,
    depth: u32,
}

/// A certificate to show whose files are named by variables.
pub struct Changing {
    /// The name of the certificate.
    pub certificate: Template,
    /// The name of its key.
    pub key: Template,
    certificates: Certificates,
    algorithms: Algorithms,
    /// The protocols offered to servers.
    alpn: Vec<Vec<u8>>,
    key_log: Option<KeyLog>,
    /// The one used last, with the chain that it shows.
    last: RefCell<Option<Last>>,
}

/// A configuration with the names that it was made for.
struct Last {
    names: (Bytes, Bytes),
    chain: Option<Vec<Vec<u8>>>,
    config: ClientConfig,
}

/// The TLS of exchanges of the server's own, for which no request gives variables their values.
pub struct Fixed {
    tls: Rc<UpstreamTls>,
    name: Bytes,
}

impl Fixed {
    /// The settings with a server's name, which holds unless `…_ssl_name` gives another one.
    ///
    /// # Errors
    /// The end of a directive's name (`_ssl_name`) whose value depends on the request.
    pub fn new(tls: &Rc<UpstreamTls>, name: &Bytes) -> Result<Fixed, &'static str> {
        let name = match &tls.name {
            None => name,
            Some(template) => template.as_const().ok_or("_ssl_name")?,
        };
        match &tls.changing {
            None => Ok(Fixed { tls: tls.clone(), name: name.clone() }),
            Some(changing) if changing.certificate.as_const().is_none() => Err("_ssl_certificate"),
            Some(_) => Err("_ssl_certificate_key"),
        }
    }

    /// Puts TLS over a plain connection to `addr`, of which nothing was read that was not used.
    ///
    /// # Errors
    /// The connection has no session, and is closed.
    pub async fn connect(
        &self,
        plain: impl Into<Transport>,
        addr: &SockAddr,
        deadline: Deadline,
    ) -> Result<Transport, NoSession> {
        let peer = addr.to_string();
        let shake = Shake {
            peer: peer.as_bytes(),
            name: &self.name,
            certificate: None,
            deadline,
            counted: None,
        };
        self.tls.connect(plain, shake).await
    }
}

/// The reason why a connection has no session.
pub enum NoSession {
    /// The deadline passed.
    TimedOut,
    /// For the log, at this level.
    Failed(Level, String),
    /// The certificate to show cannot be had: no other server can be asked either. For the log.
    NoCertificate(String),
}

impl SslDraft {
    /// The settings that hold. `prefix` is the directives' (`proxy`); `alpn` are the protocols
    /// offered to servers, best first.
    ///
    /// # Errors
    /// A file cannot be read or used, or the settings do not go together.
    pub fn finish(&self, prefix: &str, alpn: &'static [&str]) -> Result<UpstreamTls, ConfError> {
        let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.finish_with(prefix, alpn)
    }

    /// The same with protocols that servers may choose by ALPN.
    ///
    /// # Errors
    /// As [`SslDraft::finish`].
    pub fn finish_with(&self, prefix: &str, alpn: Vec<Vec<u8>>) -> Result<UpstreamTls, ConfError> {
        let commands = self.commands.as_deref().unwrap_or_default();
        let algorithms = tls_settings::algorithms(
            self.protocols.as_deref(),
            self.ciphers.clone(),
            None,
            commands,
        )?;
        let passwords = self.passwords.clone().unwrap_or_default();
        let (mut certificate, mut changing) = (None, None);
        if let Some((name, names)) = &self.certificate {
            let Some((key, keys)) = &self.key else {
                let m = format!(
                    "no \"{prefix}_ssl_certificate_key\" is defined for certificate \"{}\"",
                    name.word.lossy()
                );
                return Err(ConfError::at(&name.word, m));
            };
            match (names.as_const(), keys.as_const()) {
                (Some(text), _) if text.is_empty() => {}
                (Some(_), Some(_)) => {
                    certificate = Some(files::certified(name, key, &passwords)?);
                }
                _ => {
                    changing = Some(Changing {
                        certificate: names.clone(),
                        key: keys.clone(),
                        certificates: Certificates::new(
                            self.folder.clone().unwrap_or_default(),
                            passwords.clone(),
                            self.cache.unwrap_or_default(),
                        ),
                        algorithms: algorithms.clone(),
                        alpn: alpn.clone(),
                        key_log: self.key_log.clone(),
                        last: RefCell::default(),
                    });
                }
            }
        }
        if let Some((_, commanded)) = files::commanded(commands, &passwords)? {
            certificate = Some(commanded);
        }
        let verify = match self.verify {
            Some(true) => Some(self.verification(prefix, algorithms.security_level)?),
            _ => None,
        };
        let config = config(certificate, &algorithms, &self.key_log, alpn)
            .map_err(|e| ConfError::new(e.to_string()))?;
        let sessions = self.session_reuse.unwrap_or(true);
        Ok(UpstreamTls {
            sessions: sessions.then(|| ClientSessions::new(config.clone())),
            config,
            sends_name: self.server_name.unwrap_or(false),
            name: self.name.clone(),
            verify,
            changing,
        })
    }

    fn verification(&self, prefix: &str, security_level: Option<u8>) -> Result<Verify, ConfError> {
        let Some(trusted) = &self.trusted else {
            let m = format!("no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify");
            return Err(ConfError::new(m));
        };
        let all: Vec<&Named> =
            [trusted].into_iter().chain(self.trusted_more.iter().flatten()).collect();
        let trust = files::trust(&all, self.crl.as_ref(), security_level)?;
        let depth = u32::try_from(self.depth.unwrap_or(1)).unwrap_or(u32::MAX);
        Ok(Verify { trust, depth })
    }
}

fn config(
    certificate: Option<Certified>,
    algorithms: &Algorithms,
    key_log: &Option<KeyLog>,
    alpn: Vec<Vec<u8>>,
) -> Result<ClientConfig, tls::ConfigError> {
    let Algorithms { versions, suites, groups, signatures, .. } = algorithms.clone();
    ClientConfig::new(ClientOptions {
        certificate,
        versions,
        suites,
        groups,
        signatures,
        key_log: key_log.clone(),
        alpn,
    })
}

impl Changing {
    /// The configuration with a certificate of these names; an empty name stands for none.
    async fn config(&self, certificate: &Bytes, key: &Bytes) -> Result<ClientConfig, Unusable> {
        let certified = match certificate.is_empty() {
            true => None,
            false => Some(self.certificates.get(certificate, key).await?),
        };
        let names = (certificate.clone(), key.clone());
        let chain = certified.as_ref().map(|c| c.chain().map(<[u8]>::to_vec).collect());
        if let Some(last) = &*self.last.borrow()
            && last.names == names
            && last.chain == chain
        {
            return Ok(last.config.clone());
        }
        let config = config(certified, &self.algorithms, &self.key_log, self.alpn.clone());
        let config = config.map_err(|e| Unusable::Settings(e.to_string()))?;
        *self.last.borrow_mut() = Some(Last { names, chain, config: config.clone() });
        Ok(config)
    }
}

/// A handshake to come.
pub struct Shake<'a> {
    /// The server's address, which sessions are kept by.
    pub peer: &'a [u8],
    /// The name of the server, to be sent and to be verified.
    pub name: &'a [u8],
    /// The names of the certificate to show and of its key, where variables name them.
    pub certificate: Option<(Bytes, Bytes)>,
    /// The end of patience.
    pub deadline: Deadline,
    /// The server whose counters have the handshake.
    pub counted: Option<&'a Peer>,
}

impl UpstreamTls {
    /// The same with other protocols that servers may choose by ALPN; none where the certificate to
    /// show depends on the session.
    pub fn with_alpn(&self, alpn: &[Vec<u8>]) -> Option<UpstreamTls> {
        if self.changing.is_some() {
            return None;
        }
        let config = self.config.with_alpn(alpn);
        let verify = self.verify.as_ref();
        Some(UpstreamTls {
            sessions: self.sessions.as_ref().map(|_| ClientSessions::new(config.clone())),
            config,
            sends_name: self.sends_name,
            name: self.name.clone(),
            verify: verify.map(|v| Verify { trust: v.trust.clone(), ..*v }),
            changing: None,
        })
    }

    /// Puts TLS over a plain connection, of which nothing was read that was not used, and verifies
    /// the server where that is asked for.
    ///
    /// # Errors
    /// The connection has no session, and is closed.
    pub async fn connect(
        &self,
        plain: impl Into<Transport>,
        shake: Shake<'_>,
    ) -> Result<Transport, NoSession> {
        let counted = shake.counted;
        let done = self.establish(plain.into(), shake).await;
        if let Some(counters) = counted.and_then(Peer::counters) {
            counters.add(word::HANDSHAKES, done.is_ok().into());
            counters.add(word::HANDSHAKES_FAILED, done.is_err().into());
            let is_resumed = matches!(done, Ok((_, true)));
            counters.add(word::SESSION_REUSES, is_resumed.into());
        }
        done.map(|(transport, _)| transport)
    }

    /// The connection with its session, and whether that is an earlier one resumed.
    async fn establish(
        &self,
        plain: Transport,
        shake: Shake<'_>,
    ) -> Result<(Transport, bool), NoSession> {
        let failed = |level, m: String| NoSession::Failed(level, m);
        let name = server_name(shake.name);
        let config = match (&self.changing, &shake.certificate, &self.sessions) {
            (Some(changing), Some((certificate, key)), _) => {
                let loading = changing.config(certificate, key);
                let done = event::race(pin!(loading), event::sleep_until(shake.deadline)).await;
                match done {
                    Either::First(config) => {
                        config.map_err(|e| NoSession::NoCertificate(e.to_string()))?
                    }
                    Either::Second(()) => return Err(NoSession::TimedOut),
                }
            }
            (_, _, Some(sessions)) => sessions.config(shake.peer, name),
            _ => self.config.clone(),
        };
        let sent = if self.sends_name { name } else { b"" };
        let session = Session::client(&config, sent)
            .map_err(|e| failed(Level::Alert, format!("SSL_new() failed ({e})")))?;
        let transport = plain.with_session(session);
        match transport.handshake(shake.deadline, None).await {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() => {
                return Err(NoSession::TimedOut);
            }
            Err(e) => return Err(failed(Level::Error, told(&e))),
        }
        let info = transport.take_session_info().unwrap_or_default();
        if let Some(verify) = &self.verify {
            verify.check(&info, name).map_err(|e| failed(Level::Error, e.to_string()))?;
        }
        Ok((transport, info.is_resumed))
    }
}

/// Why a server's certificate is not accepted.
enum NotTrusted {
    /// One of the chain cannot be parsed.
    Unread(Malformed),
    /// Nobody vouches for it.
    Verify(verify::Error),
    /// It is for another name.
    Name(String),
}

impl fmt::Display for NotTrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("upstream SSL certificate ")?;
        match self {
            NotTrusted::Unread(e) => write!(f, "cannot be read: {e}"),
            NotTrusted::Verify(e) => write!(f, "verify error: ({}:{})", e.number(), e.text()),
            NotTrusted::Name(name) => write!(f, "does not match \"{name}\""),
        }
    }
}

impl Verify {
    fn check(&self, info: &tls::Info, name: &[u8]) -> Result<(), NotTrusted> {
        let sent = info.peer_certificates.as_deref().unwrap_or_default();
        let parse = |der: &[u8]| Certificate::parse(Bytes::copy_from_slice(der)).map(Arc::new);
        let chain = sent.iter().map(|der| parse(der)).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(NotTrusted::Unread)?;
        let now = base::time::unix_secs().cast_signed();
        let rules = Rules { purpose: Purpose::Server, depth: self.depth, now };
        if let Some(error) = self.trust.store.verify(&chain, &rules).error() {
            return Err(NotTrusted::Verify(error));
        }
        // A server may be named by its address (RFC 6125 section 1.7.2, RFC 9110 section 4.3.5).
        let is_named = |own: &Arc<Certificate>| check_host(own, name) || check_address(own, name);
        match chain.first().is_some_and(is_named) {
            true => Ok(()),
            false => Err(NotTrusted::Name(base::log::lossy(name).into_owned())),
        }
    }
}

/// A name without its port. An address of IPv6 may stand without brackets, and has no port then.
fn server_name(name: &[u8]) -> &[u8] {
    let is_v6 = || {
        let text = std::str::from_utf8(name);
        text.is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
    };
    match name.first() {
        Some(b'[') => match memchr::memchr(b']', name) {
            Some(end) => &name[..=end],
            None => name,
        },
        _ if is_v6() => name,
        _ => name.split(|&byte| byte == b':').next().unwrap_or_default(),
    }
}

fn told(e: &io::Error) -> String {
    match e.get_ref().and_then(|e| e.downcast_ref::<tls::Error>()) {
        Some(error) => format!("SSL_do_handshake() failed (SSL: {error})"),
        None if e.kind() == io::ErrorKind::UnexpectedEof => {
            "peer closed connection in SSL handshake".to_owned()
        }
        None => format!("peer closed connection in SSL handshake {}", base::log::os_error(e)),
    }
}
