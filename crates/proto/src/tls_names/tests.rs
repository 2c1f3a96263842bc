use super::*;
use crate::tls_hello::{Verdict, parse};

fn all(input: &[u8]) -> [String; 4] {
    let Verdict::Hello(hello) = parse(input) else { panic!("no hello") };
    [write_ciphers, write_curves, write_sigalgs, write_alpn].map(|write| {
        let mut out = Vec::new();
        write(&hello, &mut out);
        String::from_utf8(out).unwrap()
    })
}

#[test]
fn tables_are_sorted() {
    for table in [ciphers::SUITES, GROUPS, SIGNATURE_ALGORITHMS] {
        assert!(table.windows(2).all(|two| two[0].0 < two[1].0));
    }
    assert_eq!(cipher_suite(0x1302), Some("TLS_AES_256_GCM_SHA384"));
    assert_eq!(cipher_suite(0xc02f), Some("ECDHE-RSA-AES128-GCM-SHA256"));
    assert_eq!(cipher_suite(0x00ff), Some("TLS_EMPTY_RENEGOTIATION_INFO_SCSV"));
    assert_eq!((group(23), group(29)), (Some("prime256v1"), Some("X25519")));
    assert_eq!((group(0x11ec), group(0x0a0a)), (Some("X25519MLKEM768"), None));
}

/// What nginx 1.22 with OpenSSL 3.0 shows of the same client, but for `$ssl_sigalgs`, which it
/// lacks.
#[test]
fn values_of_variables() {
    let [ciphers, curves, sigalgs, alpn] =
        all(include_bytes!("../../../../lab/fuzz/seeds/tls_hello/openssl_tls12"));
    assert_eq!(ciphers, CIPHERS_OF_OPENSSL);
    assert_eq!(curves, "X25519:prime256v1:X448:secp521r1:secp384r1");
    assert!(sigalgs.starts_with("ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:"), "{sigalgs}");
    assert_eq!(alpn, "");
    let [ciphers, curves, sigalgs, alpn] =
        all(include_bytes!("../../../../lab/fuzz/seeds/tls_hello/grease"));
    assert_eq!(ciphers, "0x0a0a:TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256:0xfefe");
    assert_eq!(curves, "0x2a2a:X25519MLKEM768:X25519:0x6399");
    assert_eq!(sigalgs, "ecdsa_secp256r1_sha256:0x3a3a:mldsa65");
    assert_eq!(alpn, "h2,http/1.1");
}

const CIPHERS_OF_OPENSSL: &str = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
    DHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
    DHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
    DHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384:\
    DHE-RSA-AES256-SHA256:ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256:\
    DHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA:DHE-RSA-AES256-SHA:\
    ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA:DHE-RSA-AES128-SHA:AES256-GCM-SHA384:\
    AES128-GCM-SHA256:AES256-SHA256:AES128-SHA256:AES256-SHA:AES128-SHA:\
    TLS_EMPTY_RENEGOTIATION_INFO_SCSV";
