//! Logins at mail servers: what a server says, and what comes of it, in pieces of every size alike.

use super::{b64, text};
use crate::backend::{Backend, Login, Said, XClient};
use crate::host::ClientHost;
use crate::{Envelope, Protocol};
use bytes::Bytes;

fn login(protocol: Protocol) -> Login {
    Login {
        protocol,
        login: Bytes::from_static(b"joe"),
        password: Some(Bytes::from_static(b"ge heim")),
        tag: Bytes::from_static(if protocol == Protocol::Imap { b"a1 " } else { b"" }),
        smtp: None,
        helo: Bytes::new(),
        esmtp: false,
        server_name: Bytes::from_static(b"mx"),
        xclient: None,
        smtp_auth: false,
        starttls: false,
        pass_error_message: true,
        buffer: 128,
    }
}

fn smtp(change: impl FnOnce(&mut Login)) -> Login {
    let mut login = login(Protocol::Smtp);
    change(&mut login);
    login
}

fn xclient(addr: Option<&str>) -> Option<XClient> {
    let addr = addr.map(|addr| addr.parse().expect("an address"));
    let name = ClientHost::from_ptr(b"c.example").expect("a name");
    Some(XClient { addr, name })
}

fn envelope() -> Option<Envelope> {
    let from = Bytes::from_static(b"MAIL FROM:<a@b> SIZE=1");
    Some(Envelope { from, to: Bytes::from_static(b"RCPT TO:<c@d>") })
}

fn shown(said: &Said) -> String {
    match said {
        Said::More => "more".to_owned(),
        Said::Send { line, doing } => {
            let doing = doing.strip_prefix("sending ").and_then(|d| d.strip_suffix(" to upstream"));
            format!("{} ({})", text(line), doing.expect("a thing that is sent"))
        }
        Said::Done { to_client } => format!("done: {}", text(to_client)),
        Said::StartTls => "TLS".to_owned(),
        Said::InClear => "in clear".to_owned(),
        Said::Failed { answer, to_client, is_login } => {
            let to_client = to_client.as_deref().map(text);
            let what = if *is_login { "no login" } else { "failed" };
            format!("{what}: {} {to_client:?}", text(answer))
        }
        Said::NoPassword => "no password".to_owned(),
        Said::Unsendable(which) => format!("unsendable {which}"),
        Said::TooLong(bytes) => format!("too long: {}", bytes.len()),
    }
}

/// Stands for the handshake among the bytes of a mail server.
const SECURED: &[u8] = b"[TLS]";

fn pieces(login: &Login, mut bytes: &[u8], size: usize) -> Vec<String> {
    let mut backend = Backend::new(login.clone());
    let mut all = Vec::new();
    loop {
        let said = backend.step();
        match &said {
            Said::More => {
                let clear = memchr::memmem::find(bytes, SECURED).filter(|at| *at > 0);
                let len = size.min(backend.room()).min(clear.unwrap_or(bytes.len()));
                let (piece, rest) = bytes.split_at(len);
                if len == 0 {
                    return all;
                }
                backend.feed(piece);
                bytes = rest;
            }
            Said::Done { to_client } => {
                // What comes later is piped, behind what there was.
                let piped = Said::Done { to_client: [to_client, bytes].concat() };
                all.push(shown(&piped));
                return all;
            }
            Said::StartTls if !bytes.is_empty() && !bytes.starts_with(SECURED) => {
                // Its owner has them, or they wait in the socket.
                all.push("in clear".to_owned());
                return all;
            }
            Said::StartTls => {
                all.push(shown(&said));
                bytes = bytes.strip_prefix(SECURED).unwrap_or_default();
                backend.now_tls();
            }
            said => {
                all.push(shown(said));
                if !matches!(said, Said::Send { .. }) {
                    return all;
                }
            }
        }
    }
}

/// The outcome of a server's `bytes`, whatever the pieces.
#[track_caller]
fn check(login: &Login, bytes: &str, want: &[&str]) {
    for size in [usize::MAX, 1, 2, 3, 5, 17] {
        assert_eq!(pieces(login, bytes.as_bytes(), size), want, "in pieces of {size}");
    }
}

#[test]
fn pop3() {
    let login = login(Protocol::Pop3);
    let (user, pass) = ("USER joe| (user name)", "PASS ge heim| (password)");
    check(
        &login,
        "+OK hi\r\n+OK\r\n+OK you are\r\n+OK more",
        &[user, pass, "done: +OK you are|+OK more"],
    );
    check(&login, "-ERR no\r\n", &["failed: -ERR no Some(\"-ERR no|\")"]);
    check(&login, "+OK\r\n-ERR x\r\n", &[user, "no login: -ERR x Some(\"-ERR x|\")"]);
    check(&login, "+OK\r\n+OK\r\n-ERR x\r\n", &[user, pass, "no login: -ERR x Some(\"-ERR x|\")"]);
    check(&login, "OK\r\n", &["failed: OK Some(\"OK|\")"]);
    check(&login, "\r\n", &["failed:  Some(\"|\")"]);
}

#[test]
fn refusals_are_passed_where_that_is_set() {
    let mut login = login(Protocol::Pop3);
    login.pass_error_message = false;
    check(&login, "-ERR secret\r\n", &["failed: -ERR secret None"]);
}

#[test]
fn imap() {
    let login = login(Protocol::Imap);
    let sent = ["a1 LOGIN {3}| (LOGIN command)", "joe {7}| (user name)", "ge heim| (password)"];
    let [first, user, pass] = sent;
    check(
        &login,
        "* OK hi\r\n+ \r\n+ go\r\na1 OK in\r\n* x",
        &[first, user, pass, "done: a1 OK in|* x"],
    );
    // Untagged responses before the end of LOGIN are for the client.
    check(
        &login,
        "* ok hi\r\n+\r\n+\r\n* CAPABILITY A B\r\n* X\r\na1 ok in\r\n",
        &[first, user, pass, "done: * CAPABILITY A B|* X|a1 ok in|"],
    );
    // Others may come at any time, and mean nothing.
    check(&login, "* OK hi\r\n* CAPABILITY\r\n+ \r\n", &[first, user]);
    for (bytes, want) in [
        ("* BYE no\r\n", &["failed: * BYE no Some(\"* BYE no|\")"][..]),
        ("* PREAUTH\r\n", &["failed: * PREAUTH Some(\"* PREAUTH|\")"]),
        ("* OK\r\na1 NO x\r\n", &[first, "failed: a1 NO x Some(\"a1 NO x|\")"]),
        ("* OK\r\n* BYE\r\n", &[first, "failed: * BYE Some(\"* BYE|\")"]),
        (
            "* OK\r\n+ \r\n+ \r\n* X\r\na1 NO x\r\n",
            &[first, user, pass, "no login: a1 NO x Some(\"* X|a1 NO x|\")"],
        ),
        ("* OK\r\n+ \r\n+ \r\na2 OK\r\n", &[first, user, pass, "no login: a2 OK Some(\"a2 OK|\")"]),
        ("* OK\r\n+ \r\n+ \r\n+ \r\n", &[first, user, pass, "no login: +  Some(\"+ |\")"]),
    ] {
        check(&login, bytes, want);
    }
}

#[test]
fn tls_begins_by_a_command() {
    let with = |protocol| Login { starttls: true, ..login(protocol) };
    let (user, pass) = ("USER joe| (user name)", "PASS ge heim| (password)");
    check(
        &with(Protocol::Pop3),
        "+OK hi\r\n+OK go\r\n[TLS]+OK\r\n+OK in\r\n",
        &["STLS| (STARTTLS)", "TLS", user, pass, "done: +OK in|"],
    );
    let first = "starttls STARTTLS| (STARTTLS)";
    let sent = ["a1 LOGIN {3}| (LOGIN command)", "joe {7}| (user name)", "ge heim| (password)"];
    check(
        &with(Protocol::Imap),
        "* OK hi\r\n* X\r\nstarttls ok go\r\n[TLS]+ \r\n+ \r\na1 OK in\r\n",
        &[first, "TLS", sent[0], sent[1], sent[2], "done: a1 OK in|"],
    );
    let smtp = Login { smtp_auth: true, ..with(Protocol::Smtp) };
    let auth = format!("AUTH PLAIN {}| (AUTH)", b64("\0joe\0ge heim"));
    check(
        &smtp,
        "220 hi\r\n250-mx\r\n250 STARTTLS\r\n220 go\r\n[TLS]250 mx\r\n235 in\r\n",
        &[EHLO, "STARTTLS| (STARTTLS)", "TLS", EHLO, &auth, IN],
    );
}

#[test]
fn nothing_is_read_between_the_command_and_tls() {
    for (protocol, said) in [
        (Protocol::Pop3, "+OK hi\r\n+OK go\r\n+OK more\r\n"),
        (Protocol::Imap, "* OK hi\r\nstarttls OK go\r\n* "),
        (Protocol::Smtp, "220 hi\r\n250 mx\r\n220 go\r\n250 mx\r\n"),
    ] {
        let login = Login { starttls: true, ..login(protocol) };
        for size in [usize::MAX, 1, 2, 3, 5, 17] {
            let all = pieces(&login, said.as_bytes(), size);
            assert_eq!(all.last().map(String::as_str), Some("in clear"), "in pieces of {size}");
        }
    }
}

#[test]
fn a_server_without_tls_gets_no_password() {
    let with = |protocol| Login { starttls: true, ..login(protocol) };
    check(
        &with(Protocol::Pop3),
        "+OK\r\n-ERR no\r\n",
        &["STLS| (STARTTLS)", "failed: -ERR no None"],
    );
    check(
        &with(Protocol::Imap),
        "* OK\r\nstarttls BAD no\r\n",
        &["starttls STARTTLS| (STARTTLS)", "failed: starttls BAD no None"],
    );
    check(
        &with(Protocol::Smtp),
        "220 mx\r\n250 mx\r\n454 no\r\n",
        &[EHLO, "STARTTLS| (STARTTLS)", "failed: 454 no None"],
    );
}

const HELO: &str = "HELO mx| (HELO/EHLO)";
const EHLO: &str = "EHLO mx| (HELO/EHLO)";
const IN: &str = "done: 235 2.0.0 OK|";

#[test]
fn smtp_greetings() {
    check(&smtp(|_| ()), "220 hi\r\n250 mx\r\n", &[HELO, IN]);
    let esmtp = smtp(|login| login.esmtp = true);
    check(
        &esmtp,
        "220-hi\r\n220-you\r\n220 there\r\n250-mx\r\n250 X\r\n421 x",
        &[EHLO, "done: 235 2.0.0 OK|421 x"],
    );
    for (bytes, want) in [
        ("554 no\r\n", &["failed: 554 no Some(\"554 no|\")"][..]),
        ("554-no\r\n554 way\r\n", &["failed: 554-no|554 way Some(\"554-no|554 way|\")"]),
        ("250 mx\r\n", &["failed: 250 mx Some(\"250 mx|\")"]),
        ("22\r\n", &["failed: 22 Some(\"22|\")"]),
        ("2200\r\n", &["failed: 2200 Some(\"2200|\")"]),
        ("hello\r\n", &["failed: hello Some(\"hello|\")"]),
        ("220\r\n502 x\r\n", &[EHLO, "failed: 502 x Some(\"502 x|\")"]),
    ] {
        check(&esmtp, bytes, want);
    }
}

#[test]
fn smtp_auth() {
    let auth = smtp(|login| login.smtp_auth = true);
    let line = format!("AUTH PLAIN {}| (AUTH)", b64("\0joe\0ge heim"));
    check(&auth, "220\r\n250\r\n235 in\r\n", &[HELO, &line, IN]);
    check(&auth, "220\r\n250\r\n535 no\r\n", &[HELO, &line, "no login: 535 no Some(\"535 no|\")"]);
    check(&auth, "220\r\n250\r\n250 in\r\n", &[HELO, &line, "no login: 250 in Some(\"250 in|\")"]);
    let without = smtp(|login| {
        login.smtp_auth = true;
        login.password = None;
    });
    check(&without, "220\r\n250\r\n", &[HELO, "no password"]);
}

#[test]
fn smtp_without_a_login() {
    let none = smtp(|login| {
        login.smtp = envelope();
        login.smtp_auth = true;
    });
    let (from, to) = ("MAIL FROM:<a@b> SIZE=1| (MAIL FROM)", "RCPT TO:<c@d>| (RCPT TO)");
    check(
        &none,
        "220\r\n250\r\n250\r\n250-to\r\n250 it\r\nx",
        &[HELO, from, to, "done: 250-to|250 it|x"],
    );
    // The client learns what the server says of its recipient.
    check(&none, "220\r\n250\r\n250\r\n550 no\r\n", &[HELO, from, to, "done: 550 no|"]);
    check(
        &none,
        "220\r\n250\r\n452 full\r\n",
        &[HELO, from, "failed: 452 full Some(\"452 full|\")"],
    );
}

#[test]
fn smtp_xclient() {
    let line = |rest: &str| format!("XCLIENT ADDR={rest} NAME=c.example| (XCLIENT)");
    let full = smtp(|login| {
        login.xclient = xclient(Some("192.0.2.1"));
        login.login = Bytes::from_static(b"j o+e\r\n=\xff");
    });
    let told = line("192.0.2.1 LOGIN=j+20o+2Be+0D+0A+3D+FF");
    check(&full, "220\r\n250\r\n250 ok\r\n", &[EHLO, &told, IN]);
    check(&full, "220\r\n250\r\n220 anew\r\n", &[EHLO, &told, IN]);
    check(&full, "220\r\n250\r\n550 no\r\n", &[EHLO, &told, "failed: 550 no Some(\"550 no|\")"]);
    for (esmtp, hello) in
        [(true, "EHLO c| (client HELO/EHLO)"), (false, "HELO c| (client HELO/EHLO)")]
    {
        let helo = smtp(|login| {
            login.xclient = xclient(Some("2001:db8::1"));
            login.helo = Bytes::from_static(b"c");
            login.esmtp = esmtp;
            login.smtp_auth = true;
        });
        let auth = format!("AUTH PLAIN {}| (AUTH)", b64("\0joe\0ge heim"));
        let told = line("IPV6:2001:db8::1");
        check(&helo, "220\r\n250\r\n220\r\n250\r\n235\r\n", &[EHLO, &told, hello, &auth, IN]);
    }
    let none = smtp(|login| {
        login.xclient = xclient(None);
        login.login = Bytes::new();
        login.smtp = envelope();
    });
    let told = line("[UNAVAILABLE]");
    let from = "MAIL FROM:<a@b> SIZE=1| (MAIL FROM)";
    check(&none, "220\r\n250\r\n250\r\n", &[EHLO, &told, from]);
}

/// No value can end a line.
#[test]
fn values_that_cannot_be_sent() {
    for bad in ["a\rb", "a\nb", "a\0b"] {
        let bad = || Bytes::copy_from_slice(bad.as_bytes());
        let mut pop3 = login(Protocol::Pop3);
        pop3.login = bad();
        check(&pop3, "+OK\r\n", &["unsendable login"]);
        let mut pop3 = login(Protocol::Pop3);
        pop3.password = Some(bad());
        check(&pop3, "+OK\r\n+OK\r\n", &["USER joe| (user name)", "unsendable password"]);
        let mut imap = login(Protocol::Imap);
        imap.tag = bad();
        check(&imap, "* OK\r\n", &["unsendable tag"]);
        let mut imap = login(Protocol::Imap);
        imap.login = bad();
        check(&imap, "* OK\r\n", &["unsendable login"]);
        let mut imap = login(Protocol::Imap);
        imap.password = Some(bad());
        let first = "a1 LOGIN {3}| (LOGIN command)";
        check(&imap, "* OK\r\n+ \r\n", &[first, "unsendable password"]);
        let name = smtp(|login| login.server_name = bad());
        check(&name, "220\r\n", &["unsendable server name"]);
        let auth = smtp(|login| {
            login.smtp_auth = true;
            login.password = Some(bad());
        });
        check(&auth, "220\r\n250\r\n", &[HELO, "unsendable password"]);
        let helo = smtp(|login| {
            login.xclient = xclient(None);
            login.login = Bytes::new();
            login.helo = bad();
        });
        let told = "XCLIENT ADDR=[UNAVAILABLE] NAME=c.example| (XCLIENT)";
        check(&helo, "220\r\n250\r\n250\r\n", &[EHLO, told, "unsendable helo"]);
        let mail = smtp(|login| {
            login.smtp = envelope().map(|e| Envelope { from: bad(), ..e });
        });
        check(&mail, "220\r\n250\r\n", &[HELO, "unsendable sender"]);
        let mail = smtp(|login| login.smtp = envelope().map(|e| Envelope { to: bad(), ..e }));
        let from = "MAIL FROM:<a@b> SIZE=1| (MAIL FROM)";
        check(&mail, "220\r\n250\r\n250\r\n", &[HELO, from, "unsendable recipient"]);
    }
}

#[test]
fn answers_that_are_too_long() {
    let pop3 = login(Protocol::Pop3);
    let fits = format!("+OK {}\r\n", "x".repeat(122));
    assert_eq!(fits.len(), 128);
    check(&pop3, &fits, &["USER joe| (user name)"]);
    check(&pop3, &format!("+OK {}\r\n", "x".repeat(123)), &["too long: 128"]);
    // Lines of one answer count together.
    check(&smtp(|_| ()), &"220-hi\r\n".repeat(17), &["too long: 128"]);
    let imap = login(Protocol::Imap);
    let before = "* OK\r\n+ \r\n+ \r\n";
    let bytes = format!("{before}{}", "* X\r\n".repeat(30));
    let got = pieces(&imap, bytes.as_bytes(), usize::MAX);
    assert_eq!(got.last().map(String::as_str), Some("too long: 128"));
    // Those that mean nothing are dropped.
    let bytes = format!("* OK\r\n{}+ \r\n", "* X\r\n".repeat(30));
    check(&imap, &bytes, &["a1 LOGIN {3}| (LOGIN command)", "joe {7}| (user name)"]);
}
