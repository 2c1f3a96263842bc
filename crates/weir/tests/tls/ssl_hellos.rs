//! Hellos that are refused before there is a session, and the alerts that tell why.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::tls::{self, Pair};
use testkit::certificates::KeyKind;
use testkit::{Driver, Site, Weir, built_binary, each_driver};

const HANDSHAKE: u8 = 22;

/// A server with TLS 1.2 and 1.3, and one with TLS 1.2 alone.
fn weir(driver: Driver) -> Weir {
    let site = Pair::own(KeyKind::P256, "a.example").on(Site::new(built_binary(), driver), "a");
    let server = |port: usize, rest: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT{port}% ssl; {rest} ssl_certificate a.pem;
            ssl_certificate_key a.key; }}\n"
        )
    };
    let servers = server(0, "") + &server(1, "ssl_protocols TLSv1.2;");
    let config = format!("error_log logs/error.log info; events {{}} http {{ {servers} }}");
    site.config(&config).start()
}

fn list(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// The record of a hello with these cipher suites and extensions.
fn hello(suites: &[u16], extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let suites: Vec<u8> = suites.iter().flat_map(|suite| suite.to_be_bytes()).collect();
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(number, data)| [number.to_be_bytes().to_vec(), list(data)].concat())
        .collect();
    let message =
        [&[3, 3][..], &[7; 32], &[0], &list(&suites), &[1, 0], &list(&extensions)].concat();
    let message = [&[1, 0][..], &list(&message)].concat();
    [&[HANDSHAKE, 3, 1][..], &list(&message)].concat()
}

const GROUPS: (u16, &[u8]) = (10, &[0, 4, 0, 0x1d, 0, 0x17]);
/// ECDSA with P-256 and SHA-256.
const SCHEMES: (u16, &[u8]) = (13, &[0, 2, 4, 3]);
const BOTH_VERSIONS: (u16, &[u8]) = (43, &[4, 3, 4, 3, 3]);
const TLS12_SUITE: u16 = 0xc02b;
const FALLBACK_SCSV: u16 = 0x5600;

fn key_share() -> Vec<u8> {
    [&[0, 36, 0, 0x1d, 0, 32][..], &[9; 32]].concat()
}

/// The first bytes that the server sends, up to the end of an alert.
fn answer(port: u16, hello: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(hello).unwrap();
    let mut bytes = [0; 7];
    socket.read_exact(&mut bytes).unwrap();
    bytes.to_vec()
}

fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

/// RFC 7507.
#[test]
fn a_fallback_that_need_not_be_is_refused() {
    each_driver(|driver| {
        let weir = weir(driver);
        let falls_back = hello(&[TLS12_SUITE, FALLBACK_SCSV], &[GROUPS, SCHEMES]);
        assert_eq!(answer(weir.port(0), &falls_back), alert(86));
        let mut higher = falls_back.clone();
        higher[9..11].copy_from_slice(&[3, 4]);
        assert_eq!(answer(weir.port(0), &higher), alert(86));
        weir.wait_for_log("error.log", "inappropriate fallback");
        // It is the best that this server has.
        assert_eq!(answer(weir.port(1), &falls_back)[0], HANDSHAKE);
        let all = hello(
            &[0x1301, TLS12_SUITE, FALLBACK_SCSV],
            &[GROUPS, SCHEMES, BOTH_VERSIONS, (51, &key_share())],
        );
        assert_eq!(answer(weir.port(0), &all)[0], HANDSHAKE);
    });
}

/// RFC 5746 section 3.6.
#[test]
fn a_first_handshake_renegotiates_nothing() {
    each_driver(|driver| {
        let weir = weir(driver);
        let with = |info: &[u8]| hello(&[TLS12_SUITE], &[GROUPS, SCHEMES, (0xff01, info)]);
        assert_eq!(answer(weir.port(0), &with(&[0]))[0], HANDSHAKE);
        for info in [&[2, 1, 2][..], &[], &[0, 0]] {
            assert_eq!(answer(weir.port(0), &with(info)), alert(40), "{info:?}");
        }
    });
}

/// Of the schemes of PKCS#1 none signs a handshake of TLS 1.3: no key exchange is begun.
#[test]
fn without_a_scheme_for_the_key_no_session_begins() {
    each_driver(|driver| {
        let weir = weir(driver);
        let with = |schemes: &[u8]| {
            let share = key_share();
            let extensions = [GROUPS, (13, schemes), BOTH_VERSIONS, (51, &share[..])];
            answer(weir.port(0), &hello(&[0x1301, TLS12_SUITE], &extensions))
        };
        assert_eq!(with(&[0, 4, 4, 1, 4, 3])[0], HANDSHAKE);
        for schemes in [&[0, 2, 4, 1][..], &[0, 2, 2, 3], &[0, 4, 8, 4, 5, 3]] {
            assert_eq!(with(schemes), alert(40), "{schemes:?}");
        }
    });
}

/// Whatever such a hello lacks that TLS 1.2 needs.
#[test]
fn a_hello_of_an_old_version_is_told_so() {
    each_driver(|driver| {
        let weir = weir(driver);
        for (number, versions) in [(2, None), (1, None), (3, Some(&[2, 3, 2][..]))] {
            let versions = versions.map(|versions| (43, versions));
            let mut old = hello(&[0xc009], &[&[GROUPS][..], versions.as_slice()].concat());
            old[9..11].copy_from_slice(&[3, number]);
            assert_eq!(answer(weir.port(0), &old), alert(70), "3.{number}");
            assert_eq!(answer(weir.port(1), &old), alert(70), "3.{number}");
        }
    });
}

/// RFC 8446 sections 9.2 and 4.2.8, where TLS 1.3 would be negotiated.
#[test]
fn a_hello_of_tls_1_3_has_the_extensions_it_needs() {
    each_driver(|driver| {
        let weir = weir(driver);
        let share = key_share();
        let all = [GROUPS, SCHEMES, BOTH_VERSIONS, (51, &share[..])];
        let without = |number: u16| {
            let some: Vec<_> = all.iter().filter(|one| one.0 != number).copied().collect();
            hello(&[0x1301, TLS12_SUITE], &some)
        };
        assert_eq!(answer(weir.port(0), &without(0))[0], HANDSHAKE);
        for number in [10, 13, 51] {
            assert_eq!(answer(weir.port(0), &without(number)), alert(109), "without {number}");
        }
        let other = [(10, &[0, 2, 0, 0x17][..]), SCHEMES, BOTH_VERSIONS, (51, &share[..])];
        let other = hello(&[0x1301, TLS12_SUITE], &other);
        assert_eq!(answer(weir.port(0), &other), alert(47), "a share of a group not in the list");
        // It is no business of TLS 1.2.
        assert_eq!(answer(weir.port(1), &without(51))[0], HANDSHAKE);
        assert_eq!(answer(weir.port(0), &without(43))[0], HANDSHAKE);
    });
}

#[test]
fn a_malformed_hello_gets_its_alert() {
    each_driver(|driver| {
        let weir = weir(driver);
        let good = hello(&[TLS12_SUITE], &[GROUPS, SCHEMES]);
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            bad
        };
        assert_eq!(answer(weir.port(0), &good)[0], HANDSHAKE);
        assert_eq!(answer(weir.port(0), &with(3, &[0x40, 1])), alert(22), "a long record");
        assert_eq!(answer(weir.port(0), &with(5, &[14])), alert(10), "another message");
        let twice = hello(&[TLS12_SUITE], &[GROUPS, SCHEMES, GROUPS]);
        assert_eq!(answer(weir.port(0), &twice), alert(47), "an extension that comes twice");
    });
}

/// All that the server sends for a hello and what follows, if it ends the connection.
fn all_for(port: u16, bytes: &[u8]) -> Vec<u8> {
    let (mut socket, mut all) = (tls::socket(port), Vec::new());
    socket.write_all(bytes).unwrap();
    socket.read_to_end(&mut all).unwrap();
    all
}

/// RFC 5246 section 6.2.1, RFC 8446 section 5: what stands in the place of the client's keys.
#[test]
fn a_record_that_may_not_be_gets_its_alert() {
    each_driver(|driver| {
        let weir = weir(driver);
        let hello = hello(&[TLS12_SUITE], &[GROUPS, SCHEMES]);
        for (record, description, what) in [
            (&[99, 3, 3, 0, 1, 0][..], 10, "a type that is none"),
            (&[20, 3, 3, 0, 1, 2], 10, "a change of nothing"),
            (&[20, 3, 3, 0, 2, 1, 1], 10, "two changes"),
            (&[22, 3, 3, 0, 0], 10, "an empty fragment"),
            (&[23, 3, 3, 0, 1, 0], 10, "data"),
            (&[22, 4, 0, 0, 1, 0], 70, "a version that is none"),
            (&[22, 3, 3, 0x50, 0], 22, "a long record"),
            (&[22, 3, 3, 0, 5, 16, 0, 0, 1, 9], 50, "keys that are none"),
        ] {
            // Both versions were on offer, or one alone.
            for port in [0, 1] {
                let sent = all_for(weir.port(port), &[&hello, record].concat());
                assert_eq!(sent[0], HANDSHAKE);
                assert!(
                    sent.ends_with(&alert(description)),
                    "{what}: {:?}",
                    sent.last_chunk::<7>()
                );
            }
        }
    });
}

/// The kernel resets a connection that is closed with bytes unread, and the client would lose the
/// alert.
#[test]
fn a_client_that_goes_on_sending_sees_the_alert() {
    each_driver(|driver| {
        let weir = weir(driver);
        let falls_back = hello(&[TLS12_SUITE, FALLBACK_SCSV], &[GROUPS, SCHEMES]);
        let no_hello = [&[HANDSHAKE, 3, 1, 0, 4, 14, 0, 0, 0][..], &[0; 8]].concat();
        for (begin, description) in [(falls_back, 86), (no_hello, 10)] {
            let mut socket = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
            socket.write_all(&begin).unwrap();
            for _ in 0..10 {
                socket.write_all(&[b'x'; 10_000]).unwrap();
            }
            let mut bytes = Vec::new();
            socket.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, alert(description));
        }
    });
}
