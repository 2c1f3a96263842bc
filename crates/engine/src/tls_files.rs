//! Files of certificates and keys that directives name, for servers and for clients.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use conf::{ConfError, Node, Word};
use tls::certified::Certified;
use tls::pem::{self, Passwords, Source};
use tls::verify::Store;

use crate::tls_objects::TlsObjects;
use crate::{Cx, Session};

/// A file that a directive names.
#[derive(Clone)]
pub struct Named {
    /// The name, with its place.
    pub word: Word,
    /// The name made absolute with the folder of the configuration.
    pub path: PathBuf,
    objects: Rc<TlsObjects>,
}

impl Named {
    /// The first argument of a directive.
    ///
    /// # Errors
    /// There is none.
    pub fn of<S: Session>(cx: &Cx<S>, node: &Node) -> Result<Named, ConfError> {
        let word = node.arg(0)?;
        let (path, objects) = (cx.env.conf_path(word.bytes()), cx.env.tls_objects.clone());
        Ok(Named { word: word.clone(), path, objects })
    }

    /// The text of a file, if it can be read, in the place of its name.
    fn read(&self, source: Source) -> Source {
        match &source {
            Source::File(path) => self.objects.read(path).map_or(source, Source::Data),
            _ => source,
        }
    }

    /// The name for messages: a path, and no secret.
    fn shown(&self) -> String {
        match self.word.bytes().starts_with(b"data:") {
            true => "data:...".to_owned(),
            false => self.path.display().to_string(),
        }
    }
}

/// Reads a file of passwords.
///
/// # Errors
/// It cannot be read, in nginx's words.
pub fn passwords(named: &Named) -> Result<Passwords, ConfError> {
    Passwords::load(&named.path).map_err(|e| ConfError::at(&named.word, e))
}

/// Reads a certificate with its chain, and the key that belongs to it.
///
/// # Errors
/// A file cannot be read or used, or the key is another certificate's; in nginx's words.
pub fn certified(name: &Named, key: &Named, passwords: &Passwords) -> Result<Certified, ConfError> {
    let chain = Source::certificate(&name.word.lossy(), |_| name.path.clone());
    let source = Source::key(&key.word.lossy(), |_| key.path.clone());
    match from_sources(&name.read(chain), &key.read(source), passwords) {
        Ok(certified) => Ok(certified),
        Err(NotLoaded::Certificate(e)) => {
            let m = format!("cannot load certificate \"{}\": {e}", name.shown());
            Err(ConfError::at(&name.word, m))
        }
        Err(NotLoaded::Key(e)) => {
            let m = format!("cannot load certificate key \"{}\": {e}", key.shown());
            Err(ConfError::at(&key.word, m))
        }
        Err(NotLoaded::Pair(e)) => {
            let m = format!("SSL_CTX_use_PrivateKey(\"{}\") failed ({e})", key.shown());
            Err(ConfError::at(&key.word, m))
        }
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
    Pair(String),
}

impl std::fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotLoaded::Certificate(e) | NotLoaded::Key(e) => e.fmt(f),
            NotLoaded::Pair(e) => f.write_str(e),
        }
    }
}

/// Reads a certificate and its key by their names, as directives have them, and the paths that the
/// names stand for where they are files.
///
/// # Errors
/// See [`NotLoaded`].
pub fn load(
    (name, path): (String, PathBuf),
    (key, key_path): (String, PathBuf),
    passwords: &Passwords,
) -> Result<Certified, NotLoaded> {
    let chain = Source::certificate(&name, |_| path);
    from_sources(&chain, &Source::key(&key, |_| key_path), passwords)
}

fn from_sources(
    chain: &Source,
    key: &Source,
    passwords: &Passwords,
) -> Result<Certified, NotLoaded> {
    let chain = chain.load_certificates().map_err(NotLoaded::Certificate)?;
    let key = key.load_key(passwords).map_err(NotLoaded::Key)?;
    Certified::new(chain, key.der()).map_err(NotLoaded::Pair)
}

/// Trusts the certificates of a file.
///
/// # Errors
/// It cannot be read, or has none.
pub fn trust(store: &mut Store, named: &Named) -> Result<(), ConfError> {
    let bundle = bundle(named, "SSL_CTX_load_verify_locations")?;
    if bundle.certificates.is_empty() {
        return Err(failed(named, "SSL_CTX_load_verify_locations", &NOTHING));
    }
    bundle.certificates.into_iter().for_each(|certificate| store.add(certificate));
    Ok(())
}

/// Takes the revocation lists of a file; every certificate then needs one.
///
/// # Errors
/// It cannot be read.
pub fn revoke(store: &mut Store, named: &Named) -> Result<(), ConfError> {
    let lists = bundle(named, "X509_LOOKUP_load_file")?.lists;
    if lists.is_empty() {
        return Err(failed(named, "X509_LOOKUP_load_file", &NOTHING));
    }
    lists.into_iter().for_each(|list| store.add_list(list));
    store.check_revocation();
    Ok(())
}

/// OpenSSL's words for a file without what is looked for.
const NOTHING: &str = "no certificate or crl found";

fn bundle(named: &Named, call: &str) -> Result<tls::x509::pem::Bundle, ConfError> {
    let text = named
        .objects
        .read(&named.path)
        .map_err(|e| failed(named, call, &base::log::os_error(&e)))?;
    tls::x509::pem::read(&text).map_err(|e| failed(named, call, &e))
}

fn failed(named: &Named, call: &str, why: &dyn std::fmt::Display) -> ConfError {
    let m = format!("{call}(\"{}\") failed (SSL: {why})", named.path.display());
    ConfError::at(&named.word, m)
}

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

/// Certificates whose files are named by variables, and the passwords of their keys.
pub struct Certificates {
    /// Names of files are relative to this folder.
    folder: PathBuf,
    passwords: Passwords,
    terms: Option<CacheTerms>,
    known: RefCell<Vec<Known>>,
}

/// A certificate that is kept.
struct Known {
    names: (Bytes, Bytes),
    certified: Certified,
    /// The files' times and numbers.
    state: [Option<(u64, i64, i64)>; 2],
    checked_s: u64,
    used_s: u64,
}

impl Certificates {
    /// None yet.
    pub fn new(folder: PathBuf, passwords: Passwords, terms: Option<CacheTerms>) -> Certificates {
        Certificates { folder, passwords, terms, known: RefCell::default() }
    }

    /// The certificate of these names, and its key.
    ///
    /// # Errors
    /// A file cannot be read or used; for the log.
    pub fn get(&self, name: &Bytes, key: &Bytes) -> Result<Certified, String> {
        let now = base::time::now_ms() / 1000;
        let names = (name.clone(), key.clone());
        if let Some(terms) = self.terms {
            let mut known = self.known.borrow_mut();
            known.retain(|one| now.saturating_sub(one.used_s) <= terms.inactive_s);
            if let Some(at) = known.iter().position(|one| one.names == names) {
                let mut one = known.remove(at);
                if now.saturating_sub(one.checked_s) >= terms.valid_s {
                    one.checked_s = now;
                    if one.state != self.state(&names) {
                        drop(known);
                        return self.load(names, now);
                    }
                }
                one.used_s = now;
                let certified = one.certified.clone();
                known.push(one);
                return Ok(certified);
            }
        }
        self.load(names, now)
    }

    fn load(&self, names: (Bytes, Bytes), now: u64) -> Result<Certified, String> {
        let text = |name: &Bytes| base::log::lossy(name).into_owned();
        let (name, key) = (text(&names.0), text(&names.1));
        let of = |name: &str| (name.to_owned(), self.folder.join(name));
        let loaded = load(of(&name), of(&key), &self.passwords);
        let certified = loaded.map_err(|e| match e {
            NotLoaded::Certificate(e) => format!("cannot load certificate \"{name}\": {e}"),
            NotLoaded::Key(e) => format!("cannot load certificate key \"{key}\": {e}"),
            NotLoaded::Pair(e) => format!("SSL_use_PrivateKey() failed ({e})"),
        })?;
        let is_secret = || Source::key(&key, |name| self.folder.join(name)).is_encrypted();
        // An encrypted key is not kept open.
        if let Some(terms) = self.terms.filter(|_| !is_secret()) {
            let mut known = self.known.borrow_mut();
            // A certificate and its key count as two.
            if known.len() >= (terms.max / 2).max(1) {
                known.remove(0);
            }
            known.push(Known {
                state: self.state(&names),
                names,
                certified: certified.clone(),
                checked_s: now,
                used_s: now,
            });
        }
        Ok(certified)
    }

    fn state(&self, names: &(Bytes, Bytes)) -> [Option<(u64, i64, i64)>; 2] {
        use std::os::unix::fs::MetadataExt;
        [&names.0, &names.1].map(|name| {
            let path = self.folder.join(&*base::log::lossy(name));
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        })
    }
}
