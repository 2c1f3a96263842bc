//! Sessions in the shared table: found by a cookie, ended by logouts, refreshed by one request.

use std::cell::RefCell;
use std::rc::Rc;

use base::log::Level;
use base::time::{unix_ms, unix_secs};
use bytes::Bytes;
use event::Notify;
use http::request::Request;
use keyval::{Change, Pair, Refused, Store};
use oidc::{Session, SessionId, TokenRequest, Tokens, lock_key, marker_keys};

use super::fetch::{Ask, Failure};
use super::provider::{Provider, cookie};

/// The time that a refresh may take before another request tries, milliseconds.
const REFRESH_MS: u64 = 60_000;

/// The time after a refresh that failed in which none is tried, milliseconds.
const PAUSE_MS: u64 = 5_000;

/// The interval at which a refresh by another process is looked for, milliseconds.
const LOOK_MS: u64 = 50;

/// Marks of a session that is being refreshed.
const BUSY: &[u8] = b"busy";
const FAILED: &[u8] = b"failed";

/// A session with its secret.
pub(super) struct Found {
    pub id: SessionId,
    pub session: Rc<Session>,
}

/// The result of a refresh.
pub(super) enum Refreshed {
    Session(Rc<Session>),
    /// The provider, or a logout, has ended the session.
    Over,
    /// The tokens have expired, and cannot be refreshed now.
    Failed(Failure),
}

/// The session that a request's cookie names.
pub(super) fn find(r: &Request, provider: &Provider) -> Option<Found> {
    let value = cookie(r, provider.cookies(r).session())?;
    let id = SessionId::parse(&value)?;
    let session = Rc::new(provider.load(&id)?);
    Some(Found { id, session })
}

/// Random bytes of the kernel.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    os::random::fill(&mut bytes);
    bytes
}

impl Provider {
    pub(super) fn store(&self) -> &Store {
        self.zone.store()
    }

    fn load(&self, id: &SessionId) -> Option<Session> {
        let name = &self.client.provider;
        let key = id.store_key(name);
        let pair = self.store().get(key.as_bytes())?;
        let session = Session::open(id, name, &pair.value)?;
        if self.hears_logouts() && self.is_over(&session) {
            self.store().remove(key.as_bytes());
            self.zone.save_soon();
            return None;
        }
        Some(session)
    }

    /// Whether the provider announced the end of the session.
    fn is_over(&self, session: &Session) -> bool {
        marker_keys(&self.client.provider, session).any(|key| {
            let marker = self.store().get(key.as_bytes());
            let at_ms = marker.and_then(|pair| base::ascii::parse_u64(&pair.value));
            at_ms.is_some_and(|at_ms| session.created_ms <= at_ms)
        })
    }

    /// Stores a pair for some time.
    pub(super) fn put(
        &self,
        change: Change,
        key: &str,
        value: &[u8],
        ms: u64,
    ) -> Result<(), Refused> {
        let expires_ms = unix_ms().saturating_add(ms);
        let pair = Pair { expires_ms, ..Pair::new(key.as_bytes(), value) };
        self.zone.put(change, &pair)?;
        self.zone.save_soon();
        Ok(())
    }

    /// Stores a session, new or refreshed, for `session_timeout`.
    ///
    /// # Errors
    /// It is too large, or there is no room.
    pub(super) fn save(&self, id: &SessionId, session: &Session) -> Result<(), Failure> {
        let name = &self.client.provider;
        let sealed = session.seal(id, name, random());
        let sealed =
            sealed.ok_or_else(|| Failure::Invalid("the session is too large".to_owned()))?;
        let stored = self.put(Change::Set, &id.store_key(name), sealed.as_bytes(), self.session_ms);
        stored.map_err(|refused| {
            Failure::Invalid(match refused {
                Refused::TooLong => format!("the session is too large: {} bytes", sealed.len()),
                _ => "the table of sessions is full".to_owned(),
            })
        })?;
        // Front-channel logouts are not signed, so they may only end sessions that there are: a
        // marker for any `sid` that somebody makes up would fill the table.
        if let Some(sid) = session.sid().filter(|_| self.paths.frontchannel.is_some()) {
            let key = oidc::FrontChannel::marker_key(name, sid);
            if self.put(Change::Add, &key, b"0", self.session_ms) == Err(Refused::Exists) {
                let until_ms = unix_ms().saturating_add(self.session_ms);
                self.store().set_expiry(key.as_bytes(), until_ms);
            }
        }
        Ok(())
    }

    /// Ends a session.
    pub(super) fn remove(&self, id: &SessionId) {
        self.store().remove(id.store_key(&self.client.provider).as_bytes());
        self.zone.save_soon();
    }
}

/// Refreshes a session's tokens. One request of all workers does so; others go on with the tokens
/// until they have expired, and then wait for it.
pub(super) async fn refresh(provider: &Rc<Provider>, found: Found) -> Refreshed {
    let Found { id, session } = found;
    let key = id.store_key(&provider.client.provider);
    let lock = lock_key(&key);
    let is_expired = session.is_expired(unix_secs());
    if provider.put(Change::Add, &lock, BUSY, REFRESH_MS).is_err() {
        return match is_expired {
            false => Refreshed::Session(session),
            true => others_refresh(provider, &id, &lock).await,
        };
    }
    // Another request may have refreshed it between this one's look and its lock.
    match provider.load(&id) {
        None => {
            provider.store().remove(lock.as_bytes());
            return Refreshed::Over;
        }
        Some(now) if !now.wants_refresh(unix_secs()) => {
            provider.store().remove(lock.as_bytes());
            return Refreshed::Session(Rc::new(now));
        }
        Some(_) => {}
    }
    // A task of its own: a client that leaves must not lose the new refresh token.
    let done = Rc::new((Notify::new(), RefCell::new(None)));
    let (of, to, before) = (provider.clone(), done.clone(), session.clone());
    event::spawn(async move {
        let result = run(&of, &id, &before, &key, &lock).await;
        if let (Refreshed::Failed(failure), false) = (&result, is_expired) {
            // Nobody waits for it.
            log(&of, Level::Error, format_args!("{failure}"));
        }
        *to.1.borrow_mut() = Some(result);
        to.0.notify_all();
    });
    if !is_expired {
        return Refreshed::Session(session);
    }
    loop {
        if let Some(result) = done.1.borrow_mut().take() {
            return result;
        }
        done.0.notified().await;
    }
}

/// Waits for the refresh by another request.
async fn others_refresh(provider: &Rc<Provider>, id: &SessionId, lock: &str) -> Refreshed {
    loop {
        // Looked at first: it is removed behind the refreshed session's arrival, and never before.
        let mark = provider.store().get(lock.as_bytes());
        match provider.load(id) {
            None => return Refreshed::Over,
            Some(session) if !session.is_expired(unix_secs()) => {
                return Refreshed::Session(Rc::new(session));
            }
            Some(_) if mark.is_some_and(|pair| pair.value == BUSY) => event::sleep(LOOK_MS).await,
            Some(_) => {
                let m = "another request could not refresh the session".to_owned();
                return Refreshed::Failed(Failure::Away(m));
            }
        }
    }
}

fn log(provider: &Provider, level: Level, message: std::fmt::Arguments<'_>) {
    let (log, name) = (base::log::default(), &provider.client.provider);
    base::log!(log, level, None, "OpenID Connect: refresh at \"{name}\": {message}");
}

async fn run(
    provider: &Rc<Provider>,
    id: &SessionId,
    before: &Session,
    key: &str,
    lock: &str,
) -> Refreshed {
    let failure = match tokens(provider, before).await {
        // A logout in the meantime has removed it.
        Ok(_) if provider.store().get(key.as_bytes()).is_none() => {
            provider.store().remove(lock.as_bytes());
            return Refreshed::Over;
        }
        Ok(session) => match provider.save(id, &session) {
            Ok(()) => {
                provider.store().remove(lock.as_bytes());
                return Refreshed::Session(Rc::new(session));
            }
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    match &failure {
        // The user or an administrator ended it, or the token was used twice.
        Failure::Protocol(oidc::Error::Refused(code)) if code == "invalid_grant" => {
            log(provider, Level::Info, format_args!("{failure}; the session is over"));
            provider.remove(id);
            provider.store().remove(lock.as_bytes());
            Refreshed::Over
        }
        _ => {
            let _ = provider.put(Change::Set, lock, FAILED, PAUSE_MS);
            Refreshed::Failed(failure)
        }
    }
}

async fn tokens(provider: &Rc<Provider>, before: &Session) -> Result<Session, Failure> {
    let metadata = provider.metadata().await?;
    let refresh_token = before.refresh_token.as_deref().unwrap_or_default();
    let request = TokenRequest::of_refresh(&provider.client, &metadata, refresh_token);
    let tokens = exchange(provider, &metadata.token_endpoint, &request).await?;
    let mut session = before.clone();
    if let Some(token) = tokens.id_token {
        let access_token = &tokens.access_token;
        let check = |e: &oidc::Expected<'_>| e.of_refresh(&token, &before.claims, access_token);
        session.claims = provider.verified(check).await?;
        session.id_token = token;
    }
    let now_s = unix_secs();
    session.access_token = tokens.access_token;
    session.refresh_token = tokens.refresh_token.or(session.refresh_token);
    session.received_s = now_s;
    session.expires_s = tokens.expires_in_s.map(|s| now_s.saturating_add(s));
    Ok(session)
}

/// A request to the token endpoint.
pub(super) async fn exchange(
    provider: &Provider,
    url: &str,
    request: &TokenRequest,
) -> Result<Tokens, Failure> {
    let authorization = request.authorization.as_ref().map(|value| value.as_str());
    let ask = Ask { url, authorization, form: Some(&request.body) };
    let answer = provider.ask(ask).await?;
    let parsed = Tokens::parse(answer.status, &answer.body);
    match parsed {
        Err(oidc::Error::Refused(code)) if answer.status >= 500 => {
            Err(Failure::Away(format!("the token endpoint failed: {code}")))
        }
        parsed => parsed.map_err(Failure::Protocol),
    }
}

pub(super) fn set_cookie(r: &mut Request, value: String) {
    r.out.add("Set-Cookie", Bytes::from(value));
}
