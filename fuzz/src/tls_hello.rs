//! Hellos of TLS clients, and the names and fingerprints made of them.

use proto::tls_hello::fingerprint::{Carrier, ja3, ja3_text, ja4, ja4_raw};
use proto::tls_hello::{INPUT_MAX, Verdict, parse, parse_message};
use proto::tls_names;

/// Every beginning is incomplete or has the verdict of the whole; the same message in records of
/// another length, and without records, is the same hello.
pub fn run(data: &[u8]) {
    let whole = parse(data);
    let text = format!("{whole:?}");
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
    let Verdict::Hello(hello) = whole else { return };
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
