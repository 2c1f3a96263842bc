//! `imap`, `pop3` and `smtp`: the directives of each protocol's dialogue.

use bytes::Bytes;
use conf::table::{Args, Directive, directive};
use conf::value::{set_bitmask, set_msec, set_size};
use conf::{ConfError, Node};
use engine::settings::{ConfSet, ConfType, Scope};
use mail_proto::{Methods, Protocol, Settings, StartTls, Texts};

use crate::core_conf::CoreConf;
use crate::module::{Cx, MS, Module};

/// The table of `imap`.
pub static IMAP: Module = Module {
    name: "imap",
    directives: OF_IMAP,
    confs: &[ConfType::of::<ImapConf>(Scope::Server)],
    ..Module::EMPTY
};

/// The table of `pop3`.
pub static POP3: Module = Module {
    name: "pop3",
    directives: OF_POP3,
    confs: &[ConfType::of::<Pop3Conf>(Scope::Server)],
    ..Module::EMPTY
};

/// The table of `smtp`.
pub static SMTP: Module = Module {
    name: "smtp",
    directives: OF_SMTP,
    confs: &[ConfType::of::<SmtpConf>(Scope::Server)],
    ..Module::EMPTY
};

engine::settings! {
    struct ImapConf {
        auth: Option<u64>,
        capabilities: Option<Vec<Bytes>>,
        client_buffer: Option<usize>,
    }
}

engine::settings! {
    struct Pop3Conf {
        auth: Option<u64>,
        capabilities: Option<Vec<Bytes>>,
    }
}

engine::settings! {
    struct SmtpConf {
        auth: Option<u64>,
        capabilities: Option<Vec<Bytes>>,
        client_buffer: Option<usize>,
        greeting_delay: Option<u64>,
    }
}

const PLAIN: (&str, u64) = ("plain", Methods::PLAIN.bits());
const LOGIN: (&str, u64) = ("login", Methods::LOGIN.bits());
const APOP: (&str, u64) = ("apop", Methods::APOP.bits());
const CRAM_MD5: (&str, u64) = ("cram-md5", Methods::CRAM_MD5.bits());
const EXTERNAL: (&str, u64) = ("external", Methods::EXTERNAL.bits());
const NONE: (&str, u64) = ("none", Methods::NONE.bits());

const AUTH: &str = "The authentication methods that are offered to clients.";
const CAPABILITIES: &str =
    "The protocol extensions announced to clients; all mail servers must support them.";

static OF_IMAP: &[Directive<Cx>] = &[
    directive("imap_auth", MS, Args::ONE_MORE, "plain", AUTH, |cx, n| {
        set_bitmask(&mut cx.loc::<ImapConf>().auth, n, &[PLAIN, LOGIN, CRAM_MD5, EXTERNAL])
    }),
    directive("imap_capabilities", MS, Args::ONE_MORE, "IMAP4 IMAP4rev1 UIDPLUS", CAPABILITIES, {
        |cx, n| add(&mut cx.loc::<ImapConf>().capabilities, n)
    }),
    directive(
        "imap_client_buffer",
        MS,
        Args::T1,
        "4k",
        "The maximum size of a command, in bytes.",
        |cx, n| set_size(&mut cx.loc::<ImapConf>().client_buffer, n),
    ),
];

static OF_POP3: &[Directive<Cx>] = &[
    directive("pop3_auth", MS, Args::ONE_MORE, "plain", AUTH, |cx, n| {
        set_bitmask(&mut cx.loc::<Pop3Conf>().auth, n, &[PLAIN, APOP, CRAM_MD5, EXTERNAL])
    }),
    directive("pop3_capabilities", MS, Args::ONE_MORE, "TOP USER UIDL", CAPABILITIES, |cx, n| {
        add(&mut cx.loc::<Pop3Conf>().capabilities, n)
    }),
];

static OF_SMTP: &[Directive<Cx>] = &[
    directive("smtp_auth", MS, Args::ONE_MORE, "plain login", AUTH, |cx, n| {
        set_bitmask(&mut cx.loc::<SmtpConf>().auth, n, &[PLAIN, LOGIN, CRAM_MD5, EXTERNAL, NONE])
    }),
    directive("smtp_capabilities", MS, Args::ONE_MORE, "", CAPABILITIES, |cx, n| {
        add(&mut cx.loc::<SmtpConf>().capabilities, n)
    }),
    directive(
        "smtp_client_buffer",
        MS,
        Args::T1,
        "4k",
        "The maximum size of a command, in bytes.",
        |cx, n| set_size(&mut cx.loc::<SmtpConf>().client_buffer, n),
    ),
    directive(
        "smtp_greeting_delay",
        MS,
        Args::T1,
        "0",
        "Delays the greeting, and rejects clients that send before it.",
        |cx, n| set_msec(&mut cx.loc::<SmtpConf>().greeting_delay, n),
    ),
];

/// Adds to a list; a repeated directive adds to the earlier one.
fn add(list: &mut Option<Vec<Bytes>>, n: &Node) -> Result<(), ConfError> {
    list.get_or_insert_default().extend(n.args.iter().map(|word| word.text.clone()));
    Ok(())
}

/// The most bytes of a command of POP3.
const POP3_BUFFER: usize = 128;

/// The dialogue of a server, and the delay of its greeting in milliseconds.
pub(crate) fn dialogue(
    confs: &ConfSet,
    protocol: Protocol,
    starttls: StartTls,
    core: &CoreConf,
) -> (Settings, u64) {
    const BUFFER: usize = 4096;
    let (auth, capabilities, buffer, delay) = match protocol {
        Protocol::Imap => match confs.get::<ImapConf>() {
            Some(c) => (c.auth, c.capabilities.clone(), c.client_buffer, None),
            None => Default::default(),
        },
        Protocol::Pop3 => match confs.get::<Pop3Conf>() {
            Some(c) => (c.auth, c.capabilities.clone(), Some(POP3_BUFFER), None),
            None => Default::default(),
        },
        Protocol::Smtp => match confs.get::<SmtpConf>() {
            Some(c) => (c.auth, c.capabilities.clone(), c.client_buffer, c.greeting_delay),
            None => Default::default(),
        },
    };
    let usual = match protocol {
        Protocol::Smtp => Methods::PLAIN.or(Methods::LOGIN),
        Protocol::Imap | Protocol::Pop3 => Methods::PLAIN,
    };
    let methods = auth.map_or(usual, Methods::from_bits);
    let capabilities = capabilities.unwrap_or_default();
    let texts = Texts::new(protocol, &capabilities, methods, &core.server_name);
    let settings = Settings {
        protocol,
        methods,
        starttls,
        texts,
        buffer: buffer.unwrap_or(BUFFER),
        max_errors: core.max_errors,
        server_name: core.server_name.clone(),
    };
    (settings, delay.unwrap_or(0))
}
