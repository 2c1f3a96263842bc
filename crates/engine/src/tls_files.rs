//! Files of certificates and keys that directives name, for servers and for clients.

use std::path::PathBuf;

use conf::{ConfError, Node, Word};
use tls::certified::Certified;
use tls::pem::{self, Passwords};
use tls::verify::Store;

use crate::{Cx, Session};

/// A file that a directive names.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name, with its place.
    pub word: Word,
    /// The name made absolute with the folder of the configuration.
    pub path: PathBuf,
}

impl Named {
    /// The first argument of a directive.
    ///
    /// # Errors
    /// There is none.
    pub fn of<S: Session>(cx: &Cx<S>, node: &Node) -> Result<Named, ConfError> {
        let word = node.arg(0)?;
        Ok(Named { word: word.clone(), path: cx.env.conf_path(word.bytes()) })
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
    let of = |named: &Named| (named.word.lossy().into_owned(), named.path.clone());
    match load(of(name), of(key), passwords) {
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
    let chain = pem::Source::certificate(&name, |_| path).load_certificates();
    let chain = chain.map_err(NotLoaded::Certificate)?;
    let key = pem::Source::key(&key, |_| key_path).load_key(passwords).map_err(NotLoaded::Key)?;
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
    let text =
        std::fs::read(&named.path).map_err(|e| failed(named, call, &base::log::os_error(&e)))?;
    tls::x509::pem::read(&text).map_err(|e| failed(named, call, &e))
}

fn failed(named: &Named, call: &str, why: &dyn std::fmt::Display) -> ConfError {
    let m = format!("{call}(\"{}\") failed (SSL: {why})", named.path.display());
    ConfError::at(&named.word, m)
}

/// Known, and not to be had: RFC 8996 forbids them.
const OLD_PROTOCOLS: &[&[u8]] = &[b"SSLv2", b"SSLv3", b"TLSv1", b"TLSv1.1"];

/// Reads the versions of `ssl_protocols`: their numbers.
///
/// # Errors
/// A word is none, or none of them can be had.
pub fn protocols(node: &Node) -> Result<Vec<u16>, ConfError> {
    let mut versions = Vec::new();
    for word in &node.args {
        match word.bytes() {
            b"TLSv1.2" => versions.push(0x0303),
            b"TLSv1.3" => versions.push(0x0304),
            old if OLD_PROTOCOLS.contains(&old) => {
                conf::warn(word, format_args!("\"{}\" is not to be had, ignored", word.lossy()));
            }
            _ => return Err(ConfError::at(word, format!("invalid value \"{}\"", word.lossy()))),
        }
    }
    match versions.is_empty() {
        true => {
            let name = node.name.lossy();
            let m = format!("no protocol of \"{name}\" is to be had: TLSv1.2 and TLSv1.3 are");
            Err(ConfError::at(&node.name, m))
        }
        false => Ok(versions),
    }
}
