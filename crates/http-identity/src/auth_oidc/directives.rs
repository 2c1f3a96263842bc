//! The directives, and the provider that a block of them makes.

use std::rc::Rc;

use base::log::os_error;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::{set_flag, set_msec, set_once};
use conf::{ConfError, Node, Word};
use engine::tls_files::Named;
use http::core_directives::{HSL, directive};
use http::cx::{Block, Cx};
use http::module::Conf;
use http::request::Request;
use oidc::{Client, is_https_url};
use upstream::resolver::Resolving;
use upstream::ssl::SslDraft;
use zeroize::Zeroizing;

use super::Oidc;
use super::provider::{Paths, Provider, Redirect};

/// Bytes of the table that a provider gets by default, as in NGINX Plus.
const STORE_BYTES: usize = 8 << 20;

/// The default of `session_timeout`, milliseconds.
const SESSION_MS: u64 = 8 * 3600 * 1000;

/// Intermediate certificates in the chain of the provider's certificate, at most.
const DEPTH: u64 = 9;

pub(super) static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "auth_oidc",
        HSL,
        Args::T1,
        "off",
        "Has users sign in at a provider of OpenID Connect: its name, with variables, or off.",
        super::auth_oidc,
    ),
    directive(
        "oidc_provider",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "Defines a provider of OpenID Connect, for `auth_oidc`.",
        oidc_provider,
    ),
    directive(
        "issuer",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The provider's issuer identifier: an https:// URL, exactly as in its metadata.",
        |cx, n| set_once(&mut draft(cx).issuer, n, |n| https_url(n.arg(0)?)),
    ),
    directive(
        "client_id",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The client ID that the provider gave to this server.",
        |cx, n| set_once(&mut draft(cx).client_id, n, |n| text(n.arg(0)?)),
    ),
    directive(
        "client_secret",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The client's secret; without one, logins are protected by PKCE alone.",
        |cx, n| set_once(&mut draft(cx).secret, n, |n| Ok(Zeroizing::new(text(n.arg(0)?)?))),
    ),
    directive(
        "client_secret_file",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "A file with the client's secret; it is read at load, and may be readable by root alone.",
        client_secret_file,
    ),
    directive(
        "config_url",
        C::OIDC_PROVIDER,
        Args::T1,
        "ISSUER/.well-known/openid-configuration",
        "The https:// URL of the provider's metadata.",
        |cx, n| set_once(&mut draft(cx).config_url, n, |n| https_url(n.arg(0)?)),
    ),
    directive(
        "cookie_name",
        C::OIDC_PROVIDER,
        Args::T1,
        "NGX_OIDC_SESSION",
        "The name of the session's cookie; under HTTPS it gets the prefix `__Host-`.",
        |cx, n| set_once(&mut draft(cx).cookie_name, n, cookie_name),
    ),
    directive(
        "extra_auth_args",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "Further arguments of the authentication request, for example prompt=login&display=page.",
        |cx, n| {
            set_once(&mut draft(cx).extra_args, n, |n| {
                let args = text(n.arg(0)?)?;
                match oidc::check_extra_args(&args) {
                    Ok(()) => Ok(args),
                    Err(why) => Err(ConfError::directive(n, why)),
                }
            })
        },
    ),
    directive(
        "scope",
        C::OIDC_PROVIDER,
        Args::ONE_MORE,
        "openid",
        "The scopes to request; `openid` is always among them.",
        |cx, n| set_once(&mut draft(cx).scope, n, scope),
    ),
    directive(
        "pkce",
        C::OIDC_PROVIDER,
        Args::FLAG,
        "by the metadata",
        "Uses PKCE with S256; by default if the provider's metadata have it.",
        |cx, n| set_flag(&mut draft(cx).pkce, n),
    ),
    directive(
        "redirect_uri",
        C::OIDC_PROVIDER,
        Args::T1,
        "/oidc_callback",
        "The path, or https:// URL, to which the provider redirects after a login.",
        |cx, n| set_once(&mut draft(cx).redirect, n, redirect),
    ),
    directive(
        "logout_uri",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The path that ends the session, here and at the provider.",
        |cx, n| set_once(&mut draft(cx).logout, n, |n| path(n.arg(0)?)),
    ),
    directive(
        "post_logout_uri",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The path or URL to which users are redirected after a logout.",
        |cx, n| set_once(&mut draft(cx).post_logout, n, post_logout),
    ),
    directive(
        "logout_token_hint",
        C::OIDC_PROVIDER,
        Args::FLAG,
        "off",
        "Sends the ID token (`id_token_hint`) to the provider's logout.",
        |cx, n| set_flag(&mut draft(cx).token_hint, n),
    ),
    directive(
        "frontchannel_logout_uri",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The path for logouts that the provider announces through the browser.",
        |cx, n| set_once(&mut draft(cx).frontchannel, n, |n| path(n.arg(0)?)),
    ),
    directive(
        "backchannel_logout_uri",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "The path for logouts that the provider announces itself, by a signed logout token.",
        |cx, n| set_once(&mut draft(cx).backchannel, n, |n| path(n.arg(0)?)),
    ),
    directive(
        "session_store",
        C::OIDC_PROVIDER,
        Args::T1,
        "oidc_default_store_NAME, 8m",
        "The `keyval_zone` that holds the sessions.",
        |cx, n| set_once(&mut draft(cx).store, n, |n| Ok(n.arg(0)?.clone())),
    ),
    directive(
        "session_timeout",
        C::OIDC_PROVIDER,
        Args::T1,
        "8h",
        "The time after which a session ends, counted from the login or the last refresh.",
        |cx, n| set_msec(&mut draft(cx).session_ms, n),
    ),
    directive(
        "ssl_trusted_certificate",
        C::OIDC_PROVIDER,
        Args::T1,
        "the system's",
        "CA certificates for verifying the provider.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            set_once(&mut draft(cx).trusted, n, |_| Ok(named))
        },
    ),
    directive(
        "ssl_crl",
        C::OIDC_PROVIDER,
        Args::T1,
        "",
        "Revocation lists for verifying the provider.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            set_once(&mut draft(cx).crl, n, |_| Ok(named))
        },
    ),
    directive(
        "userinfo",
        C::OIDC_PROVIDER,
        Args::FLAG,
        "off",
        "Fetches claims about the user from the provider at each login.",
        |cx, n| set_flag(&mut draft(cx).userinfo, n),
    ),
];

/// The directives of an `oidc_provider` block.
#[derive(Default)]
struct Draft {
    issuer: Option<String>,
    client_id: Option<String>,
    secret: Option<Zeroizing<String>>,
    config_url: Option<String>,
    cookie_name: Option<String>,
    extra_args: Option<String>,
    scope: Option<String>,
    pkce: Option<bool>,
    redirect: Option<Redirect>,
    logout: Option<Bytes>,
    post_logout: Option<String>,
    token_hint: Option<bool>,
    frontchannel: Option<Bytes>,
    backchannel: Option<Bytes>,
    store: Option<Word>,
    session_ms: Option<u64>,
    trusted: Option<Named>,
    crl: Option<Named>,
    userinfo: Option<bool>,
}

impl Conf for Draft {}

fn draft(cx: &mut Cx) -> &mut Draft {
    cx.loc::<Draft>()
}

/// A value without control characters. It is not quoted in the error, because it may be a secret.
fn text(word: &Word) -> Result<String, ConfError> {
    let text = std::str::from_utf8(word.bytes()).unwrap_or_default();
    if text.is_empty() || text.contains(char::is_control) {
        return Err(ConfError::at(word, "the value is empty, no UTF-8, or has control characters"));
    }
    Ok(text.to_owned())
}

fn https_url(word: &Word) -> Result<String, ConfError> {
    let url = text(word)?;
    if !is_https_url(&url) {
        return Err(ConfError::at(word, format!("\"{url}\" is no https:// URL")));
    }
    Ok(url)
}

fn path(word: &Word) -> Result<Bytes, ConfError> {
    let path = text(word)?;
    if !is_path(&path) {
        let m = format!("\"{path}\" is no path: it begins with \"/\" and has no arguments");
        return Err(ConfError::at(word, m));
    }
    Ok(Bytes::from(path))
}

fn is_path(path: &str) -> bool {
    oidc::return_to(path.as_bytes()) == path && !path.contains(['?', '#', '%'])
}

fn cookie_name(n: &Node) -> Result<String, ConfError> {
    let word = n.arg(0)?;
    let name = text(word)?;
    let of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !name.bytes().all(of_token) {
        return Err(ConfError::at(word, format!("\"{name}\" is no name of a cookie")));
    }
    Ok(name)
}

fn scope(n: &Node) -> Result<String, ConfError> {
    let mut scopes = Vec::new();
    for word in &n.args {
        let text = text(word)?;
        for scope in text.split(' ').filter(|scope| !scope.is_empty()) {
            // RFC 6749 section 3.3.
            let of_scope = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
            if !scope.bytes().all(of_scope) {
                return Err(ConfError::at(word, format!("\"{scope}\" is no scope")));
            }
            scopes.push(scope.to_owned());
        }
    }
    if !scopes.iter().any(|scope| scope == "openid") {
        scopes.insert(0, "openid".to_owned());
    }
    Ok(scopes.join(" "))
}

fn redirect(n: &Node) -> Result<Redirect, ConfError> {
    let word = n.arg(0)?;
    let uri = text(word)?;
    if let Some(rest) = uri.strip_prefix("https://").filter(|_| is_https_url(&uri)) {
        let host = rest.split('/').next().unwrap_or_default();
        let path = &rest[host.len()..];
        if is_path(path) && !host.contains('?') {
            let origin = Some(format!("https://{host}"));
            return Ok(Redirect { path: Bytes::copy_from_slice(path.as_bytes()), origin });
        }
    }
    if uri.contains("://") {
        let m = format!("\"{uri}\" is no https:// URL with a path and without arguments");
        return Err(ConfError::at(word, m));
    }
    Ok(Redirect { path: path(word)?, origin: None })
}

fn post_logout(n: &Node) -> Result<String, ConfError> {
    let word = n.arg(0)?;
    let uri = text(word)?;
    let is_url = is_https_url(&uri)
        || uri.strip_prefix("http://").is_some_and(|rest| is_https_url(&format!("https://{rest}")));
    if !is_url && oidc::return_to(uri.as_bytes()) != uri {
        return Err(ConfError::at(word, format!("\"{uri}\" is neither a path nor a URL")));
    }
    Ok(uri)
}

fn client_secret_file(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let path = cx.env.conf_path(word.bytes());
    let read = std::fs::read_to_string(&path).map(Zeroizing::new).map_err(|e| {
        let m = format!("open() \"{}\" failed {}", path.display(), os_error(&e));
        ConfError::at(word, m)
    })?;
    let secret = read.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains(char::is_control) {
        let m = format!("\"{}\" must have the secret in one line", path.display());
        return Err(ConfError::at(word, m));
    }
    let secret = Zeroizing::new(secret.to_owned());
    if draft(cx).secret.is_some() {
        return Err(ConfError::directive(n, "is a second secret of the client"));
    }
    draft(cx).secret = Some(secret);
    Ok(())
}

fn oidc_provider(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let name = text(word)?;
    // The last one could be meant by a variable.
    if name == "off" {
        return Err(ConfError::at(word, "a provider cannot be named \"off\""));
    }
    if cx.main::<Oidc>().defined.iter().any(|(_, p)| p.client.provider == name) {
        return Err(ConfError::at(word, format!("duplicate oidc_provider \"{name}\"")));
    }
    let mut level = cx.block(n, C::OIDC_PROVIDER, Block::default())?;
    let draft = std::mem::take(level.get::<Draft>());
    let missing = |what| ConfError::at(word, format!("oidc_provider \"{name}\": no \"{what}\""));
    let issuer = draft.issuer.clone().ok_or_else(|| missing("issuer"))?;
    let id = draft.client_id.clone().ok_or_else(|| missing("client_id"))?;
    if draft.secret.is_none() && draft.pkce == Some(false) {
        let m = format!("oidc_provider \"{name}\": a client without a secret needs PKCE");
        return Err(ConfError::at(word, m));
    }
    if draft.session_ms == Some(0) {
        let m = format!("oidc_provider \"{name}\": \"session_timeout\" must not be 0");
        return Err(ConfError::at(word, m));
    }
    let config_url = draft.config_url.clone().unwrap_or_else(|| {
        format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
    });
    let tls = Rc::new(tls_of(cx, word, &draft)?);
    let zone = match &draft.store {
        Some(store) => keyval::directives::refer::<Request>(cx, store, store.bytes(), None)?,
        None => {
            let zone = format!("oidc_default_store_{name}");
            keyval::directives::define::<Request>(cx, word, zone.as_bytes(), STORE_BYTES)?
        }
    };
    let client = Client {
        provider: name,
        issuer,
        id,
        secret: draft.secret,
        scope: draft.scope.unwrap_or_else(|| "openid".to_owned()),
        extra_args: draft.extra_args,
        pkce: draft.pkce,
    };
    let provider = Provider {
        client,
        config_url,
        cookie_name: draft.cookie_name.unwrap_or_else(|| "NGX_OIDC_SESSION".to_owned()),
        redirect: draft.redirect.unwrap_or_else(Redirect::by_default),
        paths: Paths {
            logout: draft.logout,
            frontchannel: draft.frontchannel,
            backchannel: draft.backchannel,
        },
        post_logout: draft.post_logout,
        token_hint: draft.token_hint.unwrap_or(false),
        userinfo: draft.userinfo.unwrap_or(false),
        session_ms: draft.session_ms.unwrap_or(SESSION_MS),
        zone,
        tls,
        lookup: Resolving::default().lookup(),
        metadata: Default::default(),
        keys: Default::default(),
    };
    provider.check(word)?;
    cx.main::<Oidc>().defined.push((word.clone(), provider));
    Ok(())
}

fn tls_of(cx: &Cx, word: &Word, draft: &Draft) -> Result<upstream::ssl::UpstreamTls, ConfError> {
    let trusted = match &draft.trusted {
        Some(named) => named.clone(),
        None => Named::of_system(cx, word, "oidc_provider", "ssl_trusted_certificate")?,
    };
    let settings = SslDraft {
        verify: Some(true),
        depth: Some(DEPTH),
        trusted: Some(trusted),
        crl: draft.crl.clone(),
        server_name: Some(true),
        ..SslDraft::default()
    };
    settings.finish("oidc", &["http/1.1"])
}
