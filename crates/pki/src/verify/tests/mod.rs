//! Each rule with a chain that breaks it alone. The expected errors are those of `openssl verify`;
//! `bench differential-certificates` compares chains at random.

mod constraints;
mod host;
mod revocation;

use super::*;
use bytes::Bytes;
use std::sync::LazyLock;
use testkit::certificates::{Draft, Extension, Key, KeyKind};

/// In the middle of the validity that a draft has.
const NOW: i64 = 1_800_000_000;
const CLIENT: &str = "1.3.6.1.5.5.7.3.2";
const SERVER: &str = "1.3.6.1.5.5.7.3.1";

static ROOT: LazyLock<Key> = LazyLock::new(|| Key::generate(KeyKind::P256));
static MIDDLE: LazyLock<Key> = LazyLock::new(|| Key::generate(KeyKind::P384));
static LEAF: LazyLock<Key> = LazyLock::new(|| Key::generate(KeyKind::P256));

fn parse(der: &[u8]) -> Certificate {
    Certificate::parse(Bytes::copy_from_slice(der)).unwrap()
}

fn root() -> Draft {
    Draft::new("CN=root", "CN=root", &ROOT).with(Extension::basic(true, None).critical())
}

fn middle() -> Draft {
    Draft::new("CN=middle", "CN=root", &MIDDLE).with(Extension::basic(true, None).critical())
}

fn leaf() -> Draft {
    Draft::new("CN=leaf", "CN=middle", &LEAF)
}

fn store(trusted: &[&Draft]) -> Store {
    let mut store = Store::default();
    for draft in trusted {
        store.add(parse(&draft.sign(&ROOT)));
    }
    store
}

fn client(depth: u32) -> Rules {
    Rules { purpose: Purpose::Client, depth, now: NOW }
}

type Errors = Vec<(Error, usize)>;

fn peer(certificates: &[Vec<u8>]) -> Vec<Arc<Certificate>> {
    certificates.iter().map(|der| Arc::new(parse(der))).collect()
}

/// leaf and middle by the peer, the root trusted.
fn three(leaf: &Draft, middle: &Draft, root: &Draft, rules: Rules) -> Errors {
    let chain = peer(&[leaf.sign(&MIDDLE), middle.sign(&ROOT)]);
    store(&[root]).verify(&chain, &rules).errors
}

fn with_root(root: &Draft) -> Errors {
    three(&leaf(), &middle(), root, client(1))
}

fn with_middle(middle: &Draft) -> Errors {
    three(&leaf(), middle, &root(), client(1))
}

fn with_leaf(leaf: &Draft, purpose: Purpose) -> Errors {
    three(leaf, &middle(), &root(), Rules { purpose, ..client(1) })
}

fn usage(draft: Draft, bits: u16) -> Draft {
    draft.with(Extension::key_usage(bits))
}

#[test]
fn a_plain_chain() {
    let chain = peer(&[leaf().sign(&MIDDLE), middle().sign(&ROOT)]);
    let verdict = store(&[&root()]).verify(&chain, &client(1));
    assert_eq!((verdict.error(), verdict.chain.len()), (None, 3));
    assert!(Store::default().verify(&[], &client(1)).error().is_some());
}

#[test]
fn chains_without_a_trusted_root() {
    let (leaf, middle, root) = (leaf().sign(&MIDDLE), middle().sign(&ROOT), root().sign(&ROOT));
    let none = Store::default();
    let check = |store: &Store, list: &[&Vec<u8>]| {
        let list: Vec<Vec<u8>> = list.iter().map(|der| der.to_vec()).collect();
        store.verify(&peer(&list), &client(3)).errors
    };
    assert_eq!(
        check(&none, &[&leaf]),
        [(Error::NoLocalIssuer, 0), (Error::LeafSignature, 0)],
        "nginx reports the last one"
    );
    assert_eq!(check(&none, &[&leaf, &middle]), [(Error::NoLocalIssuer, 1)]);
    assert_eq!(check(&none, &[&leaf, &middle, &root]), [(Error::SelfSignedInChain, 2)]);
    assert_eq!(check(&none, &[&root]), [(Error::SelfSigned, 0)]);
    // The order of what the peer sends does not matter, but for the first.
    assert_eq!(check(&none, &[&leaf, &root, &middle]), [(Error::SelfSignedInChain, 2)]);
    // An intermediate that is trusted ends no chain.
    let mut partial = Store::default();
    partial.add(parse(&middle));
    assert_eq!(check(&partial, &[&leaf]), [(Error::NoIssuer, 1)]);
    partial.add(parse(&root));
    assert_eq!(check(&partial, &[&leaf]), []);
    assert_eq!(check(&partial, &[&root]), [], "a root as the peer's own certificate");
}

#[test]
fn only_the_lack_of_trust_is_optional() {
    let optional = [18, 19, 20, 21, 27];
    for error in [
        Error::SelfSigned,
        Error::SelfSignedInChain,
        Error::NoLocalIssuer,
        Error::LeafSignature,
        Error::Untrusted,
        Error::NoIssuer,
        Error::Signature,
        Error::Expired,
        Error::Revoked,
        Error::Unspecified,
        Error::ChainTooLong,
        Error::InvalidCa,
        Error::Purpose,
    ] {
        assert_eq!(error.is_optional(), optional.contains(&error.number()), "{error:?}");
    }
    assert_eq!(Error::LeafSignature.to_string(), "unable to verify the first certificate");
}

#[test]
fn depth_counts_what_stands_between_leaf_and_root() {
    let check = |depth| three(&leaf(), &middle(), &root(), client(depth));
    assert_eq!(check(1), []);
    assert_eq!(check(0), [(Error::ChainTooLong, 1), (Error::NoLocalIssuer, 1)]);
    let direct = Draft::new("CN=leaf", "CN=root", &LEAF).sign(&ROOT);
    assert_eq!(store(&[&root()]).verify(&peer(&[direct]), &client(0)).errors, []);
}

#[test]
fn signatures() {
    // By another kind of key than that of the certificate with the issuer's name: it is no issuer.
    let rsa = Key::generate(KeyKind::Rsa);
    let chain = peer(&[leaf().sign(&rsa), middle().sign(&ROOT)]);
    let errors = store(&[&root()]).verify(&chain, &client(1)).errors;
    assert_eq!(errors, [(Error::NoLocalIssuer, 0), (Error::LeafSignature, 0)]);
    let other = Key::generate(KeyKind::P384);
    let chain = peer(&[leaf().sign(&other), middle().sign(&ROOT)]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(1)).errors, [(Error::Signature, 0)]);
    let chain = peer(&[leaf().sign(&MIDDLE), middle().sign(&LEAF)]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(1)).errors, [(Error::Signature, 1)]);
}

#[test]
fn a_root_of_the_same_name_is_not_the_root() {
    let mimic = Draft::new("CN=root", "CN=root", &LEAF)
        .with(Extension::basic(true, None).critical())
        .sign(&LEAF);
    let errors = store(&[&root()]).verify(&peer(std::slice::from_ref(&mimic)), &client(1)).errors;
    assert_eq!(errors, [(Error::SelfSigned, 0)]);
    // The trusted one is taken before it.
    let chain = peer(&[leaf().sign(&MIDDLE), middle().sign(&ROOT), mimic]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(1)).errors, []);
}

#[test]
fn times() {
    let valid = |draft: Draft, begin: &str, end: &str| Draft {
        validity: (begin.to_owned(), end.to_owned()),
        ..draft
    };
    let (begin, end) = ("200101000000Z", "400101000000Z");
    let at = |now| three(&leaf(), &middle(), &root(), Rules { now, ..client(1) });
    assert_eq!(at(1_577_836_800), []);
    let early: Errors = (0..3).rev().map(|i| (Error::NotYetValid, i)).collect();
    assert_eq!(at(1_577_836_799), early);
    assert_eq!(at(2_208_988_799), []);
    let late: Errors = (0..3).rev().map(|i| (Error::Expired, i)).collect();
    assert_eq!(at(2_208_988_800), late);
    let past = "210101000000Z";
    assert_eq!(with_leaf(&valid(leaf(), begin, past), Purpose::Client), [(Error::Expired, 0)]);
    assert_eq!(with_middle(&valid(middle(), begin, past)), [(Error::Expired, 1)]);
    assert_eq!(with_root(&valid(root(), begin, past)), [(Error::Expired, 2)]);
    let future = "20390101000000Z";
    assert_eq!(with_root(&valid(root(), future, end)), [(Error::NotYetValid, 2)]);
    assert_eq!(with_root(&valid(root(), "2001010000Z", end)), [(Error::NotBeforeField, 2)]);
    assert_eq!(with_root(&valid(root(), begin, "400101000000+0000")), [(Error::NotAfterField, 2)]);
}

#[test]
fn of_several_issuers_the_first_valid_one_is_taken() {
    let past = |draft: Draft, end: &str| Draft {
        validity: ("190101000000Z".to_owned(), end.to_owned()),
        ..draft
    };
    let chain = peer(&[
        leaf().sign(&MIDDLE),
        past(middle(), "220101000000Z").sign(&ROOT),
        past(middle(), "230101000000Z").sign(&ROOT),
        middle().sign(&ROOT),
    ]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(1)).errors, []);
    let verdict = store(&[&root()]).verify(&chain[..3], &client(1));
    assert_eq!(verdict.errors, [(Error::Expired, 1)]);
    assert_eq!(*verdict.chain[1], *chain[2], "the latest end");
    let old = past(root(), "220101000000Z");
    assert_eq!(store(&[&old, &root()]).verify(&chain, &client(1)).errors, []);
}

#[test]
fn authorities() {
    let bare = |name, issuer, key| Draft::new(name, issuer, key);
    let no = [(Error::InvalidCa, 1), (Error::Purpose, 1)];
    assert_eq!(with_middle(&bare("CN=middle", "CN=root", &MIDDLE)), no, "no basic constraints");
    let user = bare("CN=middle", "CN=root", &MIDDLE).with(Extension::basic(false, None));
    assert_eq!(with_middle(&user), no);
    let old = Draft { version: 1, ..bare("CN=middle", "CN=root", &MIDDLE) };
    assert_eq!(with_middle(&old), no);
    // The key usage alone makes a root of it, no intermediate.
    let by_usage = usage(bare("CN=middle", "CN=root", &MIDDLE), 0x04);
    assert_eq!(with_middle(&by_usage), [(Error::InvalidCa, 1)]);
    assert_eq!(with_root(&usage(bare("CN=root", "CN=root", &ROOT), 0x04)), []);
    assert_eq!(with_root(&Draft { version: 1, ..bare("CN=root", "CN=root", &ROOT) }), []);
    let no_root = [(Error::InvalidCa, 2), (Error::Purpose, 2)];
    assert_eq!(with_root(&bare("CN=root", "CN=root", &ROOT)), no_root, "version 3 without any");
    // Netscape's type
    let typed = |bits| {
        let kind = testkit::certificates::der::named_bits(bits);
        bare("CN=root", "CN=root", &ROOT).with(Extension::new("2.16.840.1.113730.1.1", kind))
    };
    assert_eq!(with_root(&typed(0x04)), []);
    assert_eq!(with_root(&typed(0x02)), [(Error::Purpose, 2)], "an authority for mail");
    assert_eq!(with_root(&typed(0x80)), no_root);
    let signs_lists = usage(middle(), 0x02);
    assert_eq!(
        with_middle(&signs_lists),
        [(Error::InvalidCa, 1), (Error::Purpose, 1), (Error::NoCertSign, 1)]
    );
    assert_eq!(with_middle(&usage(middle(), 0x04)), []);
    // An authority's certificate may stand at the end, too.
    let authority = leaf().with(Extension::basic(true, None));
    assert_eq!(with_leaf(&authority, Purpose::Client), []);
}

#[test]
fn purposes() {
    use Purpose::{Client, Server};
    let extended = |draft: Draft, oids: &[&str]| draft.with(Extension::extended(oids));
    let wrong = [(Error::Purpose, 0)];
    assert_eq!(with_leaf(&extended(leaf(), &[CLIENT]), Client), []);
    assert_eq!(with_leaf(&extended(leaf(), &[CLIENT]), Server), wrong);
    assert_eq!(with_leaf(&extended(leaf(), &[SERVER]), Client), wrong);
    assert_eq!(with_leaf(&extended(leaf(), &[SERVER]), Server), []);
    assert_eq!(with_leaf(&extended(leaf(), &["2.5.29.37.0"]), Client), wrong, "any");
    assert_eq!(with_leaf(&extended(leaf(), &["1.3.6.1.4.1.311.10.3.3"]), Server), [], "gated");
    assert_eq!(with_leaf(&extended(leaf(), &["2.16.840.1.113730.4.1"]), Server), []);
    assert_eq!(with_leaf(&extended(leaf(), &["2.16.840.1.113730.4.1"]), Client), wrong);
    assert_eq!(with_middle(&extended(middle(), &[SERVER])), [(Error::Purpose, 1)]);
    for (bits, as_client, as_server) in [
        (0x80, true, true),
        (0x08, true, true),
        (0x20, false, true),
        (0x06, false, false),
        (0x8000, false, false),
    ] {
        let draft = usage(leaf(), bits);
        assert_eq!(with_leaf(&draft, Client).is_empty(), as_client, "{bits:x}");
        assert_eq!(with_leaf(&draft, Server).is_empty(), as_server, "{bits:x}");
    }
    let typed = |bits| {
        let kind = testkit::certificates::der::named_bits(bits);
        leaf().with(Extension::new("2.16.840.1.113730.1.1", kind))
    };
    assert_eq!(with_leaf(&typed(0x80), Client), []);
    assert_eq!(with_leaf(&typed(0x80), Server), wrong);
    assert_eq!(with_leaf(&typed(0x40), Server), []);
}

#[test]
fn path_lengths() {
    let limited = |draft: Draft, n| Draft {
        extensions: vec![Extension::basic(true, Some(n)).critical()],
        ..draft
    };
    assert_eq!(with_middle(&limited(middle(), 0)), []);
    assert_eq!(with_root(&limited(root(), 1)), []);
    assert_eq!(with_root(&limited(root(), 0)), [(Error::PathLength, 2)]);
    // An authority that issued for itself does not count.
    let own = Draft::new("CN=middle", "CN=middle", &LEAF)
        .with(Extension::basic(true, None))
        .with(Extension::authority_key_id(b"old"))
        .with(Extension::subject_key_id(b"new"));
    let old = limited(middle(), 0).with(Extension::subject_key_id(b"old"));
    let leaf = leaf().with(Extension::authority_key_id(b"new"));
    let chain = peer(&[leaf.sign(&LEAF), own.sign(&MIDDLE), old.sign(&ROOT)]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(2)).errors, []);
}

#[test]
fn key_identifiers_choose_the_issuer() {
    let id = Extension::authority_key_id;
    let named = |id: &[u8]| middle().with(Extension::subject_key_id(id));
    let none = [(Error::NoLocalIssuer, 0), (Error::LeafSignature, 0)];
    assert_eq!(three(&leaf().with(id(b"a")), &named(b"a"), &root(), client(1)), []);
    assert_eq!(three(&leaf().with(id(b"a")), &named(b"b"), &root(), client(1)), none);
    assert_eq!(three(&leaf().with(id(b"a")), &middle(), &root(), client(1)), []);
    let chain = peer(&[
        leaf().with(id(b"b")).sign(&MIDDLE),
        named(b"a").sign(&ROOT),
        named(b"b").sign(&ROOT),
    ]);
    assert_eq!(store(&[&root()]).verify(&chain, &client(1)).errors, []);
}

#[test]
fn odd_extensions() {
    let unknown = Extension::new("1.2.3.4", vec![5, 0]);
    let leaf_with = |extension| with_leaf(&leaf().with(extension), Purpose::Client);
    assert_eq!(leaf_with(unknown.clone()), []);
    assert_eq!(leaf_with(unknown.clone().critical()), [(Error::CriticalExtension, 0)]);
    assert_eq!(with_root(&root().with(unknown.critical())), [(Error::CriticalExtension, 2)]);
    // Policies are understood as far as nobody asks for one.
    let policies = Extension::new("2.5.29.32", vec![0x30, 0]).critical();
    assert_eq!(leaf_with(policies), []);
    let resources = Extension::new("1.3.6.1.5.5.7.1.7", vec![0x30, 0]);
    assert_eq!(leaf_with(resources), [(Error::UnnestedResource, 0)]);
    // A malformed one makes the certificate nobody's issuer, and issued by nobody.
    let malformed = Extension::new("2.5.29.17", vec![0x30]);
    let none = [(Error::NoLocalIssuer, 0), (Error::LeafSignature, 0)];
    assert_eq!(leaf_with(malformed.clone()), none);
    assert_eq!(with_middle(&middle().with(malformed)), none);
}

/// Never accepted; the last error is not one that `optional_no_ca` lets pass, even without a root.
#[test]
fn proxy_certificates() {
    use testkit::certificates::der;
    let info = |length: &[u8]| {
        let policy = der::sequence(&[&der::oid("1.3.6.1.5.5.7.21.1")]);
        Extension::new("1.3.6.1.5.5.7.1.14", der::sequence(&[length, &policy])).critical()
    };
    let proxy = |subject, length| Draft::new(subject, "CN=leaf", &LEAF).with(info(length));
    let user = |draft: &Draft| draft.sign(&MIDDLE);
    let check = |first: &Draft, user: Vec<u8>| {
        let chain = peer(&[first.sign(&LEAF), user, middle().sign(&ROOT)]);
        store(&[&root()]).verify(&chain, &client(2)).errors
    };
    let never = (Error::ProxyCertificate, 0);
    assert_eq!(check(&proxy("CN=leaf/CN=proxy", &[]), user(&leaf())), [never]);
    let named = [never, (Error::ProxySubject, 0)];
    assert_eq!(check(&proxy("CN=proxy", &[]), user(&leaf())), named);
    assert_eq!(check(&proxy("CN=other/CN=proxy", &[]), user(&leaf())), named);
    assert_eq!(check(&proxy("CN=leaf/O=proxy", &[]), user(&leaf())), named);
    let sound = proxy("CN=leaf/CN=proxy", &[]);
    let authority = leaf().with(Extension::basic(true, None));
    assert_eq!(check(&sound, user(&authority)), [never, (Error::InvalidNonCa, 1)]);
    let silent = usage(leaf(), 0x20);
    let unsigned = [never, (Error::Purpose, 1), (Error::NoDigitalSignature, 1)];
    assert_eq!(check(&sound, user(&silent)), unsigned);
    // A proxy of a proxy that allows none below.
    let second = Draft::new("CN=leaf/CN=a/CN=b", "CN=leaf/CN=a", &LEAF).with(info(&[]));
    let first = proxy("CN=leaf/CN=a", &[2, 1, 0]).sign(&LEAF);
    let chain = peer(&[second.sign(&LEAF), first, user(&leaf()), middle().sign(&ROOT)]);
    let errors = store(&[&root()]).verify(&chain, &client(3)).errors;
    assert_eq!(errors, [never, (Error::ProxyCertificate, 1), (Error::ProxyPathLength, 1)]);

    let alone = proxy("CN=proxy", &[]).sign(&LEAF);
    let verdict = store(&[&root()]).verify(&peer(&[alone]), &client(1));
    assert_eq!(verdict.error(), Some(Error::ProxySubject));
}

#[test]
fn weak_keys_and_hashes() {
    use aws_lc_rs::signature as aws;
    use testkit::certificates::der;
    let modulus =
        der::sequence(&[&der::element(2, &[&[0u8][..], &[0xff; 128]].concat()), &[2, 3, 1, 0, 1]]);
    let rsa = der::sequence(&[&der::oid("1.2.840.113549.1.1.1"), &[5, 0]]);
    let spki = der::sequence(&[&rsa, &der::bits(&modulus)]);
    let weak = Draft { spki: spki.clone(), ..leaf() };
    assert_eq!(with_leaf(&weak, Purpose::Client), [(Error::LeafKeyTooSmall, 0)]);
    // Its key is unknown: OpenSSL gives up, here and without an issuer.
    let unknown = der::sequence(&[&der::oid("1.2.3"), &[5, 0]]);
    let unknown = der::sequence(&[&unknown, &der::bits(&[1])]);
    let unknown = Draft { spki: unknown, ..Draft::new("CN=leaf", "CN=root", &LEAF) };
    let errors = store(&[&root()]).verify(&peer(&[unknown.sign(&ROOT)]), &client(1)).errors;
    assert_eq!(errors, [(Error::LeafKeyTooSmall, 0), (Error::Unspecified, 0)]);
    let errors = Store::default().verify(&peer(&[unknown.sign(&ROOT)]), &client(1)).errors;
    assert_eq!(errors.last(), Some(&(Error::Unspecified, 0)));

    let key = Key::generate(KeyKind::Rsa);
    let authority = Draft::new("CN=rsa", "CN=rsa", &key).with(Extension::basic(true, None));
    let signed = |last: u8, encoding| {
        let oid = format!("1.2.840.113549.1.1.{last}");
        let algorithm = der::sequence(&[&der::oid(&oid), &[5, 0]]);
        let part = Draft::new("CN=leaf", "CN=rsa", &LEAF).to_be_signed(&algorithm);
        let signature = key.sign_rsa(encoding, &part).unwrap();
        let leaf = der::sequence(&[&part, &algorithm, &der::bits(&signature)]);
        let mut store = Store::default();
        store.add(parse(&authority.sign(&key)));
        store.verify(&peer(&[leaf]), &client(1)).errors
    };
    assert_eq!(signed(11, &aws::RSA_PKCS1_SHA256), []);
    assert_eq!(signed(5, &aws::RSA_PKCS1_SHA256)[0], (Error::WeakSignature, 0), "SHA-1");
    assert_eq!(signed(4, &aws::RSA_PKCS1_SHA256)[0], (Error::WeakSignature, 0), "MD5");
}

#[test]
fn security_levels() {
    let check = |level| {
        let mut store = store(&[&root()]);
        store.set_security_level(level);
        let direct = Draft::new("CN=leaf", "CN=root", &LEAF).sign(&ROOT);
        store.verify(&peer(&[direct]), &client(1)).errors
    };
    // P-256 with SHA-256: 128 bits. Once noted, the error of the leaf comes again at the end of
    // a chain without a root only.
    (0..=3).for_each(|level| assert_eq!(check(level), [], "{level}"));
    let weak =
        [(Error::LeafKeyTooSmall, 0), (Error::WeakSignature, 0), (Error::IssuerKeyTooSmall, 1)];
    (4..=9).for_each(|level| assert_eq!(check(level), weak, "{level}"));
}

/// Certificates that issue for one another in a circle end at the depth.
#[test]
fn circles_end() {
    let mut store = Store::default();
    let pair = |name: &str, issuer: &str, key: &Key, by: &Key| {
        Draft::new(name, issuer, key).with(Extension::basic(true, None)).sign(by)
    };
    let other = Key::generate(KeyKind::P384);
    store.add(parse(&pair("CN=middle", "CN=x", &MIDDLE, &other)));
    store.add(parse(&pair("CN=x", "CN=middle", &other, &MIDDLE)));
    let chain = peer(&[leaf().sign(&MIDDLE)]);
    let verdict = store.verify(&chain, &client(u32::MAX));
    assert_eq!(verdict.chain.len(), DEPTH_MAX as usize + 2);
    assert_eq!(verdict.errors()[0].0, Error::ChainTooLong);
    assert_eq!(store.verify(&chain, &client(2)).chain.len(), 4);
}

/// A store with the root and OpenSSL's settings of it.
fn store_with(certificate: &[u8], settings: &[u8]) -> Store {
    use testkit::certificates::der::pem;
    let text = pem("TRUSTED CERTIFICATE", &[certificate, settings].concat());
    let mut bundle = crate::x509::pem::read(text.as_bytes()).unwrap();
    let mut store = Store::default();
    store.add_with(bundle.certificates.remove(0), bundle.settings.remove(0).1);
    store
}

#[test]
fn settings_of_trust_are_openssl_s() {
    use testkit::certificates::der::{element, oid, sequence};
    let (client_auth, server_auth) = (oid("1.3.6.1.5.5.7.3.2"), oid("1.3.6.1.5.5.7.3.1"));
    let any = oid("2.5.29.37.0");
    let trusting = |usage: &[u8]| sequence(&[&sequence(&[usage])]);
    let rejecting = |usage: &[u8]| sequence(&[&element(0xa0, usage)]);
    let chain = peer(&[leaf().sign(&MIDDLE), middle().sign(&ROOT)]);
    let rules = client(5);
    let of_root =
        |settings: &[u8]| store_with(&root().sign(&ROOT), settings).verify(&chain, &rules).errors;
    for settings in [&b""[..], &sequence(&[]), &trusting(&client_auth), &trusting(&any)] {
        assert_eq!(of_root(settings), []);
    }
    assert_eq!(of_root(&rejecting(&server_auth)), []);
    let rejected = [(Error::Rejected, 2), (Error::Purpose, 2)];
    for settings in [rejecting(&client_auth), rejecting(&any), trusting(&server_auth)] {
        assert_eq!(of_root(&settings), rejected);
    }
    // One that is trusted by its settings needs no root above it.
    let of_middle =
        |settings: &[u8]| store_with(&middle().sign(&ROOT), settings).verify(&chain, &rules).errors;
    assert_eq!(of_middle(b""), [(Error::NoIssuer, 1)]);
    assert_eq!(of_middle(&trusting(&client_auth)), []);
    let rejected = [(Error::Rejected, 1), (Error::Purpose, 1)];
    assert_eq!(of_middle(&rejecting(&client_auth)), rejected);
}
