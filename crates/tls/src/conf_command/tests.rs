use super::*;
use crate::groups::Group;

fn commands(name: &str, value: &str) -> Vec<Command> {
    let parsed = parse(name, value).unwrap_or_else(|error| panic!("{error}"));
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    parsed.commands
}

fn warnings(name: &str, value: &str) -> Vec<String> {
    let parsed = parse(name, value).unwrap_or_else(|error| panic!("{error}"));
    assert!(parsed.commands.is_empty());
    parsed.warnings
}

#[test]
fn what_has_an_effect() {
    let suites = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
    assert_eq!(
        commands("Ciphersuites", suites),
        [Command::Suites(vec![Suite::Chacha20, Suite::Aes256])]
    );
    assert_eq!(commands("ciphersuites", ""), [Command::Suites(vec![])]);
    for name in ["Groups", "Curves", "ECDHParameters"] {
        let set = commands(name, "P-256:X25519");
        let [Command::Groups(groups)] = &set[..] else { panic!("{set:?}") };
        assert_eq!(groups.groups(), [Group::P256, Group::X25519]);
    }
    assert_eq!(commands("ECDHParameters", "+automatic"), []);
    let set = commands("CipherString", "ECDHE+AESGCM+aRSA");
    let [Command::Ciphers(ciphers)] = &set[..] else { panic!("{set:?}") };
    assert_eq!(ciphers.suites(false).unwrap(), [Suite::RsaAes256, Suite::RsaAes128]);
    assert_eq!(commands("Certificate", "/a"), [Command::Certificate("/a".to_owned())]);
    assert_eq!(commands("PrivateKey", "/a"), [Command::PrivateKey("/a".to_owned())]);
    assert_eq!(commands("NumTickets", "1"), [Command::TicketCount(1)]);
    assert_eq!(
        commands("SignatureAlgorithms", "RSA+SHA256:rsa_pss_rsae_sha384:ECDSA+SHA512:PSS+SHA256"),
        [Command::SignatureAlgorithms(vec![0x0401, 0x0805, 0x0603, 0x0804])]
    );
    assert_eq!(
        commands("Options", "-SessionTicket, serverPreference,+TxCertificateCompression"),
        [
            Command::SessionTickets(false),
            Command::ServerPreference(true),
            Command::CertificateCompression(true)
        ]
    );
    assert_eq!(commands("Options", "NoRenegotiation,-Compression,-KTLS,EncryptThenMac"), []);
    assert!(is_file("certificate") && is_file("DHParameters") && !is_file("Groups"));
}

#[test]
fn versions_after_all_commands() {
    let left = |commands: &[(&str, &str)]| {
        let all = commands.iter().flat_map(|(name, value)| self::commands(name, value));
        versions(&Version::ALL, &all.collect::<Vec<_>>())
    };
    let (old, new) = (Version::Tls12, Version::Tls13);
    assert_eq!(left(&[]), [old, new]);
    assert_eq!(left(&[("MinProtocol", "TLSv1.3")]), [new]);
    assert_eq!(left(&[("MinProtocol", "TLSv1"), ("MaxProtocol", "None")]), [old, new]);
    assert_eq!(left(&[("MaxProtocol", "TLSv1.2")]), [old]);
    assert_eq!(left(&[("MinProtocol", "TLSv1.3"), ("Protocol", "ALL")]), [new]);
    assert_eq!(left(&[("Protocol", "ALL,-TLSv1.2")]), [new]);
    assert_eq!(left(&[("Protocol", "-all, tlsv1.2,-SSLv3,DTLSv1")]), [old]);
    assert_eq!(left(&[("Protocol", "-ALL")]), []);
    assert_eq!(versions(&[new], &[Command::Versions(vec![(old, true)])]), [old, new]);
}

#[test]
fn what_has_none() {
    assert_eq!(
        warnings("Options", "KTLS,-AntiReplay"),
        [
            "\"ssl_conf_command Options KTLS\" has no effect here",
            "\"ssl_conf_command Options -AntiReplay\" has no effect here"
        ]
    );
    assert_eq!(
        warnings("DHParameters", "/a"),
        ["\"ssl_conf_command DHParameters /a\" has no effect here"]
    );
    let missing = parse("Ciphersuites", "TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256").unwrap();
    assert_eq!(missing.warnings, ["cipher suites not supported, ignored: TLS_AES_128_CCM_SHA256"]);
    assert_eq!(parse("Groups", "X448:X25519").unwrap().warnings.len(), 1);
    assert_eq!(parse("CipherString", "HIGH:AES128-SHA").unwrap().warnings.len(), 1);
}

/// What nginx 1.22 says; in the last part our own.
#[test]
fn what_is_refused() {
    let error = |name: &str, value: &str| parse(name, value).unwrap_err().to_string();
    assert_eq!(
        error("Foo", "bar"),
        "SSL_CONF_cmd(\"Foo\", \"bar\") failed (SSL: error:0A000182:SSL routines::unknown cmd name:\
         cmd=Foo)"
    );
    for (name, value, before) in [
        ("Ciphersuites", "foo", "error:0A0000B9:SSL routines::no cipher match "),
        ("CipherString", "foo", "error:0A0000B9:SSL routines::no cipher match "),
        (
            "Groups",
            "foo",
            "error:0A080106:SSL routines::passed invalid argument:group 'foo' cannot be set ",
        ),
        (
            "ECDHParameters",
            "auto",
            "error:0A080106:SSL routines::passed invalid argument:group 'auto' cannot be set ",
        ),
        ("MinProtocol", "tlsv1.2", ""),
        ("MaxProtocol", "foo", ""),
        ("Protocol", "foo", ""),
        ("Options", "foo", ""),
        ("Options", "", ""),
        ("Options", "CipherServerPreference", ""),
        ("SignatureAlgorithms", "foo", ""),
        ("VerifyMode", "foo", ""),
        ("RecordPadding", "100000", ""),
        ("NumTickets", "-1", ""),
    ] {
        assert_eq!(
            error(name, value),
            format!(
                "SSL_CONF_cmd(\"{name}\", \"{value}\") failed (SSL: {before}error:0A000180:\
                 SSL routines::bad value:cmd={name}, value={value})"
            )
        );
    }
    // Not for files.
    for name in ["no_tls1_3", "serverpref", "cipher", "-cipher"] {
        assert!(error(name, "x").contains("unknown cmd name"));
    }
    for (name, value, instead) in [
        ("VerifyMode", "Require", "use \"ssl_verify_client\""),
        ("VerifyCAFile", "/a", "use \"ssl_client_certificate\""),
        ("MaxProtocol", "TLSv1.1", "there are TLSv1.2, TLSv1.3"),
        ("RecordPadding", "512", "records are not padded"),
        ("ClientSignatureAlgorithms", "RSA+SHA256", "all that are safe are accepted"),
    ] {
        let text =
            format!("SSL_CONF_cmd(\"{name}\", \"{value}\") failed: not supported, {instead}");
        assert_eq!(error(name, value), text);
    }
}
