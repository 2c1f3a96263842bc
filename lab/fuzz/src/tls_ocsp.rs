//! Responses of OCSP responders.

use std::sync::LazyLock;

use bytes::Bytes;
use pki::ocsp::{Answer, Error, Query, Signers, response_of_file};
use pki::x509::Certificate;
use testkit::certificates::{Draft, Key, KeyKind, der, signed};

const NOW: i64 = 1_800_000_000;
const SKEW: i64 = 300;

/// An issuer, the question for a certificate of it, and a response of the issuer.
struct Setting {
    key: Key,
    query: Query,
    response: Bytes,
    answer: Answer,
}

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let key = Key::generate(KeyKind::Ed25519);
    let issuer = Draft::new("CN=issuer", "CN=issuer", &key).sign(&key);
    let leaf = Draft::new("CN=leaf", "CN=issuer", &Key::generate(KeyKind::Ed25519)).sign(&key);
    let read = |der: Vec<u8>| Certificate::parse(der.into()).expect("a certificate");
    let query = Query::new(&read(leaf), &read(issuer));
    let data = include_bytes!("../seeds/tls_ocsp/data-good");
    let response = respond(&key, &query, &data[1..]);
    let answer = query.check(&response, Signers::Authorized, NOW).expect("the seed is right");
    Setting { key, query, response, answer }
});

/// A response over ResponseData in which 20 times 0xaa and 0xbb stand for the hashes of the
/// issuer's name and key.
fn respond(key: &Key, query: &Query, data: &[u8]) -> Bytes {
    let id = query.cache_key().expect("a short serial number");
    let mut data = data.to_vec();
    for (mark, hash) in [(0xaa, &id[..20]), (0xbb, &id[20..40])] {
        let mut from = 0;
        while let Some(at) = data[from..].windows(20).position(|w| w == [mark; 20]) {
            data[from + at..from + at + 20].copy_from_slice(hash);
            from += at + 20;
        }
    }
    let basic = signed(&data, key);
    let kind = der::oid("1.3.6.1.5.5.7.48.1.1");
    let body = der::sequence(&[&kind, &der::element(4, &basic)]);
    der::sequence(&[&der::element(10, &[0]), &der::element(0xa0, &body)]).into()
}

/// Nothing unsigned is believed, what is signed is believed within its times alone, and no change
/// of a response makes another answer of it.
pub fn run(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let Setting { key, query, response, answer } = &*SETTING;
    let check = |bytes: &Bytes, now| query.check(bytes, Signers::Authorized, now);
    match mode % 3 {
        0 => {
            let bytes = Bytes::copy_from_slice(data);
            assert!(check(&bytes, NOW).is_err(), "not signed by the issuer");
            let _ = query.check(&bytes, Signers::Any(&[]), NOW);
            if let Ok(first) = response_of_file(&bytes) {
                assert!(data.starts_with(&first));
                assert_eq!(response_of_file(&first).as_ref(), Ok(&first));
            }
        }
        1 => {
            let bytes = respond(key, query, data);
            assert_eq!(response_of_file(&bytes).as_ref(), Ok(&bytes));
            if let Ok(answer) = check(&bytes, NOW) {
                assert_eq!(query.check(&bytes, Signers::Any(&[]), NOW), Ok(answer));
                if let Some(next) = answer.next_update {
                    assert!(next >= NOW - SKEW);
                    assert_eq!(check(&bytes, next + SKEW), Ok(answer));
                    assert_eq!(check(&bytes, next + SKEW + 1), Err(Error::Expired));
                }
            }
        }
        _ => {
            let mut changed = response.to_vec();
            for edit in data.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % changed.len();
                changed[at] ^= edit[2];
            }
            if let Ok(other) = check(&changed.into(), NOW) {
                assert_eq!(other, *answer);
            }
            let cut = data.len().min(response.len() - 1);
            assert!(check(&response.slice(..cut), NOW).is_err());
        }
    }
}
