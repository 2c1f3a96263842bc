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
    let id = match r.method {
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
        if let Some(sets) = at_hand(r, conf)
            && let Ok(keys) = KeySet::merged(&sets)
            && !is_costly(conf.token_type(), &keys)
        {
            let leeway_s = conf.leeway_s.unwrap_or(0);
            let result = known::check(&token, &keys, conf.token_type(), leeway_s);
            if !is_unknown(&result) || conf.requests().is_empty() {
                return Step::Now(decide(r, conf, &realm, result));
            }
        }
        Step::Wait(Box::pin(slowly(r, realm, token)))
    }
}

/// Whether a check may take longer than a worker should: decryption by RSA takes milliseconds.
pub(super) fn is_costly(token_type: TokenType, keys: &KeySet) -> bool {
    token_type != TokenType::Signed || keys.keys().len() > KEYS_AT_ONCE
}

/// The check where keys have to be read, or that takes time.
async fn slowly(r: &mut Request, realm: Bytes, token: Bytes) -> Verdict {
    let loc = r.loc.clone();
    let Some(conf) = loc.confs.get::<JwtConf>() else { return Verdict::Status(500) };
    let uris: Vec<Bytes> = conf.requests().iter().map(|of| of.uri(r)).collect();
    let mut result = match all_keys(r, conf, &uris, false).await {
        Ok(keys) => checked(r, conf, keys, token.clone()).await,
        Err(verdict) => return over(r, verdict),
    };
    let mut requests = conf.requests().iter().zip(&uris);
    if matches!(&result, Ok(result) if is_unknown(result))
        && requests.any(|(of, uri)| of.may_have_others(uri))
    {
        result = match all_keys(r, conf, &uris, true).await {
            Ok(keys) => checked(r, conf, keys, token).await,
            Err(verdict) => return over(r, verdict),
        };
    }
    match result {
        Ok(result) => decide(r, conf, &realm, result),
        Err(verdict) => over(r, verdict),
    }
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
    for require in conf.require.iter().flat_map(|all| all.iter()) {
        for value in &require.values {
            let value = r.eval(value);
            if value.is_empty() || value == "0" {
                *outcome(r) = Outcome::Refused;
                let m = "JSON Web Token refused: a value of \"auth_jwt_require\" is empty or 0";
                r.log(Level::Error, format_args!("{m}"));
                let error =
                    if require.status == 403 { "insufficient_scope" } else { "invalid_token" };
                return ask(r, realm, require.status, Some(error));
            }
        }
    }
    Verdict::Ok
}

/// Refuses the request with a challenge (RFC 6750 section 3). Without any token it has no error.
fn ask(r: &mut Request, realm: &[u8], status: u16, error: Option<&str>) -> Verdict {
    let mut value = [b"Bearer realm=", &quoted(realm)[..]].concat();
    if let Some(error) = error {
        value.extend_from_slice(format!(", error=\"{error}\"").as_bytes());
    }
    let value = Bytes::from(value);
    if r.method == Method::Connect && status == 401 {
        r.out.add("Proxy-Authenticate", value);
        return Verdict::Status(407);
    }
    r.out.add("WWW-Authenticate", value);
    Verdict::Status(status)
}
