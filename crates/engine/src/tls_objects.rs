//! Files of certificates and keys, each read once a configuration, and taken over by the next one
//! while the file is the same.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use shm::{ZoneState, Zones};
use tls::verify::Store;

/// The name among the zones, which go from a configuration to the next; no directive can give it.
const NAME: &[u8] = b" tls files";

/// The files of one configuration, by path.
#[derive(Default)]
pub struct TlsObjects {
    files: RefCell<HashMap<PathBuf, Rc<Object>>>,
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
pub type TrustKey = (Vec<PathBuf>, Option<PathBuf>, Option<u8>);

/// The text of a file; kept from other eyes, and overwritten at the end.
struct Object {
    text: tls::pem::Secret,
    /// The file's number, and the time of its last change; whole seconds, as nginx compares, would
    /// miss a file that is written twice in one.
    state: (u64, i64, i64),
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

    /// The text of a file.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, path: &Path) -> io::Result<tls::pem::Secret> {
        if let Some(object) = self.files.borrow().get(path) {
            return Ok(object.text.clone());
        }
        let before = self.before.borrow();
        let old = before.as_ref().and_then(|before| before.files.borrow().get(path).cloned());
        let object = match old {
            Some(old) if std::fs::metadata(path).is_ok_and(|meta| old.state == state(&meta)) => old,
            _ => {
                let file = File::open(path)?;
                let state = state(&file.metadata()?);
                Rc::new(Object { text: tls::pem::read_secret(file)?, state })
            }
        };
        let text = object.text.clone();
        self.files.borrow_mut().insert(path.to_owned(), object);
        Ok(text)
    }
}

fn state(meta: &std::fs::Metadata) -> (u64, i64, i64) {
    (meta.ino(), meta.mtime(), meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
