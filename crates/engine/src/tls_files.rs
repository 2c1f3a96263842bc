//! Files of certificates and keys that directives name, for servers and for clients.

use std::path::PathBuf;
use std::rc::Rc;

use conf::{ConfError, Node, Word};
use pki::pem::{Passwords, Source};
use pki::verify::Store;
use tls::certified::{Certified, SignKey};
use tls::conf_command::Command;

use crate::tls_objects::{NotLoaded, TlsObjects, Trust};
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

    /// The file of certificates that the system trusts, for a server whose directives name none;
    /// `word` is the place that messages show.
    ///
    /// # Errors
    /// The system has none; the message says that `directive` of `block` could name one.
    pub fn of_system<S: Session>(
        cx: &Cx<S>,
        word: &Word,
        block: &str,
        directive: &str,
    ) -> Result<Named, ConfError> {
        let path = system_bundle().ok_or_else(|| {
            let m = format!(
                "{block}: the system has no file of trusted certificates, and \"{directive}\" is \
                 missing"
            );
            ConfError::at(word, m)
        })?;
        Ok(Named { word: word.clone(), path, objects: cx.env.tls_objects.clone() })
    }

    /// A file of a folder that a directive names; `word` is the directive's.
    pub fn in_folder<S: Session>(cx: &Cx<S>, word: &Word, path: PathBuf) -> Named {
        Named { word: word.clone(), path, objects: cx.env.tls_objects.clone() }
    }

    /// The certificate with the rest of its chain, and its file if it is in one.
    fn chain(&self) -> (Result<Vec<Vec<u8>>, NotLoaded>, Option<PathBuf>) {
        match Source::certificate(&self.word.lossy(), |_| self.path.clone()) {
            Source::File(path) => {
                (self.objects.chain(&path).map_err(NotLoaded::Certificate), Some(path))
            }
            source => (source.load_certificates().map_err(NotLoaded::Certificate), None),
        }
    }

    /// The key, and its file if it is in one.
    fn key(&self, passwords: &Passwords) -> (Result<SignKey, NotLoaded>, Option<PathBuf>) {
        match Source::key(&self.word.lossy(), |_| self.path.clone()) {
            Source::File(path) => (self.objects.key(&path, passwords), Some(path)),
            source => (parse_key(&source, passwords), None),
        }
    }

    /// The certificate with its key.
    fn pair(&self, key: &Named, passwords: &Passwords) -> Result<Certified, NotLoaded> {
        let ((chain, file), (private, key_file)) = (self.chain(), key.key(passwords));
        let pair = Certified::with_key(chain?, private?).map_err(NotLoaded::Pair);
        let files = (file.unwrap_or_default(), key_file.unwrap_or_default());
        // One of them may have changed in a way that its file does not tell.
        if pair.is_err() && self.objects.forget(&files.0, &files.1) {
            return Certified::with_key(self.chain().0?, key.key(passwords).0?)
                .map_err(NotLoaded::Pair);
        }
        pair
    }

    /// The name for messages: a path, and no secret.
    pub fn shown(&self) -> String {
        match self.word.bytes().starts_with(b"data:") {
            true => "data:...".to_owned(),
            false => self.path.display().to_string(),
        }
    }
}

/// Where systems keep the certificates that their users trust.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of certificates that the system trusts.
pub fn system_bundle() -> Option<PathBuf> {
    BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Reads a file of passwords.
///
/// # Errors
/// It cannot be read, in nginx's words.
pub fn passwords(named: &Named) -> Result<Passwords, ConfError> {
    Passwords::load(&named.path).map_err(|e| ConfError::at(&named.word, e.to_string()))
}

/// Reads a certificate with its chain, and the key that belongs to it.
///
/// # Errors
/// A file cannot be read or used, or the key is another certificate's; in nginx's words.
pub fn certified(name: &Named, key: &Named, passwords: &Passwords) -> Result<Certified, ConfError> {
    match name.pair(key, passwords) {
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

/// The certificate that `ssl_conf_command Certificate` and `PrivateKey` name, with the name of its
/// file; it takes the place of the one that the directives of certificates name.
///
/// # Errors
/// One of both names is missing, a file cannot be read or used, or the key is another
/// certificate's.
pub fn commanded(
    commands: &[Command],
    passwords: &Passwords,
) -> Result<Option<(String, Certified)>, ConfError> {
    let (mut certificate, mut key) = (None, None);
    for command in commands {
        match command {
            Command::Certificate(path) => certificate = Some(path),
            Command::PrivateKey(path) => key = Some(path),
            _ => {}
        }
    }
    let (name, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(alone("Certificate", "PrivateKey")),
        (None, Some(_)) => return Err(alone("PrivateKey", "Certificate")),
    };
    let of = |path: &String| (path.clone(), PathBuf::from(path));
    match load(of(name), of(key), passwords) {
        Ok(certified) => Ok(Some((name.clone(), certified))),
        Err(e) => {
            let m = format!("SSL_CONF_cmd(\"Certificate\", \"{name}\") failed ({e})");
            Err(ConfError::new(m))
        }
    }
}

fn alone(command: &str, other: &str) -> ConfError {
    let m =
        format!("the command \"{command}\" of OpenSSL's configuration needs \"{other}\" beside it");
    ConfError::new(m)
}

fn from_sources(
    chain: &Source,
    key: &Source,
    passwords: &Passwords,
) -> Result<Certified, NotLoaded> {
    let chain = chain.load_certificates().map_err(NotLoaded::Certificate)?;
    Certified::with_key(chain, parse_key(key, passwords)?).map_err(NotLoaded::Pair)
}

fn parse_key(source: &Source, passwords: &Passwords) -> Result<SignKey, NotLoaded> {
    let key = source.load_key(passwords).map_err(NotLoaded::Key)?;
    SignKey::new(key.der()).map_err(NotLoaded::Pair)
}

/// Trusts the certificates of files; with revocation lists every certificate then needs one. Files
/// that several settings name are read once.
///
/// # Errors
/// A file cannot be read, or has none.
pub fn trust(
    files: &[&Named],
    lists: Option<&Named>,
    security_level: Option<u8>,
) -> Result<Rc<Trust>, ConfError> {
    let untrusting = || {
        let mut trust = Trust::default();
        if let Some(level) = security_level {
            trust.store.set_security_level(level);
        }
        trust
    };
    // The level holds for chains that nobody vouches for, too.
    let Some(any) = files.first().copied().or(lists) else { return Ok(Rc::new(untrusting())) };
    let paths = files.iter().map(|named| named.path.clone()).collect();
    let key = (paths, lists.map(|named| named.path.clone()), security_level);
    any.objects.trust(key, || {
        let mut trust = untrusting();
        for (at, named) in files.iter().enumerate() {
            add_certificates(&mut trust.store, named)?;
            if at == 0 {
                trust.first = trust.store.certificates().len();
            }
        }
        if let Some(named) = lists {
            add_lists(&mut trust.store, named)?;
        }
        Ok(trust)
    })
}

fn add_certificates(store: &mut Store, named: &Named) -> Result<(), ConfError> {
    let bundle = bundle(named, "SSL_CTX_load_verify_locations")?;
    if bundle.certificates.is_empty() {
        return Err(failed(named, "SSL_CTX_load_verify_locations", &NOTHING));
    }
    let mut settings = bundle.settings.into_iter().peekable();
    for (place, certificate) in bundle.certificates.into_iter().enumerate() {
        match settings.next_if(|(of, _)| *of == place) {
            Some((_, settings)) => store.add_with(certificate, settings),
            None => store.add(certificate),
        }
    }
    Ok(())
}

fn add_lists(store: &mut Store, named: &Named) -> Result<(), ConfError> {
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

fn bundle(named: &Named, call: &str) -> Result<pki::x509::pem::Bundle, ConfError> {
    let text = named
        .objects
        .text(&named.path)
        .map_err(|e| failed(named, call, &base::log::os_error(&e)))?;
    pki::x509::pem::read(&text).map_err(|e| failed(named, call, &e))
}

fn failed(named: &Named, call: &str, why: &dyn std::fmt::Display) -> ConfError {
    let m = format!("{call}(\"{}\") failed (SSL: {why})", named.path.display());
    ConfError::at(&named.word, m)
}
