//! A session with an ACME server: the directory, the account, and signed requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Log;
use base::time::{now_ms, unix_secs};
use pki::issue::{self, Key};
use proto::acme::{
    Ask, Call, Directory, Failure, Malformed, Nonces, NotAsked, Problem, Reply, SignFailed,
};

use crate::account;
use crate::folder::Folder;
use crate::issuer::Issuer;
use crate::wire::{NotSent, Wire};

/// The error of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// The text for the log.
    pub message: String,
    /// The Retry-After of the response, in seconds.
    pub retry_after: Option<u64>,
    /// Retrying is useless until the configuration or the server's state changes.
    pub is_permanent: bool,
    /// The problem document in the server's response.
    pub problem: Option<Box<Problem>>,
}

impl Trouble {
    pub fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), ..Trouble::default() }
    }

    /// An error that lasts until the settings change.
    pub fn permanent(message: impl Into<String>) -> Trouble {
        Trouble { is_permanent: true, ..Trouble::new(message) }
    }

    /// Prepends the operation that failed: `what: message`.
    pub fn during(mut self, what: &str) -> Trouble {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

/// Converts errors that consist of a message alone.
macro_rules! from_messages {
    ($($error:ty),+) => {
        $(impl From<$error> for Trouble {
            fn from(error: $error) -> Trouble {
                Trouble::new(error.to_string())
            }
        })+
    };
}

from_messages!(NotSent, NotAsked, SignFailed, issue::Error, Malformed);

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Trouble {
        Trouble {
            message: problem.to_string(),
            is_permanent: problem.is_permanent(),
            problem: Some(Box::new(problem)),
            retry_after: None,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble { retry_after: failure.retry_after, ..Trouble::from(failure.problem) }
    }
}

/// The maximum age of a session, after which the directory is read again, in milliseconds.
const FRESH_MS: u64 = 3_600_000;

/// A session with an ACME server.
pub(crate) struct Session {
    pub(crate) issuer: Rc<Issuer>,
    pub(crate) folder: Rc<Folder>,
    wire: Wire,
    /// The account key.
    pub key: Rc<Key>,
    /// The key was generated for this session, so the server cannot know it.
    pub(crate) has_new_key: bool,
    /// The server's directory: the URLs of its operations.
    pub directory: Directory,
    nonces: RefCell<Nonces>,
    /// The account URL, once it is known.
    pub(crate) account: RefCell<Option<String>>,
    since_ms: u64,
    /// The last request failed without a valid response, so the next one needs a new session.
    broken: Cell<bool>,
    pub(crate) log: Log,
}

fn now() -> i64 {
    unix_secs().cast_signed()
}

impl Session {
    /// Opens a session: loads or creates the account key and reads the directory.
    pub async fn open(
        issuer: &Rc<Issuer>,
        folder: &Rc<Folder>,
        log: &Log,
    ) -> Result<Session, Trouble> {
        let (key, has_new_key) = account::key(issuer, folder).await?;
        let key = Rc::new(key);
        let wire = Wire::new(issuer);
        folder.settle().await;
        let answer = wire.send(&Ask::get(&issuer.uri)).await?;
        let reply = answer.judge(&issuer.uri, now())?;
        let directory = Directory::parse(&reply.body)?;
        if let Some((profile, true)) = &issuer.profile
            && !directory.profiles.contains(profile)
        {
            let m = format!("the server has no profile \"{profile}\"");
            return Err(Trouble::permanent(m));
        }
        Ok(Session {
            issuer: issuer.clone(),
            folder: folder.clone(),
            wire,
            key,
            has_new_key,
            directory,
            nonces: RefCell::default(),
            account: RefCell::new(None),
            since_ms: now_ms(),
            broken: Cell::new(false),
            log: log.clone(),
        })
    }

    /// Whether the session can be used for further requests.
    pub fn is_fresh(&self) -> bool {
        now_ms().saturating_sub(self.since_ms) < FRESH_MS && !self.broken.get()
    }

    /// The profile to request, if the server offers it.
    pub fn profile(&self) -> Option<&str> {
        let (profile, _) = self.issuer.profile.as_ref()?;
        self.directory.profiles.contains(profile).then_some(profile)
    }

    /// Sends an unsigned GET request.
    pub async fn get(&self, url: &str) -> Result<Reply, Trouble> {
        self.folder.settle().await;
        let sent = self.wire.send(&Ask::get(url)).await;
        self.broken.set(sent.is_err());
        Ok(sent?.judge(url, now())?)
    }

    /// Sends a signed request, and repeats it as long as the server rejects the nonce (RFC 8555
    /// section 6.5) and `call` allows it.
    pub(crate) async fn run(&self, mut call: Call<'_>) -> Result<Reply, Trouble> {
        loop {
            let ask = call.ask(&self.directory, &mut self.nonces.borrow_mut())?;
            self.folder.settle().await;
            let sent = self.wire.send(&ask).await;
            self.broken.set(sent.is_err());
            let answer = sent?;
            let done = call.take(ask.method, answer, &mut self.nonces.borrow_mut(), now());
            if let Some(result) = done {
                return Ok(result?);
            }
        }
    }

    /// Sends a request signed by the account; without a payload it is a POST-as-GET. If the server
    /// does not know the account, creates it again and retries once.
    pub async fn call(&self, url: &str, payload: Option<&str>) -> Result<Reply, Trouble> {
        let account = self.account().await?;
        let done = self.run(Call::of_account(&*self.key, &account, url, payload)).await;
        match done {
            Err(trouble) if trouble.problem.as_deref().is_some_and(Problem::is_no_account) => {
                self.forget_account();
                let account = self.account().await?;
                self.run(Call::of_account(&*self.key, &account, url, payload)).await
            }
            done => done,
        }
    }
}
