//! Ends of a dialogue, the state that STARTTLS forgets, and bytes left for the mail server.

use super::{SALT, lines, pieces, settings, talk, with};
use crate::{Action, Dialogue, Protocol, Settings, StartTls};
use bytes::Bytes;
use std::rc::Rc;

fn dialogue(settings: Settings) -> Dialogue {
    Dialogue::new(Rc::new(settings), Bytes::from_static(SALT))
}

/// Lines that are no commands count, and commands that fail otherwise do not.
#[test]
fn too_many_invalid_commands() {
    for (protocol, bad, failing, want) in [
        (Protocol::Imap, "a FOO", "a LOGIN", "a BAD invalid command|"),
        (Protocol::Pop3, "FOO", "USER", "-ERR invalid command|"),
        (Protocol::Smtp, "FOO", "VRFY", "500 5.5.1 Invalid command|"),
    ] {
        let limited = with(protocol, |s| s.max_errors = 2);
        let last = format!("quit: {want} # client sent too many invalid commands");
        let sent = lines(&[failing, bad, failing, failing, bad, bad]);
        assert_eq!(talk(&limited, &sent), [want, want, want, want, &last], "{protocol:?}");
    }
}

/// A command may fill the buffer, and commands together may be longer.
#[test]
fn commands_that_are_too_long() {
    for (protocol, start, fits, want) in [
        (Protocol::Imap, "a NOOP ", "a OK completed|", "a BAD invalid command|"),
        (Protocol::Pop3, "NOOP ", "+OK|", "-ERR invalid command|"),
        (Protocol::Smtp, "NOOP ", "250 2.0.0 OK|", "500 5.5.1 Invalid command|"),
    ] {
        let limited = with(protocol, |s| s.buffer = 32);
        let longest = format!("{start}{}\r\n", "x".repeat(30 - start.len()));
        assert_eq!(longest.len(), 32);
        assert_eq!(talk(&limited, &longest.repeat(3)), [fits; 3], "{protocol:?}");
        let longer = format!("{start}{}\r\n", "x".repeat(31 - start.len()));
        let seen = &longer[..32].replace('\r', "_");
        let last = format!("quit: {want} # client sent too long command \"{seen}\"");
        assert_eq!(talk(&limited, &(longest + &longer)), [fits, &last], "{protocol:?}");
    }
}

/// The parts of a command of IMAP count together.
#[test]
fn literals_count_towards_the_buffer() {
    let limited = with(Protocol::Imap, |s| s.buffer = 32);
    // 13 bytes of the first line: the literal and the end of the second one have 19.
    let fits = format!("a LOGIN {{14}}\r\n{} x\r\n", "u".repeat(14));
    assert_eq!(fits.len(), 32);
    let login = format!("plain: {} x tag=a ", "u".repeat(14));
    assert_eq!(talk(&limited, &fits.repeat(2)), ["+ OK|", &login, "+ OK|", &login]);
    let longer = format!("a LOGIN {{14}}\r\n{} xy\r\n", "u".repeat(14));
    let got = talk(&limited, &longer);
    assert_eq!(got[0], "+ OK|");
    assert!(got[1].starts_with("quit: a BAD invalid command| # client sent too long"), "{got:?}");
    // One that cannot fit is refused before it is sent.
    let sent = "a LOGIN {18}\r\nb NOOP\r\n";
    assert_eq!(talk(&limited, sent), ["a BAD invalid command|", "b OK completed|"]);
    let sent = format!("a LOGIN {{4000000000+}}\r\n{}", "u".repeat(99));
    assert!(talk(&limited, &sent).concat().starts_with("quit: a BAD invalid command| #"));
}

#[test]
fn a_long_line_without_a_tag() {
    let limited = with(Protocol::Imap, |s| s.buffer = 32);
    let got = talk(&limited, &"x".repeat(40)).concat();
    assert!(got.starts_with("quit: * BAD invalid command| #"), "{got}");
}

/// RFC 3207 section 4.2: everything that was said in clear is forgotten.
#[test]
fn tls_begins_anew() {
    let mut smtp = dialogue(with(Protocol::Smtp, |s| {
        s.starttls = StartTls::On;
        s.max_errors = 2;
    }));
    let sent = "FOO\r\nEHLO liar\r\nMAIL FROM:<a@b>\r\nSTARTTLS\r\nRCPT TO:<c@d>\r\n";
    let got = pieces(&mut smtp, sent.as_bytes(), usize::MAX);
    assert_eq!(got.last().map(String::as_str), Some("tls: 220 2.0.0 Start TLS|"));
    // The owner has to close the connection: these came in clear.
    assert_eq!(smtp.pending(), b"RCPT TO:<c@d>\r\n");
    smtp.now_tls();
    assert!(smtp.pending().is_empty());
    let sent = "RCPT TO:<c@d>\r\nSTARTTLS\r\nAUTH EXTERNAL am9l\r\nEHLO x\r\nBAR\r\n";
    assert_eq!(
        pieces(&mut smtp, sent.as_bytes(), usize::MAX),
        [
            "503 5.5.1 Bad sequence of commands|",
            "500 5.5.1 Invalid command|",
            "external: joe ",
            "250-mx.example|250 AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL|",
            "quit: 500 5.5.1 Invalid command| # client sent too many invalid commands",
        ]
    );
}

#[test]
fn a_login_in_clear_is_forgotten() {
    let mut pop3 = dialogue(with(Protocol::Pop3, |s| s.starttls = StartTls::On));
    pieces(&mut pop3, b"USER joe\r\n", 99);
    assert_eq!(pop3.login(), b"joe");
    pop3.now_tls();
    assert_eq!(pop3.login(), b"");
    assert_eq!(pieces(&mut pop3, b"PASS x\r\n", 99), ["-ERR invalid command|"]);
}

/// TLS from the start: nothing is refused, and STARTTLS is not offered.
#[test]
fn tls_from_the_start() {
    for (protocol, sent) in [
        (Protocol::Imap, "a LOGIN joe x\r\n"),
        (Protocol::Pop3, "USER joe\r\nPASS x\r\n"),
        (Protocol::Smtp, "AUTH PLAIN AGpvZQB4\r\n"),
    ] {
        let mut dialogue = dialogue(with(protocol, |s| s.starttls = StartTls::Only));
        dialogue.now_tls();
        let got = pieces(&mut dialogue, sent.as_bytes(), 99);
        assert!(got.last().is_some_and(|last| last.starts_with("plain: joe x")), "{got:?}");
    }
}

/// Commands behind a login are the mail server's, byte for byte.
#[test]
fn pipelined_commands_stay() {
    for (protocol, sent) in [
        (Protocol::Imap, "a LOGIN joe x\r\n"),
        (Protocol::Imap, "a LOGIN {3+}\r\njoe x\r\n"),
        (Protocol::Pop3, "APOP joe x\r\n"),
        (Protocol::Smtp, "AUTH PLAIN AGpvZQB4\r\n"),
    ] {
        let mut dialogue = dialogue(settings(protocol));
        let behind = b"b SELECT inbox\r\nc FE";
        dialogue.feed(sent.as_bytes());
        dialogue.feed(behind);
        assert!(matches!(dialogue.step(), Action::Ask(_)));
        assert_eq!(dialogue.login(), b"joe");
        assert_eq!(dialogue.pending(), behind);
        assert_eq!(dialogue.room(), 256 - behind.len());
        assert_eq!(dialogue.take_pending(), behind);
        assert_eq!((dialogue.pending(), dialogue.room()), (&b""[..], 256));
        assert_eq!(dialogue.step(), Action::More);
    }
}
