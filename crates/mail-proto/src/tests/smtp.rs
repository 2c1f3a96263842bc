//! SMTP.

use super::{b64, lines, settings, talk, with};
use crate::{Methods, Protocol, Settings, StartTls};

const OK: &str = "250 2.0.0 OK|";
const INVALID: &str = "500 5.5.1 Invalid command|";
const ARGUMENT: &str = "501 5.5.4 Invalid argument|";
const SEQUENCE: &str = "503 5.5.1 Bad sequence of commands|";
const CAPABILITY: &str = "250-mx.example|250 AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL|";

fn smtp() -> Settings {
    settings(Protocol::Smtp)
}

fn check(sent: &[&str], want: &[&str]) {
    assert_eq!(talk(&smtp(), &lines(sent)), want, "{sent:?}");
}

#[test]
fn simple_commands() {
    check(&["noop", "NOOP x", "RSET", "QUIT", "NOOP"], &[OK, OK, OK, "quit: 221 2.0.0 Bye|"]);
    check(&["HELO a.example", "EHLO a.example"], &["250 mx.example|", CAPABILITY]);
    for sent in ["HELO", "EHLO", "HELO a b", "HELO a\tb", "EHLO \x7f", "MAIL", "RCPT", "AUTH"] {
        let want = if sent == "RCPT" { SEQUENCE } else { ARGUMENT };
        check(&[sent, "NOOP"], &[want, OK]);
    }
    for sent in ["VRFY joe", "EXPN x", "HELP", "DATA", "FOO BAR", "", "NOOP\0", "NOOP a\rb"] {
        check(&[sent, "NOOP"], &[INVALID, OK]);
    }
    check(&["NOOP 1 2 3 4 5 6 7 8 9 10 11"], &[OK]);
    check(&["NOOP 1 2 3 4 5 6 7 8 9 10 11 12"], &[INVALID]);
}

#[test]
fn mail_without_a_login() {
    check(
        &["EHLO c.example", "mail FROM:<a@b>  SIZE=1 ", "RCPT TO:<c@d>", "RCPT TO:<e@f>"],
        &[
            CAPABILITY,
            OK,
            "none:   ehlo=c.example mail FROM:<a@b>  SIZE=1 RCPT TO:<c@d>",
            // MAIL is kept when the authentication server refuses the recipient.
            "none:   ehlo=c.example mail FROM:<a@b>  SIZE=1 RCPT TO:<e@f>",
        ],
    );
    check(&["RCPT TO:<c@d>"], &[SEQUENCE]);
    check(&["MAIL FROM:<a@b>", "MAIL FROM:<a@b>"], &[OK, SEQUENCE]);
    check(&["MAIL FROM:<a@b>", "RCPT"], &[OK, ARGUMENT]);
    check(&["MAIL FROM:<a@b>", "RSET", "RCPT TO:<c@d>"], &[OK, OK, SEQUENCE]);
    // A greeting begins anew (RFC 5321 section 4.1.4).
    check(&["MAIL FROM:<a@b>", "HELO x", "RCPT TO:<c@d>"], &[OK, "250 mx.example|", SEQUENCE]);
    check(
        &["EHLO x", "HELO y", "MAIL FROM:<a@b>", "RCPT TO:<c@d>"],
        &[CAPABILITY, "250 mx.example|", OK, "none:   helo=y MAIL FROM:<a@b> RCPT TO:<c@d>"],
    );
    check(&["MAIL FROM:<a\tb>"], &[ARGUMENT]);
}

#[test]
fn mail_that_needs_a_login() {
    let auth = with(Protocol::Smtp, |s| s.methods = Methods::PLAIN.or(Methods::LOGIN));
    assert_eq!(
        talk(&auth, "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n"),
        [
            "530 5.7.1 Authentication required| # client was rejected: \"MAIL FROM:<a@b>__\"",
            SEQUENCE,
        ]
    );
}

#[test]
fn sasl() {
    let plain = b64("\0joe\0x");
    check(&["EHLO y", &format!("AUTH PLAIN {plain}")], &[CAPABILITY, "plain: joe x ehlo=y"]);
    check(&["HELO y", "AUTH PLAIN", &plain], &["250 mx.example|", "334 |", "plain: joe x helo=y"]);
    check(
        &[&format!("AUTH LOGIN {}", b64("joe")), &b64("x")],
        &["334 UGFzc3dvcmQ6|", "plain: joe x"],
    );
    let digest = "f".repeat(32);
    check(
        &["AUTH CRAM-MD5", &b64(&format!("joe {digest}"))],
        &[
            &format!("334 {}|", b64("<7.8@mx.example>")),
            &format!("cram-md5: joe {digest} salt=<7.8@mx.example>"),
        ],
    );
    check(&["AUTH EXTERNAL", &b64("joe")], &["334 VXNlcm5hbWU6|", "external: joe "]);
    // RFC 4954 section 4.
    check(&["AUTH PLAIN", "*", "NOOP"], &["334 |", ARGUMENT, OK]);
    check(
        &["AUTH LOGIN", "?", "NOOP"],
        &[
            "334 VXNlcm5hbWU6|",
            "500 5.5.1 Invalid command| # client sent invalid base64 encoding in AUTH LOGIN command",
            OK,
        ],
    );
    let few = with(Protocol::Smtp, |s| s.methods = Methods::NONE);
    assert_eq!(talk(&few, "AUTH CRAM-MD5\r\n"), [INVALID]);
    assert_eq!(talk(&few, "AUTH EXTERNAL\r\n"), [INVALID]);
    assert_eq!(talk(&few, "AUTH PLAIN\r\n"), ["334 |"]);
}

#[test]
fn starttls() {
    let on = with(Protocol::Smtp, |s| s.starttls = StartTls::On);
    let only = with(Protocol::Smtp, |s| s.starttls = StartTls::Only);
    check(&["STARTTLS"], &[INVALID]);
    for settings in [&on, &only] {
        assert_eq!(talk(settings, "STARTTLS\r\n"), ["tls: 220 2.0.0 Start TLS|"]);
    }
    assert!(
        talk(&on, "EHLO x\r\n")
            .concat()
            .ends_with("250-AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL|250 STARTTLS|")
    );
    assert_eq!(talk(&only, "EHLO x\r\n"), ["250-mx.example|250 STARTTLS|"]);
    for sent in ["AUTH", "AUTH PLAIN", "AUTH LOGIN"] {
        assert_eq!(talk(&only, &lines(&[sent])), [INVALID], "{sent}");
    }
}
