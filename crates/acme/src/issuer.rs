//! Issuers (`acme_issuer`) and orders (`acme_certificate`) as configured.

use std::cell::OnceCell;
use std::hash::Hasher;
use std::path::PathBuf;
use std::rc::Rc;

use pki::issue::KeyKind;
use pki::pem::Secret;
use proto::acme::Identifier;
use upstream::names::Lookup;
use upstream::ssl::UpstreamTls;

use crate::session::Trouble;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccountKey {
    /// Generated once and stored in `state_path`.
    Generate(KeyKind),
    /// Read from this file.
    File(PathBuf),
}

/// `challenge`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// http-01: a response below `/.well-known/acme-challenge/`.
    Http,
    /// tls-alpn-01: a certificate for clients that offer the ALPN protocol `acme-tls/1` (RFC 8737).
    Alpn,
    /// dns-01: a TXT record that this program creates.
    Dns(PathBuf),
}

impl Proof {
    /// The challenge type, as ACME names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Proof::Http => "http-01",
            Proof::Alpn => "tls-alpn-01",
            Proof::Dns(_) => "dns-01",
        }
    }
}

/// The source of the key in `external_account_key`.
#[derive(Clone)]
pub(crate) enum ExternalKey {
    /// A file with the key in base64url.
    File(PathBuf),
    /// The key itself.
    Data(Secret),
}

/// The secrets that the acme process reads before it drops its privileges; unset in all other
/// processes.
#[derive(Default)]
pub(crate) struct Secrets {
    /// The content of `account_key`'s file, or the error of reading it.
    pub account_key: OnceCell<Result<Secret, Trouble>>,
    /// The key in `external_account_key`'s file, or the error of reading it.
    pub external_key: OnceCell<Result<Secret, Trouble>>,
    /// The contents of the files that `shared_state` and `sync=` name, or the error of reading one.
    pub shared: OnceCell<Result<(fleet_link::Secrets, Vec<Secret>), String>>,
}

/// `state_path PATH sync=FILE…`: the folder is the same on all servers of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct SharedPath {
    /// `shared_state`
    pub engine: fleet::Settings,
    /// The files with the secrets from which the keys of the files on the engine come: the first
    /// one seals, all of them open.
    pub keys: Vec<PathBuf>,
}

/// An `acme_issuer` block.
pub(crate) struct Issuer {
    pub name: String,
    pub uri: String,
    pub account_key: AccountKey,
    pub proof: Proof,
    /// `contact`, each a URL.
    pub contacts: Vec<String>,
    pub common_name_in_csr: bool,
    /// `external_account_key`: the identifier and the key.
    pub external: Option<(String, ExternalKey)>,
    pub preferred_chain: Option<String>,
    /// `profile`, and whether `require` was given.
    pub profile: Option<(String, bool)>,
    /// TLS settings for connections to the ACME server.
    pub tls: Rc<UpstreamTls>,
    /// `state_path`; none for `off`.
    pub folder: Option<PathBuf>,
    /// `sync=` of `state_path`
    pub shared: Option<SharedPath>,
    /// `accept_terms_of_service`
    pub agrees: bool,
    /// `resolver`
    pub lookup: Lookup,
    /// The certificates to obtain from it.
    pub orders: Vec<Rc<Order>>,
    pub secrets: Secrets,
}

/// A certificate to obtain from an issuer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The base name of its files, the same as nginx-acme's.
    pub id: String,
    /// Its name in the zone: `ISSUER/ID`.
    pub key: String,
    /// The DNS names and IP addresses of the certificate.
    pub names: Vec<Identifier>,
    /// The type of its private key.
    pub kind: KeyKind,
}

impl Order {
    pub fn new(issuer: &str, names: Vec<Identifier>, kind: KeyKind) -> Order {
        let id = id(&names, kind);
        Order { key: format!("{issuer}/{id}"), id, names, kind }
    }
}

/// The base name of an order's files: the first DNS name (otherwise the first address), and a hash
/// of all names and of the key type in hexadecimal. The hash is nginx-acme's, SipHash-2-4 (with a
/// zero key) over the derived `Hash` of its own types, so that both programs find each other's
/// files.
fn id(names: &[Identifier], kind: KeyKind) -> String {
    let first = names.iter().find(|name| matches!(name, Identifier::Dns(_))).or(names.first());
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(names.len() as u64).to_le_bytes());
    for name in names {
        let variant: u64 = match name {
            Identifier::Dns(_) => 0,
            Identifier::Ip(_) => 1,
        };
        bytes.extend_from_slice(&variant.to_le_bytes());
        bytes.extend_from_slice(name.value().as_bytes());
        bytes.push(0xff);
    }
    let (variant, bits): (u64, u32) = match kind {
        KeyKind::Ecdsa(bits) => (0, bits),
        KeyKind::Rsa(bits) => (1, bits),
    };
    bytes.extend_from_slice(&variant.to_le_bytes());
    bytes.extend_from_slice(&bits.to_le_bytes());
    // `DefaultHasher`, its successor in the standard library, does not guarantee its algorithm.
    #[allow(deprecated)]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(&bytes);
    let name = first.map(Identifier::value).unwrap_or_default();
    format!("{name}-{:x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    /// The types of nginx-acme, as far as their hash goes.
    #[derive(Hash)]
    enum TheirName {
        Dns(&'static str),
        Ip(&'static str),
    }

    #[derive(Hash)]
    enum TheirKey {
        Ecdsa(u32),
        Rsa(u32),
    }

    fn theirs(names: &Vec<TheirName>, key: TheirKey) -> String {
        #[allow(deprecated)]
        let mut hasher = std::hash::SipHasher::new();
        names.hash(&mut hasher);
        key.hash(&mut hasher);
        format!("{:x}", hasher.finish())
    }

    fn parsed(names: &[&str]) -> Vec<Identifier> {
        names.iter().flat_map(|name| Identifier::parse(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn files_have_nginx_acme_s_names() {
        let own = id(&parsed(&["example.test"]), KeyKind::Ecdsa(256));
        let hash = theirs(&vec![TheirName::Dns("example.test")], TheirKey::Ecdsa(256));
        assert_eq!(own, format!("example.test-{hash}"));
        let own = id(&parsed(&["192.0.2.1", ".a.test"]), KeyKind::Rsa(2048));
        let names = vec![
            TheirName::Ip("192.0.2.1"),
            TheirName::Dns("www.a.test"),
            TheirName::Dns("a.test"),
        ];
        assert_eq!(own, format!("www.a.test-{}", theirs(&names, TheirKey::Rsa(2048))));
        let own = id(&parsed(&["::1"]), KeyKind::Ecdsa(256));
        assert!(own.starts_with("::1-"));
    }
}
