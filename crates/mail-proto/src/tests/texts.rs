//! Greetings, capabilities and the other texts that are fixed.

use super::{ALL, text};
use crate::host::ClientHost;
use crate::{Method, Methods, Note, Protocol, Texts};
use bytes::Bytes;

fn own(protocol: Protocol, methods: Methods) -> Texts {
    Texts::new(protocol, &[], methods, b"mx")
}

fn given(protocol: Protocol, capabilities: &[&'static str], methods: Methods) -> Texts {
    let capabilities: Vec<Bytes> =
        capabilities.iter().map(|c| Bytes::from_static(c.as_bytes())).collect();
    Texts::new(protocol, &capabilities, methods, b"mx")
}

#[track_caller]
fn check(got: &Bytes, want: &str) {
    assert_eq!(text(got), want);
}

#[test]
fn imap() {
    let texts = own(Protocol::Imap, Methods::PLAIN);
    check(&texts.greeting, "* OK IMAP4 ready|");
    check(&texts.capability, "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN|");
    check(&texts.starttls_capability, "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN STARTTLS|");
    check(
        &texts.starttls_only_capability,
        "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS STARTTLS LOGINDISABLED|",
    );
    let texts = given(Protocol::Imap, &["SEE-THIS"], ALL);
    check(
        &texts.capability,
        "* CAPABILITY SEE-THIS AUTH=PLAIN AUTH=LOGIN AUTH=CRAM-MD5 AUTH=EXTERNAL|",
    );
    check(&own(Protocol::Imap, Methods::EMPTY).capability, "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS|");
}

#[test]
fn pop3() {
    let texts = own(Protocol::Pop3, Methods::PLAIN.or(Methods::APOP).or(Methods::CRAM_MD5));
    check(&texts.greeting, "+OK POP3 ready|");
    let start = "+OK Capability list follows|TOP|USER|UIDL|SASL PLAIN LOGIN CRAM-MD5|";
    check(&texts.capability, &format!("{start}.|"));
    check(&texts.starttls_capability, &format!("{start}STLS|.|"));
    check(&texts.starttls_only_capability, "+OK Capability list follows|TOP|UIDL|STLS|.|");
    check(&texts.auth_capability, "+OK methods supported:|PLAIN|LOGIN|CRAM-MD5|.|");
    let texts = given(Protocol::Pop3, &["user", "X"], Methods::APOP);
    check(&texts.capability, "+OK Capability list follows|user|X|SASL|.|");
    check(&texts.starttls_only_capability, "+OK Capability list follows|X|STLS|.|");
    check(&texts.auth_capability, "+OK methods supported:|.|");
}

#[test]
fn smtp() {
    let texts = own(Protocol::Smtp, Methods::PLAIN.or(Methods::LOGIN));
    check(&texts.greeting, "220 mx ESMTP ready|");
    check(&texts.helo, "250 mx|");
    check(&texts.capability, "250-mx|250 AUTH PLAIN LOGIN|");
    check(&texts.starttls_capability, "250-mx|250-AUTH PLAIN LOGIN|250 STARTTLS|");
    check(&texts.starttls_only_capability, "250-mx|250 STARTTLS|");
    let texts = given(Protocol::Smtp, &["SIZE 1", "8BITMIME"], ALL);
    check(
        &texts.capability,
        "250-mx|250-SIZE 1|250-8BITMIME|250 AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL|",
    );
    check(&texts.starttls_only_capability, "250-mx|250-SIZE 1|250-8BITMIME|250 STARTTLS|");
    // Without methods to log in with, there is no AUTH.
    check(&own(Protocol::Smtp, Methods::NONE).capability, "250 mx|");
    check(&own(Protocol::Smtp, Methods::NONE).starttls_capability, "250-mx|250 STARTTLS|");
    let texts = given(Protocol::Smtp, &["X"], Methods::NONE);
    check(&texts.capability, "250-mx|250 X|");
}

#[test]
fn names_of_clients() {
    let longest = "a".repeat(253);
    for name in ["mail-1.Example.com", "a", "1.2.3.4.in-addr.arpa", &longest] {
        let host = ClientHost::from_ptr(name.as_bytes());
        assert_eq!(host.map(|host| host.to_string()).as_deref(), Some(name));
    }
    let longer = "a".repeat(254);
    for name in [
        "",
        "a b",
        "a\r\nAuth-Status: OK",
        "a_b",
        "a\0",
        "[UNAVAILABLE]",
        "\u{e9}",
        "a=b",
        "a+b",
        "x/y",
        &longer,
    ] {
        assert_eq!(ClientHost::from_ptr(name.as_bytes()), None, "{name:?}");
    }
    assert_eq!(ClientHost::Unavailable.to_string(), "[UNAVAILABLE]");
    assert_eq!(ClientHost::TempUnavail.to_string(), "[TEMPUNAVAIL]");
}

#[test]
fn lines_of_protocols() {
    for (protocol, name, internal, certificate, none) in [
        (
            Protocol::Imap,
            "imap",
            "* BAD internal server error|",
            "* BYE SSL certificate error|",
            "* BYE No required SSL certificate|",
        ),
        (
            Protocol::Pop3,
            "pop3",
            "-ERR internal server error|",
            "-ERR SSL certificate error|",
            "-ERR No required SSL certificate|",
        ),
        (
            Protocol::Smtp,
            "smtp",
            "451 4.3.2 Internal server error|",
            "421 4.7.1 SSL certificate error|",
            "421 4.7.1 No required SSL certificate|",
        ),
    ] {
        assert_eq!(protocol.name(), name);
        assert_eq!(text(protocol.internal_error()), internal);
        assert_eq!(text(protocol.certificate_error()), certificate);
        assert_eq!(text(protocol.no_certificate()), none);
    }
    assert_eq!(
        text(crate::IMPROPER_PIPELINING),
        "503 5.5.0 Improper use of SMTP command pipelining|"
    );
}

#[test]
fn names_of_methods() {
    use Method::{Apop, CramMd5, External, None, Plain};
    let names = [Plain, Apop, CramMd5, External, None].map(Method::name);
    assert_eq!(names, ["plain", "apop", "cram-md5", "external", "none"]);
}

/// A client cannot begin a line of its own in the log.
#[test]
fn notes_are_one_line() {
    let bytes = b"a\x1bb\0c\r\n[error] x\xff".to_vec();
    let shown = "a.b.c__[error] x\u{fffd}";
    for (note, want) in [
        (Note::TooLong(bytes.clone()), format!("client sent too long command \"{shown}\"")),
        (Note::Rejected(bytes.clone()), format!("client was rejected: \"{shown}\"")),
        (Note::BeforeGreeting(bytes), format!("client was rejected before greeting: \"{shown}\"")),
        (Note::TooManyErrors, "client sent too many invalid commands".to_owned()),
    ] {
        assert_eq!(note.to_string(), want);
    }
}
