//! Certificates and revocation lists of every kind, also wrong ones: a small writer of DER.
//!
//! A [`Draft`] says field by field what a certificate holds; nothing is checked or added, so that
//! tests can have version 1, opposite extensions, bad times and foreign signatures.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};

/// Encoded elements.
pub mod der {
    /// One element with this tag.
    pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        match content.len() {
            n @ 0..0x80 => out.push(n as u8),
            n @ 0x80..0x100 => out.extend([0x81, n as u8]),
            n => out.extend([0x82, (n >> 8) as u8, n as u8]),
        }
        out.extend_from_slice(content);
        out
    }

    /// A SEQUENCE of encoded elements.
    pub fn sequence(parts: &[&[u8]]) -> Vec<u8> {
        element(0x30, &parts.concat())
    }

    /// An OBJECT IDENTIFIER from its dotted form.
    pub fn oid(dotted: &str) -> Vec<u8> {
        let arcs: Vec<u64> = dotted.split('.').map(|a| a.parse().unwrap_or(0)).collect();
        let mut content = Vec::new();
        let first = arcs[0] * 40 + arcs[1];
        for arc in std::iter::once(&first).chain(&arcs[2..]) {
            let groups = (64 - arc.leading_zeros()).div_ceil(7).max(1);
            for group in (0..groups).rev() {
                let more = if group > 0 { 0x80 } else { 0 };
                content.push((arc >> (group * 7) & 0x7f) as u8 | more);
            }
        }
        element(6, &content)
    }

    /// A BIT STRING of whole bytes.
    pub fn bits(bytes: &[u8]) -> Vec<u8> {
        element(3, &[&[0], bytes].concat())
    }

    /// A named bit list of 16 bits, the first byte low as OpenSSL has it.
    pub fn named_bits(bits: u16) -> Vec<u8> {
        let bytes = bits.to_le_bytes();
        let bytes = if bytes[1] == 0 { &bytes[..1] } else { &bytes[..] };
        let unused = bytes.last().map_or(0, |b| b.trailing_zeros().min(7));
        element(3, &[&[unused as u8], bytes].concat())
    }

    /// A time: UTCTime for 13 characters, GeneralizedTime otherwise.
    pub fn time(text: &str) -> Vec<u8> {
        element(if text.len() == 13 { 0x17 } else { 0x18 }, text.as_bytes())
    }

    /// A name of RDNs of one attribute each: `CN=a/O=b` with dotted identifiers or short names,
    /// as UTF8String.
    pub fn name(text: &str) -> Vec<u8> {
        let rdns: Vec<Vec<u8>> = text.split('/').filter(|p| !p.is_empty()).map(rdn).collect();
        element(0x30, &rdns.concat())
    }

    fn rdn(pair: &str) -> Vec<u8> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (dotted, tag) = match key {
            "CN" => ("2.5.4.3", 0x0c),
            "C" => ("2.5.4.6", 0x13),
            "O" => ("2.5.4.10", 0x0c),
            "OU" => ("2.5.4.11", 0x0c),
            "DC" => ("0.9.2342.19200300.100.1.25", 0x16),
            "emailAddress" => ("1.2.840.113549.1.9.1", 0x16),
            other => (other, 0x0c),
        };
        element(0x31, &attribute(dotted, tag, value.as_bytes()))
    }

    /// An attribute with a value of any type.
    pub fn attribute(dotted: &str, tag: u8, value: &[u8]) -> Vec<u8> {
        sequence(&[&oid(dotted), &element(tag, value)])
    }

    /// A certificate in PEM.
    pub fn pem(label: &str, bytes: &[u8]) -> String {
        let mut base64 = Vec::new();
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for chunk in bytes.chunks(3) {
            let n =
                chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
            for i in 0..4 {
                let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize];
                base64.push(if i <= chunk.len() { digit } else { b'=' });
            }
        }
        let mut out = format!("-----BEGIN {label}-----\n");
        for line in base64.chunks(64) {
            out.push_str(&String::from_utf8_lossy(line));
            out.push('\n');
        }
        out + &format!("-----END {label}-----\n")
    }
}

/// The kind of a key pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Ed(Box<Ed25519KeyPair>),
}

/// A key pair that signs.
pub struct Key {
    pair: Pair,
    kind: KeyKind,
    pkcs8: Vec<u8>,
}

impl Key {
    /// A fresh pair.
    pub fn generate(kind: KeyKind) -> Key {
        const WHY: &str = "the machine has randomness";
        let ec = |algorithm| {
            let pair = EcdsaKeyPair::generate(algorithm).expect(WHY);
            let pkcs8 = pair.to_pkcs8v1().expect(WHY).as_ref().to_vec();
            (Pair::Ec(Box::new(pair)), pkcs8)
        };
        let (pair, pkcs8) = match kind {
            KeyKind::Rsa => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect(WHY);
                let der: Pkcs8V1Der<'_> = pair.as_der().expect(WHY);
                let pkcs8 = der.as_ref().to_vec();
                (Pair::Rsa(Box::new(pair)), pkcs8)
            }
            KeyKind::P256 => ec(&signature::ECDSA_P256_SHA256_ASN1_SIGNING),
            KeyKind::P384 => ec(&signature::ECDSA_P384_SHA384_ASN1_SIGNING),
            KeyKind::P521 => ec(&signature::ECDSA_P521_SHA512_ASN1_SIGNING),
            KeyKind::Ed25519 => {
                let pair = Ed25519KeyPair::generate().expect(WHY);
                let pkcs8 = pair.to_pkcs8v1().expect(WHY).as_ref().to_vec();
                (Pair::Ed(Box::new(pair)), pkcs8)
            }
        };
        Key { pair, kind, pkcs8 }
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The private key in PEM.
    pub fn pem(&self) -> String {
        der::pem("PRIVATE KEY", &self.pkcs8)
    }

    /// The key itself, without its algorithm.
    pub fn bits(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// SubjectPublicKeyInfo.
    pub fn spki(&self) -> Vec<u8> {
        let ec = |curve| der::sequence(&[&der::oid("1.2.840.10045.2.1"), &der::oid(curve)]);
        let algorithm = match self.kind {
            KeyKind::Rsa => der::sequence(&[&der::oid("1.2.840.113549.1.1.1"), &[5, 0]]),
            KeyKind::P256 => ec("1.2.840.10045.3.1.7"),
            KeyKind::P384 => ec("1.3.132.0.34"),
            KeyKind::P521 => ec("1.3.132.0.35"),
            KeyKind::Ed25519 => der::sequence(&[&der::oid("1.3.101.112")]),
        };
        der::sequence(&[&algorithm, &der::bits(&self.bits())])
    }

    /// The AlgorithmIdentifier of [`Key::sign`].
    pub fn algorithm(&self) -> Vec<u8> {
        match self.kind {
            KeyKind::Rsa => der::sequence(&[&der::oid("1.2.840.113549.1.1.11"), &[5, 0]]),
            KeyKind::P256 => der::sequence(&[&der::oid("1.2.840.10045.4.3.2")]),
            KeyKind::P384 => der::sequence(&[&der::oid("1.2.840.10045.4.3.3")]),
            KeyKind::P521 => der::sequence(&[&der::oid("1.2.840.10045.4.3.4")]),
            KeyKind::Ed25519 => der::sequence(&[&der::oid("1.3.101.112")]),
        }
    }

    /// A signature: PKCS #1 with SHA-256, ECDSA with the curve's hash, Ed25519.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        const WHY: &str = "a whole key signs";
        match &self.pair {
            Pair::Rsa(pair) => self.rsa(pair, &signature::RSA_PKCS1_SHA256, message),
            Pair::Ec(pair) => {
                pair.sign(&SystemRandom::new(), message).expect(WHY).as_ref().to_vec()
            }
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A signature of RSA with another padding or hash; `None` for another kind of key.
    pub fn sign_rsa(
        &self,
        encoding: &'static dyn signature::RsaEncoding,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        match &self.pair {
            Pair::Rsa(pair) => Some(self.rsa(pair, encoding, message)),
            _ => None,
        }
    }

    fn rsa(
        &self,
        pair: &RsaKeyPair,
        encoding: &'static dyn signature::RsaEncoding,
        message: &[u8],
    ) -> Vec<u8> {
        let mut out = vec![0; pair.public_modulus_len()];
        pair.sign(encoding, &SystemRandom::new(), message, &mut out).expect("a whole key signs");
        out
    }
}

/// An extension.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Dotted.
    pub oid: String,
    /// Whether it is marked critical.
    pub critical: bool,
    /// The encoding inside of the OCTET STRING.
    pub value: Vec<u8>,
}

impl Extension {
    /// One that is not critical.
    pub fn new(oid: &str, value: Vec<u8>) -> Extension {
        Extension { oid: oid.to_owned(), critical: false, value }
    }

    /// Marked critical.
    pub fn critical(self) -> Extension {
        Extension { critical: true, ..self }
    }

    /// Basic constraints.
    pub fn basic(ca: bool, path_length: Option<u8>) -> Extension {
        let ca: &[u8] = if ca { &[1, 1, 0xff] } else { &[] };
        let length = path_length.map(|n| vec![2, 1, n]).unwrap_or_default();
        Extension::new("2.5.29.19", der::sequence(&[ca, &length]))
    }

    /// Key usage: 0x80 digitalSignature, 0x04 keyCertSign, 0x02 cRLSign.
    pub fn key_usage(bits: u16) -> Extension {
        Extension::new("2.5.29.15", der::named_bits(bits))
    }

    /// Extended key usages, dotted.
    pub fn extended(usages: &[&str]) -> Extension {
        let usages: Vec<Vec<u8>> = usages.iter().map(|oid| der::oid(oid)).collect();
        Extension::new("2.5.29.37", der::element(0x30, &usages.concat()))
    }

    /// Alternative names, each with its context tag (0x82 for DNS, 0x87 for an address).
    pub fn alt_names(names: &[(u8, &[u8])]) -> Extension {
        Extension::new("2.5.29.17", general_names(0x30, names))
    }

    /// Name constraints: the permitted and the excluded subtrees.
    pub fn constraints(permitted: &[(u8, &[u8])], excluded: &[(u8, &[u8])]) -> Extension {
        let subtrees = |tag, names: &[(u8, &[u8])]| {
            let all: Vec<Vec<u8>> = names
                .iter()
                .map(|(kind, content)| der::sequence(&[&der::element(*kind, content)]))
                .collect();
            if all.is_empty() { Vec::new() } else { der::element(tag, &all.concat()) }
        };
        let value = der::sequence(&[&subtrees(0xa0, permitted), &subtrees(0xa1, excluded)]);
        Extension::new("2.5.29.30", value)
    }

    /// Subject key identifier.
    pub fn subject_key_id(id: &[u8]) -> Extension {
        Extension::new("2.5.29.14", der::element(4, id))
    }

    /// Authority key identifier with a key's alone.
    pub fn authority_key_id(id: &[u8]) -> Extension {
        Extension::new("2.5.29.35", der::sequence(&[&der::element(0x80, id)]))
    }

    fn encode(&self) -> Vec<u8> {
        let critical: &[u8] = if self.critical { &[1, 1, 0xff] } else { &[] };
        der::sequence(&[&der::oid(&self.oid), critical, &der::element(4, &self.value)])
    }
}

/// GeneralNames under a tag.
pub fn general_names(tag: u8, names: &[(u8, &[u8])]) -> Vec<u8> {
    let all: Vec<Vec<u8>> =
        names.iter().map(|(kind, content)| der::element(*kind, content)).collect();
    der::element(tag, &all.concat())
}

/// The contents of a certificate to write.
#[derive(Clone, Debug)]
pub struct Draft {
    /// 3 by default; 1 is left out of the encoding.
    pub version: u8,
    /// The content of the INTEGER.
    pub serial: Vec<u8>,
    /// A whole Name.
    pub issuer: Vec<u8>,
    /// A whole Name.
    pub subject: Vec<u8>,
    /// Texts of the two times.
    pub validity: (String, String),
    /// SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// In order.
    pub extensions: Vec<Extension>,
}

impl Draft {
    /// Valid from 2020 to 2040, serial number 1, without extensions.
    pub fn new(subject: &str, issuer: &str, key: &Key) -> Draft {
        Draft {
            version: 3,
            serial: vec![1],
            issuer: der::name(issuer),
            subject: der::name(subject),
            validity: ("200101000000Z".to_owned(), "400101000000Z".to_owned()),
            spki: key.spki(),
            extensions: Vec::new(),
        }
    }

    /// With one more extension.
    pub fn with(mut self, extension: Extension) -> Draft {
        self.extensions.push(extension);
        self
    }

    /// The part that is signed, with the algorithm inside.
    pub fn to_be_signed(&self, algorithm: &[u8]) -> Vec<u8> {
        let version = match self.version {
            1 => Vec::new(),
            n => der::element(0xa0, &[2, 1, n - 1]),
        };
        let validity = der::sequence(&[&der::time(&self.validity.0), &der::time(&self.validity.1)]);
        let extensions: Vec<Vec<u8>> = self.extensions.iter().map(Extension::encode).collect();
        let extensions = match extensions.is_empty() {
            true => Vec::new(),
            false => der::element(0xa3, &der::element(0x30, &extensions.concat())),
        };
        der::sequence(&[
            &version,
            &der::element(2, &self.serial),
            algorithm,
            &self.issuer,
            &validity,
            &self.subject,
            &self.spki,
            &extensions,
        ])
    }

    /// The certificate, signed.
    pub fn sign(&self, key: &Key) -> Vec<u8> {
        signed(&self.to_be_signed(&key.algorithm()), key)
    }
}

/// Something signed: a certificate or a list.
pub fn signed(part: &[u8], key: &Key) -> Vec<u8> {
    der::sequence(&[part, &key.algorithm(), &der::bits(&key.sign(part))])
}

/// The contents of a revocation list to write.
#[derive(Clone, Debug)]
pub struct ListDraft {
    /// A whole Name.
    pub issuer: Vec<u8>,
    /// The text of the time.
    pub this_update: String,
    /// The text of the time.
    pub next_update: Option<String>,
    /// Serial numbers with the extensions of the entries.
    pub revoked: Vec<(Vec<u8>, Vec<Extension>)>,
    /// Of the list.
    pub extensions: Vec<Extension>,
}

impl ListDraft {
    /// Valid from 2020 to 2040, empty.
    pub fn new(issuer: &str) -> ListDraft {
        ListDraft {
            issuer: der::name(issuer),
            this_update: "200101000000Z".to_owned(),
            next_update: Some("400101000000Z".to_owned()),
            revoked: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// With a serial number revoked.
    pub fn revoking(mut self, serial: &[u8]) -> ListDraft {
        self.revoked.push((serial.to_vec(), Vec::new()));
        self
    }

    /// The list, signed.
    pub fn sign(&self, key: &Key) -> Vec<u8> {
        let wrap = |list: &[Extension]| {
            let all: Vec<Vec<u8>> = list.iter().map(Extension::encode).collect();
            if all.is_empty() { Vec::new() } else { der::element(0x30, &all.concat()) }
        };
        let revoked: Vec<Vec<u8>> = self
            .revoked
            .iter()
            .map(|(serial, extensions)| {
                let date = der::time("210101000000Z");
                der::sequence(&[&der::element(2, serial), &date, &wrap(extensions)])
            })
            .collect();
        let revoked =
            if revoked.is_empty() { Vec::new() } else { der::element(0x30, &revoked.concat()) };
        let next = self.next_update.as_ref().map(|t| der::time(t)).unwrap_or_default();
        let extensions = match wrap(&self.extensions) {
            empty if empty.is_empty() => empty,
            list => der::element(0xa0, &list),
        };
        let part = der::sequence(&[
            &[2, 1, 1],
            &key.algorithm(),
            &self.issuer,
            &der::time(&self.this_update),
            &next,
            &revoked,
            &extensions,
        ]);
        signed(&part, key)
    }
}
