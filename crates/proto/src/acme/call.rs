//! One signed exchange with the server, repeated as its nonces ask for.

use super::jws::{self, By, SignFailed, Signer};
use super::{Directory, Problem, links, retry_after};

/// How often a request whose nonce was refused is repeated: a server that refuses every one must
/// not keep us busy.
const TRIES: u32 = 5;

/// Nonces kept for later requests.
const NONCES: usize = 8;

/// The longest nonce.
const NONCE_MAX: usize = 256;

/// Nonces that the server has given and no request has used.
#[derive(Debug, Default)]
pub struct Nonces(Vec<String>);

impl Nonces {
    /// Takes the nonce of an answer's Replay-Nonce.
    pub fn learn(&mut self, nonce: Option<&str>) {
        let of_nonce = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let Some(nonce) = nonce else { return };
        if nonce.is_empty() || nonce.len() > NONCE_MAX || !nonce.bytes().all(of_nonce) {
            return;
        }
        if self.0.len() >= NONCES {
            self.0.remove(0);
        }
        self.0.push(nonce.to_owned());
    }

    /// The newest one: old ones may have expired.
    pub(super) fn take(&mut self) -> Option<String> {
        self.0.pop()
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// For the directory and renewal information.
    Get,
    /// For a nonce.
    Head,
    /// For everything else.
    Post,
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The method.
    pub method: Method,
    /// Where to.
    pub url: String,
    /// The body, `application/jose+json`.
    pub body: Option<Vec<u8>>,
}

impl Ask {
    /// An unsigned request.
    pub fn get(url: &str) -> Ask {
        Ask { method: Method::Get, url: url.to_owned(), body: None }
    }
}

/// An answer as it came.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Replay-Nonce
    pub nonce: Option<String>,
    /// The URL in `Location`: that of an account or order.
    pub location: Option<String>,
    /// The value of `Retry-After`, seconds or a date.
    pub retry_after: Option<Vec<u8>>,
    /// The values of `Link`, for example of other chains.
    pub links: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer that is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status: 201 for what was made now.
    pub status: u16,
    /// The address of what was made.
    pub location: Option<String>,
    /// Seconds to wait before the next look.
    pub retry_after: Option<u64>,
    /// The addresses of other chains of a certificate.
    pub alternates: Vec<String>,
    /// The address of the next part of a list.
    pub next: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub problem: Problem,
    /// Seconds to wait before another attempt, where the server asks for it.
    pub retry_after: Option<u64>,
}

/// A signed request under way.
pub struct Call<'a> {
    key: &'a dyn Signer,
    by: By<'a>,
    url: &'a str,
    payload: Option<&'a str>,
    tries: u32,
    /// A nonce was asked for and not given.
    dry: bool,
}

/// Why there are no bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// The server has answered a request for a nonce without one.
    NoNonce,
    /// The key does not sign.
    Sign(SignFailed),
}

impl std::fmt::Display for NotAsked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotAsked::NoNonce => f.write_str("the server gives no nonce"),
            NotAsked::Sign(failed) => failed.fmt(f),
        }
    }
}

impl std::error::Error for NotAsked {}

impl<'a> Call<'a> {
    /// A request of an account, known by its URL. Without a payload it asks for the resource.
    pub fn of_account(
        key: &'a dyn Signer,
        account: &'a str,
        url: &'a str,
        payload: Option<&'a str>,
    ) -> Call<'a> {
        Call { key, by: By::Account(account), url, payload, tries: 0, dry: false }
    }

    /// A request of a key that may have no account.
    pub fn of_key(key: &'a dyn Signer, url: &'a str, payload: &'a str) -> Call<'a> {
        Call { key, by: By::Key, url, payload: Some(payload), tries: 0, dry: false }
    }

    /// The next bytes to send: for a nonce, or the request itself.
    ///
    /// # Errors
    /// The key does not sign, or the server gives no nonces.
    pub fn ask(&mut self, directory: &Directory, nonces: &mut Nonces) -> Result<Ask, NotAsked> {
        let Some(nonce) = nonces.take() else {
            if std::mem::replace(&mut self.dry, true) {
                return Err(NotAsked::NoNonce);
            }
            let url = directory.new_nonce.clone();
            return Ok(Ask { method: Method::Head, url, body: None });
        };
        self.dry = false;
        self.tries += 1;
        let body = jws::request(self.key, self.by, Some(&nonce), self.url, self.payload);
        let body = body.map_err(NotAsked::Sign)?;
        Ok(Ask { method: Method::Post, url: self.url.to_owned(), body: Some(body) })
    }

    /// Takes the answer to the last request; `None` when there is another one to send.
    pub fn take(
        &mut self,
        asked: Method,
        answer: Answer,
        nonces: &mut Nonces,
        now: i64,
    ) -> Option<Result<Reply, Failure>> {
        nonces.learn(answer.nonce.as_deref());
        let is_good = (200..300).contains(&answer.status);
        if asked == Method::Head && is_good {
            return None;
        }
        let result = judge(self.url, answer, now);
        match &result {
            Err(failure) if failure.problem.is_bad_nonce() && self.tries < TRIES => None,
            _ => Some(result),
        }
    }
}

/// The meaning of an answer to a request for `url`.
///
/// # Errors
/// It is an error.
pub(super) fn judge(url: &str, answer: Answer, now: i64) -> Result<Reply, Failure> {
    let retry_after = answer.retry_after.as_deref().and_then(|value| retry_after(value, now));
    if !(200..300).contains(&answer.status) {
        let problem = Problem::parse(answer.status, &answer.body);
        return Err(Failure { problem, retry_after });
    }
    let absolute = |reference: &str| links::resolve(url, reference);
    let related = |relation| {
        let all = links::targets(&answer.links, relation).into_iter();
        all.filter_map(absolute).collect::<Vec<_>>()
    };
    Ok(Reply {
        status: answer.status,
        location: answer.location.as_deref().and_then(absolute),
        retry_after,
        alternates: related("alternate"),
        next: related("next").pop(),
        body: answer.body,
    })
}

impl Answer {
    /// The meaning of an answer to an unsigned request ([`Ask::get`]).
    ///
    /// # Errors
    /// It is an error.
    pub fn judge(self, url: &str, now: i64) -> Result<Reply, Failure> {
        judge(url, self, now)
    }
}
