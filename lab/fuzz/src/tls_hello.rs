//! Hellos of TLS clients, and the names and fingerprints made of them.

use proto::tls_hello::extension::SERVER_NAME;
use proto::tls_hello::fingerprint::{Carrier, ja3, ja3_text, ja4, ja4_raw};
use proto::tls_hello::{INPUT_MAX, Malformed, Verdict, loose, parse, parse_message};
use proto::tls_names;
use rustls::server::Acceptor;

/// A hello that rustls takes is one here, with the same fields.
fn same_for_rustls(data: &[u8], ours: &Verdict<'_>) {
    let mut acceptor = Acceptor::default();
    let mut rest = data;
    let accepted = loop {
        match acceptor.read_tls(&mut rest) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => break accepted,
            Ok(None) => {}
            Err(_) => return,
        }
    };
    let theirs = accepted.client_hello();
    let hello = match ours {
        Verdict::Hello(hello) => hello,
        // OpenSSL and we take one name in the list, rustls the first of several; and rustls takes
        // records with the versions of DTLS.
        Verdict::Malformed(
            Malformed::BadExtension(SERVER_NAME) | Malformed::ServerName | Malformed::RecordVersion,
        ) => return,
        other => panic!("rustls takes it: {other:?}"),
    };
    if let Some(name) = theirs.server_name() {
        // In small letters there, and without a dot at the end.
        let ours = hello.host().map(str::to_lowercase).unwrap_or_default();
        assert_eq!(ours.strip_suffix('.').unwrap_or(&ours), name);
    }
    let alpn = theirs.alpn().into_iter().flatten();
    assert!(alpn.eq(hello.alpn()));
    let suites = theirs.cipher_suites().iter().map(|suite| u16::from(*suite));
    assert!(suites.eq(hello.cipher_suites()));
    let schemes = theirs.signature_schemes().iter().map(|scheme| u16::from(*scheme));
    assert!(schemes.eq(hello.signature_algorithms()));
    if let Some(groups) = theirs.named_groups() {
        assert!(groups.iter().map(|group| u16::from(*group)).eq(hello.groups()));
    }
}

/// Every beginning is incomplete or has the verdict of the whole; the same message in records of
/// another length, and without records, is the same hello; what rustls takes is taken.
pub fn run(data: &[u8]) {
    let whole = parse(data);
    let text = format!("{whole:?}");
    same_for_rustls(data, &whole);
    // A step that is no divisor of common lengths; all beginnings of a long input take too long.
    let step = data.len() / 512 + 1;
    for len in (0..data.len()).step_by(step) {
        match parse(&data[..len]) {
            Verdict::Incomplete { wanted } => {
                assert!(wanted > len && wanted <= INPUT_MAX);
                if let Verdict::Hello(hello) = &whole {
                    assert!(wanted <= hello.input_len());
                }
            }
            part => assert!(format!("{part:?}") == text, "{part:?} at {len}, then {text}"),
        }
    }
    if let Verdict::Malformed(malformed) = &whole {
        assert!(malformed.alert() > 0 && !malformed.to_string().is_empty());
    }
    let seen = loose(data);
    let Verdict::Hello(hello) = whole else { return };
    // What is well-formed says the same to a loose look, but for what follows GREASE.
    let seen = seen.expect("a hello is one to a loose look");
    assert_eq!(seen.server_name, hello.server_name().unwrap_or_default());
    assert!(seen.alpn.iter().map(|name| &name[..]).eq(hello.alpn()));
    assert!(hello.input_len() <= data.len().min(INPUT_MAX));
    assert!(hello.random().len() == 32 && hello.session_id().len() <= 32);
    assert!(hello.cipher_suites().len() > 0);
    assert!(hello.host().is_none_or(|host| Some(host.as_bytes()) == hello.server_name()));
    let listed = hello.extensions().count();
    for extension in hello.extensions() {
        assert_eq!(hello.extension(extension.number), Some(extension.data));
        assert!(listed <= 1 << 16);
    }
    let mut out = Vec::new();
    tls_names::write_ciphers(&hello, &mut out);
    tls_names::write_curves(&hello, &mut out);
    tls_names::write_sigalgs(&hello, &mut out);
    assert!(out.iter().all(|byte| byte.is_ascii_graphic()));
    tls_names::write_alpn(&hello, &mut out);
    tls_names::preread_protocol(&hello);
    assert_eq!(ja3(&hello).len(), 32);
    assert_eq!(ja3_text(&hello).matches(',').count(), 4);
    let (short, raw) = (ja4(&hello, Carrier::Tcp), ja4_raw(&hello, Carrier::Tcp));
    assert!(short.len() == 36 && short[..11] == raw[..11]);

    let mut message = vec![1];
    message.extend(&(hello.message().len() as u32).to_be_bytes()[1..]);
    message.extend(hello.message());
    let Verdict::Hello(alone) = parse_message(&message) else { panic!("no hello alone") };
    assert_eq!(alone.message(), hello.message());
    let mut split = Vec::new();
    for part in message.chunks(usize::from(data[data.len() - 1]) + 1) {
        split.extend([22, 3, 3]);
        split.extend((part.len() as u16).to_be_bytes());
        split.extend(part);
    }
    match parse(&split) {
        Verdict::Hello(again) => assert_eq!(again.message(), hello.message()),
        other => assert!(split.len() > INPUT_MAX, "{other:?}"),
    }
}
