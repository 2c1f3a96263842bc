//! The access handler: who answers a request, and who may pass.

use std::rc::Rc;

use base::log::{Level, lossy};
use base::time::unix_secs;
use bytes::Bytes;
use conf::template::Template;
use http::module::{Dry, PhaseHandler, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;
use oidc::Session;

use super::fetch::Failure;
use super::provider::{Endpoint, Provider};
use super::sessions::{self, Found, Refreshed};
use super::variables::SignedIn;
use super::{Oidc, login, logout};

/// The provider of a location.
pub(super) enum Which {
    One(Rc<Provider>),
    By(Template, Rc<Oidc>),
}

pub(super) struct Handler {
    pub which: Which,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let all = match &self.which {
            Which::One(provider) => std::slice::from_ref(provider),
            Which::By(_, oidc) => &oidc.providers,
        };
        // A callback belongs to the provider that its login began with, whatever the variables of
        // this request say.
        if let Some(endpoint) = all.iter().find_map(|p| p.endpoint(&r.target.uri)) {
            let of = |p: &&Rc<Provider>| p.endpoint(&r.target.uri) == Some(endpoint);
            let providers: Vec<_> = all.iter().filter(of).cloned().collect();
            return Step::Wait(Box::pin(answer(r, endpoint, providers)));
        }
        let provider = match &self.which {
            Which::One(provider) => provider,
            Which::By(name, oidc) => {
                let name = r.eval(name);
                if name.is_empty() || name == "off" {
                    return Step::Now(Verdict::Next);
                }
                let Some(provider) = oidc.find(&name) else {
                    let m = format_args!("oidc_provider \"{}\" is not defined", lossy(&name));
                    r.log(Level::Error, m);
                    return Step::Now(Verdict::Status(500));
                };
                provider
            }
        };
        match sessions::find(r, provider) {
            Some(found) if found.session.wants_refresh(unix_secs()) => {
                Step::Wait(Box::pin(refreshed(r, provider.clone(), found)))
            }
            Some(found) => Step::Now(accept(r, found.session)),
            None if is_navigation(r) => Step::Wait(Box::pin(login::begin(r, provider.clone()))),
            None => Step::Now(refuse(r, provider)),
        }
    }

    // An explanation has no session, and sends nobody to a provider.
    fn dry(&self) -> Dry {
        Dry::Skipped
    }
}

async fn answer(r: &mut Request, endpoint: Endpoint, providers: Vec<Rc<Provider>>) -> Verdict {
    // Nothing of it may be kept by a cache.
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    match endpoint {
        Endpoint::Callback => login::callback(r, &providers).await,
        Endpoint::Logout => logout::begin(r, &providers).await,
        Endpoint::FrontChannel => logout::front_channel(r, &providers),
        Endpoint::BackChannel => logout::back_channel(r, &providers).await,
    }
}

async fn refreshed(r: &mut Request, provider: Rc<Provider>, found: Found) -> Verdict {
    match sessions::refresh(&provider, found).await {
        Refreshed::Session(session) => accept(r, session),
        Refreshed::Over if is_navigation(r) => login::begin(r, provider).await,
        Refreshed::Over => refuse(r, &provider),
        Refreshed::Failed(failure) => fail(r, &failure),
    }
}

fn accept(r: &mut Request, session: Rc<Session>) -> Verdict {
    *r.shared::<SignedIn>().0.borrow_mut() = Some(session);
    Verdict::Ok
}

/// Whether a person waits for the page: others could not follow a redirect to a form.
fn is_navigation(r: &Request) -> bool {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return false;
    }
    // Browsers since 2023 say it.
    if let Some(mode) = r.header_named(b"Sec-Fetch-Mode") {
        return mode == b"navigate";
    }
    let is_script = r.header_named(b"X-Requested-With").is_some();
    let accepts_pages = r.header_named(b"Accept").is_none_or(|accept| {
        let media = accept.split(|b| *b == b',');
        let mut media = media.map(|one| one.split(|b| *b == b';').next().unwrap_or_default());
        media.any(|one| matches!(one.trim_ascii(), b"text/html" | b"*/*" | b"text/*"))
    });
    !is_script && accepts_pages
}

/// Refuses a request that cannot be redirected to a login. RFC 9110 section 11.6.1 demands a
/// challenge; clients ignore the schemes that they do not know.
fn refuse(r: &mut Request, provider: &Provider) -> Verdict {
    let realm = crate::auth_jwt::quoted(provider.client.provider.as_bytes());
    r.out.add("WWW-Authenticate", [b"OIDC realm=", &realm[..]].concat().into());
    r.log(Level::Info, format_args!("the request has no session, and is no navigation"));
    Verdict::Status(401)
}

/// The provider, or this server's settings for it, failed.
pub(super) fn fail(r: &mut Request, failure: &Failure) -> Verdict {
    r.log(Level::Error, format_args!("OpenID Connect: {failure}"));
    Verdict::Status(match failure {
        Failure::Away(_) => 503,
        Failure::Invalid(_) | Failure::Protocol(_) => 502,
    })
}
