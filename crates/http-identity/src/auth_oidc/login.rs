//! Logins: to the provider, and back.

use std::rc::Rc;

use base::log::Level;
use base::time::{unix_ms, unix_secs};
use bytes::Bytes;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::Method;
use keyval::{Change, Refused};
use oidc::cookie::{Cookies, pairs};
use oidc::{
    Callback, LOGIN_LIFETIME_S, Login, Outcome, Session, SessionId, TokenRequest, used_state_key,
};

use super::check::fail;
use super::fetch::{Ask, Failure};
use super::provider::{Provider, cookie};
use super::sessions::{self, exchange, random, set_cookie};

/// Logins of a browser at the same time, each in a tab of its own. Those beyond lose their cookies,
/// or requests would become too large.
const LOGINS_MAX: usize = 8;

/// Redirects a browser to the provider.
pub(super) async fn begin(r: &mut Request, provider: Rc<Provider>) -> Verdict {
    let metadata = match provider.metadata().await {
        Ok(metadata) => metadata,
        Err(failure) => return fail(r, &failure),
    };
    let Some(origin) = provider.origin(r) else { return Verdict::Status(400) };
    let client = &provider.client;
    let return_to = page_of(r.unparsed_uri(), &provider.redirect.path);
    let redirect_uri = provider.redirect_uri(&origin);
    let login = Login::new(&random(), return_to, redirect_uri, unix_secs());
    let Some(sealed) = login.seal(&client.provider, random()) else { return Verdict::Status(500) };
    let cookies = provider.cookies(r);
    drop_surplus(r, &cookies);
    let name = cookies.login(&login.state);
    set_cookie(r, cookies.set(&name, &sealed, Some(LOGIN_LIFETIME_S)));
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    r.out.location = Some(Bytes::from(login.url(client, &metadata)));
    Verdict::Status(302)
}

/// The page to return to. An error page may need a login itself, and then the request is the
/// callback that failed.
fn page_of(target: &[u8], callback: &[u8]) -> String {
    let page = oidc::return_to(target);
    match page.split('?').next().map(str::as_bytes) == Some(callback) {
        true => "/".to_owned(),
        false => page,
    }
}

/// Removes cookies of logins that were begun and left.
fn drop_surplus(r: &mut Request, cookies: &Cookies) {
    let lines = r.headers().filter(|(field, _)| base::ascii::eq_ignore_case(field, b"cookie"));
    let names = lines.flat_map(|(_, line)| pairs(line)).map(|(name, _)| name);
    let logins = names.filter(|name| cookies.is_login(name));
    let names: Vec<_> = logins.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    for name in names.iter().rev().skip(LOGINS_MAX - 1) {
        set_cookie(r, cookies.clear(name));
    }
}

/// Answers the request to `redirect_uri`, which belongs to one of the providers.
pub(super) async fn callback(r: &mut Request, providers: &[Rc<Provider>]) -> Verdict {
    if !r.method_is(&[Method::Get]) {
        return Verdict::Status(405);
    }
    // The code and the state must not reach another site by `Referer`.
    r.out.add("Referrer-Policy", Bytes::from_static(b"no-referrer"));
    let callback = match Callback::parse(&r.target.args) {
        Ok(callback) => callback,
        Err(e) => return refuse(r, &e),
    };
    let (state, now_s) = (&callback.state, unix_secs());
    let opened = providers.iter().find_map(|provider| {
        let sealed = cookie(r, &provider.cookies(r).login(state))?;
        let login = Login::open(state, &provider.client.provider, &sealed, now_s).ok()?;
        Some((provider, login))
    });
    let Some((provider, login)) = opened else { return refuse(r, &oidc::Error::UnknownState) };
    let used = used_state_key(&provider.client.provider, state);
    if provider.store().get(used.as_bytes()).is_some() {
        return refuse(r, &oidc::Error::UnknownState);
    }
    let cookies = provider.cookies(r);
    set_cookie(r, cookies.clear(&cookies.login(state)));
    let session = match sign_in(provider, &callback, &login).await {
        Ok(session) => session,
        Err(failure) => return refuse_login(r, &failure),
    };
    // Two callbacks may have come this far: one of them is a replay.
    let marked = provider.put(Change::Add, &used, b"", LOGIN_LIFETIME_S * 1000);
    if marked == Err(Refused::Exists) {
        return refuse(r, &oidc::Error::UnknownState);
    }
    // The secret is a new one, so that nobody can have planted it; the session before ends.
    if let Some(before) = sessions::find(r, provider) {
        provider.remove(&before.id);
    }
    let id = SessionId::new(random());
    if let Err(failure) = provider.save(&id, &session) {
        return fail(r, &failure);
    }
    let Some(origin) = provider.origin(r) else { return Verdict::Status(400) };
    set_cookie(r, cookies.set(cookies.session(), &id.to_cookie(), None));
    r.out.location = Some(Bytes::from(format!("{origin}{}", login.return_to)));
    Verdict::Status(302)
}

/// Exchanges the code for tokens, and verifies them.
async fn sign_in(
    provider: &Rc<Provider>,
    callback: &Callback,
    login: &Login,
) -> Result<Session, Failure> {
    let metadata = provider.metadata().await?;
    callback.check_issuer(&provider.client, &metadata)?;
    let code = match &callback.outcome {
        Outcome::Code(code) => code,
        Outcome::Refused(code) => return Err(oidc::Error::Refused(code.clone()).into()),
    };
    let request = TokenRequest::of_code(&provider.client, &metadata, login, code);
    let tokens = exchange(provider, &metadata.token_endpoint, &request).await?;
    let id_token = tokens.id_token.ok_or(oidc::Error::Response("id_token is missing"))?;
    let access_token = tokens.access_token;
    let check = |e: &oidc::Expected<'_>| e.of_login(&id_token, &login.nonce, &access_token);
    let claims = provider.verified(check).await?;
    let userinfo = match &metadata.userinfo_endpoint {
        _ if !provider.userinfo => None,
        None => return Err(oidc::Error::Metadata("userinfo_endpoint is missing").into()),
        Some(url) => {
            let authorization = format!("Bearer {access_token}");
            let ask = Ask { authorization: Some(&authorization), ..Ask::get(url) };
            let answer = provider.ask(ask).await?;
            let content_type = answer.content_type.clone();
            let body = answer.ok()?;
            let sub = claims.get("sub");
            let info = provider.verified(|e| e.userinfo(&content_type, &body, sub)).await?;
            Some(serde_json::Value::from(info).to_string())
        }
    };
    let now_s = unix_secs();
    Ok(Session {
        id_token,
        access_token,
        refresh_token: tokens.refresh_token,
        userinfo,
        claims,
        created_ms: unix_ms(),
        received_s: now_s,
        expires_s: tokens.expires_in_s.map(|s| now_s.saturating_add(s)),
    })
}

/// A callback that belongs to no login here.
fn refuse(r: &mut Request, e: &oidc::Error) -> Verdict {
    r.log(Level::Info, format_args!("OpenID Connect: {e}"));
    Verdict::Status(400)
}

/// The provider did not sign the user in.
fn refuse_login(r: &mut Request, failure: &Failure) -> Verdict {
    let Failure::Protocol(oidc::Error::Refused(code)) = failure else { return fail(r, failure) };
    match code.as_str() {
        "temporarily_unavailable" => fail(r, &Failure::Away(failure.to_string())),
        // By the user, or by a rule of the provider.
        "access_denied"
        | "login_required"
        | "consent_required"
        | "interaction_required"
        | "account_selection_required" => {
            r.log(Level::Info, format_args!("OpenID Connect: {failure}"));
            Verdict::Status(403)
        }
        // The code is too old, or was used.
        "invalid_grant" => {
            r.log(Level::Info, format_args!("OpenID Connect: {failure}"));
            Verdict::Status(400)
        }
        _ => fail(r, failure),
    }
}

#[cfg(test)]
mod tests {
    use super::page_of;

    #[test]
    fn nobody_returns_to_a_callback() {
        assert_eq!(page_of(b"/cb?code=x", b"/cb"), "/");
        assert_eq!(page_of(b"/cb", b"/cb"), "/");
        assert_eq!(page_of(b"/cb2?x", b"/cb"), "/cb2?x");
        assert_eq!(page_of(b"//cb", b"/cb"), "/");
    }
}
