//! Settings of the proxy.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use conf::template::{Template, VarSource};
use conf::{ConfError, Node, Word};
use engine::min_rate::MinRate;
use engine::settings::{Conf, ConfSet};
use upstream::GroupRef;
use upstream::socket::{Bind, SocketConf};
use upstream::ssl::{Fixed, SslDraft, UpstreamTls};

/// The version of the PROXY protocol header for upstreams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderVersion {
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

/// The PROXY protocol header for upstreams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The version of the header.
    pub version: HeaderVersion,
    /// Every datagram of a UDP session gets one, rather than only the first.
    pub every_datagram: bool,
}

engine::settings! {
    /// The `proxy_…` directives of one level.
    pub struct ProxyDraft {
        /// `proxy_bind`
        pub bind: Option<Bind>,
        /// `proxy_bind_dynamic`
        pub bind_dynamic: Option<bool>,
        /// `proxy_session_drop`
        pub session_drop: Option<bool>,
        /// `proxy_buffer_size`
        pub buffer_size: Option<usize>,
        /// `proxy_connect_timeout`, milliseconds.
        pub connect_timeout: Option<u64>,
        /// `proxy_timeout`, milliseconds.
        pub timeout: Option<u64>,
        /// `proxy_min_rate`
        pub min_rate: Option<MinRate>,
        /// `proxy_upload_rate`; `None` if it is the constant 0.
        pub upload_rate: Option<Option<Template>>,
        /// `proxy_download_rate`
        pub download_rate: Option<Option<Template>>,
        /// `proxy_half_close`
        pub half_close: Option<bool>,
        /// `proxy_next_upstream`
        pub next_upstream: Option<bool>,
        /// `proxy_next_upstream_timeout`, milliseconds.
        pub next_upstream_timeout: Option<u64>,
        /// `proxy_next_upstream_tries`
        pub next_upstream_tries: Option<u64>,
        /// `proxy_protocol`
        pub protocol: Option<Option<Headers>>,
        /// `proxy_requests`
        pub requests: Option<u64>,
        /// `proxy_responses`
        pub responses: Option<u64>,
        /// `proxy_socket_keepalive`
        pub keepalive: Option<bool>,
        /// `proxy_socket_rcvbuf`
        pub rcvbuf: Option<usize>,
        /// `proxy_socket_sndbuf`
        pub sndbuf: Option<usize>,
        /// `proxy_ssl`
        pub ssl_on: Option<bool>,
        /// `proxy_ssl_alpn`
        pub ssl_alpn: Option<Vec<Template>>,
        /// `proxy_ssl_…`
        pub ssl: SslDraft,
    }
}

/// `proxy_pass` of a server; it is not inherited.
#[derive(Default)]
pub struct Pass {
    /// The upstream group, if the address has no variables.
    pub group: Option<GroupRef>,
    /// The address, if it has variables.
    pub address: Option<Template>,
    /// The host as written, which is the default name for the server's certificate.
    pub host: Bytes,
}

impl Conf for Pass {}

/// The merged settings of a server.
pub struct ProxyConf {
    /// Socket options of upstream connections.
    pub socket: SocketConf,
    /// `proxy_bind_dynamic`
    pub bind_dynamic: bool,
    /// `proxy_session_drop`
    pub session_drop: bool,
    /// `proxy_buffer_size`
    pub buffer_size: usize,
    /// `proxy_connect_timeout`, milliseconds.
    pub connect_timeout: u64,
    /// `proxy_timeout`, milliseconds.
    pub timeout: u64,
    /// `proxy_min_rate`
    pub min_rate: MinRate,
    /// `proxy_upload_rate`
    pub upload_rate: Option<Template>,
    /// `proxy_download_rate`
    pub download_rate: Option<Template>,
    /// `proxy_half_close`
    pub half_close: bool,
    /// `proxy_next_upstream`
    pub next_upstream: bool,
    /// `proxy_next_upstream_timeout`, milliseconds; 0 is no limit.
    pub next_upstream_timeout: u64,
    /// `proxy_next_upstream_tries`; 0 is no limit.
    pub next_upstream_tries: u64,
    /// `proxy_protocol`
    pub protocol: Option<Headers>,
    /// `proxy_requests`; 0 is no limit.
    pub requests: u64,
    /// `proxy_responses`; none is no limit.
    pub responses: Option<u64>,
    /// TLS to the upstream.
    pub tls: Option<ServerTls>,
}

/// TLS to the upstream of a session.
pub struct ServerTls {
    /// TLS with the ALPN protocols without variables.
    tls: Rc<UpstreamTls>,
    /// `proxy_ssl_alpn` with variables.
    alpn: Vec<Template>,
    /// A cache of TLS settings for recently used ALPN lists.
    known: RefCell<Vec<KnownAlpn>>,
}

/// An ALPN list and the TLS settings with it.
type KnownAlpn = (Vec<Vec<u8>>, Rc<UpstreamTls>);

/// The maximum number of cached ALPN lists.
const KNOWN_MAX: usize = 32;

impl ServerTls {
    fn new(d: &ProxyDraft) -> Result<ServerTls, ConfError> {
        let alpn = d.ssl_alpn.clone().unwrap_or_default();
        let fixed: Option<Vec<_>> = alpn.iter().map(|t| t.as_const().map(|n| n.to_vec())).collect();
        let varies = fixed.is_none();
        let tls = d.ssl.finish_with("proxy", fixed.unwrap_or_default())?;
        if varies && tls.changing.is_some() {
            let m = "variables in both \"proxy_ssl_alpn\" and \"proxy_ssl_certificate\" are not \
                     supported by this version of weir";
            return Err(ConfError::new(m));
        }
        let alpn = if varies { alpn } else { Vec::new() };
        Ok(ServerTls { tls: Rc::new(tls), alpn, known: RefCell::default() })
    }

    /// The TLS settings of health checks, which have no session and so no variables; `name` is the
    /// name of the servers.
    ///
    /// # Errors
    /// A directive has variables; returns the suffix of its name.
    pub fn fixed(&self, name: &Bytes) -> Result<Fixed, &'static str> {
        match self.alpn.is_empty() {
            true => Fixed::new(&self.tls, name),
            false => Err("_ssl_alpn"),
        }
    }

    /// The TLS settings of a session, with the ALPN list that its variables result in.
    pub fn of(&self, s: &mut impl VarSource) -> Rc<UpstreamTls> {
        if self.alpn.is_empty() {
            return self.tls.clone();
        }
        let names = self.alpn.iter().map(|template| template.eval(s).to_vec());
        let names: Vec<_> = names.filter(|name| (1..=255).contains(&name.len())).collect();
        let mut known = self.known.borrow_mut();
        if let Some((_, tls)) = known.iter().find(|(list, _)| *list == names) {
            return tls.clone();
        }
        let tls = self.tls.with_alpn(&names).map_or_else(|| self.tls.clone(), Rc::new);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.push((names, tls.clone()));
        tls
    }
}

/// With `proxy_session_drop` a session that is idle looks after its server this often, in
/// milliseconds.
const DROP_MS: u64 = 1000;

impl ProxyConf {
    /// The longest time in which an idle session is not looked at, in milliseconds.
    pub fn look_ms(&self) -> u64 {
        if self.session_drop { DROP_MS } else { u64::MAX }
    }

    /// The effective settings of a server.
    ///
    /// # Errors
    /// A TLS file cannot be read or is invalid, or TLS settings contradict each other.
    pub fn new(confs: &ConfSet) -> Result<Rc<ProxyConf>, ConfError> {
        let none = ProxyDraft::default();
        let d = confs.get::<ProxyDraft>().unwrap_or(&none);
        let tls = match d.ssl_on {
            Some(true) => Some(ServerTls::new(d)?),
            _ => None,
        };
        Ok(Rc::new(ProxyConf {
            socket: SocketConf {
                bind: d.bind.clone().unwrap_or_default(),
                keepalive: d.keepalive.unwrap_or(false),
                rcvbuf: d.rcvbuf.unwrap_or(0),
                sndbuf: d.sndbuf.unwrap_or(0),
            },
            bind_dynamic: d.bind_dynamic.unwrap_or(false),
            session_drop: d.session_drop.unwrap_or(false),
            buffer_size: d.buffer_size.unwrap_or(16 << 10),
            connect_timeout: d.connect_timeout.unwrap_or(60_000),
            timeout: d.timeout.unwrap_or(600_000),
            min_rate: d.min_rate.unwrap_or(MinRate::OFF),
            upload_rate: d.upload_rate.clone().flatten(),
            download_rate: d.download_rate.clone().flatten(),
            half_close: d.half_close.unwrap_or(false),
            next_upstream: d.next_upstream.unwrap_or(true),
            next_upstream_timeout: d.next_upstream_timeout.unwrap_or(0),
            next_upstream_tries: d.next_upstream_tries.unwrap_or(0),
            protocol: d.protocol.flatten(),
            requests: d.requests.unwrap_or(0),
            responses: d.responses,
            tls,
        }))
    }
}

/// Reads `proxy_protocol on | off | v2 [every_datagram]`.
///
/// # Errors
/// Any other argument.
pub fn headers(n: &Node) -> Result<Option<Headers>, ConfError> {
    let word = n.arg(0)?;
    let invalid =
        |word: &Word| Err(ConfError::at(word, format!("invalid value \"{}\"", word.lossy())));
    let version = match word.bytes().to_ascii_lowercase().as_slice() {
        b"off" => None,
        b"on" | b"v1" => Some(HeaderVersion::V1),
        b"v2" => Some(HeaderVersion::V2),
        _ => return invalid(word),
    };
    let every_datagram = match n.args.get(1) {
        None => false,
        Some(w) if *w == *"every_datagram" && version.is_some() => true,
        Some(w) => return invalid(w),
    };
    Ok(version.map(|version| Headers { version, every_datagram }))
}
