//! The texts that do not depend on the client: greetings and lists of capabilities.

use crate::{Methods, Protocol};
use bytes::Bytes;

/// The texts of a server, each a whole answer with its line ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Texts {
    /// The greeting; POP3 adds the salt.
    pub greeting: Bytes,
    /// SMTP: the answer to HELO.
    pub helo: Bytes,
    /// The capabilities where STARTTLS is not offered, or is over. IMAP: the untagged line.
    pub capability: Bytes,
    /// The capabilities where STARTTLS is offered.
    pub starttls_capability: Bytes,
    /// The capabilities where STARTTLS must come first.
    pub starttls_only_capability: Bytes,
    /// POP3: the methods, in answer to AUTH alone.
    pub auth_capability: Bytes,
}

/// The SASL names, in nginx's order; APOP and none have no SASL name.
const SASL: [(Methods, &[u8]); 4] = [
    (Methods::PLAIN, b"PLAIN"),
    (Methods::LOGIN, b"LOGIN"),
    (Methods::CRAM_MD5, b"CRAM-MD5"),
    (Methods::EXTERNAL, b"EXTERNAL"),
];

fn sasl_names(methods: Methods) -> impl Iterator<Item = &'static [u8]> {
    SASL.iter().filter(move |(method, _)| methods.has(*method)).map(|(_, name)| *name)
}

impl Texts {
    /// The texts for `protocol` with the given capabilities, or the protocol's own where there are
    /// none: `IMAP4 IMAP4rev1 UIDPLUS`, `TOP USER UIDL`, for SMTP none.
    pub fn new(
        protocol: Protocol,
        capabilities: &[Bytes],
        methods: Methods,
        server_name: &[u8],
    ) -> Texts {
        let given: Vec<&[u8]> = match (capabilities, protocol) {
            ([], Protocol::Imap) => vec![b"IMAP4", b"IMAP4rev1", b"UIDPLUS"],
            ([], Protocol::Pop3) => vec![b"TOP", b"USER", b"UIDL"],
            (capabilities, _) => capabilities.iter().map(|c| &c[..]).collect(),
        };
        match protocol {
            Protocol::Imap => imap(&given, methods),
            Protocol::Pop3 => pop3(&given, methods),
            Protocol::Smtp => smtp(&given, methods, server_name),
        }
    }
}

fn imap(given: &[&[u8]], methods: Methods) -> Texts {
    let mut words = vec![&b"* CAPABILITY"[..]];
    words.extend_from_slice(given);
    let only = [&words[..], &[b"STARTTLS", b"LOGINDISABLED"]].concat();
    let auth: Vec<Vec<u8>> = sasl_names(methods).map(|name| [b"AUTH=", name].concat()).collect();
    words.extend(auth.iter().map(|word| &word[..]));
    let starttls = [&words[..], &[b"STARTTLS"]].concat();
    let line = |words: &[&[u8]]| Bytes::from([&words.join(&b' ')[..], b"\r\n"].concat());
    Texts {
        greeting: Bytes::from_static(b"* OK IMAP4 ready\r\n"),
        helo: Bytes::new(),
        capability: line(&words),
        starttls_capability: line(&starttls),
        starttls_only_capability: line(&only),
        auth_capability: Bytes::new(),
    }
}

fn pop3(given: &[&[u8]], methods: Methods) -> Texts {
    // PLAIN stands for LOGIN too: no directive of POP3 can name that one.
    let login = if methods.has(Methods::PLAIN) { Methods::LOGIN } else { Methods::EMPTY };
    let names: Vec<&[u8]> = sasl_names(methods.or(login)).collect();
    let sasl = [&[&b"SASL"[..]], &names[..]].concat().join(&b' ');
    let list = |lines: &[&[u8]]| {
        let mut text = Vec::new();
        for line in lines {
            text.extend_from_slice(line);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b".\r\n");
        Bytes::from(text)
    };
    let mut lines = vec![&b"+OK Capability list follows"[..]];
    let mut only = lines.clone();
    lines.extend_from_slice(given);
    lines.push(&sasl);
    // Without USER: it cannot be used before TLS (RFC 2595 section 2.1).
    only.extend(given.iter().filter(|name| !name.eq_ignore_ascii_case(b"USER")));
    only.push(b"STLS");
    let starttls = [&lines[..], &[b"STLS"]].concat();
    Texts {
        greeting: Bytes::from_static(b"+OK POP3 ready\r\n"),
        helo: Bytes::new(),
        capability: list(&lines),
        starttls_capability: list(&starttls),
        starttls_only_capability: list(&only),
        auth_capability: list(&[&[&b"+OK methods supported:"[..]], &names[..]].concat()),
    }
}

fn smtp(given: &[&[u8]], methods: Methods, server_name: &[u8]) -> Texts {
    // The last line of an answer has a space behind the code, the others a hyphen (RFC 5321
    // section 4.2.1).
    let answer = |lines: &[&[u8]]| {
        let mut text = Vec::new();
        for (i, line) in lines.iter().enumerate() {
            let last = i + 1 == lines.len();
            text.extend_from_slice(if last { b"250 " } else { b"250-" });
            text.extend_from_slice(line);
            text.extend_from_slice(b"\r\n");
        }
        Bytes::from(text)
    };
    let mut lines = vec![server_name];
    lines.extend_from_slice(given);
    let only = [&lines[..], &[b"STARTTLS"]].concat();
    let auth: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(sasl_names(methods)).collect();
    let line = auth.join(&b' ');
    if auth.len() > 1 {
        lines.push(&line);
    }
    let starttls = [&lines[..], &[b"STARTTLS"]].concat();
    Texts {
        greeting: Bytes::from([b"220 ", server_name, b" ESMTP ready\r\n"].concat()),
        helo: answer(&[server_name]),
        capability: answer(&lines),
        starttls_capability: answer(&starttls),
        starttls_only_capability: answer(&only),
        auth_capability: Bytes::new(),
    }
}
