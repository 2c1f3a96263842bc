//! Mail: clients, mail servers and the authentication server.

use bytes::Bytes;
use mail_proto::auth::{Parsed, Question, TlsFields, Verdict, parse, refusal, write};
use mail_proto::backend::{Backend, Login, Said, XClient};
use mail_proto::host::ClientHost;
use mail_proto::{
    Action, Credentials, Dialogue, Envelope, Method, Methods, Protocol, Settings, StartTls, Texts,
};
use std::rc::Rc;

const SALT: &[u8] = b"<1.2@mx.example>";

/// The first byte chooses protocol and settings, the second the length of pieces. The rest is what
/// a client sends, and what a mail server and an authentication server answer.
///
/// Pieces give the actions of the whole, and of every attempt to log in the question is read back
/// equal, whatever the client sent. A mail server never gets a line end inside a value.
pub fn run(data: &[u8]) {
    let Some((&[choice, piece], bytes)) = data.split_first_chunk() else { return };
    let piece = usize::from(piece).max(1);
    let settings = Rc::new(settings(choice));
    let (actions, attempts) = client(&settings, bytes, usize::MAX);
    assert_eq!(client(&settings, bytes, 1).0, actions, "byte by byte");
    assert_eq!(client(&settings, bytes, piece).0, actions, "in pieces of {piece}");
    for credentials in &attempts {
        questions(settings.protocol, credentials);
    }
    let login = login(choice, bytes, attempts.first());
    let said = server(&login, bytes, usize::MAX);
    assert_eq!(server(&login, bytes, 1), said, "byte by byte");
    assert_eq!(server(&login, bytes, piece), said, "in pieces of {piece}");
    answer(bytes);
    // What a PTR record holds is a name or nothing.
    if let Some(host) = ClientHost::from_ptr(bytes) {
        let ok = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'.';
        assert!(host.as_str().as_bytes() == bytes && bytes.iter().all(ok) && bytes.len() <= 253);
    }
}

fn settings(choice: u8) -> Settings {
    let protocol = [Protocol::Imap, Protocol::Pop3, Protocol::Smtp][usize::from(choice % 3)];
    let all = [Methods::APOP, Methods::CRAM_MD5, Methods::EXTERNAL, Methods::NONE];
    let all = all.iter().fold(Methods::PLAIN.or(Methods::LOGIN), |set, more| set.or(*more));
    let methods = if choice & 0x80 == 0 { all } else { Methods::PLAIN };
    Settings {
        protocol,
        methods,
        starttls: [StartTls::Off, StartTls::On, StartTls::Only][usize::from(choice / 3 % 3)],
        texts: Texts::new(protocol, &[], methods, b"mx.example"),
        buffer: if choice & 0x40 == 0 { 128 } else { 40 },
        max_errors: 5,
        server_name: Bytes::from_static(b"mx.example"),
    }
}

/// The actions for a client that sends `bytes` in pieces, whose attempts all fail, and its
/// attempts.
fn client(
    settings: &Rc<Settings>,
    mut bytes: &[u8],
    piece: usize,
) -> (Vec<Action>, Vec<Credentials>) {
    let mut dialogue = Dialogue::new(Rc::clone(settings), Bytes::from_static(SALT));
    let (mut actions, mut attempts) = (Vec::new(), Vec::new());
    loop {
        let room = dialogue.room();
        assert!(room + dialogue.pending().len() <= settings.buffer);
        let action = dialogue.step();
        match &action {
            Action::More => {
                assert!(dialogue.room() > 0, "something can come");
                let (now, later) = bytes.split_at(piece.min(dialogue.room()).min(bytes.len()));
                if now.is_empty() {
                    return (actions, attempts);
                }
                dialogue.feed(now);
                bytes = later;
                continue;
            }
            Action::Ask(credentials) => {
                check(settings, credentials);
                attempts.push(credentials.clone());
                dialogue.go_on();
            }
            Action::StartTls { text } => {
                assert!(text.ends_with(b"\r\n") && settings.starttls != StartTls::Off);
                // As if the client had sent nothing behind it.
                dialogue.now_tls();
                assert!(dialogue.pending().is_empty() && dialogue.login().is_empty());
                actions.push(action);
                return (actions, attempts);
            }
            Action::Reply { text, note } | Action::Quit { text, note } => {
                assert!(text.ends_with(b"\r\n") && !text.contains(&0));
                if let Some(note) = note {
                    assert!(!note.to_string().contains(char::is_control));
                }
                if matches!(action, Action::Quit { .. }) {
                    actions.push(action);
                    return (actions, attempts);
                }
            }
        }
        actions.push(action);
    }
}

fn is_one_line(value: &[u8]) -> bool {
    !value.iter().any(u8::is_ascii_control)
}

/// What holds of every attempt.
fn check(settings: &Settings, credentials: &Credentials) {
    assert!(settings.starttls != StartTls::Only || credentials.method == Method::None);
    let salted = matches!(credentials.method, Method::Apop | Method::CramMd5);
    assert_eq!(credentials.salt.is_some(), salted);
    assert_eq!(credentials.smtp.is_some(), credentials.method == Method::None);
    assert_eq!(credentials.tag.is_empty(), settings.protocol != Protocol::Imap);
    assert!(credentials.tag.len() <= 33 && is_one_line(&credentials.tag));
    assert!(is_one_line(&credentials.helo));
    if let Some(envelope) = &credentials.smtp {
        assert!(is_one_line(&envelope.from) && !envelope.from.is_empty());
        assert!(is_one_line(&envelope.to) && !envelope.to.is_empty());
    }
}

/// The fields of a head, with their values as they stand there.
fn fields(head: &[u8]) -> Vec<(&[u8], &[u8])> {
    let head = head.strip_suffix(b"\r\n\r\n").expect("an end");
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(is_one_line(line));
        line
    });
    let first = lines.next().expect("a request line");
    assert_eq!(first.iter().filter(|byte| **byte == b' ').count(), 2);
    lines
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a field");
            (&line[..colon], line[colon + 1..].strip_prefix(b" ").expect("a space"))
        })
        .collect()
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = value.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = rest.next().expect("two digits");
            (*digit as char).to_digit(16).expect("a digit") as u8
        };
        out.push(digit() << 4 | digit());
    }
    out
}

/// A written question reads back to its fields, and has no others.
fn questions(protocol: Protocol, credentials: &Credentials) {
    // The worst values for all others: those of the client.
    let value = &credentials.login[..];
    let headers = [(Bytes::from_static(b"X-Key"), credentials.password.clone())];
    let host = ClientHost::from_ptr(value);
    let question = Question {
        uri: value,
        host: value,
        protocol,
        credentials,
        attempt: 1,
        client_ip: "192.0.2.1",
        client_host: host.as_ref(),
        proxy: None,
        tls: Some(TlsFields { subject: Some(value), cert: Some(value), ..TlsFields::default() }),
        headers: &headers,
    };
    let head = write(&question);
    let mut found = fields(&head).into_iter();
    let mut next = |name: &str| {
        let (found, value) = found.next().unwrap_or_default();
        assert_eq!(found, name.as_bytes());
        value
    };
    let spaced = |value: &[u8]| -> Vec<u8> {
        value.iter().map(|b| if b.is_ascii_control() { b' ' } else { *b }).collect()
    };
    assert_eq!(next("Host"), spaced(value));
    assert_eq!(next("Auth-Method"), credentials.method.name().as_bytes());
    assert_eq!(unescaped(next("Auth-User")), credentials.login);
    assert_eq!(unescaped(next("Auth-Pass")), credentials.password);
    if let Some(salt) = &credentials.salt {
        assert_eq!(next("Auth-Salt"), salt);
    }
    assert_eq!(next("Auth-Protocol"), protocol.name().as_bytes());
    assert_eq!(next("Auth-Login-Attempt"), b"1");
    assert_eq!(next("Client-IP"), b"192.0.2.1");
    if let Some(host) = &host {
        assert_eq!(next("Client-Host"), host.as_str().as_bytes());
    }
    if let Some(envelope) = &credentials.smtp {
        assert_eq!(next("Auth-SMTP-Helo"), credentials.helo);
        assert_eq!(next("Auth-SMTP-From"), envelope.from);
        assert_eq!(next("Auth-SMTP-To"), envelope.to);
    }
    assert_eq!(next("Auth-SSL"), b"on");
    if !value.is_empty() {
        assert_eq!(next("Auth-SSL-Subject"), spaced(value));
        assert_eq!(unescaped(next("Auth-SSL-Cert")), value);
    }
    assert_eq!(next("X-Key"), spaced(&credentials.password));
    assert_eq!(found.next(), None);
}

/// A login with values of the client, or with parts of `bytes` for them.
fn login(choice: u8, bytes: &[u8], credentials: Option<&Credentials>) -> Login {
    let protocol = [Protocol::Imap, Protocol::Pop3, Protocol::Smtp][usize::from(choice % 3)];
    let mut parts = bytes.splitn(4, |byte| *byte == b'|').map(Bytes::copy_from_slice);
    let mut part = || parts.next().unwrap_or_default();
    let (login, password, tag, other) = match credentials {
        Some(c) => (c.login.clone(), c.password.clone(), c.tag.clone(), c.helo.clone()),
        None => (part(), part(), part(), part()),
    };
    let envelope = credentials.and_then(|c| c.smtp.clone());
    let own = Envelope { from: other.clone(), to: login.clone() };
    let name = ClientHost::from_ptr(&login).unwrap_or(ClientHost::Unavailable);
    let addr = (choice & 4 == 0).then_some([192, 0, 2, 1].into());
    Login {
        protocol,
        login,
        password: (choice & 8 == 0).then_some(password),
        tag,
        smtp: envelope.or_else(|| (choice & 16 == 0).then_some(own)),
        helo: other.clone(),
        esmtp: choice & 4 == 0,
        server_name: other,
        xclient: (choice & 32 == 0).then_some(XClient { addr, name }),
        smtp_auth: choice & 64 == 0,
        starttls: choice & 2 == 0,
        pass_error_message: choice & 128 == 0,
        buffer: 128,
    }
}

/// What is said to a mail server that answers with `bytes` in pieces. What it sent and was not read
/// is piped, behind what goes to the client.
fn server(login: &Login, mut bytes: &[u8], piece: usize) -> Vec<Said> {
    let mut backend = Backend::new(login.clone());
    let mut all = Vec::new();
    loop {
        let mut said = backend.step();
        match &mut said {
            Said::More => {
                assert!(backend.room() > 0, "something can come");
                let (now, later) = bytes.split_at(piece.min(backend.room()).min(bytes.len()));
                if now.is_empty() {
                    return all;
                }
                backend.feed(now);
                bytes = later;
                continue;
            }
            Said::Send { line, doing } => {
                let line = line.strip_suffix(b"\r\n").expect("a line");
                assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{doing}");
                assert!(doing.starts_with("sending "));
                all.push(said);
                continue;
            }
            Said::Done { to_client } => to_client.extend_from_slice(bytes),
            Said::StartTls => {
                assert!(login.starttls);
                // As if the rest came under TLS: pieces cannot tell.
                backend.now_tls();
                all.push(said);
                return all;
            }
            Said::InClear => {
                assert!(login.starttls);
                // In smaller pieces the handshake is asked for before they are fed.
                all.push(Said::StartTls);
                return all;
            }
            Said::Failed { answer, to_client, is_login } => {
                assert!(answer.len() < login.buffer);
                assert!(to_client.is_none() || login.pass_error_message);
                assert!(to_client.is_some() || !login.pass_error_message || !*is_login);
            }
            Said::TooLong(all) => assert_eq!(all.len(), login.buffer),
            Said::NoPassword => assert!(login.password.is_none()),
            Said::Unsendable(_) => {}
        }
        all.push(said);
        return all;
    }
}

/// Every beginning of an answer gives `Partial` or the result of the whole.
fn answer(bytes: &[u8]) {
    for head in [&b""[..], b"HTTP/1.0 200 OK\r\n"] {
        let answer = [head, bytes].concat();
        let whole = parse(&answer);
        for len in 0..answer.len().min(300) {
            let part = parse(&answer[..len]);
            assert!(part == Parsed::Partial || part == whole, "at {len}");
        }
        let Parsed::Whole(verdict) = whole else { continue };
        match verdict {
            Verdict::Refused { message, code, .. } => {
                for protocol in [Protocol::Imap, Protocol::Pop3, Protocol::Smtp] {
                    let line = refusal(protocol, b"a ", &message, code.as_deref());
                    assert!(is_one_line(line.strip_suffix(b"\r\n").expect("a line")));
                }
            }
            Verdict::Go { server, port, .. } => assert!(!server.is_empty() && !port.is_empty()),
            Verdict::Wait(_) | Verdict::MissingServer => {}
        }
    }
}
