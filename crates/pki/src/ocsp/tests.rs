//! Responses that `openssl ocsp` does not make: written field by field.

use testkit::certificates::{Draft, Extension, Key, KeyKind, der, signed};

use super::*;
use crate::x509::der::Reader;

const NOW: i64 = 1_800_000_000;
const OCSP_SIGNING: &str = "1.3.6.1.5.5.7.3.9";
const NO_CHECK: &str = "1.3.6.1.5.5.7.48.1.5";
const SHA1: &str = "1.3.14.3.2.26";

/// A response in parts.
struct Made<'a> {
    signer: &'a Key,
    responder: Vec<u8>,
    hash: &'a str,
    status: Vec<u8>,
    times: Vec<u8>,
    /// Of the single response, and of all.
    extensions: [Vec<u8>; 2],
    version: Vec<u8>,
    certificates: Vec<Vec<u8>>,
}

/// The issuer and the question for a certificate of it.
struct Asked {
    key: Key,
    query: Query,
}

fn certificate(der: Vec<u8>) -> Certificate {
    Certificate::parse(der.into()).unwrap()
}

fn key() -> Key {
    Key::generate(KeyKind::P256)
}

fn asked() -> Asked {
    let key = key();
    let issuer = Draft::new("CN=ca", "CN=ca", &key).sign(&key);
    let leaf = Draft::new("CN=leaf", "CN=ca", &self::key()).sign(&key);
    Asked { query: Query::new(&certificate(leaf), &certificate(issuer)), key }
}

fn time(text: &str) -> Vec<u8> {
    der::element(0x18, text.as_bytes())
}

fn by_name(name: &str) -> Vec<u8> {
    der::element(0xa1, &der::name(name))
}

fn extensions(tag: u8, critical: bool) -> Vec<u8> {
    let flag = if critical { der::element(1, &[0xff]) } else { Vec::new() };
    let nonce = der::oid("1.3.6.1.5.5.7.48.1.2");
    let one = der::sequence(&[&nonce, &flag, &der::element(4, b"nonce")]);
    der::element(tag, &der::sequence(&[&one]))
}

impl Made<'_> {
    fn new<'a>(signer: &'a Key, name: &str) -> Made<'a> {
        Made {
            signer,
            responder: by_name(name),
            hash: SHA1,
            status: der::element(0x80, &[]),
            times: time("20270115000000Z"),
            extensions: [Vec::new(), Vec::new()],
            version: Vec::new(),
            certificates: Vec::new(),
        }
    }

    fn to_der(&self, query: &Query) -> Bytes {
        let id = query.cache_key().unwrap();
        let algorithm = der::sequence(&[&der::oid(self.hash)]);
        let (name, key) = (der::element(4, &id[..20]), der::element(4, &id[20..40]));
        let id = der::sequence(&[&algorithm, &name, &key, &der::element(2, &[1])]);
        let single = der::sequence(&[&id, &self.status, &self.times, &self.extensions[0]]);
        let data = der::sequence(&[
            &self.version,
            &self.responder,
            &time("20270115000000Z"),
            &der::sequence(&[&single]),
            &self.extensions[1],
        ]);
        let mut basic = signed(&data, self.signer);
        if !self.certificates.is_empty() {
            let list = der::element(0xa0, &der::element(0x30, &self.certificates.concat()));
            let parts = Reader::whole(&basic, tag::SEQUENCE).unwrap();
            basic = der::sequence(&[parts, &list]);
        }
        let body = der::sequence(&[&der::oid("1.3.6.1.5.5.7.48.1.1"), &der::element(4, &basic)]);
        der::sequence(&[&der::element(10, &[0]), &der::element(0xa0, &body)]).into()
    }

    fn check(&self, asked: &Asked) -> Result<CertStatus, Error> {
        let response = self.to_der(&asked.query);
        asked.query.check(&response, Signers::Authorized, NOW).map(|answer| answer.status)
    }
}

/// A delegate's certificate for `key`, with the right and without a check of itself.
fn delegate(key: &Key, issuer: &str) -> Draft {
    let no_check = Extension::new(NO_CHECK, vec![5, 0]);
    Draft::new("CN=delegate", issuer, key).with(Extension::extended(&[OCSP_SIGNING])).with(no_check)
}

#[test]
fn a_delegate_is_signed_by_the_issuer_in_its_name() {
    let (asked, key) = (asked(), key());
    let check = |certificates: Vec<Vec<u8>>| {
        Made { certificates, ..Made::new(&key, "CN=delegate") }.check(&asked)
    };
    let right = delegate(&key, "CN=ca").sign(&asked.key);
    assert_eq!(check(vec![right.clone()]), Ok(CertStatus::Good));
    let own_work = delegate(&key, "CN=ca").sign(&key);
    assert_eq!(check(vec![own_work]), Err(Error::NotAuthorized));
    let other_name = delegate(&key, "CN=other").sign(&asked.key);
    assert_eq!(check(vec![other_name]), Err(Error::NotAuthorized));
    let other_key = Extension::authority_key_id(b"another");
    let issuer = Draft::new("CN=ca", "CN=ca", &asked.key).with(Extension::subject_key_id(b"id"));
    let query = Query { issuer: certificate(issuer.sign(&asked.key)), ..asked.query.clone() };
    let of_another = delegate(&key, "CN=ca").with(other_key).sign(&asked.key);
    let made = Made { certificates: vec![of_another], ..Made::new(&key, "CN=delegate") };
    let checked = query.check(&made.to_der(&query), Signers::Authorized, NOW);
    assert_eq!(checked, Err(Error::NotAuthorized));
    let no_right = Draft::new("CN=delegate", "CN=ca", &key).sign(&asked.key);
    assert_eq!(check(vec![no_right]), Err(Error::NotAuthorized));
    let any_use = Extension::extended(&["2.5.29.37.0"]);
    let any_use = Draft::new("CN=delegate", "CN=ca", &key).with(any_use).sign(&asked.key);
    assert_eq!(check(vec![any_use]), Err(Error::NotAuthorized));
    // Responses that cannot be read, and others, do no harm; beyond the eighth nobody looks.
    let junk = der::sequence(&[&[2, 1, 1]]);
    let mut many = vec![junk; 7];
    many.push(right);
    assert_eq!(check(many.clone()), Ok(CertStatus::Good));
    many.insert(0, der::sequence(&[]));
    assert_eq!(check(many), Err(Error::SignerNotFound));
}

#[test]
fn the_issuer_may_be_named_by_its_key() {
    let asked = asked();
    let hash = cert_id::sha1(&asked.key.bits());
    let named = |hash: &[u8]| {
        let responder = der::element(0xa2, &der::element(4, hash));
        Made { responder, ..Made::new(&asked.key, "") }.check(&asked)
    };
    assert_eq!(named(&hash), Ok(CertStatus::Good));
    assert_eq!(named(&hash[1..]), Err(Error::SignerNotFound));
    assert_eq!(named(&[0; 20]), Err(Error::SignerNotFound));
    // Compared as names are, not as bytes are.
    assert_eq!(Made::new(&asked.key, "CN= CA").check(&asked), Ok(CertStatus::Good));
}

#[test]
fn what_is_critical_must_be_known() {
    let asked = asked();
    let check = |extensions| Made { extensions, ..Made::new(&asked.key, "CN=ca") }.check(&asked);
    let (single, all) = (|critical| extensions(0xa1, critical), Vec::new);
    assert_eq!(check([single(false), all()]), Ok(CertStatus::Good));
    assert_eq!(check([all(), single(false)]), Ok(CertStatus::Good));
    assert_eq!(check([single(true), all()]), Err(Error::CriticalExtension));
    assert_eq!(check([all(), single(true)]), Err(Error::CriticalExtension));
}

#[test]
fn other_hashes_and_statuses() {
    let asked = asked();
    let good = || Made::new(&asked.key, "CN=ca");
    // A hash of that length under another name.
    let other = Made { hash: "1.3.36.3.2.1", ..good() };
    assert_eq!(other.check(&asked), Err(Error::StatusNotFound));
    let reason = der::element(0xa0, &der::element(10, &[6]));
    let hold = der::element(0xa1, &[time("20260101000000Z"), reason].concat());
    assert_eq!(Made { status: hold, ..good() }.check(&asked), Ok(CertStatus::Revoked));
    for status in [der::element(0x83, &[]), der::element(0x80, &[0]), der::element(0xa1, &[])] {
        let checked = Made { status, ..good() }.check(&asked);
        assert!(matches!(checked, Err(Error::Malformed(_))), "{checked:?}");
    }
    let version = |n| der::element(0xa0, &der::element(2, &[n]));
    assert_eq!(Made { version: version(0), ..good() }.check(&asked), Ok(CertStatus::Good));
    let second = Made { version: version(1), ..good() }.check(&asked);
    assert_eq!(second, Err(Error::Malformed(Malformed("unknown version"))));
}

#[test]
fn times_have_one_form_and_one_order() {
    let asked = asked();
    let check = |this: &str, next: &str| {
        let next = der::element(0xa0, &time(next));
        let times = [time(this), next].concat();
        Made { times, ..Made::new(&asked.key, "CN=ca") }.check(&asked)
    };
    assert_eq!(check("20270115000000Z", "20270116000000Z"), Ok(CertStatus::Good));
    // Within the skew of clocks on both sides.
    assert_eq!(check("20270115080300Z", "20270115075700Z"), Err(Error::TimesReversed));
    for text in ["20270115000000", "20270115000000.5Z", "20270115000000+0100", "20270230000000Z"] {
        let malformed = Err(Error::Malformed(Malformed("bad time")));
        assert_eq!(check(text, "20270116000000Z"), malformed, "{text}");
        assert_eq!(check("20270115000000Z", text), malformed, "{text}");
    }
}
