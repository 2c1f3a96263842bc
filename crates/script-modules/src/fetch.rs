//! `ngx.fetch`: requests of scripts to other servers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use base::log::{Level, lossy};
use bytes::Bytes;
use conf::ConfError;
use engine::Session;
use event::Gate;
use os::SockAddr;
use upstream::http_client::{Body, Client, Error, Message, Missing, Request, Response, Timeout};
use upstream::names::Lookup;
use upstream::pool::{Pool, PoolConf, UpConn, Use};
use upstream::resolver::Resolving;
use upstream::ssl::{Fixed, UpstreamTls};
use upstream::url;

use ::script::Ticket;
use ::script::host::fetch::{FetchReply, FetchRequest, Unsent, reply};

use crate::ops::{Done, Ops};
use crate::settings::{Fetch, Settings};

const USER_AGENT: &str = "nginx-js";

/// The default of `js_fetch_buffer_size`.
const HEAD_MAX: usize = 16 << 10;

/// The default of `js_fetch_limit`. Each request holds a connection of `worker_connections`, and
/// its response is outside of the engine's memory.
const LIMIT: usize = 64;

/// What the requests of a place share: TLS and idle connections.
pub struct Fetcher {
    strict: Result<Rc<UpstreamTls>, String>,
    lax: Rc<UpstreamTls>,
    verifies: bool,
    pool: Option<Rc<Pool>>,
    client: Client,
    max_response: usize,
}

/// A forward proxy.
pub struct Proxy {
    host: Bytes,
    port: u16,
    addr: Option<SockAddr>,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
    /// Another request may have another one.
    varies: bool,
}

impl Fetcher {
    /// Makes the TLS of a place's requests.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn new(conf: &Fetch) -> Result<Fetcher, ConfError> {
        let mut draft = conf.ssl.clone();
        draft.server_name = Some(true);
        draft.depth = draft.depth.or(Some(100));
        let verifies = draft.verify.unwrap_or(true);
        draft.verify = Some(false);
        let lax = Rc::new(draft.finish("js_fetch", &[])?);
        draft.verify = Some(true);
        if draft.trusted.is_none() {
            draft.trusted.clone_from(&conf.system);
        }
        let strict = match &draft.trusted {
            Some(_) => Ok(Rc::new(draft.finish("js_fetch", &[])?)),
            None => Err("there are no trusted certificates".to_owned()),
        };
        let ms = conf.timeout_ms.unwrap_or(60_000);
        let max = conf.keepalive.unwrap_or(0);
        let pool = (max > 0).then(|| {
            Pool::new(PoolConf {
                max,
                local: false,
                requests: conf.keepalive_requests.unwrap_or(1000),
                time_ms: conf.keepalive_time_ms.unwrap_or(3_600_000),
                timeout_ms: conf.keepalive_timeout_ms.unwrap_or(60_000),
                streams: 1,
            })
        });
        Ok(Fetcher {
            strict,
            lax,
            verifies,
            pool,
            client: Client {
                connect_ms: ms,
                timeout: Timeout::Operation(ms),
                head_max: conf.buffer_size.unwrap_or(HEAD_MAX),
                body_max: None,
            },
            max_response: conf.max_response.unwrap_or(1 << 20),
        })
    }

    /// Sends a request and receives the response.
    ///
    /// # Errors
    /// A message for the script; details are logged by `log`.
    pub async fn send(
        &self,
        ask: FetchRequest,
        proxy: Option<Proxy>,
        lookup: Lookup,
        gate: Gate,
        log: impl Fn(Level, &str),
    ) -> Result<FetchReply, String> {
        let default_port = if ask.url.is_secured { 443 } else { 80 };
        let authority = Bytes::from(ask.url.authority.clone());
        let server = url::parse(&authority, default_port, true).map_err(|_| "invalid url")?;
        let is_strict = ask.verify.unwrap_or(self.verifies);
        // As in nginx, a connection to a server that was not verified serves one request.
        let pool = self.pool.as_ref().filter(|_| is_strict || !ask.url.is_secured);
        // A tunnel belongs to the user that the proxy was told, who may be another one next time.
        let pool = pool.filter(|_| proxy.as_ref().is_none_or(|proxy| !proxy.varies));
        let mut client = self.client;
        client.body_max = Some(ask.max_response.unwrap_or(self.max_response));
        let message = message(&ask, proxy.as_ref(), pool.is_some(), &server);
        let peer = match &proxy {
            Some(proxy) => addresses(&lookup, &proxy.host, proxy.port, &proxy.addr).await?,
            None => addresses(&lookup, &server.host, server.port, &server.addr).await?,
        };
        let tls = match (ask.url.is_secured, is_strict) {
            (false, _) => None,
            (true, false) => Some(&self.lax),
            (true, true) => match &self.strict {
                Ok(tls) => Some(tls),
                Err(why) => {
                    log(Level::Error, &format!("js http fetch: {why}"));
                    return Err("connect failed".to_owned());
                }
            },
        };
        let fixed = tls.map(|tls| Fixed::new(tls, &server.host)).transpose();
        let fixed = fixed.map_err(|_| "connect failed")?;
        let tunnel = proxy.as_ref().filter(|_| fixed.is_some());
        let tunnel = tunnel.map(|proxy| connect_message(&server, proxy));
        let mut hasher = DefaultHasher::new();
        (&server.host, server.port, is_strict).hash(&mut hasher);
        let of = Use { tag: hasher.finish() as usize, apart: false, owner: None };
        for addr in &peer {
            let idle = pool.and_then(|pool| pool.take(addr, of, fixed.is_some()));
            if let Some(conn) = idle {
                match exchange(&client, conn, &message, pool, (addr, of, &gate)).await {
                    // The server has closed it in the meantime, and may be asked twice.
                    Err(Error::Closed | Error::Send(_)) if is_idempotent(&ask.method) => {}
                    other => return self.reply(other, &ask),
                }
            }
            let made = match (&fixed, &tunnel) {
                (None, _) => client.connect(addr).await,
                (Some(tls), None) => client.connect_tls(addr, tls).await,
                (Some(tls), Some(connect)) => client.connect_through(addr, connect, tls).await,
            };
            match made {
                Ok(conn) => {
                    let done = exchange(&client, conn, &message, pool, (addr, of, &gate)).await;
                    return self.reply(done, &ask);
                }
                Err(Error::Tunnel(status)) => return Err(Error::Tunnel(status).to_string()),
                Err(e) => log(Level::Error, &format!("js http fetch: {e} ({addr})")),
            }
        }
        Err("connect failed".to_owned())
    }

    fn reply(
        &self,
        done: Result<Response, Error>,
        ask: &FetchRequest,
    ) -> Result<FetchReply, String> {
        let Response { head, text, body } = done.map_err(|e| describe(&e))?;
        let body = match body {
            Body::Whole(bytes) => bytes,
            Body::Part(_, Missing::TooLong) => return Err("http response body is too large".into()),
            Body::Part(_, Missing::Malformed) => return Err("invalid http chunked response".into()),
            Body::Part(_, Missing::Closed | Missing::NotAwaited) => {
                return Err("prematurely closed connection".into());
            }
        };
        let fields = head.fields.iter();
        Ok(FetchReply {
            status: head.status,
            status_text: reason(head.status_line.of(&text)).to_vec(),
            fields: fields
                .map(|field| (field.name.of(&text).to_vec(), field.value.of(&text).to_vec()))
                .collect(),
            body,
            url: ask.url.text.clone(),
        })
    }
}

/// Starts a request of a script, under the settings of the place where the session is; `gate`
/// closes when the worker leaves.
///
/// # Errors
/// It cannot be sent at all.
pub fn start<S: Session>(
    s: &mut S,
    here: &Settings,
    ops: &Ops,
    gate: Gate,
    (ticket, request): (Ticket, FetchRequest),
) -> Result<(), Unsent> {
    let impossible = |message: &str| Unsent::Impossible(message.to_owned());
    let fetcher = here.fetcher().cloned();
    let fetcher = fetcher.ok_or_else(|| impossible("ngx.fetch() is not available here"))?;
    let in_flight = ops.fetching(here.fetch.limit.unwrap_or(LIMIT)).ok_or(Unsent::TooMany)?;
    let proxy = match &here.fetch.proxy {
        None => None,
        Some(template) => {
            let text = s.eval(template);
            let parsed = Proxy::parse(&text);
            let parsed = parsed.map_err(|_| impossible("failed to evaluate proxy URL"))?;
            parsed.map(|proxy| Proxy { varies: template.as_const().is_none(), ..proxy })
        }
    };
    let lookup = s.confs().get::<Resolving>().cloned().unwrap_or_default().lookup();
    let (log, number) = (s.error_log().clone(), s.connection());
    let log = move |level, text: &str| base::log!(log, level, Some(number), "{text}");
    ops.wait(
        ticket,
        Box::pin(async move {
            let sent = fetcher.send(request, proxy, lookup, gate, log).await;
            drop(in_flight);
            Done::Answer(reply(sent))
        }),
    );
    Ok(())
}

/// Whether a request may be sent again (RFC 9110 section 9.2.2).
fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

/// One exchange; the connection is kept if it can be.
async fn exchange(
    client: &Client,
    conn: UpConn,
    message: &Message,
    pool: Option<&Rc<Pool>>,
    (addr, of, gate): (&SockAddr, Use<'_>, &Gate),
) -> Result<Response, Error> {
    let (response, conn) = client.exchange(conn, message).await?;
    if let (Some(conn), Some(pool)) = (conn, pool) {
        pool.put(conn, addr, of, gate);
    }
    Ok(response)
}

/// The text behind the status in `404 Not Found`.
fn reason(status_line: &[u8]) -> &[u8] {
    let space = status_line.iter().position(|b| *b == b' ');
    space.map_or(&[], |at| &status_line[at + 1..])
}

fn describe(e: &Error) -> String {
    match e {
        Error::Connect(_) | Error::Handshake(_) => "connect failed",
        Error::Send(_) if e.is_timeout() => "write timed out",
        Error::Send(_) => "write failed",
        Error::Recv(_) if e.is_timeout() => "read timed out",
        Error::Recv(_) => "read failed",
        Error::Closed => "prematurely closed connection",
        Error::InvalidHead(_) => "invalid http header",
        Error::HeadTooLong => "http response header is too large",
        Error::Tunnel(_) => return e.to_string(),
    }
    .to_owned()
}

/// Fields that the client writes itself, or that belong to the connection.
const OWN_FIELDS: &[&str] =
    &["Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Keep-Alive"];

/// The request as it is sent.
fn message(
    ask: &FetchRequest,
    proxy: Option<&Proxy>,
    keeps_connection: bool,
    server: &url::Url,
) -> Message {
    let named = |name: &str| {
        let mut fields = ask.fields.iter();
        fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let is_proxied = proxy.is_some() && !ask.url.is_secured;
    let target = match is_proxied {
        true => format!("http://{}{}", ask.url.authority, ask.url.target),
        false => ask.url.target.clone(),
    };
    let mut fields: Vec<(&str, &[u8])> = Vec::new();
    if named("User-Agent").is_none() {
        fields.push(("User-Agent", USER_AGENT.as_bytes()));
    }
    if is_proxied && let Some(value) = proxy.and_then(|p| p.authorization.as_deref()) {
        fields.push(("Proxy-Authorization", value.as_bytes()));
    }
    for (name, value) in &ask.fields {
        if !OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            fields.push((name, value.as_bytes()));
        }
    }
    let host = named("Host").map_or(ask.url.authority.as_bytes(), str::as_bytes);
    let host = if host.is_empty() { &server.host[..] } else { host };
    let has_body = !ask.body.is_empty() || matches!(ask.method.as_str(), "POST" | "PUT");
    let request = Request {
        method: &ask.method,
        target: target.as_bytes(),
        host,
        fields: &fields,
        body: has_body.then_some(&ask.body[..]),
        keeps_connection,
    };
    request.to_message()
}

/// The request for a tunnel.
fn connect_message(server: &url::Url, proxy: &Proxy) -> Message {
    let authority = format!("{}:{}", lossy(&server.host), server.port);
    let mut fields: Vec<(&str, &[u8])> = vec![("User-Agent", USER_AGENT.as_bytes())];
    if let Some(value) = &proxy.authorization {
        fields.push(("Proxy-Authorization", value.as_bytes()));
    }
    let request = Request {
        method: "CONNECT",
        target: authority.as_bytes(),
        host: authority.as_bytes(),
        fields: &fields,
        body: None,
        keeps_connection: true,
    };
    request.to_message()
}

/// The addresses of a host, by `resolver`.
async fn addresses(
    lookup: &Lookup,
    host: &Bytes,
    port: u16,
    known: &Option<SockAddr>,
) -> Result<Vec<SockAddr>, String> {
    if let Some(addr) = known {
        return Ok(vec![addr.clone()]);
    }
    let Some(resolver) = &lookup.resolver else { return Err("no resolver defined".to_owned()) };
    match resolver.addresses(host, lookup.timeout_ms).await {
        Ok(found) => Ok(found.list.into_iter().map(|ip| SockAddr::ip(ip, port)).collect()),
        Err(why) => Err(format!("\"{}\" could not be resolved ({why})", lossy(host))),
    }
}

impl Proxy {
    /// Reads `http://[user:password@]host:port`; nothing where it is empty.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Option<Proxy>, &'static str> {
        if text.is_empty() {
            return Ok(None);
        }
        let rest = text.strip_prefix(b"http://").ok_or("proxy URL must have \"http://\"")?;
        let (user, rest) = match rest.iter().rposition(|b| *b == b'@') {
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        };
        let authorization = match user {
            None => None,
            Some(user) => {
                let colon = user.iter().position(|b| *b == b':');
                let colon = colon.ok_or("proxy URL has no password")?;
                let mut plain = Vec::new();
                unescape(&user[..colon], &mut plain);
                plain.push(b':');
                unescape(&user[colon + 1..], &mut plain);
                let mut value = b"Basic ".to_vec();
                base::base64::encode(&plain, &mut value);
                Some(String::from_utf8_lossy(&value).into_owned())
            }
        };
        let host = url::parse(&Bytes::copy_from_slice(rest), 3128, true)?;
        let (host, port, addr) = (host.host, host.port, host.addr);
        Ok(Some(Proxy { host, port, addr, authorization, varies: false }))
    }
}

fn unescape(text: &[u8], out: &mut Vec<u8>) {
    http_wire::uri::unescape(text, http_wire::uri::Unescape::All, out);
}

#[cfg(test)]
mod tests {
    use super::Proxy;

    #[test]
    fn proxies_are_read() {
        assert!(Proxy::parse(b"").unwrap().is_none());
        let proxy = Proxy::parse(b"http://user%40domain:p%40ss%3Aword@127.0.0.1:8081").unwrap();
        let proxy = proxy.unwrap();
        assert_eq!((&proxy.host[..], proxy.port), (&b"127.0.0.1"[..], 8081));
        let value = proxy.authorization.as_deref();
        assert_eq!(value, Some("Basic dXNlckBkb21haW46cEBzczp3b3Jk"));
        let proxy = Proxy::parse(b"http://proxy.example.com").unwrap().unwrap();
        assert_eq!((proxy.authorization, proxy.port), (None, 3128));
        for wrong in ["https://a:1", "a:1", "http://user@a:1", "http://"] {
            assert!(Proxy::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
