//! Revocation lists: another parser sees the same entries, and no list counts but one that was
//! signed.

use std::sync::Arc;

use bytes::Bytes;
use pki::verify::Purpose;
use pki::x509::RevocationList;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::tls_certificate::{certificates, store, verify};

const REMOVED: u8 = 8;

fn check(list: &RevocationList) {
    let _ = (list.issuer().rfc2253(), list.this_update().to_string());
    let _ = list.next_update().map(|time| time.to_string());
    let Ok((_, other)) = CertificateRevocationList::from_der(list.der()) else { return };
    assert_eq!(other.issuer().as_raw(), list.issuer().der());
    for entry in other.iter_revoked_certificates() {
        let removed = entry.reason_code().is_some_and(|(_, code)| code.0 == REMOVED);
        assert!(removed || list.revokes(entry.raw_serial()), "an entry is lost");
    }
}

/// Reads a list, and verifies a chain with it.
pub fn run(data: &[u8]) {
    let Ok(list) = RevocationList::parse(Bytes::copy_from_slice(data)) else { return };
    check(&list);
    let signed: [&'static [u8]; 2] =
        [include_bytes!("../seeds/tls_crl/list"), include_bytes!("../seeds/tls_crl/scoped")];
    let leaf = certificates(include_bytes!("../seeds/tls_certificate/leaf"));
    let mut store = store();
    let root = store.certificates()[0].clone();
    let is_signed = list.is_signed_by(root.public_key());
    let known = signed.iter().any(|one| {
        let one = RevocationList::parse(Bytes::from_static(one)).expect("a seed");
        one.issuer().der() == list.issuer().der()
            && [&[5u8][..], &[0, 0x99], &[6]].iter().all(|n| one.revokes(n) == list.revokes(n))
    });
    assert!(!is_signed || known, "nobody signed this");
    store.add_list(list);
    store.check_revocation();
    let peer: Vec<_> = leaf.into_iter().map(Arc::new).collect();
    let accepted = verify(&store, &peer, Purpose::Client).error().is_none();
    assert!(!accepted || is_signed, "accepted with a list that nobody signed");
}
