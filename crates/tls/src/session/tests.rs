use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};

use super::*;
use crate::certified::Certified;
use crate::{ClientOptions, ServerOptions, VerifyMode};

fn certified(algorithm: &'static rcgen::SignatureAlgorithm) -> Certified {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Certified::new(vec![certificate.der().to_vec()], &key.serialize_der()).unwrap()
}

fn server(change: impl FnOnce(&mut ServerOptions)) -> ServerConfig {
    let certificates = vec![certified(&PKCS_ECDSA_P256_SHA256)];
    let mut options = ServerOptions { certificates, ..ServerOptions::default() };
    change(&mut options);
    ServerConfig::new(options).unwrap()
}

fn client(change: impl FnOnce(&mut ClientOptions)) -> ClientConfig {
    let mut options = ClientOptions::default();
    change(&mut options);
    ClientConfig::new(options).unwrap()
}

/// One end of a connection in memory.
struct End {
    session: Session,
    input: Page,
    plain: Page,
    out: Chain,
}

impl End {
    fn new(session: Session) -> End {
        End { session, input: Page::new(), plain: Page::new(), out: Chain::new() }
    }

    fn receive(&mut self) -> Result<Received, Error> {
        self.session.receive(&mut self.input, &mut self.plain, &mut self.out)
    }

    fn say(&mut self, text: &[u8]) {
        let mut chain = Chain::new();
        chain.write(text);
        while !chain.is_empty() {
            let out = self.out.writer_for(32 * 1024);
            self.session.seal(&mut chain, 16 * 1024, out).unwrap();
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.out.pop_front() {
            bytes.extend_from_slice(piece.memory().unwrap());
        }
        bytes
    }
}

/// Brings the bytes of `from` to `to` in pieces of `step`.
fn carry(from: &mut End, to: &mut End, step: usize) -> Result<(), Error> {
    for piece in from.bytes().chunks(step) {
        to.input.extend_from_slice(piece);
        while to.receive()? == Received::Full {
            to.plain.reserve(2 * crate::MAX_PLAIN);
        }
    }
    Ok(())
}

fn shaken(server: &ServerConfig, client: &ClientConfig, step: usize) -> (End, End) {
    let mut near = End::new(Session::server(server).unwrap());
    let mut far = End::new(Session::client(client, b"a.example").unwrap());
    far.receive().unwrap();
    for _ in 0..4 {
        carry(&mut far, &mut near, step).unwrap();
        carry(&mut near, &mut far, step).unwrap();
    }
    assert!(!near.session.is_handshaking() && !far.session.is_handshaking());
    (near, far)
}

const VERSIONS: [u16; 2] = [0x0303, 0x0304];

#[test]
fn data_goes_both_ways_however_it_is_cut() {
    for version in VERSIONS {
        for step in [1, 7, 1000, 1 << 20] {
            let config = server(|o| o.versions = vec![version]);
            let (mut near, mut far) = shaken(&config, &client(|_| {}), step);
            assert_eq!(near.session.take_info().unwrap().version, version);
            let text: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
            far.say(&text);
            carry(&mut far, &mut near, step).unwrap();
            assert_eq!(near.plain.filled(), text);
            near.say(&text);
            carry(&mut near, &mut far, step).unwrap();
            assert_eq!(far.plain.filled(), text);
            near.session.close(near.out.writer_for(64));
            near.session.close(near.out.writer_for(64));
            carry(&mut near, &mut far, step).unwrap();
            assert!(far.session.is_ended());
            assert_eq!(far.receive().unwrap(), Received::End);
        }
    }
}

#[test]
fn every_suite_and_group_is_negotiated() {
    let suites: [(u16, u16, &[u16]); 2] =
        [(0x0304, 0, &[0x1301, 0x1302, 0x1303]), (0x0303, 0, &[0xc02b, 0xc02c, 0xcca9])];
    for (version, _, suites) in suites {
        for &suite in suites {
            for group in [0x001d, 0x0017, 0x0018, 0x11ec] {
                if group == 0x11ec && version == 0x0303 {
                    continue;
                }
                let config = server(|o| {
                    (o.versions, o.suites, o.groups) = (vec![version], vec![suite], vec![group]);
                });
                let (mut near, mut far) = shaken(&config, &client(|_| {}), 4096);
                let info = near.session.take_info().unwrap();
                assert_eq!((info.suite, info.group), (suite, group));
                far.say(b"question");
                carry(&mut far, &mut near, 4096).unwrap();
                assert_eq!(near.plain.filled(), b"question");
            }
        }
    }
}

#[test]
fn the_certificate_fits_the_clients_signatures() {
    let both = server(|o| {
        o.certificates = vec![certified(&PKCS_RSA_SHA256), certified(&PKCS_ECDSA_P256_SHA256)];
    });
    let (_, mut far) = shaken(&both, &client(|o| o.suites = vec![0xc02f]).clone(), 4096);
    assert_eq!(far.session.take_info().unwrap().suite, 0xc02f, "RSA");
    let (_, mut far) = shaken(&both, &client(|o| o.suites = vec![0xc02b]), 4096);
    assert_eq!(far.session.take_info().unwrap().suite, 0xc02b, "ECDSA");
}

#[test]
fn a_client_without_a_certificate_is_none_and_one_with_it_shows_it() {
    for version in VERSIONS {
        let config = server(|o| (o.verify, o.versions) = (VerifyMode::Ask, vec![version]));
        let (mut near, _) = shaken(&config, &client(|_| {}), 4096);
        assert!(near.session.take_info().unwrap().peer_certificates.is_none());
        let own = certified(&PKCS_ECDSA_P256_SHA256);
        let der = own.chain().next().unwrap().to_vec();
        let (mut near, _) = shaken(&config, &client(|o| o.certificate = Some(own)), 4096);
        let shown = near.session.take_info().unwrap().peer_certificates.clone().unwrap();
        assert_eq!(shown.len(), 1);
        assert_eq!(*shown[0], der);
    }
}

#[test]
fn alpn_takes_the_first_that_both_have_or_fails() {
    let config = server(|o| o.alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()]);
    let of = |names: &[&str]| {
        client(|o| o.alpn = names.iter().map(|name| name.as_bytes().to_vec()).collect())
    };
    let (mut near, _) = shaken(&config, &of(&["http/1.1", "h2"]), 4096);
    assert_eq!(near.session.take_info().unwrap().alpn.as_deref(), Some(&b"h2"[..]));
    let (mut near, _) = shaken(&config, &of(&[]), 4096);
    assert_eq!(near.session.take_info().unwrap().alpn, None);
    let mut near = End::new(Session::server(&config).unwrap());
    let mut far = End::new(Session::client(&of(&["spdy"]), b"a.example").unwrap());
    far.receive().unwrap();
    let failed = carry(&mut far, &mut near, 4096).unwrap_err();
    assert!(failed.is_by_peer());
    let told = carry(&mut near, &mut far, 4096).unwrap_err();
    assert_eq!(told.to_string(), "alert no application protocol: SSL alert number 120");
}

#[test]
fn a_change_of_keys_is_followed_and_answered() {
    let config = server(|o| o.versions = vec![0x0304]);
    let (mut near, mut far) = shaken(&config, &client(|_| {}), 4096);
    for round in 0..3u8 {
        // As a peer that wants new keys in both directions.
        let Phase::Open(traffic) = &mut far.session.0 else { unreachable!() };
        traffic.change_keys_of_both(far.out.writer_for(1024)).unwrap();
        far.say(&[round; 10]);
        carry(&mut far, &mut near, 3).unwrap();
        near.say(&[round; 20]);
        carry(&mut near, &mut far, 3).unwrap();
    }
    assert_eq!((near.plain.filled().len(), far.plain.filled().len()), (30, 60));
    for _ in 0..40 {
        let Phase::Open(traffic) = &mut far.session.0 else { unreachable!() };
        traffic.change_keys_of_both(far.out.writer_for(1024)).unwrap();
        if carry(&mut far, &mut near, 4096).is_err() {
            return;
        }
        carry(&mut near, &mut far, 4096).unwrap();
    }
    unreachable!("there is a limit");
}

#[test]
fn a_changed_record_ends_the_session_with_an_alert() {
    for version in VERSIONS {
        let config = server(|o| o.versions = vec![version]);
        let (mut near, mut far) = shaken(&config, &client(|_| {}), 4096);
        far.say(b"question");
        let mut bytes = far.bytes();
        *bytes.last_mut().unwrap() ^= 1;
        near.input.extend_from_slice(&bytes);
        near.receive().unwrap_err();
        assert!(near.plain.is_empty());
        let told = carry(&mut near, &mut far, 4096).unwrap_err();
        assert_eq!(told.to_string(), "alert bad record mac: SSL alert number 20");
        near.receive().unwrap_err();
        let mut chain = Chain::new();
        chain.write(b"more");
        near.session.seal(&mut chain, 4, &mut Vec::new()).unwrap_err();
    }
}

#[test]
fn garbage_and_plain_text_fail_the_handshake() {
    for text in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0x16, 3, 1, 0, 4, 9, 9, 9, 9]] {
        let mut near = End::new(Session::server(&server(|_| {})).unwrap());
        near.input.extend_from_slice(text);
        assert!(near.receive().unwrap_err().is_by_peer(), "{text:?}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&one).unwrap().der().to_vec();
    let failed = Certified::new(vec![certificate], &other.serialize_der()).unwrap_err();
    assert!(failed.to_string().contains("key values mismatch"), "{failed}");
}

#[test]
fn the_first_records_of_a_burst_are_small() {
    let (mut near, _) = shaken(&server(|_| {}), &client(|_| {}), 4096);
    near.out.clear();
    near.say(&vec![b'x'; 100_000]);
    let (bytes, mut sizes, mut at) = (near.bytes(), Vec::new(), 0);
    while let Some(header) = bytes.get(at..at + 5) {
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        sizes.push(len - 17);
        at += 5 + len;
    }
    assert_eq!(sizes[..10], [4096; 10]);
    assert!(sizes[10..].contains(&16384), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 100_000);
}

/// Each failure of a handshake brings an alert, also those for which the library sends none.
#[test]
fn a_handshake_that_fails_brings_an_alert() {
    let refused = |records: &[&[u8]]| {
        let mut end = End::new(Session::server(&server(|_| ())).unwrap());
        let mut result = Ok(Received::All);
        for record in records {
            end.input.extend_from_slice(record);
            result = result.and_then(|_| end.receive());
        }
        let error = result.unwrap_err();
        assert!(error.is_by_peer(), "{error}");
        let bytes = end.bytes();
        assert_eq!(bytes.get(..6), Some(&[21, 3, 3, 0, 2, 2][..]), "{error}: {bytes:?}");
        bytes[6]
    };
    let fragment = &[22, 3, 1, 0, 6, 1, 0, 0, 100, 3, 3][..];
    assert_eq!(refused(&[fragment, &[21, 3, 1, 0, 2, 1, 0]]), 10, "an alert in a message");
    assert_eq!(refused(&[fragment, &[20, 3, 1, 0, 1, 1]]), 10, "a change of keys in a message");
    assert_eq!(refused(&[&[22, 3, 1, 0, 6, 1, 1, 0, 0, 3, 3]]), 50, "a message of 64 KB");
    assert_eq!(refused(&[&[22, 3, 1, 0, 4, 20, 0, 0, 0]]), 10, "no hello");
    assert_eq!(refused(&[&[22, 3, 1, 0, 6, 1, 0, 0, 2, 3, 3]]), 50, "a short hello");
    let empty = [22, 3, 1, 0, 0].repeat(64);
    assert_eq!(refused(&[&empty]), 10, "empty records");
    assert_eq!(refused(&[fragment, &[99, 3, 3, 0, 1, 0]]), 10, "no type of records");
}

/// Records that a client of TLS 1.3 sends behind the handshake, and their answers.
fn answer_to(records: &[(u8, &[u8])]) -> Result<(), Error> {
    let config = server(|o| o.versions = vec![0x0304]);
    let (mut near, mut far) = shaken(&config, &client(|_| {}), 4096);
    for (kind, text) in records {
        let Phase::Open(traffic) = &mut far.session.0 else { unreachable!() };
        traffic.say_record(*kind, text, far.out.writer_for(1024)).unwrap();
    }
    carry(&mut far, &mut near, 4096)
}

/// RFC 8446 section 5.1.
#[test]
fn records_have_their_places() {
    let (first, rest) = ((kind::HANDSHAKE, &[24, 0][..]), (kind::HANDSHAKE, &[0, 1, 0][..]));
    let data = (kind::DATA, &b"text"[..]);
    answer_to(&[first, rest]).unwrap();
    answer_to(&[data, first, rest]).unwrap();
    answer_to(&[(kind::DATA, &[]), data]).unwrap();
    let refused = |records: &[(u8, &[u8])]| answer_to(records).unwrap_err().alert;
    assert_eq!(refused(&[first, data, rest]), Some(10), "data within a message");
    assert_eq!(refused(&[first, (kind::DATA, &[]), rest]), Some(10), "no data within a message");
    assert_eq!(refused(&[(kind::ALERT, &[])]), Some(10), "an empty alert");
    assert_eq!(refused(&[(kind::HANDSHAKE, &[])]), Some(10), "an empty message");
    assert_eq!(refused(&[(kind::CHANGE_CIPHER_SPEC, &[1])]), Some(10), "a sealed change of keys");
}

/// RFC 8446 sections 4.6.3 and 5.1.
#[test]
fn bad_changes_of_keys_are_refused() {
    let alert = |message: &[u8]| answer_to(&[(kind::HANDSHAKE, message)]).unwrap_err().alert;
    assert_eq!(alert(&[24, 0, 0, 1, 2]), Some(47), "a wish that there is not");
    assert_eq!(alert(&[24, 0, 0, 2, 0, 0]), Some(50), "too long");
    assert_eq!(alert(&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]), Some(10), "more in the record");
}

/// Another process goes on with the end of a session.
fn moved(end: &mut End) {
    let state = end.session.state().expect("an established session can move");
    end.session = Session::resumed(&state).expect("its own state");
    // It may move on before it has made its keys.
    assert_eq!(end.session.state(), Some(state));
}

#[test]
fn a_session_goes_on_in_another_process() {
    for suite in [0x1301, 0x1302, 0x1303, 0xc02b, 0xc02c, 0xcca9] {
        let version = if suite & 0xff00 == 0x1300 { 0x0304 } else { 0x0303 };
        let config = server(|o| (o.versions, o.suites) = (vec![version], vec![suite]));
        let (mut near, mut far) = shaken(&config, &client(|_| {}), 4096);
        let talk = |near: &mut End, far: &mut End, text: &[u8]| {
            far.say(text);
            // A part of a record has arrived before the move.
            let bytes = far.bytes();
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            near.input.extend_from_slice(first);
            near.receive().unwrap();
            moved(near);
            near.input.extend_from_slice(rest);
            near.receive().unwrap();
            assert_eq!(std::mem::take(&mut near.plain).filled(), text, "{suite:x}");
            near.say(text);
            moved(far);
            carry(near, far, 7).unwrap();
            assert_eq!(std::mem::take(&mut far.plain).filled(), text, "{suite:x}");
        };
        for round in 0..3u8 {
            talk(&mut near, &mut far, &[round; 5_000]);
            if version == 0x0304 {
                // Either end asks for new keys right before and after a move.
                for asks in [true, false] {
                    let (one, two) =
                        if asks { (&mut near, &mut far) } else { (&mut far, &mut near) };
                    moved(one);
                    let Phase::Open(traffic) = &mut one.session.0 else { unreachable!() };
                    traffic.change_keys_of_both(one.out.writer_for(1024)).unwrap();
                    moved(one);
                    carry(one, two, 4096).unwrap();
                    moved(two);
                    carry(two, one, 4096).unwrap();
                }
                talk(&mut near, &mut far, &[round; 3]);
            }
        }
        near.session.close(near.out.writer_for(64));
        moved(&mut near);
        // The end is said once.
        near.session.close(near.out.writer_for(64));
        carry(&mut near, &mut far, 4096).unwrap();
        assert!(far.session.is_ended());
        moved(&mut far);
        assert!(far.session.is_ended());
    }
}

#[test]
fn a_state_that_is_none_is_refused() {
    for version in VERSIONS {
        let config = server(|o| o.versions = vec![version]);
        let (mut near, _) = shaken(&config, &client(|_| {}), 4096);
        let state = near.session.state().unwrap();
        // Behind the counts, all bytes are a part of a message.
        for len in 0..state.len() {
            assert!(Session::resumed(&state[..len]).is_none(), "{len} of {}", state.len());
        }
        for at in 0..5 {
            let mut wrong = state.to_vec();
            wrong[at] = 7;
            assert!(Session::resumed(&wrong).is_none(), "{at}");
        }
        let mut other = state.to_vec();
        other[2] ^= 1;
        assert!(Session::resumed(&other).is_none(), "keys of the other version");
        let secret_at = 5 + 2 + 8 + 8;
        let cipher_at = secret_at + 1 + usize::from(state[secret_at]) + 1;
        for cipher in (0..4).filter(|cipher| *cipher != state[cipher_at]) {
            let mut other = state.to_vec();
            other[cipher_at] = cipher;
            // TLS 1.2 takes any cipher whose key is as long.
            let is_taken = version == 0x0303 && cipher == 2;
            assert_eq!(Session::resumed(&other).is_some(), is_taken, "{version:x}, {cipher}");
        }
        near.session = Session::resumed(&state).unwrap();
        near.say(b"x");
    }
    assert!(Session::server(&server(|_| {})).unwrap().state().is_none(), "in the handshake");
}
