//! The check of a request's token in the access phase.

use std::rc::Rc;
use std::sync::Arc;

use base::log::Level;
use bytes::Bytes;
use http::module::{PhaseHandler, Step, Verdict};
use http::request::Request;
use http_wire::h1::{FieldId, Method};
use jose::{Error, KeySet, Limits, Part};
use serde_json::{Map, Value};

use super::{JwtConf, TokenType, known, quoted};
use crate::limit_auth::{self, Proof};

/// With more keys than that, a token without `kid` may take longer than a worker's turn.
const KEYS_AT_ONCE: usize = 16;

/// A token that was accepted.
pub(super) struct Accepted {
    pub claims: Map<String, Value>,
    /// What was encrypted: the claims, or the signed token.
    pub payload: Option<Bytes>,
}

/// The outcome of the check, for the variables.
#[derive(Default)]
pub(super) enum Outcome {
    #[default]
    Unknown,
    Accepted(Rc<Accepted>),
    Refused,
}

/// The check of a request in a location: others may ask for other tokens.
#[derive(Default)]
pub(super) struct Checked {
    location: usize,
    outcome: Outcome,
}

fn location_id(r: &Request) -> usize {
    Rc::as_ptr(&r.loc).cast::<()>() as usize
}

/// The outcome for the location that the request is in.
pub(super) fn outcome(r: &mut Request) -> &mut Outcome {
    let location = location_id(r);
    let checked: &mut Checked = r.ctx_mut();
    if checked.location != location {
        *checked = Checked { location, outcome: Outcome::Unknown };
    }
    &mut checked.outcome
}

/// The token of the request.
pub(super) fn token(r: &mut Request, conf: &JwtConf) -> Option<Bytes> {
    if let Some(of) = &conf.auth.as_ref()?.token {
        return Some(r.eval(of)).filter(|token| !token.is_empty());
    }
    let id = match r.target.method {
        Method::Connect => FieldId::ProxyAuthorization,
        _ => FieldId::Authorization,
    };
    let value = r.header(id)?;
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty();
    is_bearer.then(|| Bytes::copy_from_slice(token))
}

/// Checks a token: signature or encryption, and times.
pub(super) fn check(
    token: &[u8],
    keys: &KeySet,
    token_type: TokenType,
    leeway_s: u64,
) -> Result<Accepted, Error> {
    let limits = Limits::default();
    let (claims, payload) = match token_type {
        TokenType::Signed => (jose::verify(token, keys, limits)?.payload, None),
        TokenType::Encrypted => {
            let plaintext = jose::decrypt(token, keys, limits)?.plaintext;
            let payload = Bytes::copy_from_slice(&plaintext);
            (plaintext, Some(payload))
        }
        TokenType::Nested => {
            let (outer, inner) = jose::decrypt_nested(token, keys, limits)?;
            (inner.payload, Some(Bytes::from(outer.plaintext)))
        }
    };
    let claims = jose::parse_claims(&claims)?;
    jose::check_times(&claims, base::time::unix_secs(), leeway_s)?;
    Ok(Accepted { claims, payload })
}

/// The access handler: its settings are the location's.
pub(super) struct Handler;

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let loc = r.loc.clone();
        let Some(conf) = loc.confs.get::<JwtConf>() else { return Step::Now(Verdict::Next) };
        let Some(auth) = &conf.auth else { return Step::Now(Verdict::Next) };
        let realm = r.eval(&auth.realm);
        if realm == "off" {
            return Step::Now(Verdict::Next);
        }
        // An internal redirect may lead here a second time, and names of files may have variables.
        *outcome(r) = Outcome::Unknown;
        let Some(token) = token(r, conf) else {
            *outcome(r) = Outcome::Refused;
            r.log(Level::Info, format_args!("no JSON Web Token was provided"));
            return Step::Now(ask(r, &realm, 401, None));
        };
        if conf.files().is_empty() && conf.requests().is_empty() {
            let m = "\"auth_jwt\" has no keys: it needs \"auth_jwt_key_file\" or \
                     \"auth_jwt_key_request\"";
            r.log(Level::Error, format_args!("{m}"));
            return Step::Now(over(r, Verdict::Status(500)));
        }
        if let Err(refused) = limit_auth::admit(r, Proof::Token) {
            return Step::Now(limited(r, refused));
        }
        if let Some(result) = at_once(r, conf, &token) {
            return Step::Now(decide(r, conf, &realm, result));
        }
        Step::Wait(Box::pin(slowly(r, realm, token)))
    }
}

/// The check of a subrequest's own token (`token=`). Subrequests have no access phase, and none is
/// refused for its token: a token that is not accepted has no claims.
pub(super) struct OfSubrequest;

impl PhaseHandler for OfSubrequest {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        // The request for the keys may inherit `auth_jwt`.
        if !r.is_subrequest() || r.is_aside() {
            return Step::Now(Verdict::Next);
        }
        let loc = r.loc.clone();
        let Some(conf) = loc.confs.get::<JwtConf>() else { return Step::Now(Verdict::Next) };
        let Some(auth) = &conf.auth else { return Step::Now(Verdict::Next) };
        if r.eval(&auth.realm) == "off" {
            return Step::Now(Verdict::Next);
        }
        *outcome(r) = Outcome::Unknown;
        let has_keys = !conf.files().is_empty() || !conf.requests().is_empty();
        let token = token(r, conf).filter(|_| has_keys);
        let Some(token) = token.filter(|_| limit_auth::admit(r, Proof::Token).is_ok()) else {
            *outcome(r) = Outcome::Refused;
            return Step::Now(Verdict::Next);
        };
        if let Some(result) = at_once(r, conf, &token) {
            note(r, conf, result);
            return Step::Now(Verdict::Next);
        }
        Step::Wait(Box::pin(slowly_noted(r, token)))
    }
}

/// The same where keys have to be read, or that takes time.
async fn slowly_noted(r: &mut Request, token: Bytes) -> Verdict {
    let loc = r.loc.clone();
    let Some(conf) = loc.confs.get::<JwtConf>() else { return Verdict::Next };
    match found(r, conf, token).await {
        Ok(result) => note(r, conf, result),
        // Why there are no keys was logged.
        Err(_) => *outcome(r) = Outcome::Refused,
    }
    Verdict::Next
}

/// Notes the outcome for the variables of a subrequest.
fn note(r: &mut Request, conf: &JwtConf, result: Result<Rc<Accepted>, Error>) {
    *outcome(r) = Outcome::Refused;
    match result {
        Ok(accepted) => {
            if limit_auth::succeeded(r, Proof::Token).is_ok() {
                *outcome(r) = Outcome::Accepted(accepted);
                let _ = lacking(r, conf);
            }
        }
        Err(e) => {
            r.log(Level::Error, format_args!("JSON Web Token of a subrequest refused: {e}"));
            let _ = is_guess(e).then(|| limit_auth::failed(r, Proof::Token));
        }
    }
}

/// The result of the check, where it need not wait for anything.
fn at_once(r: &mut Request, conf: &JwtConf, token: &[u8]) -> Option<Result<Rc<Accepted>, Error>> {
    let sets = at_hand(r, conf)?;
    let keys = KeySet::merged(&sets).ok()?;
    if is_costly(conf.token_type(), &keys) {
        return None;
    }
    let result = known::check(token, &keys, conf.token_type(), conf.leeway_s.unwrap_or(0));
    (!is_unknown(&result) || conf.requests().is_empty()).then_some(result)
}

/// Whether a check may take longer than a worker should: decryption by RSA takes milliseconds.
pub(super) fn is_costly(token_type: TokenType, keys: &KeySet) -> bool {
    token_type != TokenType::Signed || keys.keys().len() > KEYS_AT_ONCE
}

/// The check where keys have to be read, or that takes time.
async fn slowly(r: &mut Request, realm: Bytes, token: Bytes) -> Verdict {
    let loc = r.loc.clone();
    let Some(conf) = loc.confs.get::<JwtConf>() else { return Verdict::Status(500) };
    match found(r, conf, token).await {
        Ok(result) => decide(r, conf, &realm, result),
        Err(verdict) => over(r, verdict),
    }
}

/// The result of the check, with keys that may have to be read first.
async fn found(
    r: &mut Request,
    conf: &JwtConf,
    token: Bytes,
) -> Result<Result<Rc<Accepted>, Error>, Verdict> {
    let uris: Vec<Bytes> = conf.requests().iter().map(|of| of.uri(r)).collect();
    let keys = all_keys(r, conf, &uris, false).await?;
    let result = checked(r, conf, keys, token.clone()).await?;
    let mut requests = conf.requests().iter().zip(&uris);
    if !is_unknown(&result) || !requests.any(|(of, uri)| of.may_have_others(uri)) {
        return Ok(result);
    }
    let keys = all_keys(r, conf, &uris, true).await?;
    checked(r, conf, keys, token).await
}

/// Whether the issuer may have a key that is not known here yet.
fn is_unknown(result: &Result<Rc<Accepted>, Error>) -> bool {
    matches!(result, Err(Error::UnknownKid))
}

/// The keys, if none has to be waited for.
fn at_hand(r: &mut Request, conf: &JwtConf) -> Option<Vec<Arc<KeySet>>> {
    let cache_ms = conf.cache_ms.unwrap_or(0);
    let mut sets = Vec::new();
    for file in conf.files() {
        sets.push(file.fresh(r, cache_ms)?);
    }
    for request in conf.requests() {
        sets.push(request.fresh(&request.uri(r))?);
    }
    Some(sets)
}

/// The keys of all files, and of all subrequests to these URIs.
async fn all_keys(
    r: &mut Request,
    conf: &JwtConf,
    uris: &[Bytes],
    anew: bool,
) -> Result<Arc<KeySet>, Verdict> {
    let cache_ms = conf.cache_ms.unwrap_or(0);
    let mut sets: Vec<Arc<KeySet>> = Vec::new();
    for file in conf.files() {
        sets.push(match file.fresh(r, cache_ms) {
            Some(set) => set,
            None => file.read(r).await.ok_or(Verdict::Status(500))?,
        });
    }
    for (request, uri) in conf.requests().iter().zip(uris) {
        sets.push(match request.fresh(uri).filter(|_| !anew) {
            Some(set) => set,
            None => request.fetch(r, uri.clone(), cache_ms).await?,
        });
    }
    KeySet::merged(&sets).map_err(|e| {
        r.log(Level::Error, format_args!("keys of \"auth_jwt\": {e}"));
        Verdict::Status(500)
    })
}

/// The check, in a thread if it may take long.
async fn checked(
    r: &mut Request,
    conf: &JwtConf,
    keys: Arc<KeySet>,
    token: Bytes,
) -> Result<Result<Rc<Accepted>, Error>, Verdict> {
    let (token_type, leeway_s) = (conf.token_type(), conf.leeway_s.unwrap_or(0));
    if !is_costly(token_type, &keys) {
        return Ok(known::check(&token, &keys, token_type, leeway_s));
    }
    let task = move || check(&token, &keys, token_type, leeway_s);
    let checked = event::pool::run_blocking(task).await;
    checked.map(|checked| checked.map(Rc::new)).map_err(|e| {
        r.log(Level::Crit, format_args!("JSON Web Token not checked: {e}"));
        Verdict::Status(500)
    })
}

/// The token could not be checked: it has no claims.
fn over(r: &mut Request, verdict: Verdict) -> Verdict {
    *outcome(r) = Outcome::Refused;
    verdict
}

/// Too many tokens of the client were refused.
fn limited(r: &mut Request, refused: limit_auth::Refused) -> Verdict {
    let verdict = limit_auth::respond(r, refused);
    over(r, verdict)
}

/// Whether the token may be somebody's attempt to make one. Others come from clients that mean
/// well: tokens of the issuer that are too old, or whose key was rotated.
pub(super) fn is_guess(e: Error) -> bool {
    let is_genuine = matches!(
        e,
        Error::Expired
            | Error::NotYetValid
            | Error::Claim(_)
            | Error::Json { part: Part::Claims, .. }
    );
    !is_genuine && !matches!(e, Error::UnknownKid | Error::KeyTooShort { .. })
}

fn decide(
    r: &mut Request,
    conf: &JwtConf,
    realm: &[u8],
    result: Result<Rc<Accepted>, Error>,
) -> Verdict {
    let accepted = match result {
        Ok(accepted) => accepted,
        Err(e) => {
            *outcome(r) = Outcome::Refused;
            r.log(Level::Error, format_args!("JSON Web Token refused: {e}"));
            if is_guess(e)
                && let Err(refused) = limit_auth::failed(r, Proof::Token)
            {
                return limited(r, refused);
            }
            // Clients are told what they can mend: a new token. The rest is for the log.
            let description = match e {
                Error::Expired => "invalid_token\", error_description=\"the token has expired",
                Error::NotYetValid => {
                    "invalid_token\", error_description=\"the token is not valid yet"
                }
                _ => "invalid_token",
            };
            return ask(r, realm, 401, Some(description));
        }
    };
    if let Err(refused) = limit_auth::succeeded(r, Proof::Token) {
        return limited(r, refused);
    }
    *outcome(r) = Outcome::Accepted(accepted);
    let Some(status) = lacking(r, conf) else { return Verdict::Ok };
    let error = if status == 403 { "insufficient_scope" } else { "invalid_token" };
    ask(r, realm, status, Some(error))
}

/// The status for a value of `auth_jwt_require` that is missing: the token is refused then.
fn lacking(r: &mut Request, conf: &JwtConf) -> Option<u16> {
    for require in conf.require.iter().flat_map(|all| all.iter()) {
        for value in &require.values {
            let value = r.eval(value);
            if value.is_empty() || value == "0" {
                *outcome(r) = Outcome::Refused;
                let m = "JSON Web Token refused: a value of \"auth_jwt_require\" is empty or 0";
                r.log(Level::Error, format_args!("{m}"));
                return Some(require.status);
            }
        }
    }
    None
}

/// Refuses the request with a challenge (RFC 6750 section 3). Without any token it has no error.
fn ask(r: &mut Request, realm: &[u8], status: u16, error: Option<&str>) -> Verdict {
    let mut value = [b"Bearer realm=", &quoted(realm)[..]].concat();
    if let Some(error) = error {
        value.extend_from_slice(format!(", error=\"{error}\"").as_bytes());
    }
    let value = Bytes::from(value);
    if r.target.method == Method::Connect && status == 401 {
        r.out.add("Proxy-Authenticate", value);
        return Verdict::Status(407);
    }
    r.out.add("WWW-Authenticate", value);
    Verdict::Status(status)
}
