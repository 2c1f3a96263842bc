//! `server` lines of an `upstream` block.

use std::net::Ipv4Addr;

use base::ascii::parse_u64;
use bytes::Bytes;
use conf::{ConfError, Node, Word, value};
use os::SockAddr;

use crate::peer::{ServerSpec, down};
use crate::url::{self, Url};

/// One `server` line.
pub(crate) struct ServerLine {
    /// One for each address; none with `resolve`.
    pub specs: Vec<ServerSpec>,
    /// The name to look up at run time.
    pub resolve: Option<ResolveLine>,
}

/// A `server … resolve` line: the name, and the settings of the servers that it leads to.
#[derive(Clone, Debug)]
pub(crate) struct ResolveLine {
    /// The name.
    pub host: Bytes,
    /// `service=`; empty where addresses are looked up.
    pub service: Bytes,
    /// The port; services bring their own.
    pub port: u16,
    /// A weight was written.
    pub weighted: bool,
    /// Settings; the address means nothing.
    pub spec: ServerSpec,
}

impl ServerLine {
    /// Reads a line. `no_backup`: the balancing method knows neither backups nor slow starts.
    pub fn parse(n: &Node, no_backup: bool) -> Result<ServerLine, ConfError> {
        let word = n.arg(0)?;
        let mut line = Parameters::default();
        for w in &n.args[1..] {
            line.parameter(w, no_backup)?;
        }
        let in_upstream =
            |e: &str| ConfError::at(word, format!("{e} in upstream \"{}\"", word.lossy()));
        let url = url::parse(&word.text, 80, false).map_err(in_upstream)?;
        if !line.service.is_empty() {
            line.check_service(word, &url)?;
        }
        let spec = |addr| ServerSpec { server: word.text.clone(), ..line.spec(addr) };
        Ok(match url.addr {
            None if line.resolve => {
                let resolve = ResolveLine {
                    host: url.host.clone(),
                    service: line.service.clone(),
                    port: url.port,
                    weighted: line.weight.unwrap_or(1) != 1,
                    spec: spec(nowhere(url.port)),
                };
                ServerLine { specs: Vec::new(), resolve: Some(resolve) }
            }
            Some(addr) => ServerLine { specs: vec![spec(addr)], resolve: None },
            None => {
                let addrs = url::resolve(&url.host, url.port);
                if addrs.is_empty() {
                    return Err(in_upstream("host not found"));
                }
                ServerLine { specs: addrs.into_iter().map(spec).collect(), resolve: None }
            }
        })
    }
}

/// A placeholder for an address that is not known yet.
pub(crate) fn nowhere(port: u16) -> SockAddr {
    SockAddr::ip(Ipv4Addr::UNSPECIFIED.into(), port)
}

/// The parameters of a line.
#[derive(Default)]
struct Parameters {
    weight: Option<i64>,
    max_conns: u64,
    max_fails: Option<u64>,
    fail_timeout: Option<i64>,
    slow_start: u64,
    backup: bool,
    down: u64,
    route: Bytes,
    resolve: bool,
    service: Bytes,
}

/// The longest route, in bytes: the length of the hash that a server without one gets.
pub const ROUTE_MAX: usize = 32;

impl Parameters {
    fn spec(&self, addr: SockAddr) -> ServerSpec {
        ServerSpec {
            weight: self.weight.unwrap_or(1),
            max_conns: self.max_conns,
            max_fails: self.max_fails.unwrap_or(1),
            fail_timeout: self.fail_timeout.unwrap_or(10),
            slow_start: self.slow_start,
            backup: self.backup,
            down: self.down,
            route: self.route.clone(),
            ..ServerSpec::new(addr)
        }
    }

    fn check_service(&self, word: &Word, url: &Url) -> Result<(), ConfError> {
        let why = match (self.resolve, url.no_port, &url.addr) {
            (false, ..) => "requires \"resolve\" parameter",
            (_, false, _) => "may not have port",
            (_, _, Some(_)) => "requires domain name",
            _ => return Ok(()),
        };
        let m = format!("service upstream \"{}\" {why}", word.lossy());
        Err(ConfError::at(word, m))
    }

    fn parameter(&mut self, w: &Word, no_backup: bool) -> Result<(), ConfError> {
        let invalid = || ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()));
        let text = w.bytes();
        let (name, value) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        let number = |v: &[u8]| {
            let n = parse_u64(v).filter(|n| *n <= u32::MAX.into());
            n.ok_or_else(invalid)
        };
        match (name, value) {
            (b"backup", None) | (b"slow_start", Some(_)) if no_backup => {
                let m = "balancing method does not support parameter";
                return Err(ConfError::at(w, format!("{m} \"{}\"", w.lossy())));
            }
            (b"weight", Some(v)) => match number(v)? {
                0 => return Err(invalid()),
                n => self.weight = Some(n as i64),
            },
            (b"max_conns", Some(v)) => self.max_conns = number(v)?,
            (b"max_fails", Some(v)) => self.max_fails = Some(number(v)?),
            (b"fail_timeout", Some(v)) => {
                self.fail_timeout = Some(value::parse_sec(v).ok_or_else(invalid)? as i64);
            }
            (b"slow_start", Some(v)) => {
                self.slow_start = value::parse_msec(v).ok_or_else(invalid)?;
            }
            (b"backup", None) => self.backup = true,
            (b"down", None) => self.down = down::DOWN,
            (b"drain", None) => self.down = down::DRAINING,
            (b"route", Some(b"")) => return Err(ConfError::at(w, "route is empty")),
            (b"route", Some(v)) if v.len() > ROUTE_MAX => {
                return Err(ConfError::at(w, format!("route is longer than {ROUTE_MAX}")));
            }
            (b"route", Some(v)) => self.route = w.text.slice_ref(v),
            (b"resolve", None) => self.resolve = true,
            (b"service", Some(b"")) => return Err(ConfError::at(w, "service is empty")),
            (b"service", Some(v)) => self.service = w.text.slice_ref(v),
            _ => return Err(invalid()),
        }
        Ok(())
    }
}
