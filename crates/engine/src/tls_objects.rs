//! Files of certificates and keys, each read once a configuration, and taken over by the next one
//! while the file is the same. Of a key's file only the parsed key is kept: the text would be one
//! more copy of the secret in every process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use pki::pem::{self, Passwords, Source};
use pki::verify::Store;
use shm::{ZoneState, Zones};
use tls::certified::SignKey;

/// The name among the zones, which go from a configuration to the next; no directive can give it.
const NAME: &[u8] = b" tls files";

/// Files by path, as they were read.
type Files<T> = RefCell<HashMap<PathBuf, Rc<Object<T>>>>;

/// The files of one configuration, by path.
#[derive(Default)]
pub struct TlsObjects {
    /// Trusted certificates and revocation lists.
    texts: Files<pki::pem::Secret>,
    /// Certificates with their chains, in DER.
    chains: Files<Vec<Vec<u8>>>,
    keys: Files<SignKey>,
    /// Trusted certificates and revocation lists, read once for all who name the same files.
    trust: RefCell<Vec<(TrustKey, Rc<Trust>)>>,
    /// The files of the configuration before.
    before: RefCell<Option<Rc<TlsObjects>>>,
}

/// Trusted certificates and revocation lists.
#[derive(Default)]
pub struct Trust {
    /// All of them.
    pub store: Store,
    /// So many of the certificates, the first ones, are from the first file.
    pub first: usize,
}

/// Files of trusted certificates, one of revocation lists, and the level of security.
pub(crate) type TrustKey = (Vec<PathBuf>, Option<PathBuf>, Option<u8>);

/// The content of a file.
struct Object<T> {
    value: T,
    state: FileState,
}

/// What tells a file from another one at the same path, and from its own content before: number,
/// length, and the times of the last changes of its content and of anything of it. Programs can
/// set the time of the content, and do so to keep that of the file they have copied; they cannot
/// set the other one. Whole seconds, as nginx compares, would miss a file that is written twice in
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileState {
    number: u64,
    len: u64,
    content: (i64, i64),
    any: (i64, i64),
}

impl FileState {
    /// The state of this moment; `None` if there is no file.
    pub(crate) fn of(path: &Path) -> Option<FileState> {
        let meta = std::fs::metadata(path).ok()?;
        Some(FileState {
            number: meta.ino(),
            len: meta.len(),
            content: (meta.mtime(), meta.mtime_nsec()),
            any: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl ZoneState for TlsObjects {
    fn died(&self, _: u32, _: usize) {}
}

impl TlsObjects {
    /// The files of a configuration that is being loaded. With `inherits`
    /// (`ssl_object_cache_inheritable`), files of the one before are not read again.
    pub fn of(zones: &Zones, inherits: bool) -> Rc<TlsObjects> {
        // The name is nobody else's.
        let _ = zones.declare(NAME, None, "tls");
        let before = zones.kept::<TlsObjects>(NAME).filter(|_| inherits);
        let objects = Rc::new(TlsObjects { before: RefCell::new(before), ..TlsObjects::default() });
        zones.put(NAME, objects.clone());
        objects
    }

    /// The configuration is loaded: lets go of files that only the one before has.
    pub fn settle(&self) {
        self.before.take();
    }

    /// The trust of these files: what `read` made of them before, or makes now.
    ///
    /// # Errors
    /// That of `read`.
    pub fn trust<E>(
        &self,
        key: TrustKey,
        read: impl FnOnce() -> Result<Trust, E>,
    ) -> Result<Rc<Trust>, E> {
        if let Some((_, trust)) = self.trust.borrow().iter().find(|(other, _)| *other == key) {
            return Ok(trust.clone());
        }
        let trust = Rc::new(read()?);
        self.trust.borrow_mut().push((key, trust.clone()));
        Ok(trust)
    }

    /// The text of a file of trusted certificates or revocation lists.
    ///
    /// # Errors
    /// The system's.
    pub fn text(&self, path: &Path) -> io::Result<pki::pem::Secret> {
        let read = || pki::pem::read_secret(File::open(path)?).map(|text| (text, true));
        self.object(|objects| &objects.texts, path, read)
    }

    /// The certificate of a file, with the rest of its chain.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn chain(&self, path: &Path) -> Result<Vec<Vec<u8>>, pem::Error> {
        let read = || Source::File(path.to_owned()).load_certificates().map(|chain| (chain, true));
        self.object(|objects| &objects.chains, path, read)
    }

    /// The key of a file, once for all who name it. One that has a password is read each time: it
    /// is for those who know the password.
    ///
    /// # Errors
    /// It cannot be read, or is of an unknown kind.
    pub fn key(&self, path: &Path, passwords: &Passwords) -> Result<SignKey, NotLoaded> {
        let read = || {
            let source = Source::File(path.to_owned());
            let key = source.load_key(passwords).map_err(NotLoaded::Key)?;
            let key = SignKey::new(key.der()).map_err(NotLoaded::Pair)?;
            let is_open = passwords.is_empty() || !source.is_encrypted();
            Ok((key, is_open))
        };
        self.object(|objects| &objects.keys, path, read)
    }

    /// Lets go of a certificate and a key that do not belong together, so that both are read anew.
    /// False if neither was known.
    pub fn forget(&self, chain: &Path, key: &Path) -> bool {
        let forget = |objects: &TlsObjects| {
            let chain = objects.chains.borrow_mut().remove(chain).is_some();
            let key = objects.keys.borrow_mut().remove(key).is_some();
            chain || key
        };
        let before = self.before.borrow().as_deref().is_some_and(forget);
        forget(self) || before
    }

    /// What was read of a file before, or `read` makes of it now, and whether to keep that.
    fn object<T: Clone, E>(
        &self,
        files: impl Fn(&TlsObjects) -> &Files<T>,
        path: &Path,
        read: impl FnOnce() -> Result<(T, bool), E>,
    ) -> Result<T, E> {
        if let Some(object) = files(self).borrow().get(path) {
            return Ok(object.value.clone());
        }
        // Before the reading: a file that changes meanwhile is then read once more.
        let state = FileState::of(path);
        let before = self.before.borrow();
        let old = before.as_ref().and_then(|before| files(before).borrow().get(path).cloned());
        if let Some(old) = old.filter(|old| Some(old.state) == state) {
            let value = old.value.clone();
            files(self).borrow_mut().insert(path.to_owned(), old);
            return Ok(value);
        }
        let (value, is_kept) = read()?;
        if let Some(state) = state.filter(|_| is_kept) {
            let object = Object { value: value.clone(), state };
            files(self).borrow_mut().insert(path.to_owned(), Rc::new(object));
        }
        Ok(value)
    }
}

/// The reason why there is no certificate.
#[derive(Debug)]
pub enum NotLoaded {
    /// The certificate cannot be read.
    Certificate(pem::Error),
    /// The key cannot be read.
    Key(pem::Error),
    /// They do not belong together.
    Pair(tls::ConfigError),
}

impl std::fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotLoaded::Certificate(e) | NotLoaded::Key(e) => e.fmt(f),
            NotLoaded::Pair(e) => e.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::certificates::{Draft, Key, KeyKind, der};
    use tls::certified::Certified;

    #[test]
    fn trust_is_read_once_for_the_same_files_and_level() {
        let objects = TlsObjects::default();
        let key = |file: &str, level| (vec![PathBuf::from(file)], None, level);
        let trust = |key, ok: bool| objects.trust(key, || ok.then(Trust::default).ok_or("failed"));
        assert!(trust(key("a", None), false).is_err(), "a failure is not kept");
        let first = trust(key("a", None), true).unwrap();
        assert!(Rc::ptr_eq(&first, &trust(key("a", None), false).unwrap()));
        assert!(!Rc::ptr_eq(&first, &trust(key("a", Some(3)), true).unwrap()));
        assert!(!Rc::ptr_eq(&first, &trust(key("b", None), true).unwrap()));
    }

    #[test]
    fn a_pair_that_does_not_match_is_read_anew() {
        let folder = testkit::Folder::new("objects");
        let (pem, key) = (folder.join("a.pem"), folder.join("a.key"));
        let write = |name: &str| {
            let private = Key::generate(KeyKind::P256);
            let name = format!("CN={name}");
            let der = Draft::new(&name, &name, &private).sign(&private);
            std::fs::write(&pem, der::pem("CERTIFICATE", &der)).unwrap();
            std::fs::write(&key, private.pem()).unwrap();
        };
        write("one");
        let objects = Rc::new(TlsObjects::default());
        let old = objects.chain(&pem).unwrap();
        write("two");
        // As if nothing of the file told of the change.
        let state = FileState::of(&pem).unwrap();
        let stale = Rc::new(Object { value: old.clone(), state });
        objects.chains.borrow_mut().insert(pem.clone(), stale);
        let next = TlsObjects { before: RefCell::new(Some(objects)), ..TlsObjects::default() };
        assert_eq!(next.chain(&pem).unwrap(), old);
        let pair = || {
            let key = next.key(&key, &Passwords::none()).unwrap();
            Certified::with_key(next.chain(&pem).unwrap(), key)
        };
        assert!(pair().is_err());
        assert!(next.forget(&pem, &key));
        assert!(pair().is_ok());
        assert!(next.forget(&pem, &key) && !next.forget(&pem, &key));
    }
}
