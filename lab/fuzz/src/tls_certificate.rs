//! Certificates, one after the other: another parser sees the same fields, and no chain is accepted
//! but with certificates that were signed.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use pki::issue::covers;
use pki::verify::{Purpose, Rules, Store, Verdict, check_host};
use pki::x509::Certificate;
use proto::acme::{Identifier, certificate_id};

/// The root, whose key nobody has.
static ROOT: &[u8] = include_bytes!("../seeds/tls_certificate/root");

/// The certificates and lists that the root's key and those below signed.
static SIGNED: LazyLock<Vec<Certificate>> = LazyLock::new(|| {
    let seeds: [&'static [u8]; 3] = [
        ROOT,
        include_bytes!("../seeds/tls_certificate/chain"),
        include_bytes!("../seeds/tls_certificate/leaf"),
    ];
    seeds.into_iter().flat_map(certificates).collect()
});

/// A store that trusts the root.
pub fn store() -> Store {
    let mut store = Store::default();
    certificates(ROOT).into_iter().for_each(|root| store.add(root));
    store
}

/// The certificates at the begin of the data.
pub fn certificates(mut data: &[u8]) -> Vec<Certificate> {
    let mut all = Vec::new();
    while let Some(length) = element(data) {
        let (one, rest) = data.split_at(length);
        data = rest;
        all.extend(Certificate::parse(Bytes::copy_from_slice(one)));
    }
    all
}

/// The length of a SEQUENCE with a length of two bytes, or of one.
fn element(data: &[u8]) -> Option<usize> {
    let length = match data {
        [0x30, 0x82, a, b, ..] => 4 + usize::from(u16::from_be_bytes([*a, *b])),
        [0x30, 0x81, a, ..] => 3 + usize::from(*a),
        [0x30, a @ 0..=0x7f, ..] => 2 + usize::from(*a),
        _ => return None,
    };
    (data.len() >= length).then_some(length)
}

/// Verifies at a time at which the seeds are valid.
pub fn verify(store: &Store, peer: &[Arc<Certificate>], purpose: Purpose) -> Verdict {
    store.verify(peer, &Rules { purpose, depth: 3, now: 1_800_000_000 })
}

fn check(certificate: &Certificate) {
    let printed = [
        certificate.subject().rfc2253(),
        certificate.issuer().rfc2253(),
        certificate.subject().one_line(),
        certificate.serial_text(),
        certificate.fingerprint(),
        certificate.not_before().to_string(),
        certificate.not_after().to_string(),
    ];
    for text in &printed {
        assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text:?}");
    }
    assert_eq!(certificate.fingerprint().len(), 40);
    assert!(certificate.days_left(i64::MAX).is_none_or(|days| days == 0));
    assert!(certificate.pem_escaped().len() > certificate.pem().len());
    check_host(certificate, b"a.leaf.example");
    let _ = (certificate.must_staple(), certificate.ocsp_responders().count());
    of_an_authority(certificate);
    let again = pki::x509::pem::read(&certificate.pem()).expect("written here");
    assert_eq!(again.certificates[0].der(), certificate.der());

    // The other parser refuses other things; what both read, they read alike.
    let Ok((_, other)) = x509_parser::parse_x509_certificate(certificate.der()) else { return };
    assert_eq!(other.raw_serial(), &certificate.serial()[..]);
    assert_eq!(other.subject().as_raw(), certificate.subject().der());
    assert_eq!(other.issuer().as_raw(), certificate.issuer().der());
    assert_eq!(other.public_key().raw, certificate.public_key().der());
    assert_eq!(other.version().0 + 1, u32::from(certificate.version()));
    let begin = other.validity().not_before.timestamp();
    assert!(certificate.not_before().unix().is_none_or(|time| time == begin));
}

/// A certificate as an order (ACME) asks for it: its names are those of the order, and the
/// identifier for renewal information is fit for a URL.
fn of_an_authority(certificate: &Certificate) {
    for name in certificate.dns_names() {
        if let Ok(names) = Identifier::parse(name)
            && let [one] = &names[..]
            && one.value().as_bytes().eq_ignore_ascii_case(name)
        {
            assert!(covers(certificate, &names), "{one:?}");
        }
    }
    let other = Identifier::Dns("not.among.its.names.invalid".to_owned());
    let has_other = certificate.dns_names().any(|name| name == other.value().as_bytes());
    assert_eq!(covers(certificate, &[other]), has_other);
    if let Some(authority) = certificate.authority_key_id() {
        let id = certificate_id(authority, certificate.serial());
        let is_fit = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        assert!(id.bytes().all(is_fit), "{id}");
    }
}

/// Reads certificates, and verifies them as a peer's chain.
pub fn run(data: &[u8]) {
    let peer: Vec<_> = certificates(data).into_iter().map(Arc::new).collect();
    peer.iter().for_each(|certificate| check(certificate));
    for purpose in [Purpose::Client, Purpose::Server] {
        let verdict = verify(&store(), &peer, purpose);
        assert!(verdict.chain.len() <= 5);
        if verdict.error().is_none() {
            // Issuer, serial number, key and names of what was signed; bits of the signature may
            // be others, as ECDSA has several for each message.
            let leaf = &peer[0];
            let signed = SIGNED.iter().any(|one| {
                one.serial() == leaf.serial()
                    && one.public_key().der() == leaf.public_key().der()
                    && one.subject().der() == leaf.subject().der()
                    && one.dns_names().eq(leaf.dns_names())
                    && one.not_after() == leaf.not_after()
            });
            assert!(signed, "nobody signed this");
        }
    }
}
