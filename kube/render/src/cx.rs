//! What all parts of the renderer share while objects are rendered.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::conf::{Block, Owner};
use crate::keys::Config;
use crate::objects::{EndpointSlice, Key, Kind, ObjectRef, Objects, Secret};
use crate::upstreams::Upstream;
use crate::{Event, Options, Refused, Status};

pub(crate) struct Cx<'a> {
    pub objects: &'a Objects,
    pub options: &'a Options,
    pub config: Config,
    pub refused: &'a Refused,
    pub owners: Vec<ObjectRef>,
    /// Their indexes.
    owned: BTreeMap<ObjectRef, Owner>,
    pub events: Vec<Event>,
    pub statuses: Vec<Status>,
    pub files: BTreeMap<String, Vec<u8>>,
    pub upstreams: BTreeMap<String, Upstream>,
    pub stream_upstreams: BTreeMap<String, Upstream>,
    /// Maps, zones and the like, at the level of `http`.
    pub http: Block,
    /// Servers and maps of `stream`.
    pub stream: Block,
    /// Things at the level of `http` that exist once, by name.
    once: BTreeSet<String>,
    slices: BTreeMap<Key, Vec<&'a EndpointSlice>>,
}

/// A short text that differs for different contents, for names of files and variables.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl<'a> Cx<'a> {
    pub fn new(objects: &'a Objects, options: &'a Options, refused: &'a Refused) -> Cx<'a> {
        let mut slices: BTreeMap<Key, Vec<&EndpointSlice>> = BTreeMap::new();
        for (key, slice) in &objects.endpoint_slices {
            if let Some(service) = slice.metadata.labels.get("kubernetes.io/service-name") {
                slices.entry(Key::new(&key.namespace, service)).or_default().push(slice);
            }
        }
        let mut cx = Cx {
            objects,
            options,
            config: Config::default(),
            refused,
            owners: Vec::new(),
            owned: BTreeMap::new(),
            events: Vec::new(),
            statuses: Vec::new(),
            files: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            stream_upstreams: BTreeMap::new(),
            http: Block::default(),
            stream: Block::default(),
            once: BTreeSet::new(),
            slices,
        };
        for (object, error) in &objects.malformed {
            cx.warn(object.clone(), "Malformed", format!("the object cannot be read: {error}"));
        }
        if let Some(key) = &options.config_map
            && let Some(map) = objects.config_maps.get(key)
        {
            let object = ObjectRef::new(Kind::ConfigMap, &key.namespace, &key.name);
            let refused = refused.get(&object);
            let (config, findings) = match refused {
                Some(message) => (Config::default(), vec![format!("does not load: {message}")]),
                None => Config::read(&map.data),
            };
            cx.config = config;
            for finding in findings {
                cx.warn(object.clone(), "Rejected", finding);
            }
        }
        cx
    }

    /// The ConfigMap as the owner of directives.
    pub fn config_owner(&mut self) -> Option<Owner> {
        let key = self.options.config_map.clone()?;
        Some(self.owner(&ObjectRef::new(Kind::ConfigMap, &key.namespace, &key.name)))
    }

    /// The index of an object among those that directives come from.
    pub fn owner(&mut self, object: &ObjectRef) -> Owner {
        if let Some(owner) = self.owned.get(object) {
            return *owner;
        }
        let owner = Owner::try_from(self.owners.len()).unwrap_or(Owner::MAX);
        self.owners.push(object.clone());
        self.owned.insert(object.clone(), owner);
        owner
    }

    pub fn warn(&mut self, object: ObjectRef, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event { object, warning: true, reason, message: message.into() });
    }

    pub fn note(&mut self, object: ObjectRef, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event { object, warning: false, reason, message: message.into() });
    }

    /// Whether something of this name is to be added now: the first time it is asked for.
    pub fn first(&mut self, name: &str) -> bool {
        self.once.insert(name.to_owned())
    }

    /// The slices of a service.
    pub fn slices(&self, service: &Key) -> &[&'a EndpointSlice] {
        self.slices.get(service).map_or(&[], Vec::as_slice)
    }

    /// Adds a file; returns its path. The name has a digest of the contents, so that a change of
    /// them changes the configuration.
    pub fn file(&mut self, name: &str, ending: &str, contents: Vec<u8>) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let name = format!("files/{name}-{}.{ending}", digest(&[&contents]));
        self.files.insert(name.clone(), contents);
        format!("{}/{name}", self.options.folder)
    }

    /// The certificate chain and the key of a Secret, as two files.
    ///
    /// # Errors
    /// The Secret is missing, or lacks one of them.
    pub fn certificate(&mut self, key: &Key) -> Result<(String, String), String> {
        let secret = self.secret(key)?;
        let certificate = pem(secret, "tls.crt", "CERTIFICATE", key)?;
        let private = pem(secret, "tls.key", "PRIVATE KEY", key)?;
        let name = format!("{}-{}", key.namespace, key.name);
        Ok((self.file(&name, "crt", certificate), self.file(&name, "key", private)))
    }

    /// The CA certificates of a Secret as a file.
    ///
    /// # Errors
    /// The Secret is missing, or has none.
    pub fn ca(&mut self, key: &Key) -> Result<String, String> {
        let certificates = pem(self.secret(key)?, "ca.crt", "CERTIFICATE", key)?;
        Ok(self.file(&format!("{}-{}-ca", key.namespace, key.name), "crt", certificates))
    }

    /// The revocation lists of a Secret as a file.
    pub fn crl(&mut self, key: &Key) -> Option<String> {
        let lists = pem(self.secret(key).ok()?, "ca.crl", "X509 CRL", key).ok()?;
        Some(self.file(&format!("{}-{}-ca", key.namespace, key.name), "crl", lists))
    }

    pub fn secret(&self, key: &Key) -> Result<&'a Secret, String> {
        self.objects.secrets.get(key).ok_or_else(|| format!("Secret {key} does not exist"))
    }
}

/// A value of a Secret that holds PEM blocks of a kind.
fn pem(secret: &Secret, name: &str, kind: &str, key: &Key) -> Result<Vec<u8>, String> {
    let Some(value) = secret.value(name) else {
        return Err(format!("Secret {key} has no \"{name}\""));
    };
    if is_pem(&value, kind) {
        Ok(value)
    } else {
        Err(format!("\"{name}\" of Secret {key} is not PEM"))
    }
}

/// Whether a text has a PEM block of this kind whose contents are one value in DER. What is more
/// is for the server to find out.
fn is_pem(text: &[u8], kind: &str) -> bool {
    use base64::Engine;
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut blocks = text.split("-----BEGIN ").skip(1).filter_map(|block| {
        let (label, rest) = block.split_once("-----")?;
        let (body, _) = rest.split_once("-----END ")?;
        label.ends_with(kind).then_some(body)
    });
    let is_der = |body: &str| {
        // Headers of encrypted keys, which the server refuses with a message of its own.
        let lines = body.lines().filter(|line| !line.contains(':'));
        let body: String = lines.collect::<String>().split_whitespace().collect();
        let der = base64::engine::general_purpose::STANDARD.decode(body).unwrap_or_default();
        der_len(&der) == Some(der.len())
    };
    match blocks.next() {
        Some(first) => is_der(first) && blocks.all(is_der),
        None => false,
    }
}

/// The length that the outermost sequence of DER says, with its header.
fn der_len(der: &[u8]) -> Option<usize> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if tag != 0x30 {
        return None;
    }
    if first < 0x80 {
        return Some(2 + usize::from(first));
    }
    let count = usize::from(first & 0x7f);
    let bytes = rest.get(..count).filter(|_| (1..=4).contains(&count))?;
    let len = bytes.iter().fold(0_usize, |len, byte| len << 8 | usize::from(*byte));
    Some(2 + count + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_has_to_hold_der() {
        let block = |label: &str, body: &str| {
            format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
        };
        let good = block("CERTIFICATE", "MAMCAQE=");
        assert!(is_pem(good.as_bytes(), "CERTIFICATE"));
        assert!(is_pem(block("EC PRIVATE KEY", "MAMCAQE=").as_bytes(), "PRIVATE KEY"));
        assert!(!is_pem(good.as_bytes(), "PRIVATE KEY"));
        for bad in ["MAQCAQE=", "xyz", "", "AgEB"] {
            assert!(!is_pem(block("CERTIFICATE", bad).as_bytes(), "CERTIFICATE"), "{bad}");
        }
        assert!(!is_pem(b"\xff", "CERTIFICATE") && !is_pem(b"no", "CERTIFICATE"));
    }

    #[test]
    fn digests_tell_parts_apart() {
        assert_ne!(digest(&[b"a", b"bc"]), digest(&[b"ab", b"c"]));
        assert_eq!(digest(&[b"a"]).len(), 16);
    }
}
