//! Certificates whose files are named by variables: read when a handshake asks for them, by a
//! thread, and kept for the next ones (`ssl_certificate_cache`).

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use conf::{ConfError, Node};
use pki::pem::{self, Passwords, Source};
use tls::ConfigError;
use tls::certified::Certified;

use crate::tls_files::load;
use crate::tls_objects::FileState;
use crate::tls_objects::NotLoaded;

/// `ssl_certificate_cache`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTerms {
    /// The most certificates and keys.
    max: usize,
    /// Seconds without use after which one goes.
    inactive_s: u64,
    /// Seconds after which its files are looked at again.
    valid_s: u64,
}

impl CacheTerms {
    /// Reads the directive; `None` for `off`.
    ///
    /// # Errors
    /// A parameter is wrong, or `max` is missing.
    pub fn read(node: &Node) -> Result<Option<CacheTerms>, ConfError> {
        let mut terms = CacheTerms { max: 0, inactive_s: 10, valid_s: 60 };
        for word in &node.args {
            let invalid = || {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                ConfError::at(word, m)
            };
            let text = word.bytes();
            if let Some(max) = text.strip_prefix(b"max=") {
                let max = base::ascii::parse_u64(max).filter(|max| *max > 0).ok_or_else(invalid)?;
                terms.max = usize::try_from(max).unwrap_or(usize::MAX);
            } else if let Some(time) = text.strip_prefix(b"inactive=") {
                terms.inactive_s = conf::value::parse_sec(time).ok_or_else(invalid)?;
            } else if let Some(time) = text.strip_prefix(b"valid=") {
                terms.valid_s = conf::value::parse_sec(time).ok_or_else(invalid)?;
            } else if text == b"off" && node.args.len() == 1 {
                return Ok(None);
            } else {
                return Err(invalid());
            }
        }
        match terms.max {
            0 => {
                let m = format!("\"{}\" must have the \"max\" parameter", node.name.lossy());
                Err(ConfError::at(&node.name, m))
            }
            _ => Ok(Some(terms)),
        }
    }
}

/// The names of a certificate and of its key, as variables gave them.
type Names = (Bytes, Bytes);

/// The numbers and times of two files; none where there is no file.
type State = [Option<FileState>; 2];

/// Why a certificate that a variable names cannot be shown; for the log. Names are those that
/// messages may have.
#[derive(Debug)]
pub enum Unusable {
    /// The certificate of this name cannot be read.
    Certificate(String, pem::Error),
    /// The key of this name cannot be read.
    Key(String, pem::Error),
    /// The key does not belong to the certificate, or cannot sign.
    Pair(ConfigError),
    /// No thread could read the files.
    Thread(event::pool::TaskError),
    /// There was no file before, and is none now.
    Missing,
    /// The key is too small for the level of security.
    Weak(String),
    /// The settings around it make no configuration.
    Settings(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Certificate(name, e) => {
                write!(f, "cannot load certificate \"{name}\": {e}")
            }
            Unusable::Key(name, e) => write!(f, "cannot load certificate key \"{name}\": {e}"),
            Unusable::Pair(e) => write!(f, "SSL_use_PrivateKey() failed ({e})"),
            Unusable::Thread(e) => e.fmt(f),
            Unusable::Missing => f.write_str("no certificate"),
            Unusable::Weak(name) => {
                let why = "SSL: error:0A00018F:SSL routines::ee key too small";
                write!(f, "SSL_CTX_use_certificate(\"{name}\") failed ({why})")
            }
            Unusable::Settings(why) => f.write_str(why),
        }
    }
}

/// Certificates whose files are named by variables, and the passwords of their keys.
pub struct Certificates {
    files: Arc<Files>,
    terms: Option<CacheTerms>,
    known: RefCell<Vec<Known>>,
}

/// A certificate that is kept.
struct Known {
    names: Names,
    certified: Certified,
    state: State,
    checked_s: u64,
    used_s: u64,
}

/// The kept part of a certificate that is asked for.
enum Found {
    /// It is good.
    Fresh(Certified),
    /// Its files must be looked at.
    Stale(Certified, State),
    Nothing,
}

impl Certificates {
    /// None yet. Names of files are relative to `folder`.
    pub fn new(folder: PathBuf, passwords: Passwords, terms: Option<CacheTerms>) -> Certificates {
        let files = Arc::new(Files { folder, passwords });
        Certificates { files, terms, known: RefCell::default() }
    }

    /// The certificate of these names, and its key. Files are read by a thread.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub async fn get(&self, name: &Bytes, key: &Bytes) -> Result<Certified, Unusable> {
        let names = (name.clone(), key.clone());
        let found = self.find(&names);
        let before = match &found {
            Found::Fresh(certified) => return Ok(certified.clone()),
            Found::Stale(_, state) => Some(*state),
            Found::Nothing => None,
        };
        let read = match is_data(name) && is_data(key) {
            true => self.files.read(&names, before)?,
            false => {
                let (files, names) = (self.files.clone(), names.clone());
                let reading = event::pool::default().run_short(move || files.read(&names, before));
                reading.await.map_err(Unusable::Thread)??
            }
        };
        Ok(match (read, found) {
            (Some(loaded), _) => {
                let certified = loaded.certified.clone();
                self.keep(names, loaded);
                certified
            }
            (None, Found::Stale(certified, state)) => {
                let loaded = Loaded { certified: certified.clone(), state, is_secret: false };
                self.keep(names, loaded);
                certified
            }
            // Files are the same only where there were some before.
            (None, _) => return Err(Unusable::Missing),
        })
    }

    fn find(&self, names: &Names) -> Found {
        let Some(terms) = self.terms else { return Found::Nothing };
        let now = now_s();
        let mut known = self.known.borrow_mut();
        known.retain(|one| now.saturating_sub(one.used_s) <= terms.inactive_s);
        let Some(at) = known.iter().position(|one| one.names == *names) else {
            return Found::Nothing;
        };
        if now.saturating_sub(known[at].checked_s) >= terms.valid_s {
            return Found::Stale(known[at].certified.clone(), known[at].state);
        }
        let mut one = known.remove(at);
        one.used_s = now;
        let certified = one.certified.clone();
        known.push(one);
        Found::Fresh(certified)
    }

    /// Keeps a certificate that was looked at just now. Others may have read it at the same time.
    fn keep(&self, names: Names, loaded: Loaded) {
        // An encrypted key is not kept open.
        let Some(terms) = self.terms.filter(|_| !loaded.is_secret) else { return };
        let (certified, state) = (loaded.certified, loaded.state);
        let mut known = self.known.borrow_mut();
        known.retain(|one| one.names != names);
        // A certificate and its key count as two.
        if known.len() >= (terms.max / 2).max(1) {
            known.remove(0);
        }
        let now = now_s();
        known.push(Known { names, certified, state, checked_s: now, used_s: now });
    }
}

/// The place of the files, for threads.
struct Files {
    folder: PathBuf,
    passwords: Passwords,
}

/// A certificate as it was read.
struct Loaded {
    certified: Certified,
    state: State,
    /// Its key has a password.
    is_secret: bool,
}

impl Files {
    /// Reads a certificate and its key; `None` if the files are as they were `before`.
    fn read(&self, names: &Names, before: Option<State>) -> Result<Option<Loaded>, Unusable> {
        // Before the reading: a file that changes meanwhile is then read once more.
        let state = self.state(names);
        if before == Some(state) {
            return Ok(None);
        }
        let text = |name: &Bytes| base::log::lossy(name).into_owned();
        let (name, key) = (text(&names.0), text(&names.1));
        let of = |name: &str| (name.to_owned(), self.folder.join(name));
        let loaded = load(of(&name), of(&key), &self.passwords);
        let certified = loaded.map_err(|e| match e {
            NotLoaded::Certificate(e) => Unusable::Certificate(shown(&name).to_owned(), e),
            NotLoaded::Key(e) => Unusable::Key(shown(&key).to_owned(), e),
            NotLoaded::Pair(e) => Unusable::Pair(e),
        })?;
        let is_secret = Source::key(&key, |name| self.folder.join(name)).is_encrypted();
        Ok(Some(Loaded { certified, state, is_secret }))
    }

    fn state(&self, names: &Names) -> State {
        [&names.0, &names.1].map(|name| FileState::of(&self.folder.join(&*base::log::lossy(name))))
    }
}

/// A name for messages: no secret.
pub fn shown(name: &str) -> &str {
    if name.starts_with("data:") { "data:..." } else { name }
}

/// The text itself stands in the place of the file's name.
fn is_data(name: &Bytes) -> bool {
    name.starts_with(b"data:")
}

fn now_s() -> u64 {
    base::time::now_ms() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use testkit::certificates::{Draft, Key, KeyKind, der};

    /// Writes a certificate of this name and its key.
    fn write(folder: &std::path::Path, name: &str) {
        let key = Key::generate(KeyKind::P256);
        let name = format!("CN={name}");
        let certificate = Draft::new(&name, &name, &key).sign(&key);
        std::fs::write(folder.join("new"), der::pem("CERTIFICATE", &certificate)).unwrap();
        std::fs::write(folder.join("key"), key.pem()).unwrap();
        std::fs::rename(folder.join("new"), folder.join("pem")).unwrap();
    }

    #[test]
    fn a_kept_certificate_is_read_again_if_its_files_have_changed() {
        let folder = testkit::Folder::new("certificates");
        let of = |valid_s| {
            let terms = CacheTerms { max: 2, inactive_s: 1000, valid_s };
            Rc::new(Certificates::new(folder.to_path_buf(), Passwords::none(), Some(terms)))
        };
        let (always, never) = (of(0), of(1000));
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let mut subject = |of: &Rc<Certificates>| {
            let of = of.clone();
            let reading = async move {
                of.get(&Bytes::from_static(b"pem"), &Bytes::from_static(b"key")).await
            };
            let got = event_loop.block_on(reading).unwrap();
            let der = got.unwrap().chain().next().unwrap().to_vec();
            pki::x509::Certificate::parse(der.into()).unwrap().subject().rfc2253()
        };
        write(&folder, "one");
        for _ in 0..3 {
            assert_eq!((subject(&always), subject(&never)), ("CN=one".into(), "CN=one".into()));
        }
        write(&folder, "two");
        assert_eq!((subject(&always), subject(&never)), ("CN=two".into(), "CN=one".into()));
        assert_eq!(always.known.borrow().len(), 1);
    }

    #[test]
    fn keys_do_not_get_into_messages() {
        let of = Certificates::new(PathBuf::new(), Passwords::none(), None);
        let names = (Bytes::from_static(b"/dev/null"), Bytes::from_static(b"data:secret"));
        let error = of.files.read(&names, None).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("cannot load certificate \"/dev/null\": "), "{error}");
        for secret in ["data:secret", "data:-----BEGIN PRIVATE KEY-----\nsecret"] {
            let names = (Bytes::from_static(b"data:secret"), Bytes::from(secret));
            let error = of.files.read(&names, None).map(drop).unwrap_err().to_string();
            assert!(error.contains("\"data:...\"") && !error.contains("secret"), "{error}");
        }
    }
}
