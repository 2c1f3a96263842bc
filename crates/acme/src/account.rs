//! The account at an issuer: its key, its URL, and key rollover.
//!
//! ```text
//!  no address ──register──▶ address ──▶ requests
//!                              │
//!       new key requested: generated ─▶ sent to the server ─▶ replaces the old one
//!                                               ▲
//!              killed here: asks the server which key the account has
//! ```

use base::log;
use base::log::Level;
use pki::issue::{Key, KeyKind, hmac_sha256};
use proto::acme::{
    Account, Call, Malformed, Problem, external_account, find_account, key_change, new_account,
    thumbprint,
};

use crate::folder::Folder;
use crate::issuer::{AccountKey, ExternalKey, Issuer};
use crate::session::{Session, Trouble};

const KEY_FILE: &str = "account.key";
const URL_FILE: &str = "account.url";

/// The thumbprint of the key to which the account URL belongs.
const PRINT_FILE: &str = "account.print";

/// The new key during a rollover.
const NEXT_KEY_FILE: &str = "account.next.key";

/// A file that the operator creates to request a rollover.
const ROLLOVER_FILE: &str = "account.rollover";

impl Session {
    /// The account URL: known, found on the server, or registered now.
    pub async fn account(&self) -> Result<String, Trouble> {
        if let Some(account) = &*self.account.borrow() {
            return Ok(account.clone());
        }
        let print = self.folder.read(PRINT_FILE);
        // A URL of another key is useless: `account_key` may name another file now.
        let is_own = print.is_none_or(|print| *print == *thumbprint(&*self.key).as_bytes());
        let known = self.folder.read(URL_FILE).filter(|_| is_own);
        let known = known.and_then(|text| String::from_utf8(text.trim_ascii().to_vec()).ok());
        // The URL is for another server if `uri` was changed.
        let known = known.filter(|url| origin(url) == origin(&self.directory.new_account));
        let account = match known {
            Some(known) => known,
            None => {
                let found = async {
                    match self.find().await? {
                        Some(found) => Ok(found),
                        None => self.register().await,
                    }
                };
                found.await.map_err(|trouble: Trouble| trouble.during("making an account"))?
            }
        };
        *self.account.borrow_mut() = Some(account.clone());
        Ok(account)
    }

    /// Searches for an account that belongs to an existing key, for example after the URL file was
    /// lost. Registering again would require the external account key and consent to the terms of
    /// service a second time.
    async fn find(&self) -> Result<Option<String>, Trouble> {
        if self.has_new_key {
            return Ok(None);
        }
        let (url, payload) = (self.directory.new_account.clone(), find_account());
        let reply = match self.run(Call::of_key(&*self.key, &url, &payload)).await {
            Ok(reply) => reply,
            Err(trouble) if trouble.problem.as_deref().is_some_and(Problem::is_no_account) => {
                return Ok(None);
            }
            Err(trouble) => return Err(trouble),
        };
        if !Account::parse(&reply.body)?.is_valid {
            return Err(Trouble::permanent("the account is not valid"));
        }
        let account = reply.location.ok_or(Malformed("no address of the account"))?;
        self.keep(&account, "found");
        Ok(Some(account))
    }

    /// Stores the account URL and logs it.
    fn keep(&self, account: &str, what: &str) {
        // The thumbprint goes first, because a URL without one counts as that of the present key.
        self.folder.write(PRINT_FILE, thumbprint(&*self.key).as_bytes());
        self.folder.write(URL_FILE, account.as_bytes());
        let name = &self.issuer.name;
        let m = format_args!("acme: account {account} {what}, issuer: \"{name}\"");
        log!(self.log, Level::Notice, None, "{m}");
    }

    /// Registers an account, with external account binding if configured. Returns its URL.
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
                        Some(Err(trouble)) => return Err(trouble.clone()),
                        None => return Err(Trouble::new("the external account's key is not read")),
                    },
                };
                let mac = |message: &[u8]| hmac_sha256(&key, message);
                Some(external_account(kid, mac, &*self.key, &directory.new_account))
            }
        };
        let payload = new_account(&issuer.contacts, issuer.agrees, binding.as_deref());
        let url = directory.new_account.clone();
        let reply = self.run(Call::of_key(&*self.key, &url, &payload)).await?;
        if !Account::parse(&reply.body)?.is_valid {
            return Err(Trouble::permanent("the account is not valid"));
        }
        let account = reply.location.ok_or(Malformed("no address of the account"))?;
        self.keep(&account, if reply.status == 201 { "created" } else { "found" });
        Ok(account)
    }

    /// Rolls over to a new account key if the key type in the configuration has changed or the
    /// operator requests it (RFC 8555 section 7.3.5). Returns true if the key was changed; this
    /// session then still uses the old one and must be replaced.
    pub(crate) async fn roll_over(&self) -> Result<bool, Trouble> {
        let AccountKey::Generate(kind) = &self.issuer.account_key else { return Ok(false) };
        let (kind, folder) = (*kind, &self.folder);
        let begun = folder.read(NEXT_KEY_FILE);
        let is_asked = folder.read(ROLLOVER_FILE).is_some();
        if begun.is_none() && !is_asked && self.key.kind() == kind {
            return Ok(false);
        }
        let begun = begun.and_then(|text| Key::from_pem(&text).ok());
        // A next key of another type is from an earlier setting, so start over.
        let begun = begun.filter(|next| next.kind() == kind);
        let next = match begun {
            Some(next) => {
                // The previous process may have been killed after the server accepted the key,
                // before the files were renamed.
                if self.has_account(&next).await? {
                    self.put_key(&next);
                    return Ok(true);
                }
                next
            }
            None => {
                let next = make_key(kind).await?;
                folder.write(NEXT_KEY_FILE, &next.to_pem());
                next
            }
        };
        let account = self.account().await?;
        let Some(url) = &self.directory.key_change else {
            return Err(Trouble::permanent("the server has no function for it"));
        };
        let payload = key_change(&account, &*self.key, &next, url)?;
        self.run(Call::of_account(&*self.key, &account, url, Some(&payload))).await?;
        self.put_key(&next);
        Ok(true)
    }

    /// Whether the server has an account with this key.
    async fn has_account(&self, key: &Key) -> Result<bool, Trouble> {
        let (url, payload) = (self.directory.new_account.clone(), find_account());
        match self.run(Call::of_key(key, &url, &payload)).await {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.problem.is_some() => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Makes the new key the account key in the folder.
    fn put_key(&self, next: &Key) {
        self.folder.write(PRINT_FILE, thumbprint(next).as_bytes());
        self.folder.rename(NEXT_KEY_FILE, KEY_FILE);
        self.folder.remove(ROLLOVER_FILE);
        let name = &self.issuer.name;
        log!(
            self.log,
            Level::Notice,
            None,
            "acme: the account has another key, issuer: \"{name}\""
        );
    }

    /// Forgets the account URL, because the server does not know the account.
    pub(crate) fn forget_account(&self) {
        self.folder.remove(URL_FILE);
        *self.account.borrow_mut() = None;
    }
}

/// The scheme and authority of a URL.
fn origin(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    &url[..end]
}

/// The account key, from the configured file or the folder, or generated. The flag is true if it
/// was generated now.
pub(crate) async fn key(issuer: &Issuer, folder: &Folder) -> Result<(Key, bool), Trouble> {
    let kind = match &issuer.account_key {
        AccountKey::File(path) => {
            let text = match issuer.secrets.account_key.get() {
                Some(Ok(text)) => text,
                Some(Err(trouble)) => return Err(trouble.clone()),
                None => return Err(Trouble::new("the account's key is not read")),
            };
            return Key::from_pem(text).map(|key| (key, false)).map_err(|e| {
                let path = path.display();
                Trouble::permanent(format!("cannot load account key \"{path}\": {e}"))
            });
        }
        AccountKey::Generate(kind) => *kind,
    };
    if let Some(text) = folder.read(KEY_FILE) {
        // A generated replacement would create another account, so an unreadable key is an error.
        return Key::from_pem(&text)
            .map(|key| (key, false))
            .map_err(|e| Trouble::permanent(format!("cannot load \"{KEY_FILE}\": {e}")));
    }
    let key = make_key(kind).await?;
    folder.write(KEY_FILE, &key.to_pem());
    Ok((key, true))
}

/// Generates a key in the thread pool, because an RSA key takes seconds.
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
