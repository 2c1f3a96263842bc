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

/// The name among the zones, which go from a configuration to the next; no directive can give it.
const NAME: &[u8] = b" tls files";

/// The files of one configuration, by path.
#[derive(Default)]
pub struct TlsObjects {
    files: RefCell<HashMap<PathBuf, Rc<Object>>>,
    /// The files of the configuration before.
    before: RefCell<Option<Rc<TlsObjects>>>,
}

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
        let objects =
            Rc::new(TlsObjects { files: RefCell::default(), before: RefCell::new(before) });
        zones.put(NAME, objects.clone());
        objects
    }

    /// The configuration is loaded: lets go of files that only the one before has.
    pub fn settle(&self) {
        self.before.take();
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
