//! Requests of scripts to other servers.

use crate::ids::Ticket;
use crate::value::{Answer, Data};

/// A request of a script.
#[derive(Debug)]
pub struct FetchRequest {
    /// `http://host:port/path?args` or `https://…`, which [`parse_url`] takes.
    pub url: Url,
    /// The method in upper case.
    pub method: String,
    /// Fields, in order.
    pub fields: Vec<(String, String)>,
    /// The body; empty: there is none.
    pub body: Vec<u8>,
    /// The longest body of a response, if the script says.
    pub max_response: Option<usize>,
    /// Whether the server's certificate is verified, if the script says.
    pub verify: Option<bool>,
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme is `https`.
    pub is_secured: bool,
    /// Host and, if the URL has one, port.
    pub authority: String,
    /// Path and arguments; begins with a slash.
    pub target: String,
    /// All of it.
    pub text: String,
}

/// A response.
#[derive(Debug)]
pub struct FetchReply {
    /// The status code of the response.
    pub status: u16,
    /// The text behind it.
    pub status_text: Vec<u8>,
    /// Fields, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// The URL of the request.
    pub url: String,
}

/// The reason why a request is not sent at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// The script has `js_fetch_limit` requests in flight.
    TooMany,
    /// The configuration does not allow it: the message for the script.
    Impossible(String),
}

/// Sends requests of scripts.
pub trait FetchHost {
    /// Sends a request; [`reply`] makes the answer of its ticket.
    ///
    /// # Errors
    /// It cannot be sent at all; the ticket gets no answer.
    fn fetch(&mut self, ticket: Ticket, request: FetchRequest) -> std::result::Result<(), Unsent>;
}

/// The answer for a ticket of [`FetchHost::fetch`].
pub fn reply(result: std::result::Result<FetchReply, String>) -> Answer {
    let reply = match result {
        Ok(reply) => reply,
        Err(message) => return Answer::Failed(message),
    };
    let text = |bytes: &[u8]| Data::Text(String::from_utf8_lossy(bytes).into_owned());
    let fields = reply.fields.iter().map(|(name, value)| Data::List(vec![text(name), text(value)]));
    let entries = [
        ("status", Data::Number(reply.status.into())),
        ("statusText", text(&reply.status_text)),
        ("fields", Data::List(fields.collect())),
        ("url", Data::Text(reply.url)),
        ("body", Data::Bytes(reply.body)),
    ];
    let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value));
    Answer::Data(Data::Object(entries.collect()))
}

/// The longest host, bytes, as in njs.
const HOST_MAX: usize = 256;

/// Takes a URL apart.
///
/// # Errors
/// What is wrong with it, in njs's words.
pub fn parse_url(text: &str) -> std::result::Result<Url, &'static str> {
    let scheme = |scheme: &str| {
        let (head, rest) = text.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let (is_secured, rest) = match (scheme("https://"), scheme("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("unsupported URL schema (only http or https are supported)"),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    if authority.is_empty() || authority.starts_with(':') || !is_target(authority) {
        return Err("invalid url");
    }
    if authority.len() >= HOST_MAX {
        return Err("Host name too long");
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok(Url {
        is_secured,
        authority: authority.to_owned(),
        target: format!("{slash}{target}"),
        text: text.to_owned(),
    })
}

/// Whether a text may stand in a request line.
pub(crate) fn is_target(text: &str) -> bool {
    !text.bytes().any(|b| b <= b' ' || b == 0x7f)
}

#[cfg(test)]
mod tests {
    use super::parse_url;

    #[test]
    fn urls_are_taken_apart() {
        for (text, is_secured, authority, target) in [
            ("http://nginx.org", false, "nginx.org", "/"),
            ("HTTPS://a:8443/b?c=d#e", true, "a:8443", "/b?c=d"),
            ("http://[::1]:80?x", false, "[::1]:80", "/?x"),
        ] {
            let url = parse_url(text).unwrap();
            assert_eq!(url.is_secured, is_secured, "{text}");
            assert_eq!((url.authority.as_str(), url.target.as_str()), (authority, target));
        }
        let schema = "unsupported URL schema (only http or https are supported)";
        let long = format!("http://{}/", "a".repeat(300));
        for (text, problem) in [
            ("", schema),
            ("ftp://a", schema),
            ("nginx.org", schema),
            ("http://", "invalid url"),
            ("http:///a", "invalid url"),
            ("http://a b/", "invalid url"),
            (long.as_str(), "Host name too long"),
        ] {
            assert_eq!(parse_url(text), Err(problem), "{text}");
        }
    }
}
