//! Requests to the provider.

use std::fmt;

use base::log::lossy;
use bytes::Bytes;
use event::Deadline;
use http_wire::h1::FieldId;
use upstream::http_client::{Body, Client, Error, Request, Timeout};
use upstream::ssl::Fixed;
use upstream::url;

use super::provider::Provider;

/// The time for connecting, and again for the handshake and the exchange, milliseconds.
const TIMEOUT_MS: u64 = 15_000;

/// Bytes of the header section of a response.
const HEAD_MAX: usize = 32 << 10;

/// Bytes of a response.
const BODY_MAX: usize = 512 << 10;

const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

/// A request to the provider.
pub(super) struct Ask<'a> {
    pub url: &'a str,
    pub authorization: Option<&'a str>,
    /// The body of a POST.
    pub form: Option<&'a str>,
}

/// The provider's response.
pub(super) struct Answer {
    pub status: u16,
    pub content_type: Vec<u8>,
    pub body: Vec<u8>,
    /// The host, for messages.
    host: String,
}

/// The reason why something of the provider cannot be had. Fit for the log.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It cannot be reached.
    Away(String),
    /// It sends something unusable.
    Invalid(String),
    /// A rule of the protocol is broken.
    Protocol(oidc::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Away(what) | Failure::Invalid(what) => f.write_str(what),
            Failure::Protocol(e) => e.fmt(f),
        }
    }
}

impl From<oidc::Error> for Failure {
    fn from(e: oidc::Error) -> Failure {
        Failure::Protocol(e)
    }
}

impl<'a> Ask<'a> {
    pub(super) fn get(url: &'a str) -> Ask<'a> {
        Ask { url, authorization: None, form: None }
    }
}

impl Answer {
    /// The body of a successful response.
    pub(super) fn ok(self) -> Result<Vec<u8>, Failure> {
        match self.status {
            200 => Ok(self.body),
            500.. => Err(Failure::Away(format!("{} sent status {}", self.host, self.status))),
            status => Err(Failure::Invalid(format!("{} sent status {status}", self.host))),
        }
    }
}

impl Provider {
    /// Sends a request. Nothing is followed or repeated; the next address is only tried if nothing
    /// was sent.
    ///
    /// # Errors
    /// There is no response.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, Failure> {
        let invalid = |why: &str| Failure::Invalid(format!("invalid URL of the provider: {why}"));
        let rest = ask.url.strip_prefix("https://").ok_or_else(|| invalid("no https://"))?;
        let rest = Bytes::copy_from_slice(rest.as_bytes());
        let target = url::parse(&rest, 443, true).map_err(invalid)?;
        let authority = &rest[..rest.len() - target.uri.len()];
        let uri = match target.uri.first() {
            Some(b'/') => target.uri.clone(),
            _ => [b"/", &target.uri[..]].concat().into(),
        };
        let mut fields: Vec<(&str, &[u8])> =
            vec![("User-Agent", USER_AGENT.as_bytes()), ("Accept", b"application/json")];
        if let Some(value) = ask.authorization {
            fields.push(("Authorization", value.as_bytes()));
        }
        if ask.form.is_some() {
            fields.push(("Content-Type", b"application/x-www-form-urlencoded"));
        }
        let request = Request {
            method: if ask.form.is_some() { "POST" } else { "GET" },
            target: &uri,
            host: authority,
            fields: &fields,
            body: ask.form.map(str::as_bytes),
            keeps_connection: false,
        };
        let message = request.to_message();
        let client = Client {
            connect_ms: TIMEOUT_MS,
            timeout: Timeout::Exchange(TIMEOUT_MS),
            head_max: HEAD_MAX,
            body_max: Some(BODY_MAX),
        };
        let host = lossy(&target.host).into_owned();
        let tls = Fixed::new(&self.tls, &target.host).map_err(invalid)?;
        let mut last = format!("{host} has no address");
        let deadline = Deadline::in_ms(TIMEOUT_MS);
        let addresses = self.lookup.find(&target, deadline).await;
        for address in addresses.map_err(|e| Failure::Away(e.to_string()))? {
            let conn = match client.connect_tls(&address, &tls).await {
                Ok(conn) => conn,
                Err(e) => {
                    last = format!("{} ({host}, {address})", describe(&e));
                    continue;
                }
            };
            let exchanged = client.exchange(conn, &message).await;
            let away = |e| Failure::Away(format!("{} ({host}, {address})", describe(&e)));
            let (response, _) = exchanged.map_err(away)?;
            let content_type = response.head.value(FieldId::ContentType, &response.text);
            let content_type = content_type.unwrap_or_default().to_vec();
            let Body::Whole(body) = response.body else {
                return Err(Failure::Invalid(format!("{host} sent a truncated or too long body")));
            };
            return Ok(Answer { status: response.head.status, content_type, body, host });
        }
        Err(Failure::Away(last))
    }
}

fn describe(e: &Error) -> String {
    if e.is_timeout() { "the provider timed out".to_owned() } else { e.to_string() }
}
