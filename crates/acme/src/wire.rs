//! HTTP requests to an ACME server.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use http_wire::h1::FieldId;
use net::resolver::Failure;
use os::SockAddr;
use proto::acme::{ANSWER_MAX, Answer, Ask, Method, resolve};
use upstream::http_client::{Body, Client, Error, Request, Response, Timeout};
use upstream::ssl::Fixed;
use upstream::url;

use crate::issuer::Issuer;

/// The timeout for connecting, and also for the TLS handshake and for the exchange, in
/// milliseconds.
const TIMEOUT_MS: u64 = 30_000;

/// The maximum size of response headers, in bytes.
const HEAD_MAX: usize = 32 << 10;

/// The maximum number of redirects followed for one request.
const REDIRECTS_MAX: u32 = 10;

const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// The HTTP client of an issuer.
pub(crate) struct Wire {
    issuer: Rc<Issuer>,
}

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// The URL is none of HTTP.
    NotHttp(String),
    /// The URL is malformed, for this reason.
    Malformed(&'static str, String),
    Redirects(String),
    NoAddress(String),
    /// A setting of TLS has variables; the name of the directive behind its prefix.
    Variables(&'static str),
    NoResolver,
    Unresolved(String, Failure),
    /// The exchange with a server at this address failed.
    Exchange(Error, SockAddr),
    /// The response of the server at this address was cut.
    NotWhole(SockAddr),
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSent::NotHttp(url) => write!(f, "\"{url}\" is no URL of HTTP"),
            NotSent::Malformed(why, url) => write!(f, "{why} in \"{url}\""),
            NotSent::Redirects(url) => write!(f, "too many redirects from \"{url}\""),
            NotSent::NoAddress(host) => write!(f, "{host} has no address"),
            NotSent::Variables(setting) => write!(f, "acme{setting} depends on a request"),
            NotSent::NoResolver => f.write_str("no resolver is configured"),
            NotSent::Unresolved(host, failure) => {
                write!(f, "{host} could not be resolved ({failure})")
            }
            NotSent::Exchange(e, address) if e.is_timeout() => {
                write!(f, "the server timed out ({address})")
            }
            NotSent::Exchange(e, address) => write!(f, "{e} ({address})"),
            NotSent::NotWhole(address) => {
                write!(f, "the server's answer is not whole ({address})")
            }
        }
    }
}

/// A parsed URL.
struct Target {
    is_secured: bool,
    host: Bytes,
    port: u16,
    uri: Bytes,
    addr: Option<SockAddr>,
    /// The value of the Host field.
    authority: Vec<u8>,
}

impl Target {
    fn parse(text: &str) -> Result<Target, NotSent> {
        let not_http = || NotSent::NotHttp(text.to_owned());
        let (is_secured, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://"))
        {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(not_http()),
        };
        // A URL from the server must not make us write to a local socket (`http://unix:/…`).
        let is_unix = rest.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:"));
        if is_unix || rest.contains('@') {
            return Err(not_http());
        }
        let default_port = if is_secured { 443 } else { 80 };
        let rest = Bytes::copy_from_slice(rest.as_bytes());
        let parsed = url::parse(&rest, default_port, true);
        let parsed = parsed.map_err(|why| NotSent::Malformed(why, text.to_owned()))?;
        let authority = rest[..rest.len() - parsed.uri.len()].to_vec();
        let uri = match parsed.uri.first() {
            Some(b'/') => parsed.uri,
            _ => [b"/", &parsed.uri[..]].concat().into(),
        };
        let (host, port, addr) = (parsed.host, parsed.port, parsed.addr);
        Ok(Target { is_secured, host, port, uri, addr, authority })
    }
}

impl Wire {
    pub fn new(issuer: &Rc<Issuer>) -> Wire {
        Wire { issuer: issuer.clone() }
    }

    /// Sends a request and returns the response. Follows redirects of unsigned requests only,
    /// because a signature covers the URL.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(&self, ask: &Ask) -> Result<Answer, NotSent> {
        let mut url = ask.url.clone();
        for _ in 0..REDIRECTS_MAX {
            let answer = self.send_to(&url, ask).await?;
            let moved = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
            match answer.location.as_deref().and_then(|location| resolve(&url, location)) {
                Some(next) if moved && ask.method == Method::Get => url = next,
                _ => return Ok(answer),
            }
        }
        Err(NotSent::Redirects(ask.url.clone()))
    }

    async fn send_to(&self, url: &str, ask: &Ask) -> Result<Answer, NotSent> {
        let target = Target::parse(url)?;
        let request = Request {
            method: match ask.method {
                Method::Get => "GET",
                Method::Head => "HEAD",
                Method::Post => "POST",
            },
            target: &target.uri,
            host: &target.authority,
            fields: &[
                ("User-Agent", USER_AGENT.as_bytes()),
                ("Accept", b"*/*"),
                ("Content-Type", b"application/jose+json"),
            ][..if ask.body.is_some() { 3 } else { 2 }],
            body: ask.body.as_deref(),
            keeps_connection: false,
        };
        let message = request.to_message();
        let client = Client {
            connect_ms: TIMEOUT_MS,
            timeout: Timeout::Exchange(TIMEOUT_MS),
            head_max: HEAD_MAX,
            body_max: Some(ANSWER_MAX),
        };
        let shown = base::log::lossy(&target.host);
        let mut last = NotSent::NoAddress(shown.into_owned());
        for address in self.addresses(&target).await? {
            let connected = match target.is_secured {
                true => {
                    let tls = Fixed::new(&self.issuer.tls, &target.host);
                    let tls = tls.map_err(NotSent::Variables)?;
                    client.connect_tls(&address, &tls).await
                }
                false => client.connect(&address).await,
            };
            match connected {
                // The next address is only tried if nothing was sent, because a signed request must
                // not be sent twice.
                Err(e) => last = NotSent::Exchange(e, address),
                Ok(conn) => {
                    let exchanged = client.exchange(conn, &message).await;
                    return match exchanged {
                        Ok((response, _)) => answer_of(response).ok_or(NotSent::NotWhole(address)),
                        Err(e) => Err(NotSent::Exchange(e, address)),
                    };
                }
            }
        }
        Err(last)
    }

    async fn addresses(&self, target: &Target) -> Result<Vec<SockAddr>, NotSent> {
        if let Some(addr) = &target.addr {
            return Ok(vec![addr.clone()]);
        }
        let shown = base::log::lossy(&target.host);
        let lookup = &self.issuer.lookup;
        let resolver = lookup.resolver.as_ref().ok_or(NotSent::NoResolver)?;
        match resolver.addresses(&target.host, lookup.timeout_ms).await {
            Ok(found) => Ok(found
                .list
                .into_iter()
                .map(|address| SockAddr::ip(address, target.port))
                .collect()),
            Err(failure) => Err(NotSent::Unresolved(shown.into_owned(), failure)),
        }
    }
}

/// The parts of a response that the protocol reads; `None` if its body is not whole.
fn answer_of(response: Response) -> Option<Answer> {
    let Response { head, text, body } = response;
    let mut answer = Answer { status: head.status, ..Answer::default() };
    let string = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    answer.location = head.value(FieldId::Location, &text).map(string);
    for field in head.fields.iter() {
        let (name, value) = (field.name.of(&text), field.value.of(&text));
        if name.eq_ignore_ascii_case(b"replay-nonce") {
            answer.nonce = Some(string(value));
        } else if name.eq_ignore_ascii_case(b"retry-after") {
            answer.retry_after = Some(value.to_vec());
        } else if name.eq_ignore_ascii_case(b"link") {
            answer.links.push(string(value));
        }
    }
    match body {
        Body::Whole(bytes) => answer.body = bytes,
        Body::Part(..) => return None,
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, uri, authority) in [
            ("https://a.test", "a.test", 443, "/", "a.test"),
            ("https://a.test:14000/dir?x", "a.test", 14000, "/dir?x", "a.test:14000"),
            ("http://127.0.0.1/x", "127.0.0.1", 80, "/x", "127.0.0.1"),
            ("https://[::1]:1/x", "[::1]", 1, "/x", "[::1]:1"),
            ("https://a.test?x", "a.test", 443, "/?x", "a.test"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((&target.host[..], target.port), (host.as_bytes(), port), "{text}");
            assert_eq!(
                (&target.uri[..], &*target.authority),
                (uri.as_bytes(), authority.as_bytes())
            );
        }
        for text in [
            "",
            "ftp://a",
            "https://",
            "https://u@a.test/",
            "http://unix:/x",
            "http://Unix:/x:/y",
            "https://UNIX:/x",
            "a.test",
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
