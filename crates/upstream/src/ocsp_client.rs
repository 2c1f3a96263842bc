//! Fetches the responses of OCSP responders: for staples, and for the certificates of clients.
//!
//! The question and the meaning of the response are `pki::ocsp`'s concern; here are only URLs,
//! addresses and one GET.

use std::fmt;

use base::log;
use base::log::{Level, Log, lossy};
use bytes::Bytes;
use http_wire::h1::FieldId;
use os::SockAddr;

use crate::http_client::{Body, Client, Error, Missing, Request, Response, Timeout};
use crate::names::Lookup;
use crate::url;

/// The time for connecting, and again for the exchange, milliseconds. nginx's value.
const TIMEOUT_MS: u64 = 60_000;

/// The longest head, bytes: nginx has as much for head and body together.
const HEAD_MAX: usize = 16 << 10;

/// The longest response, bytes. Real ones have 500 to 2500.
const BODY_MAX: usize = 64 << 10;

const CONTENT_TYPE: &[u8] = b"application/ocsp-response";

/// A responder by its URL.
#[derive(Clone, Debug)]
pub struct Responder {
    host: Bytes,
    port: u16,
    uri: Bytes,
    addresses: Vec<SockAddr>,
    /// The host is an address: no name server is asked.
    is_address: bool,
}

impl Responder {
    /// Takes a URL apart; only `http://` is spoken.
    ///
    /// # Errors
    /// nginx's words for what is wrong with it, without the URL.
    pub fn parse(url: &[u8]) -> Result<Responder, &'static str> {
        let scheme = b"http://";
        let Some((start, rest)) = url.split_at_checked(scheme.len()) else {
            return Err("invalid URL prefix");
        };
        if !start.eq_ignore_ascii_case(scheme) || rest.is_empty() {
            return Err("invalid URL prefix");
        }
        let url = url::parse(&Bytes::copy_from_slice(rest), 80, true)?;
        let uri = if url.uri.is_empty() { Bytes::from_static(b"/") } else { url.uri };
        let is_address = url.addr.is_some();
        let addresses = url.addr.into_iter().collect();
        Ok(Responder { host: url.host, port: url.port, uri, addresses, is_address })
    }

    /// Asks the system for the addresses of the host, for the case that there is no `resolver`.
    /// Waits; only for loading.
    ///
    /// # Errors
    /// nginx's words: there is none.
    pub fn resolve(&mut self) -> Result<(), &'static str> {
        if !self.is_address {
            self.addresses = url::resolve(&self.host, self.port);
        }
        if self.addresses.is_empty() { Err("host not found") } else { Ok(()) }
    }

    /// The path of the URL, below which the question stands.
    pub fn uri(&self) -> &[u8] {
        &self.uri
    }

    /// The host of the URL.
    pub fn host(&self) -> &[u8] {
        &self.host
    }

    fn host_field(&self) -> Vec<u8> {
        let mut field = self.host.to_vec();
        // The default port is left out; that of a unix socket is 0.
        if self.port != 80 && self.port != 0 {
            field.push(b':');
            base::ascii::write_u64(&mut field, u64::from(self.port));
        }
        field
    }
}

/// The place of messages: as in nginx they name the responder and the certificate, and not the
/// client's request.
#[derive(Clone, Copy)]
pub struct Journal<'a> {
    /// The error log.
    pub log: &'a Log,
    /// The number of the client's connection, if the status is that of a client's certificate.
    pub connection: Option<u64>,
    /// The file of the server's certificate.
    pub certificate: Option<&'a str>,
}

impl Journal<'_> {
    /// Writes a message about an exchange with the responder.
    pub fn write(
        &self,
        level: Level,
        responder: &Responder,
        peer: Option<&SockAddr>,
        message: fmt::Arguments<'_>,
    ) {
        if !self.log.enabled(level) {
            return;
        }
        let host = lossy(&responder.host);
        let peer = peer.map(|peer| format!(", peer: {peer}")).unwrap_or_default();
        let certificate = self.certificate.map(|name| format!(", certificate: \"{name}\""));
        let certificate = certificate.unwrap_or_default();
        let doing = "while requesting certificate status";
        log!(
            self.log,
            level,
            self.connection,
            "{message} {doing}, responder: {host}{peer}{certificate}"
        );
    }
}

/// Fetches a response: each address of the responder is tried until one answers. `None` if none
/// did, for reasons that are logged. `target` is what `pki::ocsp::Query::target` makes of
/// [`Responder::uri`].
pub async fn fetch(
    responder: &Responder,
    lookup: &Lookup,
    target: &[u8],
    journal: Journal<'_>,
) -> Option<Bytes> {
    let tell = |level, message: fmt::Arguments<'_>| journal.write(level, responder, None, message);
    let shown = lossy(&responder.host);
    let addresses = match &lookup.resolver {
        _ if responder.is_address => responder.addresses.clone(),
        Some(resolver) => match resolver.addresses(&responder.host, lookup.timeout_ms).await {
            Ok(found) => {
                found.list.into_iter().map(|ip| SockAddr::ip(ip, responder.port)).collect()
            }
            Err(failure) => {
                tell(Level::Error, format_args!("{shown} could not be resolved ({failure})"));
                return None;
            }
        },
        None => {
            let level = if responder.addresses.is_empty() { Level::Error } else { Level::Warn };
            tell(level, format_args!("no resolver defined to resolve {shown}"));
            responder.addresses.clone()
        }
    };
    for address in &addresses {
        match ask(responder, address, target).await {
            Ok(body) => return Some(body),
            Err(fault) => {
                journal.write(Level::Error, responder, Some(address), format_args!("{fault}"));
                if let Fault::Status(_) = fault {
                    return None;
                }
            }
        }
    }
    None
}

/// Why there is no response.
#[derive(Debug)]
enum Fault {
    Exchange(Error),
    Status(u16),
    ContentType(Vec<u8>),
    Part(Missing),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Exchange(e) if e.is_timeout() => f.write_str("OCSP responder timed out"),
            Fault::Exchange(Error::Closed) | Fault::Part(Missing::Closed) => {
                f.write_str("OCSP responder prematurely closed connection")
            }
            Fault::Exchange(Error::InvalidHead(_) | Error::HeadTooLong) => {
                f.write_str("OCSP responder sent invalid response")
            }
            Fault::Exchange(e) => e.fmt(f),
            Fault::Status(status) => write!(f, "OCSP responder sent status {status}"),
            Fault::ContentType(value) => {
                let value = lossy(value);
                write!(f, "OCSP responder sent invalid \"Content-Type\" header: \"{value}\"")
            }
            Fault::Part(Missing::TooLong) => f.write_str("OCSP responder sent too large response"),
            Fault::Part(_) => f.write_str("OCSP responder sent invalid response"),
        }
    }
}

async fn ask(responder: &Responder, address: &SockAddr, target: &[u8]) -> Result<Bytes, Fault> {
    let client = Client {
        connect_ms: TIMEOUT_MS,
        timeout: Timeout::Exchange(TIMEOUT_MS),
        head_max: HEAD_MAX,
        body_max: Some(BODY_MAX),
    };
    let request = Request {
        method: "GET",
        target,
        host: &responder.host_field(),
        fields: &[],
        body: None,
        keeps_connection: false,
    };
    let conn = client.connect(address).await.map_err(Fault::Exchange)?;
    let exchange = client.exchange(conn, &request.to_message()).await;
    body_of(exchange.map_err(Fault::Exchange)?.0)
}

fn body_of(response: Response) -> Result<Bytes, Fault> {
    if response.head.status != 200 {
        return Err(Fault::Status(response.head.status));
    }
    if let Some(value) = response.head.value(FieldId::ContentType, &response.text) {
        let kind = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        if !kind.eq_ignore_ascii_case(CONTENT_TYPE) {
            return Err(Fault::ContentType(value.to_vec()));
        }
    }
    match response.body {
        Body::Whole(bytes) => Ok(bytes.into()),
        Body::Part(_, missing) => Err(Fault::Part(missing)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use event::testing::{each_driver, listen, real_drivers};
    use event::{Deadline, Listener, Loop, Options};
    use mem::Chain;

    use super::*;

    const LONG: u64 = 600_000;

    const NO_NAMES: Lookup = Lookup { resolver: None, timeout_ms: 1_000 };

    fn responder(url: &str) -> Responder {
        Responder::parse(url.as_bytes()).unwrap()
    }

    #[test]
    fn urls() {
        for (url, host, port, uri, field) in [
            ("http://a.test", "a.test", 80, "/", "a.test"),
            ("HTTP://a.test:8080/x?y", "a.test", 8080, "/x?y", "a.test:8080"),
            ("http://127.0.0.1:80/", "127.0.0.1", 80, "/", "127.0.0.1"),
            ("http://[::1]:81", "[::1]", 81, "/", "[::1]:81"),
        ] {
            let r = responder(url);
            assert_eq!((&r.host[..], r.port, r.uri()), (host.as_bytes(), port, uri.as_bytes()));
            assert_eq!(r.host_field(), field.as_bytes());
        }
        for (url, fault) in [
            ("", "invalid URL prefix"),
            ("http://", "invalid URL prefix"),
            ("https://a.test/", "invalid URL prefix"),
            ("a.test", "invalid URL prefix"),
            ("http:///x", "no host"),
            ("http://a.test:0/", "invalid port"),
        ] {
            assert_eq!(Responder::parse(url.as_bytes()).unwrap_err(), fault, "{url}");
        }
        let mut r = responder("http://127.0.0.1:8080/");
        assert!(r.resolve().is_ok() && r.addresses.len() == 1);
    }

    /// Answers each connection's request by the next text, and closes.
    async fn serve(listener: Listener, texts: Vec<Vec<u8>>, asked: Rc<RefCell<Vec<u8>>>) {
        for text in texts {
            let sock = listener.accept().await.unwrap().sock;
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let page = sock.recv(1, Deadline::in_ms(LONG)).await.unwrap();
                request.extend_from_slice(page.filled());
            }
            *asked.borrow_mut() = request;
            let mut out = Chain::new();
            out.write(&text);
            // A client that has seen enough closes.
            let _ = sock.send(&mut out, Deadline::in_ms(LONG)).await;
        }
    }

    fn ok(fields: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}").into()
    }

    #[test]
    fn responses_and_faults() {
        each_driver(|| async {
            let kind = "Content-Type: application/ocsp-response\r\n";
            let with_length = format!("{kind}Content-Length: 4\r\n");
            let large = "x".repeat(BODY_MAX + 1);
            let cases: Vec<(Vec<u8>, Result<&str, &str>)> = vec![
                (ok(kind, "body"), Ok("body")),
                (ok(&with_length, "body"), Ok("body")),
                (ok("content-type: APPLICATION/OCSP-Response; x=y\r\n", "body"), Ok("body")),
                (ok("", "body"), Ok("body")),
                (
                    ok("Content-Type: text/html\r\n", "x"),
                    Err("\"Content-Type\" header: \"text/html\""),
                ),
                (ok(&with_length, "bod"), Err("prematurely closed connection")),
                (ok(kind, &large), Err("sent too large response")),
                (b"HTTP/1.1 404 No\r\n\r\n".to_vec(), Err("OCSP responder sent status 404")),
                (b"SSH-2.0\r\n".to_vec(), Err("sent invalid response")),
                (Vec::new(), Err("prematurely closed connection")),
            ];
            let (listener, addr) = listen().unwrap();
            let asked = Rc::new(RefCell::new(Vec::new()));
            let texts = cases.iter().map(|(text, _)| text.clone()).collect();
            event::spawn(serve(listener, texts, asked.clone()));
            let mut r = responder("http://one.test/a");
            r.addresses = vec![addr.clone()];
            for (text, want) in cases {
                let (log, lines) = log::capture(Level::Info);
                let journal = Journal { log: &log, connection: None, certificate: Some("c.pem") };
                let body = fetch(&r, &NO_NAMES, b"/a/MEUw", journal).await;
                let (told, text) = (lines.take(), String::from_utf8_lossy(&text).into_owned());
                assert!(told.contains("[warn]") && told.contains("no resolver defined"), "{told}");
                match want {
                    Ok(want) => {
                        assert_eq!(body.as_deref(), Some(want.as_bytes()), "{text}: {told}")
                    }
                    Err(message) => {
                        let behind = format!(
                            " while requesting certificate status, responder: one.test, \
                             peer: {addr}, certificate: \"c.pem\"\n"
                        );
                        assert!(body.is_none(), "{text}");
                        assert!(told.contains(message) && told.ends_with(&behind), "{told}");
                    }
                }
            }
            let asked = String::from_utf8(asked.take()).unwrap();
            assert!(asked.starts_with("GET /a/MEUw HTTP/1.1\r\nHost: one.test\r\n"), "{asked}");
        });
    }

    #[test]
    fn the_next_address_is_tried() {
        for driver in real_drivers() {
            let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
            let ran = event_loop.block_on(async {
                let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let dead_port = dead.local_addr().unwrap().port();
                drop(dead);
                let (listener, addr) = listen().unwrap();
                let asked = Rc::new(RefCell::new(Vec::new()));
                event::spawn(serve(listener, vec![Vec::new(), ok("", "body")], asked));
                let dead = SockAddr::parse(format!("127.0.0.1:{dead_port}").as_bytes()).unwrap();
                let mut r = responder("http://one.test/");
                r.addresses = vec![dead, addr.clone(), addr];
                let (log, lines) = log::capture(Level::Error);
                let journal = Journal { log: &log, connection: Some(7), certificate: None };
                let body = fetch(&r, &NO_NAMES, b"/", journal).await;
                assert_eq!(body.as_deref(), Some(&b"body"[..]));
                let told = lines.take();
                assert!(told.contains("*7 connect() failed (111: Connection refused)"), "{told}");
                assert_eq!(told.lines().count(), 2, "{told}");
            });
            assert!(ran.is_ok());
        }
    }

    #[test]
    fn a_name_without_addresses_is_an_error() {
        each_driver(|| async {
            let (log, lines) = log::capture(Level::Error);
            let journal = Journal { log: &log, connection: None, certificate: None };
            let r = responder("http://one.test/");
            assert_eq!(fetch(&r, &NO_NAMES, b"/", journal).await, None);
            let told = lines.take();
            assert!(told.contains("[error]") && told.contains("to resolve one.test"), "{told}");
        });
    }
}
