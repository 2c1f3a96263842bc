//! The request that is explained, and the socket that it comes to.

use std::net::IpAddr;

use http::server::HttpMain;
use os::SockAddr;

use super::logline::Logged;
use crate::error::Error;
use crate::target::Arguments;

/// A request.
pub(crate) struct Question {
    pub(crate) method: String,
    /// `https`.
    pub(crate) tls: bool,
    /// The host of the URL, without brackets.
    pub(crate) host: String,
    /// The port of the URL.
    pub(crate) port: u16,
    /// Path and arguments, as typed.
    pub(crate) path: String,
    /// Further fields.
    headers: Vec<(String, String)>,
    /// The client's address.
    pub(crate) from: SockAddr,
    /// The address that it connects to, where that was named.
    to: Option<SockAddr>,
}

/// The listening socket of a request.
pub(crate) struct Chosen {
    /// Its number.
    pub(crate) listen: usize,
    /// The address that the client connects to.
    pub(crate) local: SockAddr,
    /// The address as configured.
    pub(crate) address: String,
    /// The number of servers at this address, if there are names to choose by.
    pub(crate) has_names: bool,
    /// The connection begins with a header of the PROXY protocol.
    proxy_protocol: bool,
    /// Other addresses with the same port.
    pub(crate) others: Vec<String>,
}

/// The port of clients that are not named in full.
const CLIENT_PORT: u16 = 50_000;
/// A name that no server has, where a line names no host: the default server answers.
pub(crate) const NO_HOST: &str = "host.invalid";

impl Question {
    /// Reads a URL and the options that go with it.
    pub(crate) fn new(url: &str, args: &Arguments) -> Result<Question, Error> {
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(Error::usage("the URL begins with http:// or https://")),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if let Some(wrong) = url.bytes().find(|b| *b <= b' ' || *b == 0x7f) {
            return Err(Error::usage(format!(
                "the URL holds a character {wrong:#04x}: write it as %{wrong:02X}"
            )));
        }
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err(Error::usage("the URL has no host"));
        }
        let mut headers = Vec::new();
        for field in args.values("H") {
            let (name, value) = field
                .split_once(':')
                .ok_or_else(|| Error::usage(format!("-H \"{field}\" has no colon")))?;
            if field.contains(['\r', '\n']) {
                return Err(Error::usage("a field of -H has a line break"));
            }
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let address = |name: &str, port: u16| match args.value(name) {
            Some(text) => {
                let found = SockAddr::parse(text.as_bytes());
                let bare = || Some(SockAddr::ip(text.parse().ok()?, port));
                let is_socket = |addr: &SockAddr| addr.is_unix() && name == "to";
                let found = found.filter(|addr| addr.port() != 0 || is_socket(addr)).or_else(bare);
                found
                    .map(Some)
                    .ok_or_else(|| Error::usage(format!("--{name} \"{text}\" is no address")))
            }
            None => Ok(None),
        };
        let port = port.unwrap_or(if tls { 443 } else { 80 });
        let here = SockAddr::ip(IpAddr::from([127, 0, 0, 1]), CLIENT_PORT);
        let method = args.value("X").unwrap_or("GET").to_owned();
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
            return Err(Error::usage(format!("-X \"{method}\" is no method")));
        }
        let (from, to) = (address("from", CLIENT_PORT)?.unwrap_or(here), address("to", port)?);
        Ok(Question { method, tls, host, port, path, headers, from, to })
    }

    /// Reads a line of an access log. `base` has the scheme, host and port where the line has none;
    /// options win over the line.
    pub(crate) fn of_line(
        logged: &Logged,
        base: Option<&str>,
        main: &HttpMain,
        args: &Arguments,
    ) -> Result<Question, Error> {
        let target = &logged.target;
        let url = match base {
            _ if target.starts_with("http://") || target.starts_with("https://") => target.clone(),
            _ if !target.starts_with('/') => {
                return Err(Error::usage(format!(
                    "\"{target}\" is requested by no URL, and cannot be explained"
                )));
            }
            Some(base) => {
                let of_base = Question::new(base, args)?;
                let scheme = if of_base.tls { "https" } else { "http" };
                format!("{scheme}://{}{target}", of_base.authority())
            }
            None => Question::address_of(logged, main)? + target,
        };
        let mut question = Question::new(&url, args)?;
        if args.value("X").is_none() {
            question.method.clone_from(&logged.method);
        }
        let typed: Vec<String> =
            question.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let logged_headers = logged
            .headers
            .iter()
            .filter(|(name, value)| !typed.contains(name) && !value.contains(['\r', '\n']));
        question.headers.extend(logged_headers.cloned());
        let parse = |text: &Option<String>, port: u16| {
            let text = text.as_deref()?;
            let bare = || Some(SockAddr::ip(text.parse().ok()?, port));
            let found = SockAddr::parse(text.as_bytes());
            found.filter(|addr| addr.is_unix() || addr.port() != 0).or_else(bare)
        };
        if let (None, Some(from)) = (args.value("from"), parse(&logged.from, CLIENT_PORT)) {
            // A client at a unix socket is a local one.
            question.from = if from.is_unix() { question.from } else { from };
        }
        if let (None, Some(to)) = (args.value("to"), parse(&logged.to, question.port)) {
            question.to = Some(to);
        }
        Ok(question)
    }

    /// Scheme, host and port of a line; those that it lacks are of the first socket that fits.
    fn address_of(logged: &Logged, main: &HttpMain) -> Result<String, Error> {
        let addresses = main.listens.iter().filter(|l| !l.spec.quic).flat_map(|l| &l.addresses);
        let mut fitting = addresses.filter(|address| {
            logged.tls.is_none_or(|tls| tls == address.ssl)
                && logged.port.is_none_or(|port| port == address.addr.port())
                && !address.addr.is_unix()
        });
        let found = fitting.next();
        let tls = found.map_or(logged.tls, |address| Some(address.ssl)).unwrap_or(false);
        let default = if tls { 443 } else { 80 };
        let port = logged.port.or_else(|| found.map(|a| a.addr.port())).unwrap_or(default);
        let scheme = if tls { "https" } else { "http" };
        let host = logged.host.clone().unwrap_or_else(|| NO_HOST.to_owned());
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        Ok(format!("{scheme}://{host}:{port}"))
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.port, self.tls) {
            (80, false) | (443, true) => host,
            (port, _) => format!("{host}:{port}"),
        }
    }

    /// The socket that a client of the URL comes to.
    pub(crate) fn choose(&self, main: &HttpMain) -> Result<Chosen, Error> {
        let literal: Option<IpAddr> = self.host.parse().ok();
        let literal = literal.map(|ip| SockAddr::ip(ip, self.port));
        let wanted = self.to.clone().or(literal);
        let port = wanted.as_ref().map_or(self.port, SockAddr::port);
        let mut fitting = Vec::new();
        let mut all = Vec::new();
        for (listen, l) in main.listens.iter().enumerate() {
            if l.spec.quic {
                continue;
            }
            for address in &l.addresses {
                let tls = if address.ssl { " ssl" } else { "" };
                all.push(format!("{}{tls}", address.addr));
                let fits = match &wanted {
                    Some(wanted) if wanted.is_unix() => address.addr == *wanted,
                    _ => !address.addr.is_unix() && address.addr.port() == port,
                };
                if fits && address.ssl == self.tls {
                    fitting.push((listen, address.clone()));
                }
            }
        }
        let rank = |addr: &SockAddr| match &wanted {
            Some(wanted) if addr == wanted => Some(0),
            Some(wanted) if addr.is_wildcard() && addr.family() == wanted.family() => Some(1),
            // A socket of all addresses takes IPv4 as well.
            Some(_) if addr.is_wildcard() => Some(2),
            Some(_) => None,
            None => Some(if addr.is_wildcard() { 0 } else { 1 }),
        };
        let best = fitting.iter().filter_map(|(n, a)| Some((rank(&a.addr)?, n, a)));
        let Some((_, &listen, address)) = best.min_by_key(|(rank, ..)| *rank) else {
            let kind = if self.tls { "https" } else { "http" };
            let place = match wanted.filter(SockAddr::is_unix) {
                Some(path) => format!("at {path}"),
                None => format!("on port {port}"),
            };
            let all = all.join(", ");
            return Err(Error::usage(format!(
                "nothing listens for {kind} {place}; there is: {all}"
            )));
        };
        let local = match (&wanted, address.addr.is_wildcard()) {
            (Some(wanted), _) => wanted.clone(),
            (None, false) => address.addr.clone(),
            (None, true) => SockAddr::ip(IpAddr::from([127, 0, 0, 1]), port),
        };
        let others = fitting.iter().filter(|(_, other)| other.addr != address.addr);
        Ok(Chosen {
            listen,
            local,
            address: address.addr.to_string(),
            has_names: address.names.is_some(),
            proxy_protocol: address.proxy_protocol,
            others: others.map(|(_, other)| other.addr.to_string()).collect(),
        })
    }

    /// The request as a client sends it.
    pub(crate) fn text(&self, chosen: &Chosen) -> String {
        let mut out = String::new();
        if chosen.proxy_protocol {
            // A proxy in front of a unix socket tells of its own.
            let own = SockAddr::ip(IpAddr::from([127, 0, 0, 1]), self.port);
            let to = if chosen.local.is_unix() { &own } else { &chosen.local };
            let from = &self.from;
            let family = if from.host().to_string().contains(':') { "TCP6" } else { "TCP4" };
            let (client, server) = (from.host().to_string(), to.host().to_string());
            let (client, server) =
                (client.trim_matches(['[', ']']), server.trim_matches(['[', ']']));
            let (a, b) = (from.port(), to.port());
            out.push_str(&format!("PROXY {family} {client} {server} {a} {b}\r\n"));
        }
        out.push_str(&format!("{} {} HTTP/1.1\r\n", self.method, self.path));
        let is = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !is("Host") {
            out.push_str(&format!("Host: {}\r\n", self.authority()));
        }
        for (name, value) in &self.headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        if !is("Connection") {
            out.push_str("Connection: close\r\n");
        }
        out.push_str("\r\n");
        out
    }
}

/// The host of an authority without brackets, and its port.
fn split_port(authority: &str) -> Result<(String, Option<u16>), Error> {
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            rest.split_once(']').ok_or_else(|| Error::usage("the URL's host lacks its \"]\""))?
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None | Some("") => None,
        Some(port) => {
            let number = port.parse().ok().filter(|port| *port != 0);
            Some(number.ok_or_else(|| Error::usage(format!("\"{port}\" is no port")))?)
        }
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn question(args: &[&str]) -> Result<Question, Error> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let matches =
            crate::explain::COMMAND.parse(&args).map_err(|e| Error::usage(e.to_string()))?;
        let args = Arguments::new(&matches)?;
        Question::new(args.value("URL").unwrap_or_default(), &args)
    }

    #[test]
    fn urls_are_read() {
        let q = question(&["https://a.example?x=1#y"]).unwrap();
        assert_eq!((q.tls, q.port, q.path.as_str()), (true, 443, "/?x=1"));
        assert_eq!(q.url(), "https://a.example/?x=1");
        let q = question(&["http://[::1]:8080/a%20b", "--from", "192.0.2.7"]).unwrap();
        assert_eq!((q.host.as_str(), q.port), ("::1", 8080));
        assert_eq!(q.url(), "http://[::1]:8080/a%20b");
        assert_eq!(q.from.to_string(), "192.0.2.7:50000");
        let q = question(&["http://a", "-X", "POST", "-H", "A: b:c", "--to", "192.0.2.1:81"]);
        let q = q.unwrap();
        assert_eq!(q.headers, [("A".to_owned(), "b:c".to_owned())]);
        assert_eq!(q.to.as_ref().map(ToString::to_string), Some("192.0.2.1:81".to_owned()));
        let q = question(&["http://a", "--to", "unix:/run/a.sock"]).unwrap();
        assert_eq!(q.to.as_ref().map(ToString::to_string), Some("unix:/run/a.sock".to_owned()));
        for wrong in [
            &["a.example"][..],
            &["http:///x"],
            &["http://a:x/"],
            &["http://a:0/"],
            &["http://[::1/"],
            &["http://a/ b"],
            &["http://a/", "-H", "x"],
            &["http://a/", "-X", "G T"],
            &["http://a/", "--from", "nobody"],
            &["http://a/", "--from", "unix:/run/a.sock"],
            &["http://a/", "--to", "nobody"],
        ] {
            assert!(question(wrong).is_err(), "{wrong:?}");
        }
    }
}
