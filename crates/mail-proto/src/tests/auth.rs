//! Questions as they are written, and answers as they are read.

use super::text;
use crate::auth::{
    ANSWER_MAX, Parsed, ProxyFields, Question, TlsFields, Verdict, parse, port_number, refusal,
    write,
};
use crate::host::ClientHost;
use crate::{Credentials, Envelope, Method, Protocol};
use bytes::Bytes;

fn credentials(method: Method) -> Credentials {
    Credentials {
        method,
        login: Bytes::from_static(b"jo e%\r\nX: y\x7f\xff"),
        password: Bytes::from_static(b"p+\"\0\t"),
        salt: None,
        tag: Bytes::new(),
        smtp: None,
        helo: Bytes::new(),
        esmtp: false,
    }
}

fn question(credentials: &Credentials) -> Question<'_> {
    Question {
        uri: b"/auth?x=1",
        host: b"auth.example",
        protocol: Protocol::Imap,
        credentials,
        attempt: 3,
        client_ip: "192.0.2.1",
        client_host: None,
        proxy: None,
        tls: None,
        headers: &[],
    }
}

#[track_caller]
fn check(question: &Question<'_>, want: &[&str]) {
    let got = text(&write(question));
    let want: String = want.iter().map(|line| format!("{line}|")).collect();
    assert_eq!(got, want + "|");
}

#[test]
fn a_plain_question() {
    let credentials = credentials(Method::Plain);
    let mut question = question(&credentials);
    question.uri = b"/a b\r\nX: y\x7f%20";
    check(
        &question,
        &[
            "GET /a%20b%0D%0AX:%20y%7F%20 HTTP/1.0",
            "Host: auth.example",
            "Auth-Method: plain",
            "Auth-User: jo%20e%25%0D%0AX:%20y%7F\u{fffd}",
            "Auth-Pass: p+\"%00%09",
            "Auth-Protocol: imap",
            "Auth-Login-Attempt: 3",
            "Client-IP: 192.0.2.1",
        ],
    );
}

#[test]
fn all_fields_in_order() {
    let mut credentials = credentials(Method::None);
    credentials.login = Bytes::new();
    credentials.password = Bytes::new();
    credentials.salt = Some(Bytes::from_static(b"<not sent>"));
    credentials.helo = Bytes::from_static(b"c.example\r\nX: y");
    credentials.smtp = Some(Envelope {
        from: Bytes::from_static(b"MAIL FROM:<a%20@b> SIZE=1"),
        to: Bytes::from_static(b"RCPT TO:<c@d>"),
    });
    let headers = [
        (Bytes::from_static(b"X-Key"), Bytes::from_static(b"1\r\n2")),
        (Bytes::from_static(b"X-Second"), Bytes::new()),
    ];
    let host = ClientHost::TempUnavail;
    let mut question = question(&credentials);
    question.protocol = Protocol::Smtp;
    question.client_host = Some(&host);
    question.headers = &headers;
    question.proxy = Some(ProxyFields {
        addr: "192.0.2.9",
        port: 1,
        server_addr: "2001:db8::1",
        server_port: 65535,
    });
    question.tls = Some(TlsFields {
        protocol: b"TLSv1.3",
        cipher: b"TLS_AES_128_GCM_SHA256",
        verify: Some(b"SUCCESS"),
        subject: Some(b"CN=a,O=\nb"),
        issuer: Some(b"CN=c"),
        serial: Some(b"0A"),
        fingerprint: Some(b"ff"),
        cert: Some(b"-----BEGIN CERTIFICATE-----\nAA+\n"),
    });
    check(
        &question,
        &[
            "GET /auth?x=1 HTTP/1.0",
            "Host: auth.example",
            "Auth-Method: none",
            "Auth-User: ",
            "Auth-Pass: ",
            "Auth-Protocol: smtp",
            "Auth-Login-Attempt: 3",
            "Client-IP: 192.0.2.1",
            "Client-Host: [TEMPUNAVAIL]",
            "Proxy-Protocol-Addr: 192.0.2.9",
            "Proxy-Protocol-Port: 1",
            "Proxy-Protocol-Server-Addr: 2001:db8::1",
            "Proxy-Protocol-Server-Port: 65535",
            "Auth-SMTP-Helo: c.example  X: y",
            "Auth-SMTP-From: MAIL FROM:<a%20@b> SIZE=1",
            "Auth-SMTP-To: RCPT TO:<c@d>",
            "Auth-SSL: on",
            "Auth-SSL-Protocol: TLSv1.3",
            "Auth-SSL-Cipher: TLS_AES_128_GCM_SHA256",
            "Auth-SSL-Verify: SUCCESS",
            "Auth-SSL-Subject: CN=a,O= b",
            "Auth-SSL-Issuer: CN=c",
            "Auth-SSL-Serial: 0A",
            "Auth-SSL-Fingerprint: ff",
            "Auth-SSL-Cert: -----BEGIN%20CERTIFICATE-----%0AAA+%0A",
            "X-Key: 1  2",
            "X-Second: ",
        ],
    );
}

#[test]
fn the_salt_and_empty_tls_fields() {
    for method in [Method::Apop, Method::CramMd5, Method::Plain, Method::External] {
        let mut credentials = credentials(method);
        credentials.login = Bytes::from_static(b"joe");
        credentials.password = Bytes::from_static(b"x");
        credentials.salt = Some(Bytes::from_static(b"<1.2@mx>"));
        let mut question = question(&credentials);
        let empty = Some(&b""[..]);
        question.tls = Some(TlsFields { verify: empty, cert: empty, ..TlsFields::default() });
        let salted = matches!(method, Method::Apop | Method::CramMd5);
        let first = format!("Auth-Method: {}", method.name());
        let mut want = vec!["GET /auth?x=1 HTTP/1.0", "Host: auth.example", &first];
        want.extend(["Auth-User: joe", "Auth-Pass: x"]);
        want.extend(salted.then_some("Auth-Salt: <1.2@mx>"));
        want.extend(["Auth-Protocol: imap", "Auth-Login-Attempt: 3", "Client-IP: 192.0.2.1"]);
        want.push("Auth-SSL: on");
        check(&question, &want);
    }
}

/// Every shorter length gives `Partial`, or the same.
fn read(answer: &str) -> Parsed {
    let answer = answer.replace('|', "\r\n");
    let whole = parse(answer.as_bytes());
    for len in 0..answer.len() {
        let part = parse(&answer.as_bytes()[..len]);
        assert!(part == Parsed::Partial || part == whole, "at {len} of {answer:?}");
    }
    assert!(whole != Parsed::Partial || !answer.contains("\r\n\r\n"), "{answer:?}");
    whole
}

fn go(user: Option<&'static str>, password: Option<&'static str>) -> Parsed {
    Parsed::Whole(Verdict::Go {
        server: Bytes::from_static(b"192.0.2.7"),
        port: Bytes::from_static(b"143"),
        user: user.map(|user| Bytes::from_static(user.as_bytes())),
        password: password.map(|password| Bytes::from_static(password.as_bytes())),
    })
}

const GO: &str = "Auth-Server: 192.0.2.7|Auth-Port: 143|";

#[test]
fn answers_that_allow() {
    let ok = format!("HTTP/1.0 200 OK|Auth-Status: OK|{GO}");
    assert_eq!(read(&format!("{ok}|")), go(None, None));
    assert_eq!(read(&format!("{ok}|body\0")), go(None, None));
    assert_eq!(
        read(&format!("{ok}auth-user:  jo%20 e \nAUTH-PASS:\tx: y|X_y: z||")),
        go(Some("jo%20 e"), Some("x: y"))
    );
    assert_eq!(read(&format!("{ok}Auth-Pass:||")), go(None, Some("")));
    // The time to wait is for refusals.
    assert_eq!(read(&format!("{ok}Auth-Wait: 1||")), go(None, None));
    // As in nginx, success needs no status of its own; anything else does.
    assert_eq!(read(&format!("HTTP/1.1 204 x|{GO}|")), go(None, None));
    assert_eq!(read(&format!("HTTP/1.1 500 x|Auth-Status: OK|{GO}|")), go(None, None));
    for start in ["HTTP/1.1 500 x", "HTTP/1.1 302 x", "HTTP/1.1", "HTTP/1.1 x"] {
        let missing = Parsed::Whole(Verdict::MissingServer);
        assert_eq!(read(&format!("{start}|{GO}|")), missing, "{start}");
    }
}

#[test]
fn answers_without_a_server() {
    for fields in ["", "Auth-Server: 192.0.2.7|", "Auth-Port: 143|", "Auth-Server:|Auth-Port: 1|"] {
        let answer = format!("HTTP/1.0 200 OK|Auth-Status: OK|{fields}|");
        assert_eq!(read(&answer), Parsed::Whole(Verdict::MissingServer), "{fields}");
    }
}

#[test]
fn answers_that_refuse() {
    let refused = |message: &'static str, code: Option<&'static str>, wait: u64| {
        let message = Bytes::from_static(message.as_bytes());
        let code = code.map(|code| Bytes::from_static(code.as_bytes()));
        Parsed::Whole(Verdict::Refused { message, code, wait })
    };
    for (fields, want) in [
        ("Auth-Status: Invalid login or password|", refused("Invalid login or password", None, 0)),
        ("Auth-Status: no|Auth-Wait: 3|", refused("no", None, 3)),
        ("Auth-Status: no|Auth-Error-Code: 451 4.3.0|", refused("no", Some("451 4.3.0"), 0)),
        ("Auth-Status: no|Auth-Error-Code:|", refused("no", None, 0)),
        ("Auth-Status: no|Auth-Wait: x|", refused("no", None, 0)),
        ("Auth-Status: no|Auth-Wait: 99999999999999999999|", refused("no", None, 0)),
        // It is compared byte for byte.
        ("Auth-Status: ok|", refused("ok", None, 0)),
        ("Auth-Status: OKAY|", refused("OKAY", None, 0)),
        ("Auth-Status:|", refused("", None, 0)),
        // A refusal counts before all.
        ("Auth-Status: no|Auth-Status: OK|", refused("no", None, 0)),
        ("Auth-Status: OK|Auth-Status: WAIT|Auth-Status: no|", refused("no", None, 0)),
        ("Auth-Status: WAIT|Auth-Wait: 7|", Parsed::Whole(Verdict::Wait(7))),
        ("Auth-Status: WAIT|", Parsed::Whole(Verdict::Wait(0))),
    ] {
        assert_eq!(read(&format!("HTTP/1.0 200 OK|{fields}{GO}|")), want, "{fields}");
    }
}

#[test]
fn answers_that_are_none() {
    for answer in [
        "SSH-2.0-x|",
        "HTML/1.0 200 OK|",
        "H\n",
        "|",
        "Auth-Status: OK||",
        "HTTP/1.0 200 OK|no field||",
        "HTTP/1.0 200 OK|: x||",
        "HTTP/1.0 200 OK|a b: x||",
        "HTTP/1.0 200 OK|a: x| folded||",
        "HTTP/1.0 200 OK|a: x\ry||",
        "HTTP/1.0 200 OK|a: x\0y||",
        "HTTP/1.0 200\rOK|a: x||",
    ] {
        assert_eq!(read(answer), Parsed::Bad, "{answer:?}");
    }
    for answer in
        ["", "HTT", "HTTP/1.0 200", "HTTP/1.0 200 OK|", "HTTP/1.0 200 OK|Auth-Status: OK|"]
    {
        assert_eq!(read(answer), Parsed::Partial, "{answer:?}");
    }
    assert_eq!(parse(b"HTTX"), Parsed::Bad);
}

#[test]
fn heads_have_a_limit() {
    let start = format!("HTTP/1.0 200 OK\r\n{}X: ", GO.replace('|', "\r\n"));
    let fits = format!("{start}{}\r\n\r\n", "x".repeat(ANSWER_MAX - start.len() - 4));
    assert_eq!(fits.len(), ANSWER_MAX);
    assert_eq!(parse(fits.as_bytes()), go(None, None));
    // A body may be longer.
    assert_eq!(parse((fits + &"x".repeat(ANSWER_MAX)).as_bytes()), go(None, None));
    let longer = format!("{start}{}\r\n\r\n", "x".repeat(ANSWER_MAX - start.len() - 3));
    assert_eq!(parse(longer.as_bytes()), Parsed::Bad);
    assert_eq!(parse(&longer.as_bytes()[..ANSWER_MAX - 1]), Parsed::Partial);
}

#[test]
fn ports() {
    for (port, want) in [("1", Some(1)), ("00143", Some(143)), ("65535", Some(65535))] {
        assert_eq!(port_number(port.as_bytes()), want);
    }
    for port in ["", "0", "65536", "-1", "+1", "1 ", "x", "99999999999999999999999"] {
        assert_eq!(port_number(port.as_bytes()), None, "{port:?}");
    }
}

#[test]
fn refusals() {
    for (protocol, tag, code, want) in [
        (Protocol::Pop3, "", None, "-ERR no  X y|"),
        (Protocol::Imap, "a1 ", None, "a1 NO no  X y|"),
        (Protocol::Imap, "", None, "* NO no  X y|"),
        (Protocol::Smtp, "", None, "535 5.7.0 no  X y|"),
        (Protocol::Smtp, "", Some("451 4.3.0"), "451 4.3.0 no  X y|"),
    ] {
        let line = refusal(protocol, tag.as_bytes(), b"no\r\nX\0y", code.map(str::as_bytes));
        assert_eq!(text(&line), want);
    }
}

#[test]
fn debug_texts_have_no_password() {
    let shown = format!("{:?}", go(None, Some("geheim")));
    assert!(shown.contains("192.0.2.7") && !shown.contains("geheim"), "{shown}");
}
