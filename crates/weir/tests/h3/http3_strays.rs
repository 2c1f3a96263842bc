//! Datagrams that belong to no connection: each gets the answer that RFC 9000 asks for, or none,
//! and never more than it is itself, or three times as much where a connection begins with it.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::quic::{ClientConnection, Version};
use testkit::certificates::KeyKind;
use testkit::h3::Client;
use testkit::rng::Rng;
use testkit::udp_relay::{Faults, Relay, Way};
use testkit::{AnyCertificate, Driver, Pair, Site, Weir, built_binary, each_site, udp, wait_until};

fn start(driver: Driver) -> Weir {
    Pair::own(KeyKind::P256, "localhost")
        .on(Site::new(built_binary(), driver), "a")
        .http(
            "ssl_certificate a.pem; ssl_certificate_key a.key; keepalive_timeout 2s;
             server { listen 127.0.0.1:%PORT0% quic; return 200 ok; }
             server { listen 127.0.0.1:%PORT1%; location /status { stub_status; } }",
        )
        .start()
}

/// The number of the last question.
struct Questions(u32);

impl Questions {
    /// A datagram that has an answer, which says that what was sent before has none: a packet of an
    /// unknown version.
    fn next(&mut self) -> Vec<u8> {
        self.0 += 1;
        let mut packet = vec![0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 4];
        packet.extend(self.0.to_be_bytes());
        packet.resize(1200, 0);
        packet
    }

    /// All answers to a datagram.
    fn answers(&mut self, socket: &UdpSocket, datagram: &[u8]) -> Vec<Vec<u8>> {
        socket.send(datagram).unwrap();
        socket.send(&self.next()).unwrap();
        let mut answers = Vec::new();
        loop {
            let (answer, _) = udp::receive(socket);
            let is_last = answer.get(1..5) == Some(&[0; 4])
                && answer.get(6..10) == Some(&self.0.to_be_bytes());
            if is_last {
                return answers;
            }
            answers.push(answer);
        }
    }
}

/// A long header of this version and these ids.
fn long(first: u8, version: u32, to: &[u8], from: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(version.to_be_bytes());
    packet.push(to.len() as u8);
    packet.extend(to);
    packet.push(from.len() as u8);
    packet.extend(from);
    packet
}

#[test]
fn what_is_no_packet_has_no_answer() {
    each_site(start, |weir| {
        let socket = udp::client(weir.port(0));
        let (mut questions, mut rng) = (Questions(0), Rng::new(1));
        for len in (0..1500).step_by(7).chain([1, 2, 3, 4, 5, 6]) {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            // One of a long header is of an unknown version, and has an answer from 1200 bytes on.
            if let Some(first) = bytes.first_mut() {
                *first &= 0x3f;
            }
            let answers = questions.answers(&socket, &bytes);
            assert!(answers.iter().all(|answer| answer.len() < len), "{bytes:02x?}: {answers:?}");
            assert!(answers.len() <= 1, "{bytes:02x?}: {answers:?}");
        }
        // Of any form: never more than comes.
        for _ in 0..300 {
            let len = rng.below(1500);
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            let answers = questions.answers(&socket, &bytes);
            assert!(answers.iter().map(Vec::len).sum::<usize>() <= len, "{bytes:02x?}");
        }
        let mut c = Client::connect(weir.port(0), "localhost");
        assert_eq!(c.get("/").body, b"ok");
    });
}

#[test]
fn packets_without_a_connection_have_no_answer() {
    each_site(start, |weir| {
        let socket = udp::client(weir.port(0));
        let mut questions = Questions(0);
        let (to, from) = ([7; 16], [9; 8]);
        for (what, first, version, rest) in [
            ("Version Negotiation", 0xc0, 0, &[0, 0, 0, 1, 0x0a, 0x0a, 0x0a, 0x0a][..]),
            ("0-RTT", 0xd0, 1, &[0x44, 0x80]),
            ("Handshake", 0xe0, 1, &[0x44, 0x80]),
            ("Retry", 0xf0, 1, &[1; 40]),
            ("an Initial that nobody has sealed", 0xc0, 1, &[0, 0x44, 0x80]),
            ("an Initial with a long token", 0xc0, 1, &[0x44, 0xff]),
            ("an Initial whose end is missing", 0xc0, 1, &[0, 0x7f, 0xff]),
        ] {
            for len in [60, 1199, 1200, 1400] {
                let mut packet = [&long(first, version, &to, &from)[..], rest].concat();
                packet.resize(len, 3);
                let answers = questions.answers(&socket, &packet);
                assert!(answers.is_empty(), "{what} of {len} bytes: {answers:02x?}");
            }
        }
        // Ids that are longer than this version's may be another version's.
        let mut packet = long(0xc0, 1, &[7; 30], &from);
        packet.resize(1200, 0);
        assert!(questions.answers(&socket, &packet).is_empty());
    });
}

/// The id that the first packets of a client name.
const FIRST_ID: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// The hello of a client.
fn hello() -> Vec<u8> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // Of the parameters, that of the client's id alone, which is empty.
    let name = "localhost".try_into().unwrap();
    let mut connection =
        ClientConnection::new(Arc::new(tls), Version::V1, name, vec![0x0f, 0]).unwrap();
    let mut hello = Vec::new();
    connection.write_hs(&mut hello);
    hello
}

/// An Initial packet with these frames, padded to so many bytes.
fn initial(number: u8, id: &[u8], mut frames: Vec<u8>, len: usize) -> Vec<u8> {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let keys = suite.quic_suite().unwrap().keys(id, rustls::Side::Client, Version::V1);
    let mut packet = long(0xc0, 1, id, &[]);
    packet.push(0);
    let head = packet.len() + 3;
    frames.resize(frames.len().max(len.saturating_sub(head + 16)), 0);
    packet.extend((0x4000 | (1 + frames.len() + 16) as u16).to_be_bytes());
    packet.push(number);
    let tag = keys.local.packet.encrypt_in_place(number.into(), &packet, &mut frames).unwrap();
    let at = packet.len() - 1;
    packet.extend(&frames);
    packet.extend(tag.as_ref());
    let sample = packet[at + 4..at + 20].to_vec();
    let (front, behind) = packet.split_at_mut(at);
    keys.local.header.encrypt_in_place(&sample, &mut front[0], &mut behind[..1]).unwrap();
    packet
}

/// The CRYPTO frame of a part of the hello.
fn crypto(at: usize, part: &[u8]) -> Vec<u8> {
    let mut frame = vec![6];
    for n in [at, part.len()] {
        frame.extend((0x4000 | n as u16).to_be_bytes());
    }
    frame.extend(part);
    frame
}

#[test]
fn a_connection_begins_with_a_long_datagram() {
    each_site(start, |weir| {
        let socket = udp::client(weir.port(0));
        let mut questions = Questions(0);
        let hello = hello();
        let (first, second) = hello.split_at(hello.len().min(900));
        let short = initial(0, &FIRST_ID, crypto(0, first), 0);
        assert!(short.len() < 1200);
        assert!(questions.answers(&socket, &short).is_empty(), "it is too short");
        // RFC 9000 section 7.2: the id has 8 bytes at least.
        let bad = initial(0, &FIRST_ID[..7], crypto(0, first), 1200);
        let answers = questions.answers(&socket, &bad);
        assert!(answers.iter().map(Vec::len).sum::<usize>() <= 1200, "{answers:02x?}");
        // A client that goes no further than its hello.
        let mut sent = 0;
        let parts = [(0, first), (first.len(), second)];
        let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
        for (number, (at, part)) in parts.enumerate() {
            let packet = initial(number as u8, &FIRST_ID, crypto(at, part), 1200);
            sent += packet.len();
            socket.send(&packet).unwrap();
        }
        let (answer, _) = udp::receive(&socket);
        assert_eq!(answer[0] & 0xf0, 0xc0, "{answer:02x?}");
        let mut got = answer.len();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let began = Instant::now();
        // Until what is not acknowledged was sent again, some times.
        while began.elapsed() < Duration::from_secs(4) {
            let mut page = [0; 2000];
            got += socket.recv(&mut page).unwrap_or(0);
            assert!(got <= 3 * sent, "{got} bytes for {sent}");
        }
    });
}

#[test]
fn packets_of_a_connection_that_is_over_are_answered_with_a_reset() {
    each_site(start, |weir| {
        let relay = Relay::start(weir.port(0), 1, Faults::NONE);
        let mut c = Client::connect(relay.port, "localhost");
        assert_eq!(c.get("/").body, b"ok");
        // The client is away until the server has forgotten it.
        relay.cut(Way::Up, true);
        let id = c.begin_with("GET", "/", &[]);
        c.quic().finish(id);
        wait_until("a packet", || {
            c.quic().turn();
            relay.last_up().first().is_some_and(|first| first & 0x80 == 0)
        });
        wait_until("the connection's end", || {
            let mut conn = testkit::Conn::tcp(weir.port(1));
            conn.send("GET /status HTTP/1.0\r\n\r\n");
            conn.response().text().starts_with("Active connections: 1 ")
        });
        let packet = [&relay.last_up()[..], &[7; 1200]].concat();
        let socket = udp::client(weir.port(0));
        let mut questions = Questions(0);
        let mut tokens = Vec::new();
        // Resets are paced: the next datagram may have none, but gets one in the end.
        for len in [22, 23, 30, 42, 43, 100, 1200] {
            let reset =
                testkit::wait_for("a reset", || questions.answers(&socket, &packet[..len]).pop());
            assert!(reset.len() < len && reset.len() >= 21, "{} for {len}", reset.len());
            assert_eq!(reset[0] & 0xc0, 0x40, "it looks like a packet");
            tokens.push(reset[reset.len() - 16..].to_vec());
        }
        assert!(tokens.iter().all(|token| token == &tokens[0]), "{tokens:02x?}");
        for len in [17, 18, 20, 21] {
            for _ in 0..3 {
                assert!(questions.answers(&socket, &packet[..len]).is_empty());
                std::thread::sleep(Duration::from_millis(25));
            }
        }
    });
}
