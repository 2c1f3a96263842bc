use super::*;

fn client() -> Client<'static> {
    Client {
        listener: b"0.0.0.0:80",
        local: b"10.0.0.1:80",
        peer: b"10.0.0.2:4711",
        real_peer: Some(b"192.0.2.7:0"),
        number: 7,
        age_ms: 60_000,
        requests: 3,
        moved_in: 9,
        proxy: Some(Proxied {
            source: End { text: b"192.0.2.7", ip: Some(b"192.0.2.7"), port: 9 },
            destination: End { text: b"x", ip: None, port: 0 },
            tlvs: b"\x04\x00\x00",
        }),
        tls: Some(sealed()),
        handshake: Some(Handshake {
            server_name: Some(b"a.example"),
            hello: None,
            terms: (0x0304, 0x1301),
            group: 29,
            schemes: (0x0403, 0),
            session_id: b"id",
            is_resumed: true,
            has_early_data: false,
            alpn: Some(b"http/1.1"),
            own: Some(b"certificate"),
            peer: Some(vec![b"leaf", b"issuer"]),
            is_asked: true,
            is_confirmed: false,
        }),
    }
}

fn sealed() -> Sealed<'static> {
    Sealed { state: b"keys", input: b"a part of", plain: b"", unsent: b"a record" }
}

fn attempt() -> Attempt<'static> {
    Attempt {
        peer: Some(b"127.0.0.1:9000"),
        status: 101,
        age_ms: 1,
        connect_ms: Some(2),
        first_ms: None,
        end_ms: None,
        length: 0,
        received: u64::MAX,
        sent: 4,
    }
}

fn way(rate: bool) -> Way<'static> {
    let rate = rate.then_some(Rate { per_second: 9, age_ms: 1, read: 2, wait_ms: 3, ahead: b"z" });
    Way { pending: b"bytes in flight", ended: true, closed: false, rate }
}

fn tunnel() -> Message<'static> {
    Message::Tunnel(Box::new(Tunnel {
        client: client(),
        request: Request {
            head: b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
            head_len: 47,
            uri: b"/chat",
            args: b"",
            place: Place { kind: 2, name: b"/" },
            status: 101,
            sent: (129, 129),
            start_ms: 1,
            elapsed_us: 2,
            times_us: (3, 4, u64::MAX),
            values: vec![(b"a", Some(b"1")), (b"b", None)],
        },
        exchange: Exchange {
            scheme: b"http://",
            uri: b"/chat",
            host: (b"group", b"80"),
            attempts: vec![attempt(), Attempt { peer: None, ..attempt() }],
            leased: Leased { group: b"group", server: b"127.0.0.1:9000" },
        },
        server_tls: None,
        up: way(false),
        down: way(true),
        timeouts: (60_000, 60_001, 60_002),
        silent_ms: 5,
        left_ms: (None, Some(6)),
    }))
}

fn session() -> Message<'static> {
    Message::Session(Box::new(Session {
        client: client(),
        server: Some(b"name"),
        values: Vec::new(),
        bytes: (1, 2),
        attempts: vec![attempt()],
        leased: Leased { group: b"", server: b"127.0.0.1:9000" },
        server_tls: Some(sealed()),
        up: way(true),
        down: way(false),
        silent_ms: 0,
    }))
}

fn between() -> Idle<'static> {
    Idle { client: client(), read: b"GET / HT", left_ms: 60_000 }
}

fn idle() -> Message<'static> {
    Message::Idle(Box::new(between()))
}

fn stream() -> Stream<'static> {
    let Message::Tunnel(tunnel) = tunnel() else { unreachable!() };
    Stream {
        id: 5,
        is_ended: false,
        send: -7,
        receive: (60_000, 65_536, 5_536),
        received: b"from the client",
        queued: b"for it",
        framing: 18,
        tunnel: *tunnel,
    }
}

fn http2() -> Message<'static> {
    Message::Http2(Box::new(Http2 {
        idle: between(),
        announced: (128, 65_536, 16_384),
        tables: (4096, 0),
        sizes: (65_535, 16_384),
        flags: (false, true),
        windows: (65_535, 1 << 31),
        last_id: 7,
        encoder: (4096, 0),
        table_size: 4096,
        fields: vec![(b"name", b"value"), (b"x", b"")],
        resets: (5, b"bits"),
        unreturned: 9,
        priorities: (false, true, true),
        used: (3, 4),
        streams: vec![stream()],
    }))
}

fn mail() -> Message<'static> {
    Message::Mail(Box::new(Mail {
        client: client(),
        protocol: b"imap",
        login: b"user",
        upstream: Some(b"127.0.0.1:143"),
        is_starttls: true,
        server_tls: None,
        up: way(false),
        down: way(false),
        silent_ms: 8,
    }))
}

fn kept() -> Message<'static> {
    let leased = Leased { group: b"group", server: b"10.0.0.3:80" };
    Message::Kept(Box::new(Kept {
        leased,
        place: u64::MAX,
        requests: 12,
        age_ms: 70_000,
        left_ms: 900,
        moved_in: 9,
    }))
}

fn many() -> Message<'static> {
    let part = |ends, message| Part { ends, message };
    Message::Many(vec![part(2, b"a session"), part(0, b""), part(u32::MAX, b"x")])
}

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(message.write(&mut out));
    out
}

#[test]
fn messages_are_read_as_they_were_written() {
    for message in [Message::Hello, tunnel(), session(), idle(), http2(), mail(), kept()]
        .into_iter()
        .chain([Message::Long(7), many(), Message::Many(Vec::new())])
    {
        let bytes = written(&message);
        assert_eq!(Message::read(&bytes), Ok(message));
    }
}

#[test]
fn a_part_of_a_message_is_none() {
    for message in [Message::Hello, tunnel(), session(), idle(), http2(), mail(), kept(), many()] {
        let bytes = written(&message);
        for len in 0..bytes.len() {
            assert_eq!(Message::read(&bytes[..len]), Err(Unread::Malformed), "{len}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Message::read(&longer), Err(Unread::Malformed));
        // The length fits, the fields do not fill it.
        let mut longer = longer;
        let len = u32::try_from(longer.len() - HEAD).unwrap().to_be_bytes();
        longer[HEAD - 4..HEAD].copy_from_slice(&len);
        assert_eq!(Message::read(&longer), Err(Unread::Malformed));
    }
}

#[test]
fn other_versions_and_kinds_are_refused() {
    let mut bytes = written(&tunnel());
    bytes[10] = 77;
    assert_eq!(Message::read(&bytes), Err(Unread::Kind(77)));
    bytes[9] += 1;
    // Whatever follows the version: a later one may have another form.
    assert_eq!(Message::read(&bytes), Err(Unread::Version(VERSION + 1)));
    assert_eq!(Message::read(&bytes[..10]), Err(Unread::Version(VERSION + 1)));
    bytes[0] = b'w';
    assert_eq!(Message::read(&bytes), Err(Unread::Malformed));
}

/// The bytes of a version never change: this fails if they do and [`VERSION`] does not.
#[test]
fn the_bytes_of_this_version_stay() {
    let all = [Message::Hello, tunnel(), session(), idle(), http2(), mail(), kept(), many()];
    let all = all.map(|message| written(&message)).concat();
    assert_eq!((VERSION, all.len(), base::crc::crc32(&all)), (5, 3269, 2_383_624_520));
}

#[test]
fn counts_and_flags_are_not_believed() {
    let mut reader = Reader(&[0xff, 0xff, 0xff, 0xff, 1]);
    assert_eq!(Vec::<u8>::get(&mut reader), None);
    let mut reader = Reader(&[0xff, 0xff, 0xff, 0xff, 1]);
    assert_eq!(<&[u8]>::get(&mut reader), None);
    assert_eq!(Option::<u8>::get(&mut Reader(&[2, 1])), None);
}

#[test]
fn a_message_that_is_too_long_is_not_written() {
    let Message::Session(mut session) = session() else { panic!("a session") };
    let bytes = vec![0; MESSAGE_MAX];
    session.up.pending = &bytes;
    let mut out = b"before".to_vec();
    assert!(!Message::Session(session).write(&mut out));
    assert_eq!(out, b"before");
}

#[test]
fn words_are_read_as_they_were_written() {
    use Refusal::{Configuration, Off, Other, Version};
    let refusals = [Version, Configuration, Off, Other].map(Word::Refuses);
    for word in refusals.into_iter().chain([Word::Takes, Word::Yours(0), Word::Yours(255)]) {
        assert_eq!(Word::read(&word.bytes()), Some(word));
    }
    assert_eq!(Word::read(b"R\x63"), Some(Word::Refuses(Other)), "a later version's");
    for none in [&b""[..], b"T", b"T\0\0", b"Z\0"] {
        assert_eq!(Word::read(none), None);
    }
    let words = [Word::Takes, Word::Refuses(Configuration)];
    assert_eq!(Word::write_all(&words), b"T\0R\x02");
    assert_eq!(Word::read_all(b"T\0R\x02"), Some(words.to_vec()));
    assert_eq!(Word::read_all(b""), Some(Vec::new()));
    assert_eq!(Word::read_all(b"T\0T"), None);
}

/// The seeds of the fuzzer are messages of this version: `WEIR_WRITE_SEEDS=1` writes them.
#[test]
fn the_seeds_of_the_fuzzer_are_of_this_version() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/fuzz/seeds/handover");
    let long = Message::Long(300_000);
    let all = [
        ("hello", Message::Hello),
        ("tunnel", tunnel()),
        ("session", session()),
        ("idle", idle()),
        ("http2", http2()),
        ("mail", mail()),
        ("kept", kept()),
        ("many", many()),
        ("long", long),
    ];
    for (name, message) in all {
        let path = format!("{folder}/{name}");
        if std::env::var_os("WEIR_WRITE_SEEDS").is_some() {
            std::fs::write(&path, written(&message)).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), written(&message), "{name}");
    }
}
