//! Dialogues as texts: what a client sends, and what comes of it, in pieces of every size alike.

mod auth;
mod backend;
mod imap;
mod limits;
mod pop3;
mod smtp;
mod texts;

use crate::{Action, Dialogue, Methods, Note, Protocol, Settings, StartTls, Texts};
use bytes::Bytes;
use std::rc::Rc;

const SALT: &[u8] = b"<7.8@mx.example>";

const ALL: Methods = Methods::PLAIN
    .or(Methods::LOGIN)
    .or(Methods::APOP)
    .or(Methods::CRAM_MD5)
    .or(Methods::EXTERNAL)
    .or(Methods::NONE);

fn settings(protocol: Protocol) -> Settings {
    Settings {
        protocol,
        methods: ALL,
        starttls: StartTls::Off,
        texts: Texts::new(protocol, &[], ALL, b"mx.example"),
        buffer: 256,
        max_errors: 5,
        server_name: Bytes::from_static(b"mx.example"),
    }
}

fn with(protocol: Protocol, change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = settings(protocol);
    change(&mut settings);
    settings.texts = Texts::new(protocol, &[], settings.methods, &settings.server_name);
    settings
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "|");
    text.chars().map(|c| if c == '\0' { '~' } else { c }).collect()
}

fn noted(what: &str, bytes: &[u8], note: &Option<Note>) -> String {
    let note = note.as_ref().map(|note| format!(" # {note}")).unwrap_or_default();
    format!("{what}{}{note}", text(bytes))
}

/// One action as a text; `|` is a line's end. The answer to a question is a refusal.
fn shown(action: &Action) -> String {
    match action {
        Action::More => String::new(),
        Action::Reply { text, note } => noted("", text, note),
        Action::Quit { text, note } => noted("quit: ", text, note),
        Action::StartTls { text } => noted("tls: ", text, &None),
        Action::Ask(c) => {
            let mut line = format!("{}: {} {}", c.method.name(), text(&c.login), text(&c.password));
            if !c.tag.is_empty() {
                line += &format!(" tag={}", text(&c.tag));
            }
            if let Some(salt) = &c.salt {
                line += &format!(" salt={}", text(salt));
            }
            if !c.helo.is_empty() {
                line += &format!(" {}={}", if c.esmtp { "ehlo" } else { "helo" }, text(&c.helo));
            }
            if let Some(envelope) = &c.smtp {
                line += &format!(" {} {}", text(&envelope.from), text(&envelope.to));
            }
            line
        }
    }
}

/// Feeds `bytes` in pieces of `size` and gives the actions until one that ends the dialogue.
fn pieces(dialogue: &mut Dialogue, mut bytes: &[u8], size: usize) -> Vec<String> {
    let mut actions = Vec::new();
    loop {
        let action = dialogue.step();
        if action == Action::More {
            let len = size.min(dialogue.room()).min(bytes.len());
            if len == 0 {
                return actions;
            }
            let (piece, rest) = bytes.split_at(len);
            dialogue.feed(piece);
            bytes = rest;
            continue;
        }
        actions.push(shown(&action));
        match action {
            Action::Quit { .. } | Action::StartTls { .. } => return actions,
            Action::Ask(_) => dialogue.go_on(),
            Action::More | Action::Reply { .. } => {}
        }
    }
}

/// The outcome of `bytes`, whatever the pieces.
fn talk(settings: &Settings, bytes: &str) -> Vec<String> {
    let run = |size: usize| {
        let mut dialogue = Dialogue::new(Rc::new(settings.clone()), Bytes::from_static(SALT));
        pieces(&mut dialogue, bytes.as_bytes(), size)
    };
    let whole = run(usize::MAX);
    for size in [1, 2, 3, 5, 17] {
        assert_eq!(run(size), whole, "in pieces of {size}: {bytes:?}");
    }
    whole
}

fn b64(text: &str) -> String {
    let mut out = Vec::new();
    base::base64::encode(text.as_bytes(), &mut out);
    String::from_utf8(out).expect("ASCII")
}

/// A client's lines, each with its end.
fn lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\r\n")).collect()
}

#[test]
fn sets_of_methods() {
    let set = Methods::PLAIN.or(Methods::APOP);
    assert!(set.has(Methods::PLAIN) && set.has(Methods::APOP) && set.has(Methods::EMPTY));
    assert!(!set.has(Methods::LOGIN) && !set.has(Methods::PLAIN.or(Methods::LOGIN)));
    assert_eq!(Methods::default(), Methods::EMPTY);
    assert_eq!(format!("{set:?}"), r#"{"plain", "apop"}"#);
}

/// Neither a log line nor a panic may show a password.
#[test]
fn debug_texts_have_no_password() {
    let mut dialogue = Dialogue::new(Rc::new(settings(Protocol::Pop3)), Bytes::new());
    dialogue.feed(b"USER joe\r\nPASS geheim\r\n");
    dialogue.step();
    let Action::Ask(credentials) = dialogue.step() else { panic!("no question") };
    assert_eq!(&credentials.password[..], b"geheim");
    assert!(!format!("{credentials:?}").contains("geheim"));
}
