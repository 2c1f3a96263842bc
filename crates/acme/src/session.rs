//! The conversation with an issuer's server: directory, account, signed requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use base::time::unix_secs;
use proto::acme::{
    Account, Ask, Call, Directory, Failure, Malformed, Nonces, Problem, Reply, external_account,
    new_account,
};
use tls::issue::{Key, KeyKind, hmac_sha256};

use crate::folder::Folder;
use crate::issuer::{AccountKey, ExternalKey, Issuer};
use crate::wire::Wire;

/// Why something was not done.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// For the log.
    pub message: String,
    /// Seconds that the server asks to wait.
    pub retry_after: Option<u64>,
    /// Trying again is no use before something else has changed.
    pub is_permanent: bool,
    /// The server's error.
    pub problem: Option<Box<Problem>>,
}

impl Trouble {
    pub fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), ..Trouble::default() }
    }

    /// One that lasts as long as the settings.
    pub fn permanent(message: impl Into<String>) -> Trouble {
        Trouble { is_permanent: true, ..Trouble::new(message) }
    }

    /// The same with what was being done.
    pub fn during(mut self, what: &str) -> Trouble {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl From<String> for Trouble {
    fn from(message: String) -> Trouble {
        Trouble::new(message)
    }
}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Trouble {
        Trouble::new(malformed.to_string())
    }
}

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

const KEY_FILE: &str = "account.key";
const URL_FILE: &str = "account.url";

/// A directory is read again when it is older, seconds.
const FRESH_S: u64 = 3600;

/// A conversation with a server.
pub(crate) struct Session {
    issuer: Rc<Issuer>,
    folder: Rc<Folder>,
    wire: Wire,
    /// The account's key.
    pub key: Rc<Key>,
    /// The server's functions.
    pub directory: Directory,
    nonces: RefCell<Nonces>,
    account: RefCell<Option<String>>,
    since: u64,
    /// The server has answered nonsense, or nothing.
    broken: Cell<bool>,
    log: Log,
}

fn now() -> i64 {
    unix_secs().cast_signed()
}

impl Session {
    /// Reads the directory of the issuer.
    pub async fn open(
        issuer: &Rc<Issuer>,
        folder: &Rc<Folder>,
        log: &Log,
    ) -> Result<Session, Trouble> {
        let key = Rc::new(account_key(issuer, folder).await?);
        let wire = Wire::new(issuer);
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
            directory,
            nonces: RefCell::default(),
            account: RefCell::new(None),
            since: unix_secs(),
            broken: Cell::new(false),
            log: log.clone(),
        })
    }

    /// Whether it is good for further requests.
    pub fn is_fresh(&self) -> bool {
        let age = unix_secs().saturating_sub(self.since);
        age < FRESH_S && !self.broken.get()
    }

    /// The profile to ask for, if the server has it.
    pub fn profile(&self) -> Option<&str> {
        let (profile, _) = self.issuer.profile.as_ref()?;
        self.directory.profiles.contains(profile).then_some(profile)
    }

    /// An unsigned request.
    pub async fn get(&self, url: &str) -> Result<Reply, Trouble> {
        let sent = self.wire.send(&Ask::get(url)).await;
        self.broken.set(sent.is_err());
        Ok(sent?.judge(url, now())?)
    }

    async fn run(&self, mut call: Call<'_>) -> Result<Reply, Trouble> {
        loop {
            let ask = call.ask(&self.directory, &mut self.nonces.borrow_mut())?;
            let sent = self.wire.send(&ask).await;
            self.broken.set(sent.is_err());
            let answer = sent?;
            let done = call.take(ask.method, answer, &mut self.nonces.borrow_mut(), now());
            if let Some(result) = done {
                return Ok(result?);
            }
        }
    }

    /// A request of the account; without a payload it asks for the resource. An account that the
    /// server does not know is made once more.
    pub async fn call(&self, url: &str, payload: Option<&str>) -> Result<Reply, Trouble> {
        let account = self.account().await?;
        let done = self.run(Call::of_account(&*self.key, &account, url, payload)).await;
        match done {
            Err(trouble) if trouble.problem.as_deref().is_some_and(Problem::is_no_account) => {
                self.folder.remove(URL_FILE);
                *self.account.borrow_mut() = None;
                let account = self.account().await?;
                self.run(Call::of_account(&*self.key, &account, url, payload)).await
            }
            done => done,
        }
    }

    /// The address of the account, which is made where there is none.
    pub async fn account(&self) -> Result<String, Trouble> {
        if let Some(account) = &*self.account.borrow() {
            return Ok(account.clone());
        }
        let known = self.folder.read(URL_FILE);
        let known = known.and_then(|text| String::from_utf8(text.trim_ascii().to_vec()).ok());
        // That of another server is none here.
        let known = known.filter(|url| origin(url) == origin(&self.directory.new_account));
        let account = match known {
            Some(known) => known,
            None => self.register().await.map_err(|trouble| trouble.during("making an account"))?,
        };
        *self.account.borrow_mut() = Some(account.clone());
        Ok(account)
    }

    async fn register(&self) -> Result<String, Trouble> {
        let (issuer, directory) = (&self.issuer, &self.directory);
        if let Some(terms) = directory.terms_of_service.as_ref().filter(|_| !issuer.agrees) {
            let m = format_args!("acme: the terms of service are at {terms}");
            log!(self.log, Level::Notice, None, "{m}, issuer: \"{}\"", issuer.name);
        }
        if directory.needs_external_account && issuer.external.is_none() {
            let m = "the server wants an \"external_account_key\"";
            return Err(Trouble::permanent(m));
        }
        let binding = match &issuer.external {
            None => None,
            Some((kid, key)) => {
                let key = match key {
                    ExternalKey::Data(key) => key.clone(),
                    ExternalKey::File(_) => match issuer.secrets.external_key.get() {
                        Some(Ok(key)) => key.clone(),
                        Some(Err(e)) => return Err(Trouble::permanent(e.clone())),
                        None => return Err(Trouble::new("the external account's key is not read")),
                    },
                };
                let mac = |message: &[u8]| Ok(hmac_sha256(&key, message));
                Some(external_account(kid, mac, &*self.key, &directory.new_account)?)
            }
        };
        let payload = new_account(&issuer.contacts, issuer.agrees, binding.as_deref());
        let url = directory.new_account.clone();
        let reply = self.run(Call::of_key(&*self.key, &url, &payload)).await?;
        if !Account::parse(&reply.body)?.is_valid {
            return Err(Trouble::permanent("the account is not valid"));
        }
        let account = reply.location.ok_or(Malformed("no address of the account"))?;
        self.folder.write(URL_FILE, account.as_bytes());
        let what = if reply.status == 201 { "created" } else { "found" };
        let name = &self.issuer.name;
        let m = format_args!("acme: account {account} {what}, issuer: \"{name}\"");
        log!(self.log, Level::Notice, None, "{m}");
        Ok(account)
    }
}

/// Scheme and authority of a URL.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The account's key: from its file, from the folder, or made now.
async fn account_key(issuer: &Issuer, folder: &Folder) -> Result<Key, Trouble> {
    let kind = match &issuer.account_key {
        AccountKey::File(path) => {
            let text = match issuer.secrets.account_key.get() {
                Some(Ok(text)) => text,
                Some(Err(e)) => return Err(Trouble::permanent(e.clone())),
                None => return Err(Trouble::new("the account's key is not read")),
            };
            return Key::from_pem(text).map_err(|e| {
                let path = path.display();
                Trouble::permanent(format!("cannot load account key \"{path}\": {e}"))
            });
        }
        AccountKey::Generate(kind) => *kind,
    };
    if let Some(text) = folder.read(KEY_FILE) {
        // Another one would be another account.
        return Key::from_pem(&text)
            .map_err(|e| Trouble::permanent(format!("cannot load \"{KEY_FILE}\": {e}")));
    }
    let key = make_key(kind).await?;
    folder.write(KEY_FILE, &key.to_pem());
    Ok(key)
}

/// Makes a key, in a thread: one of RSA takes seconds.
pub(crate) async fn make_key(kind: KeyKind) -> Result<Key, Trouble> {
    let made = event::pool::run_blocking(move || Key::generate(kind)).await;
    Ok(made.map_err(|e| Trouble::new(e.to_string()))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        assert_eq!(origin("https://a.test:1/x/y"), "https://a.test:1");
        assert_eq!(origin("https://a.test"), "https://a.test");
        assert_eq!(origin(""), "");
    }
}
