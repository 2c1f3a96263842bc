//! POP3.

use super::{SALT, b64, lines, settings, talk, with};
use crate::{Dialogue, Methods, Protocol, Settings, StartTls};
use bytes::Bytes;
use std::rc::Rc;

const INVALID: &str = "-ERR invalid command|";

fn pop3() -> Settings {
    settings(Protocol::Pop3)
}

fn check(sent: &[&str], want: &[&str]) {
    assert_eq!(talk(&pop3(), &lines(sent)), want, "{sent:?}");
}

fn greeting(methods: Methods) -> Bytes {
    let settings = with(Protocol::Pop3, |s| s.methods = methods);
    Dialogue::new(Rc::new(settings), Bytes::from_static(SALT)).greeting()
}

#[test]
fn the_greeting_has_the_salt_where_it_is_used() {
    assert_eq!(&greeting(Methods::PLAIN)[..], b"+OK POP3 ready\r\n");
    let salted = b"+OK POP3 ready <7.8@mx.example>\r\n";
    assert_eq!(&greeting(Methods::APOP)[..], salted);
    assert_eq!(&greeting(Methods::PLAIN.or(Methods::CRAM_MD5))[..], salted);
}

#[test]
fn simple_commands() {
    check(&["NOOP", "noop x y", "QUIT", "NOOP"], &["+OK|", "+OK|", "quit: +OK|"]);
    check(
        &["CAPA"],
        &["+OK Capability list follows|TOP|USER|UIDL|SASL PLAIN LOGIN CRAM-MD5 EXTERNAL|.|"],
    );
    for sent in ["FOO", "NOOPS", "", " NOOP", "NO", "NOOP a b c d", "LIST", "NOOP\0", "NOOP a\rb"] {
        check(&[sent, "NOOP"], &[INVALID, "+OK|"]);
    }
}

#[test]
fn user_and_pass() {
    check(&["USER joe", "PASS geheim"], &["+OK|", "plain: joe geheim"]);
    // Spaces belong to the values.
    check(&["USER  jo e ", "pass a  b "], &["+OK|", "plain: jo e  a  b "]);
    check(&["USER", "USER "], &[INVALID, INVALID]);
    check(&["PASS geheim"], &[INVALID]);
    check(
        &["USER joe", "NOOP", "CAPA", "PASS x"],
        &[
            "+OK|",
            "+OK|",
            "+OK Capability list follows|TOP|USER|UIDL|SASL PLAIN LOGIN CRAM-MD5 EXTERNAL|.|",
            "plain: joe x",
        ],
    );
    check(&["USER joe", "QUIT"], &["+OK|", "quit: +OK|"]);
    // What is invalid there ends the state.
    for sent in ["USER jim", "APOP a b", "AUTH", "STLS", "PASS", "FOO"] {
        check(&["USER joe", sent, "PASS x"], &["+OK|", INVALID, INVALID]);
    }
    // A password belongs to its attempt.
    check(&["USER joe", "PASS x", "PASS y"], &["+OK|", "plain: joe x", INVALID]);
}

#[test]
fn apop() {
    check(&["APOP joe 0123"], &["apop: joe 0123 salt=<7.8@mx.example>"]);
    for sent in ["APOP", "APOP joe", "APOP joe 1 2", "APOP joe 1 2 3"] {
        check(&[sent], &[INVALID]);
    }
    let without = with(Protocol::Pop3, |s| s.methods = Methods::PLAIN.or(Methods::CRAM_MD5));
    assert_eq!(talk(&without, "APOP joe 0123\r\n"), [INVALID]);
}

#[test]
fn sasl() {
    check(&["AUTH"], &["+OK methods supported:|PLAIN|LOGIN|CRAM-MD5|EXTERNAL|.|"]);
    check(&["AUTH PLAIN", &b64("\0joe\0x"), "NOOP"], &["+ |", "plain: joe x", "+OK|"]);
    check(
        &["AUTH LOGIN", &b64("joe"), &b64("a b")],
        &["+ VXNlcm5hbWU6|", "+ UGFzc3dvcmQ6|", "plain: joe a b"],
    );
    let challenge = format!("+ {}|", b64("<7.8@mx.example>"));
    let digest = "f".repeat(32);
    check(
        &["AUTH CRAM-MD5", &b64(&format!("joe {digest}"))],
        &[&challenge, &format!("cram-md5: joe {digest} salt=<7.8@mx.example>")],
    );
    check(&[&format!("AUTH EXTERNAL {}", b64("joe"))], &["external: joe "]);
    check(&["AUTH PLAIN", "*", "NOOP"], &["+ |", INVALID, "+OK|"]);
    check(
        &["AUTH PLAIN", "QUIT ", "NOOP"],
        &[
            "+ |",
            "-ERR invalid command| # client sent invalid base64 encoding in AUTH PLAIN command",
            "+OK|",
        ],
    );
}

#[test]
fn starttls() {
    let on = with(Protocol::Pop3, |s| s.starttls = StartTls::On);
    let only = with(Protocol::Pop3, |s| s.starttls = StartTls::Only);
    check(&["STLS"], &[INVALID]);
    assert_eq!(talk(&on, "STLS\r\n"), ["tls: +OK|"]);
    assert_eq!(talk(&only, "STLS\r\n"), ["tls: +OK|"]);
    assert!(talk(&on, "CAPA\r\n").concat().ends_with("EXTERNAL|STLS|.|"));
    let capa = talk(&only, "CAPA\r\n");
    assert_eq!(capa, ["+OK Capability list follows|TOP|UIDL|STLS|.|"]);
    for sent in ["USER joe", "APOP joe 1", "AUTH", "AUTH PLAIN", "AUTH LOGIN"] {
        assert_eq!(talk(&only, &lines(&[sent])), [INVALID], "{sent}");
    }
}
