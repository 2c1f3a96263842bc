//! Logouts: by the user here, and by the provider through the browser or by itself.

use std::rc::Rc;

use base::log::Level;
use base::time::unix_ms;
use bytes::Bytes;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::{FieldId, Method};
use keyval::{Change, Refused};
use oidc::{FrontChannel, LogoutToken, end_session_url, logout_token_of};

use super::check::fail;
use super::fetch::Failure;
use super::provider::Provider;
use super::sessions::{self, set_cookie};

const HTML: Bytes = Bytes::from_static(b"text/html; charset=utf-8");

const SIGNED_OUT: &str = "<!DOCTYPE html>\n<html><head><title>Signed out</title></head>\n\
    <body><h1>Signed out</h1></body></html>\n";

/// Another site may link here, and even post here, but it cannot press the button.
const ASK: &str = "<!DOCTYPE html>\n<html><head><title>Sign out?</title></head>\n\
    <body><form method=\"post\"><button>Sign out</button></form></body></html>\n";

/// Bytes of a logout token's request.
const BODY_MAX: u64 = 64 << 10;

/// `logout_uri`: ends the session here, and sends the browser to the provider's logout.
pub(super) async fn begin(r: &mut Request, providers: &[Rc<Provider>]) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head, Method::Post]) {
        return Verdict::Status(405);
    }
    let found = providers.iter().find_map(|p| Some((p, sessions::find(r, p)?)));
    let Some(provider) = found.as_ref().map(|(p, _)| *p).or(providers.first()) else {
        return Verdict::Status(404);
    };
    let Some(origin) = provider.origin(r) else { return Verdict::Status(400) };
    if found.is_some() && !is_own(r, &origin) {
        r.out.add("X-Frame-Options", Bytes::from_static(b"DENY"));
        r.respond(200, HTML, Bytes::from_static(ASK.as_bytes()));
        return Verdict::Done;
    }
    let mut hint = None;
    if let Some((provider, found)) = &found {
        provider.remove(&found.id);
        hint = Some(found.session.id_token.clone()).filter(|_| provider.token_hint);
    }
    let cookies = provider.cookies(r);
    set_cookie(r, cookies.clear(cookies.session()));
    let post_logout = provider.post_logout.as_ref().map(|uri| match uri.starts_with('/') {
        true => format!("{origin}{uri}"),
        false => uri.clone(),
    });
    // The session is over here even if the provider is away.
    let url = match provider.metadata().await {
        Ok(metadata) => {
            let post_logout = post_logout.as_deref();
            end_session_url(&provider.client, &metadata, hint.as_deref(), post_logout)
        }
        Err(failure) => {
            r.log(Level::Error, format_args!("OpenID Connect: logout: {failure}"));
            None
        }
    };
    match url.or(post_logout) {
        Some(url) => {
            r.out.location = Some(Bytes::from(url));
            // A form's POST becomes a GET.
            Verdict::Status(if r.target.method == Method::Post { 303 } else { 302 })
        }
        None => {
            r.respond(200, HTML, Bytes::from_static(SIGNED_OUT.as_bytes()));
            Verdict::Done
        }
    }
}

/// Whether a page of this origin, or the user, made the request. A link of another site would sign
/// users out.
fn is_own(r: &Request, origin: &str) -> bool {
    if let Some(site) = r.header_named(b"Sec-Fetch-Site") {
        return matches!(site, b"same-origin" | b"none");
    }
    // Older browsers have it with each POST. Their links cannot be told apart.
    r.target.method != Method::Post
        || r.header_named(b"Origin").is_some_and(|of| of == origin.as_bytes())
}

/// `frontchannel_logout_uri`: the provider's page has it in a frame.
pub(super) fn front_channel(r: &mut Request, providers: &[Rc<Provider>]) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    let of = match FrontChannel::parse(&r.target.args) {
        Ok(request) => request.of,
        Err(e) => return refuse(r, &e),
    };
    let mut ended = false;
    match &of {
        Some((iss, sid)) => {
            let Some(provider) = providers.iter().find(|p| p.client.issuer == *iss) else {
                return refuse(r, &oidc::Error::Request("the logout is of another issuer"));
            };
            let key = FrontChannel::marker_key(&provider.client.provider, sid);
            // There is one for each session.
            if provider.store().get(key.as_bytes()).is_some() {
                if let Err(refused) = mark(provider, &key) {
                    return full(r, refused);
                }
                ended = true;
            }
        }
        None => {
            for provider in providers {
                if let Some(found) = sessions::find(r, provider) {
                    provider.remove(&found.id);
                    let cookies = provider.cookies(r);
                    set_cookie(r, cookies.clear(cookies.session()));
                    ended = true;
                }
            }
        }
    }
    let what = if ended { "ended" } else { "is not known" };
    r.log(Level::Info, format_args!("OpenID Connect: front-channel logout: the session {what}"));
    r.respond(200, HTML, Bytes::from_static(SIGNED_OUT.as_bytes()));
    Verdict::Done
}

/// `backchannel_logout_uri`: the provider sends a signed token.
pub(super) async fn back_channel(r: &mut Request, providers: &[Rc<Provider>]) -> Verdict {
    if r.target.method != Method::Post {
        return Verdict::Status(405);
    }
    let media = r.header(FieldId::ContentType).unwrap_or_default();
    let media = media.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    if !media.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        return refuse(r, &oidc::Error::Request("the body is no form"));
    }
    if let Err(verdict) = r.read_body().await {
        return verdict;
    }
    let body = r.body_bytes().filter(|body| body.len() as u64 <= BODY_MAX);
    let Some(body) = body else {
        return refuse(r, &oidc::Error::Request("the body is empty or too long"));
    };
    let token = match logout_token_of(&body) {
        Ok(token) => token,
        Err(e) => return refuse(r, &e),
    };
    let mut last = Failure::Protocol(oidc::Error::Request("no provider has this path"));
    for provider in providers {
        match provider.verified(|e| e.logout_token(&token)).await {
            Ok(token) => return end_sessions(r, provider, &token),
            Err(failure) => last = failure,
        }
    }
    match last {
        Failure::Protocol(e) => refuse(r, &e),
        failure => fail(r, &failure),
    }
}

fn end_sessions(r: &mut Request, provider: &Provider, token: &LogoutToken) -> Verdict {
    match provider.put(Change::Add, &token.used_key, b"", LogoutToken::USED_MS) {
        Ok(()) => {}
        Err(Refused::Exists) => {
            return refuse(r, &oidc::Error::Request("the logout token was used before"));
        }
        Err(refused) => return full(r, refused),
    }
    if let Err(refused) = mark(provider, &token.marker_key(&provider.client.provider)) {
        return full(r, refused);
    }
    r.log(Level::Info, format_args!("OpenID Connect: back-channel logout"));
    r.respond(200, HTML, Bytes::new());
    Verdict::Done
}

/// Writes the marker that ends sessions that there are now. They end before it does, unless they
/// are used, and then they end at once.
fn mark(provider: &Provider, key: &str) -> Result<(), Refused> {
    let now = unix_ms().to_string();
    provider.put(Change::Set, key, now.as_bytes(), provider.session_ms)
}

fn full(r: &mut Request, refused: Refused) -> Verdict {
    let m = format_args!("OpenID Connect: a logout cannot be stored: {refused:?}");
    r.log(Level::Error, m);
    Verdict::Status(503)
}

/// Back-Channel Logout 1.0 section 2.8; a browser shows it as well as anything else.
fn refuse(r: &mut Request, e: &oidc::Error) -> Verdict {
    r.log(Level::Info, format_args!("OpenID Connect: logout refused: {e}"));
    r.respond(
        400,
        Bytes::from_static(b"application/json"),
        Bytes::from_static(b"{\"error\":\"invalid_request\"}\n"),
    );
    Verdict::Done
}
