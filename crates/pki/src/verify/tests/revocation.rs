use super::*;
use testkit::certificates::{ListDraft, der};

fn list(der: &[u8]) -> RevocationList {
    RevocationList::parse(Bytes::copy_from_slice(der)).unwrap()
}

/// A certificate of the root's, checked with these lists by the root's key.
fn check(leaf: &Draft, lists: &[&ListDraft]) -> Errors {
    let mut store = store(&[&root()]);
    store.check_revocation();
    lists.iter().for_each(|draft| store.add_list(list(&draft.sign(&ROOT))));
    store.verify(&peer(&[leaf.sign(&ROOT)]), &client(1)).errors
}

fn direct() -> Draft {
    Draft { serial: vec![7], ..Draft::new("CN=leaf", "CN=root", &LEAF) }
}

fn own() -> ListDraft {
    ListDraft::new("CN=root")
}

fn with(extension: Extension) -> ListDraft {
    ListDraft { extensions: vec![extension], ..own() }
}

const MISSING: [(Error, usize); 2] = [(Error::NoRevocationList, 0), (Error::NoRevocationList, 1)];

#[test]
fn every_certificate_has_a_list() {
    assert_eq!(check(&direct(), &[]), MISSING);
    assert_eq!(check(&direct(), &[&own()]), []);
    assert_eq!(check(&direct(), &[&ListDraft::new("CN=other")]), MISSING);
    // The list of the issuer does not tell about the root.
    let mut store = store(&[&root()]);
    store.check_revocation();
    store.add_list(list(&ListDraft::new("CN=middle").sign(&MIDDLE)));
    let chain = peer(&[leaf().sign(&MIDDLE), middle().sign(&ROOT)]);
    let missing: Errors = vec![(Error::NoRevocationList, 1), (Error::NoRevocationList, 2)];
    assert_eq!(store.verify(&chain, &client(1)).errors, missing);
}

#[test]
fn revoked_ones() {
    assert_eq!(check(&direct(), &[&own().revoking(&[8]).revoking(&[7])]), [(Error::Revoked, 0)]);
    assert_eq!(check(&direct(), &[&own().revoking(&[1])]), [(Error::Revoked, 1)], "the root");
    // Of two lists the newer one counts.
    let newer = ListDraft { this_update: "210101000000Z".to_owned(), ..own() };
    assert_eq!(check(&direct(), &[&own().revoking(&[7]), &newer]), []);
    assert_eq!(check(&direct(), &[&own(), &newer.revoking(&[7])]), [(Error::Revoked, 0)]);
}

#[test]
fn times() {
    let both = |error| [(error, 0), (error, 1)];
    let past = ListDraft { next_update: Some("210101000000Z".to_owned()), ..own() };
    assert_eq!(check(&direct(), &[&past]), both(Error::ListExpired));
    let future = ListDraft { this_update: "390101000000Z".to_owned(), ..own() };
    assert_eq!(check(&direct(), &[&future]), both(Error::ListNotYetValid));
    assert_eq!(check(&direct(), &[&past, &own(), &future]), [], "the valid one is taken");
    let endless = ListDraft { next_update: None, ..own() };
    assert_eq!(check(&direct(), &[&endless]), []);
    let bad = ListDraft { this_update: "2001010000Z".to_owned(), ..own() };
    assert_eq!(check(&direct(), &[&bad]), both(Error::LastUpdateField));
    let bad = ListDraft { next_update: Some("4001010000Z".to_owned()), ..own() };
    assert_eq!(check(&direct(), &[&bad]), both(Error::NextUpdateField));
}

#[test]
fn signatures() {
    let mut store = store(&[&root()]);
    store.check_revocation();
    store.add_list(list(&own().sign(&LEAF)));
    let errors = store.verify(&peer(&[direct().sign(&ROOT)]), &client(1)).errors;
    assert_eq!(errors, [(Error::ListSignature, 0), (Error::ListSignature, 1)]);

    let silent = |bits| {
        let mut store = self::store(&[&usage(root(), bits)]);
        store.check_revocation();
        store.add_list(list(&own().sign(&ROOT)));
        store.verify(&peer(&[direct().sign(&ROOT)]), &client(1)).errors
    };
    assert_eq!(silent(0x06), []);
    assert_eq!(silent(0x04), [(Error::NoCrlSign, 0), (Error::NoCrlSign, 1)]);
}

/// Without an issuer, the certificate's own key is held against the list, as in OpenSSL.
#[test]
fn no_issuer_no_list() {
    let mut store = Store::default();
    store.check_revocation();
    store.add_list(list(&own().sign(&ROOT)));
    let errors = store.verify(&peer(&[direct().sign(&ROOT)]), &client(1)).errors;
    let refused = [Error::NoLocalIssuer, Error::ListSignature, Error::LeafSignature];
    assert_eq!(errors, refused.map(|error| (error, 0)));
}

/// The answer about a list's signature is kept for one key alone.
#[test]
fn the_kept_answer_is_of_one_key() {
    let one = list(&own().sign(&ROOT));
    let (root, other) = (parse(&root().sign(&ROOT)), parse(&leaf().sign(&MIDDLE)));
    for _ in 0..2 {
        assert!(!one.is_signed_by(other.public_key()));
        assert!(one.is_signed_by(root.public_key()));
    }
}

#[test]
fn scopes() {
    let point = |parts: &[&[u8]]| Extension::new("2.5.29.28", der::sequence(parts)).critical();
    let place = |uri: &[u8]| {
        let names = der::element(0xa0, &der::element(0x86, uri));
        der::element(0xa0, &names)
    };
    let users = with(point(&[&[0x81, 1, 0xff]]));
    let authorities = with(point(&[&[0x82, 1, 0xff]]));
    let out = |i| vec![(Error::ListScope, i), (Error::NoRevocationList, i)];
    assert_eq!(check(&direct(), &[&users]), out(1));
    assert_eq!(check(&direct(), &[&authorities]), out(0));
    assert_eq!(check(&direct(), &[&users, &authorities]), []);
    let attributes = with(point(&[&[0x85, 1, 0xff]]));
    assert_eq!(check(&direct(), &[&attributes]), [out(0), out(1)].concat());

    // A list of a place is for the certificates that name the place.
    let placed = with(point(&[&place(b"http://a/")]));
    assert_eq!(check(&direct(), &[&placed]), [out(0), out(1)].concat());
    let names = |uri: &[u8]| {
        let entry = der::sequence(&[&place(uri)]);
        direct().with(Extension::new("2.5.29.31", der::sequence(&[&entry])))
    };
    assert_eq!(check(&names(b"http://a/"), &[&placed]), out(1));
    assert_eq!(check(&names(b"http://b/"), &[&placed]), [out(0), out(1)].concat());
    assert_eq!(check(&names(b"http://b/"), &[&own()]), []);
    // For some reasons only, by a point of the certificate: the rest is missing.
    let entry = der::sequence(&[&place(b"http://a/"), &der::element(0x81, &[1, 0x02])]);
    let some = direct().with(Extension::new("2.5.29.31", der::sequence(&[&entry])));
    assert_eq!(check(&some, &[&own()]), [(Error::NoRevocationList, 0)]);
}

#[test]
fn lists_that_are_not_understood() {
    let indirect = Extension::new("2.5.29.28", der::sequence(&[&[0x84, 1, 0xff]])).critical();
    assert_eq!(check(&direct(), &[&with(indirect)]), MISSING);
    let unknown = with(Extension::new("1.2.3", vec![5, 0]).critical());
    let refused = [(Error::CriticalListExtension, 0), (Error::CriticalListExtension, 1)];
    assert_eq!(check(&direct(), &[&unknown]), refused);
    assert_eq!(check(&direct(), &[&unknown, &own()]), []);
}

#[test]
fn the_key_identifier_of_a_list() {
    let wrong = with(Extension::authority_key_id(b"other"));
    let named = root().with(Extension::subject_key_id(b"own"));
    let mut store = store(&[&named]);
    store.check_revocation();
    store.add_list(list(&wrong.sign(&ROOT)));
    let errors = store.verify(&peer(&[direct().sign(&ROOT)]), &client(1)).errors;
    assert_eq!(errors, MISSING);
    store.add_list(list(&with(Extension::authority_key_id(b"own")).sign(&ROOT)));
    assert_eq!(store.verify(&peer(&[direct().sign(&ROOT)]), &client(1)).errors, []);
}
