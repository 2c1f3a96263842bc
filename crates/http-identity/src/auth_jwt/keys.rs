//! Files with keys. The master reads those with a fixed name at load, so that errors show then, and
//! files that only root can read will do. Workers read them again in a thread, to notice changes.

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::log::{Level, lossy, os_error};
use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node};
use http::cx::Cx;
use http::request::Request;
use jose::KeySet;

/// Bytes of a file.
const FILE_MAX: u64 = 1 << 20;
/// Files that a name with variables may have meant, each with its keys.
const FILES_MAX: usize = 64;
/// Files are not read more often than that, whatever `auth_jwt_key_cache` says.
const AGE_MIN_MS: u64 = 1000;

/// `auth_jwt_key_file`.
pub(super) struct KeyFile {
    name: Template,
    /// The folder that a relative name starts from.
    prefix: PathBuf,
    read: RefCell<Vec<Entry>>,
}

/// A file that was read.
struct Entry {
    path: PathBuf,
    keys: Arc<KeySet>,
    /// When it was read last, or was tried to; 0 by the master.
    at_ms: u64,
}

/// The file could not be used.
enum ReadError {
    Io(&'static str, io::Error),
    Keys(jose::Error),
    TooLarge,
}

impl ReadError {
    fn text(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            ReadError::Io(call, e) => format!("{call} \"{path}\" failed {}", os_error(e)),
            ReadError::Keys(e) => format!("invalid keys in \"{path}\": {e}"),
            ReadError::TooLarge => format!("\"{path}\" is larger than {FILE_MAX} bytes"),
        }
    }
}

impl ReadError {
    fn is_denied(&self) -> bool {
        matches!(self, ReadError::Io(_, e) if e.kind() == io::ErrorKind::PermissionDenied)
    }
}

fn read(path: &Path) -> Result<KeySet, ReadError> {
    let file = std::fs::File::open(path).map_err(|e| ReadError::Io("open()", e))?;
    let mut text = Vec::new();
    let read = file.take(FILE_MAX + 1).read_to_end(&mut text);
    read.map_err(|e| ReadError::Io("read()", e))?;
    if text.len() as u64 > FILE_MAX {
        return Err(ReadError::TooLarge);
    }
    KeySet::parse(&text).map_err(ReadError::Keys)
}

impl KeyFile {
    pub(super) fn of(cx: &mut Cx, n: &Node) -> Result<KeyFile, ConfError> {
        let word = n.arg(0)?;
        let name = cx.template(word)?;
        let mut entries = Vec::new();
        if let Some(fixed) = name.as_const() {
            let path = cx.env.conf_path(fixed);
            let keys = read(&path).map_err(|e| ConfError::at(word, e.text(&path)))?;
            for why in keys.ignored() {
                conf::warn(word, format_args!("\"{}\": ignored {why}", path.display()));
            }
            entries.push(Entry { path, keys: Arc::new(keys), at_ms: 0 });
        }
        Ok(KeyFile { name, prefix: cx.env.conf_path(b""), read: RefCell::new(entries) })
    }

    /// The file's keys, if its name is fixed, of whatever age.
    pub(super) fn fixed(&self) -> Option<Arc<KeySet>> {
        self.name.as_const()?;
        self.read.borrow().first().map(|entry| entry.keys.clone())
    }

    fn path(&self, r: &mut Request) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let name: Bytes = match self.name.as_const() {
            Some(fixed) => fixed.clone(),
            None => r.eval(&self.name),
        };
        self.prefix.join(std::ffi::OsStr::from_bytes(&name))
    }

    /// Whether a client may have chosen a folder: `$jwt_header_kid` is any text, and a file that
    /// it could write somewhere must not become a key.
    fn is_astray(&self, path: &Path) -> bool {
        let up = |part| matches!(part, std::path::Component::ParentDir);
        self.name.as_const().is_none() && path.components().any(up)
    }

    /// The keys, if they are not older than `cache_ms`.
    pub(super) fn fresh(&self, r: &mut Request, cache_ms: u64) -> Option<Arc<KeySet>> {
        let path = self.path(r);
        let read = self.read.borrow();
        let entry = read.iter().find(|entry| entry.path == path)?;
        let age_ms = base::time::now_ms().saturating_sub(entry.at_ms);
        (entry.at_ms != 0 && age_ms < cache_ms.max(AGE_MIN_MS)).then(|| entry.keys.clone())
    }

    /// The keys, read in a thread. Requests that come before it is done use those that are known.
    /// Where the file has become unreadable, they stay: half a file or none is what a rotation
    /// looks like in its middle. `None`, which was logged, if there have never been any.
    pub(super) async fn read(&self, r: &mut Request) -> Option<Arc<KeySet>> {
        let path = self.path(r);
        if self.is_astray(&path) {
            let path = path.display();
            r.log(Level::Error, format_args!("\"{path}\" has \"..\" and is not read for keys"));
            return None;
        }
        if let Some(entry) = self.read.borrow_mut().iter_mut().find(|entry| entry.path == path) {
            entry.at_ms = base::time::now_ms();
        }
        let of_thread = path.clone();
        let made = r.on_disk(move || read(&of_thread)).await;
        let made = made.unwrap_or_else(|e| Err(ReadError::Io("read()", e)));
        let mut entries = self.read.borrow_mut();
        let known = entries.iter().position(|entry| entry.path == path);
        match (made, known) {
            (Ok(keys), known) => {
                let at_ms = base::time::now_ms();
                let entry = Entry { path, keys: Arc::new(keys), at_ms };
                let keys = entry.keys.clone();
                match known {
                    Some(i) => entries[i] = entry,
                    None => {
                        if entries.len() == FILES_MAX {
                            let oldest = (0..FILES_MAX).min_by_key(|i| entries[*i].at_ms);
                            entries.swap_remove(oldest.unwrap_or(0));
                        }
                        entries.push(entry);
                    }
                }
                Some(keys)
            }
            (Err(e), Some(i)) => {
                let text = e.text(&path);
                if e.is_denied() {
                    // The master could read it, so that another try is for the next master.
                    entries[i].at_ms = u64::MAX;
                }
                r.log(Level::Error, format_args!("{text}; the keys read before stay in use"));
                Some(entries[i].keys.clone())
            }
            (Err(e), None) => {
                let text = e.text(&path);
                r.log(Level::Error, format_args!("{}", lossy(text.as_bytes())));
                None
            }
        }
    }
}
