//! A provider: its settings, and its documents with their copies.

use std::rc::Rc;

use base::time::unix_secs;
use bytes::Bytes;
use conf::{ConfError, Word};
use http::request::Request;
use jose::KeySet;
use keyval::Zone;
use oidc::cookie::{Cookies, pairs};
use oidc::{Client, Expected, Metadata};
use upstream::names::Lookup;
use upstream::ssl::UpstreamTls;

use super::cached::Cached;
use super::fetch::{Ask, Failure};

/// The age of keys below which a token that they do not fit has none fetched, milliseconds.
const KEYS_MIN_MS: u64 = 10_000;

/// `redirect_uri`
#[derive(Clone)]
pub(super) struct Redirect {
    pub path: Bytes,
    /// The origin, if the directive has one: browsers see this server there.
    pub origin: Option<String>,
}

impl Redirect {
    pub(super) fn by_default() -> Redirect {
        Redirect { path: Bytes::from_static(b"/oidc_callback"), origin: None }
    }
}

/// The other paths that the module answers.
pub(super) struct Paths {
    pub logout: Option<Bytes>,
    pub frontchannel: Option<Bytes>,
    pub backchannel: Option<Bytes>,
}

/// `oidc_provider`
pub(super) struct Provider {
    pub client: Client,
    pub config_url: String,
    pub cookie_name: String,
    pub redirect: Redirect,
    pub paths: Paths,
    pub post_logout: Option<String>,
    pub token_hint: bool,
    pub userinfo: bool,
    pub session_ms: u64,
    pub zone: Rc<Zone>,
    pub tls: Rc<UpstreamTls>,
    pub lookup: Lookup,
    pub metadata: Cached<Metadata>,
    pub keys: Cached<KeySet>,
}

/// A path that the module answers itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    Callback,
    Logout,
    FrontChannel,
    BackChannel,
}

impl Provider {
    fn endpoints(&self) -> [(Endpoint, Option<&Bytes>); 4] {
        [
            (Endpoint::Callback, Some(&self.redirect.path)),
            (Endpoint::Logout, self.paths.logout.as_ref()),
            (Endpoint::FrontChannel, self.paths.frontchannel.as_ref()),
            (Endpoint::BackChannel, self.paths.backchannel.as_ref()),
        ]
    }

    /// The endpoint with this path.
    pub(super) fn endpoint(&self, path: &[u8]) -> Option<Endpoint> {
        let found = self.endpoints().into_iter().find(|(_, at)| at.is_some_and(|at| at == path));
        found.map(|(endpoint, _)| endpoint)
    }

    /// Checks settings that only together can be wrong.
    ///
    /// # Errors
    /// Two endpoints have one path.
    pub(super) fn check(&self, word: &Word) -> Result<(), ConfError> {
        let all: Vec<_> = self.endpoints().into_iter().filter_map(|(_, path)| path).collect();
        for (i, path) in all.iter().enumerate() {
            if all[..i].contains(path) {
                let (name, path) = (&self.client.provider, base::log::lossy(path));
                let m = format!("oidc_provider \"{name}\" has two uses for \"{path}\"");
                return Err(ConfError::at(word, m));
            }
        }
        Ok(())
    }

    /// Whether the provider can end sessions.
    pub(super) fn hears_logouts(&self) -> bool {
        self.paths.frontchannel.is_some() || self.paths.backchannel.is_some()
    }

    /// The origin under which the browser sees this server; `None` for a request without a host.
    pub(super) fn origin(&self, r: &Request) -> Option<String> {
        if let Some(origin) = &self.redirect.origin {
            return Some(origin.clone());
        }
        let scheme = if r.is_secured() { "https" } else { "http" };
        let host: &[u8] = if r.target.host.is_empty() { &r.server.name } else { &r.target.host };
        let host = std::str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
        match r.target.host_port {
            0 => Some(format!("{scheme}://{host}")),
            port => Some(format!("{scheme}://{host}:{port}")),
        }
    }

    /// The redirect URI as the provider is to see it.
    pub(super) fn redirect_uri(&self, origin: &str) -> String {
        format!("{origin}{}", base::log::lossy(&self.redirect.path))
    }

    /// The names of the cookies.
    pub(super) fn cookies(&self, r: &Request) -> Cookies {
        let is_secure = match &self.redirect.origin {
            Some(_) => true,
            None => r.is_secured(),
        };
        Cookies::new(&self.cookie_name, is_secure)
    }

    /// The provider's metadata, from a copy if there is one.
    ///
    /// # Errors
    /// They cannot be had, or are unusable.
    pub(super) async fn metadata(self: &Rc<Self>) -> Result<Rc<Metadata>, Failure> {
        let provider = self.clone();
        let fetch = || async move {
            let answer = provider.ask(Ask::get(&provider.config_url)).await?;
            let text = answer.ok()?;
            Metadata::parse(&text, &provider.client).map_err(Failure::Protocol)
        };
        self.metadata.get(fetch).await
    }

    /// The provider's keys, from a copy if there is one that is old enough to stay.
    async fn keys(self: &Rc<Self>, is_outdated: bool) -> Result<Rc<KeySet>, Failure> {
        let provider = self.clone();
        let fetch = || async move {
            let metadata = provider.metadata().await?;
            let answer = provider.ask(Ask::get(&metadata.jwks_uri)).await?;
            let text = answer.ok()?;
            KeySet::parse(&text).map_err(|e| Failure::Protocol(oidc::Error::Document(e)))
        };
        if is_outdated {
            self.keys.renewed(KEYS_MIN_MS, fetch).await
        } else {
            self.keys.get(fetch).await
        }
    }

    /// Runs a check of a token. If the provider may have changed its keys, it runs once more with
    /// new ones.
    ///
    /// # Errors
    /// The check's, or there are no keys.
    pub(super) async fn verified<T>(
        self: &Rc<Self>,
        check: impl Fn(&Expected<'_>) -> Result<T, oidc::Error>,
    ) -> Result<T, Failure> {
        let metadata = self.metadata().await?;
        let run = |keys: &KeySet| {
            let (client, now_s) = (&self.client, unix_secs());
            check(&Expected { client, metadata: &metadata, keys, now_s })
        };
        let keys = self.keys(false).await?;
        match run(&keys) {
            Err(e) if e.may_be_of_other_keys() => {
                let newer = self.keys(true).await?;
                match Rc::ptr_eq(&keys, &newer) {
                    true => Err(Failure::Protocol(e)),
                    false => run(&newer).map_err(Failure::Protocol),
                }
            }
            result => result.map_err(Failure::Protocol),
        }
    }
}

/// The value of a request's cookie. Names are compared with their case, because `__host-` is not
/// protected by browsers as `__Host-` is.
pub(super) fn cookie(r: &Request, name: &str) -> Option<Vec<u8>> {
    let lines = r.headers().filter(|(field, _)| base::ascii::eq_ignore_case(field, b"cookie"));
    let mut values = lines.flat_map(|(_, line)| pairs(line));
    values.find(|(n, _)| *n == name.as_bytes()).map(|(_, value)| value.to_vec())
}
