//! IMAP.

use super::{b64, lines, settings, talk, with};
use crate::{Protocol, Settings, StartTls};

fn imap() -> Settings {
    settings(Protocol::Imap)
}

fn check(sent: &[&str], want: &[&str]) {
    assert_eq!(talk(&imap(), &lines(sent)), want, "{sent:?}");
}

#[test]
fn simple_commands() {
    check(
        &["a01 NOOP", "a.B_3-x capability", "9  LogOut"],
        &[
            "a01 OK completed|",
            "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN AUTH=LOGIN AUTH=CRAM-MD5 \
             AUTH=EXTERNAL|a.B_3-x OK completed|",
            "quit: * BYE|9 OK completed|",
        ],
    );
    // A bare LF ends a line, too.
    assert_eq!(talk(&imap(), "a NOOP\nb NOOP\n"), ["a OK completed|", "b OK completed|"]);
}

#[test]
fn arguments_of_login() {
    for (sent, want) in [
        ("a LOGIN joe geheim", "plain: joe geheim tag=a "),
        ("a login   joe   geheim  ", "plain: joe geheim tag=a "),
        (r#"a LOGIN "jo e" "ge\"he\\im""#, r#"plain: jo e ge"he\im tag=a "#),
        (r#"a LOGIN joe """#, "plain: joe  tag=a "),
        (r#"a LOGIN jo"e ge{3}im"#, r#"plain: jo"e ge{3}im tag=a "#),
        ("a LOGIN", "a BAD invalid command|"),
        ("a LOGIN joe", "a BAD invalid command|"),
        ("a LOGIN joe geheim x", "a BAD invalid command|"),
        (r#"a LOGIN "" geheim"#, "a BAD invalid command|"),
        (r#"a LOGIN "joe geheim"#, "a BAD invalid command|"),
        (r#"a LOGIN "joe"geheim x"#, "a BAD invalid command|"),
        (r#"a LOGIN joe "geheim\"#, "a BAD invalid command|"),
        ("a LOGIN joe {3", "a BAD invalid command|"),
        ("a LOGIN joe {}", "a BAD invalid command|"),
        ("a LOGIN joe {x}", "a BAD invalid command|"),
        ("a LOGIN joe {1}x", "a BAD invalid command|"),
        ("a LOGIN joe {99999999999999999999999}", "a BAD invalid command|"),
        ("a LOGIN jo\0e geheim", "a BAD invalid command|"),
        ("a LOGIN joe ge\rheim", "a BAD invalid command|"),
    ] {
        check(&[sent], &[want]);
    }
}

#[test]
fn tags() {
    let longest = "t".repeat(32);
    check(&[&format!("{longest} NOOP")], &[&format!("{longest} OK completed|")]);
    for (sent, want) in [
        (format!("{longest}t NOOP"), "* BAD invalid command|"),
        ("a+ NOOP".to_owned(), "* BAD invalid command|"),
        (" NOOP".to_owned(), "* BAD invalid command|"),
        ("NOOP".to_owned(), "* BAD invalid command|"),
        (String::new(), "* BAD invalid command|"),
        ("a".to_owned(), "* BAD invalid command|"),
        ("a ".to_owned(), "a BAD invalid command|"),
        ("a FOO".to_owned(), "a BAD invalid command|"),
        ("a NOOPS".to_owned(), "a BAD invalid command|"),
        ("a NOOP\tx".to_owned(), "a BAD invalid command|"),
    ] {
        check(&[&sent], &[want]);
    }
}

#[test]
fn literals() {
    let asked = "+ OK|";
    check(&["a LOGIN {3}", "joe {6}", "geheim"], &[asked, asked, "plain: joe geheim tag=a "]);
    check(&["a LOGIN {3+}", "joe {6+}", "geheim"], &["plain: joe geheim tag=a "]);
    check(&[r#"a LOGIN {7+}"#, r#"a\"{1}| "b\"c""#], &[r#"plain: a\"{1}| b"c tag=a "#]);
    // Of no byte, and with line ends in it.
    check(&["a LOGIN joe {0}", ""], &[asked, "plain: joe  tag=a "]);
    check(&["a LOGIN {4+}", "\r\n\r\n geheim"], &["plain: || geheim tag=a "]);
    // What follows a literal is a space or the line's end.
    check(
        &["a LOGIN {3+}", "joex geheim", "b NOOP"],
        &["a BAD invalid command|", "b OK completed|"],
    );
    check(
        &["a LOGIN {1}", "1 {1}", "2 {1}", "3 {1}", "b NOOP"],
        &[asked, asked, asked, "a BAD invalid command|", "b OK completed|"],
    );
}

/// The client sends a literal without being asked, and it must not be read as commands.
#[test]
fn an_invalid_command_with_a_literal_that_comes_anyway() {
    check(&["a FOOBAR {10+}", "a1 LOGOUT", "b NOOP"], &["quit: a BAD invalid command|"]);
    check(&["a LOGIN {1+}", "xx {10+}", "a1 LOGOUT"], &["quit: a BAD invalid command|"]);
    // One that is sent when asked for alone does not come.
    check(&["a FOOBAR {10}", "b NOOP"], &["a BAD invalid command|", "b OK completed|"]);
}

#[test]
fn sasl() {
    let plain = b64("\0joe\0geheim");
    let digest = "0".repeat(32);
    let cram = b64(&format!("joe {digest}"));
    let challenge = format!("+ {}|", b64("<7.8@mx.example>"));
    let done = "plain: joe geheim tag=a ";
    let invalid = "a BAD invalid command|";
    check(&[&format!("a AUTHENTICATE PLAIN {plain}")], &[done]);
    check(&["a authenticate plain", &plain], &["+ |", done]);
    check(
        &["a AUTHENTICATE LOGIN", &b64("joe"), &b64("geheim")],
        &["+ VXNlcm5hbWU6|", "+ UGFzc3dvcmQ6|", done],
    );
    check(
        &[&format!("a AUTHENTICATE LOGIN {}", b64("joe")), &b64("geheim")],
        &["+ UGFzc3dvcmQ6|", done],
    );
    let asked = format!("cram-md5: joe {digest} tag=a  salt=<7.8@mx.example>");
    check(&["a AUTHENTICATE CRAM-MD5", &cram], &[&challenge, &asked]);
    let bad = "a BAD invalid command| # client sent invalid CRAM-MD5 hash in AUTH CRAM-MD5 command";
    for response in ["joe", "joe ", &format!("jo e {digest}"), &format!("joe {digest}0")] {
        check(&["a AUTHENTICATE CRAM-MD5", &b64(response)], &[&challenge, bad]);
    }
    check(&["a AUTHENTICATE EXTERNAL", &b64("joe")], &["+ VXNlcm5hbWU6|", "external: joe  tag=a "]);
    check(&[&format!("a AUTHENTICATE EXTERNAL {}", b64("joe"))], &["external: joe  tag=a "]);
    for sent in [
        "a AUTHENTICATE",
        "a AUTHENTICATE FOO",
        "a AUTHENTICATE PLAIN a b",
        "a AUTHENTICATE LOGIN a b",
        &format!("a AUTHENTICATE CRAM-MD5 {cram}"),
    ] {
        check(&[sent], &[invalid]);
    }
}

#[test]
fn broken_sasl_responses() {
    for (method, challenge, response, note) in [
        ("PLAIN", "+ |", "!".to_owned(), "base64 encoding in AUTH PLAIN"),
        ("PLAIN", "+ |", b64("joe"), "login in AUTH PLAIN"),
        ("PLAIN", "+ |", b64("joe\0"), "login in AUTH PLAIN"),
        ("PLAIN", "+ |", String::new(), "login in AUTH PLAIN"),
        ("PLAIN", "+ |", b64("\0joe"), "password in AUTH PLAIN"),
        ("PLAIN", "+ |", b64("\0joe\0ge\0heim"), "password in AUTH PLAIN"),
        ("LOGIN", "+ VXNlcm5hbWU6|", "a".to_owned(), "base64 encoding in AUTH LOGIN"),
        ("EXTERNAL", "+ VXNlcm5hbWU6|", "*a".to_owned(), "base64 encoding in AUTH EXTERNAL"),
    ] {
        let bad = format!("a BAD invalid command| # client sent invalid {note} command");
        let first = format!("a AUTHENTICATE {method}");
        // The tag is the one of AUTHENTICATE, and what follows is a command again.
        check(&[&first, &response, "b NOOP"], &[challenge, &bad, "b OK completed|"]);
        if !response.is_empty() {
            check(&[&format!("{first} {response}")], &[&bad]);
        }
    }
    check(
        &["a AUTHENTICATE PLAIN", "*", "b NOOP"],
        &["+ |", "a BAD invalid command|", "b OK completed|"],
    );
    // An empty password is one.
    check(&[&format!("a AUTHENTICATE PLAIN {}", b64("x\0joe\0"))], &["plain: joe  tag=a "]);
}

#[test]
fn methods_that_are_not_allowed() {
    use crate::Methods;
    let plain = with(Protocol::Imap, |s| s.methods = Methods::EMPTY);
    for (sent, want) in [
        ("a AUTHENTICATE CRAM-MD5", "a BAD invalid command|"),
        ("a AUTHENTICATE EXTERNAL", "a BAD invalid command|"),
        // These always work.
        ("a AUTHENTICATE PLAIN", "+ |"),
        ("a AUTHENTICATE LOGIN", "+ VXNlcm5hbWU6|"),
    ] {
        assert_eq!(talk(&plain, &lines(&[sent])), [want], "{sent}");
    }
}

#[test]
fn starttls() {
    let on = with(Protocol::Imap, |s| s.starttls = StartTls::On);
    let only = with(Protocol::Imap, |s| s.starttls = StartTls::Only);
    for settings in [&on, &only] {
        assert_eq!(talk(settings, "a STARTTLS\r\nb NOOP\r\n"), ["tls: a OK completed|"]);
    }
    check(&["a STARTTLS"], &["a BAD invalid command|"]);
    let login = "a LOGIN joe geheim\r\n";
    assert_eq!(talk(&on, login), ["plain: joe geheim tag=a "]);
    assert_eq!(talk(&only, login), ["a BAD invalid command|"]);
    assert_eq!(talk(&only, "a AUTHENTICATE PLAIN\r\n"), ["a BAD invalid command|"]);
    let capability = talk(&only, "a CAPABILITY\r\n").concat();
    assert!(capability.contains("UIDPLUS STARTTLS LOGINDISABLED|a OK"), "{capability}");
    let capability = talk(&on, "a CAPABILITY\r\n").concat();
    assert!(capability.contains("AUTH=EXTERNAL STARTTLS|a OK"), "{capability}");
}
