//! The core's directives.

use conf::table::{Args, Contexts as C, Directive, directive, join};
use conf::value::{set_flag, set_msec, set_num, set_str};
use conf::{ConfError, Node};
use engine::settings::{ConfType, Scope};
use mail_proto::Protocol;
use upstream::resolver::{self, Resolving, Statuses};

use crate::core_conf::CoreDraft;
use crate::core_listen;
use crate::module::{Cx, MS, Module};

/// The core's table.
pub static MODULE: Module = Module {
    name: "core",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<CoreDraft>(Scope::Server),
        ConfType::of::<Resolving>(Scope::Server),
        ConfType::of::<Statuses>(Scope::Main),
    ],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &join::<_, { OWN.len() + RESOLVER.len() }>(&[OWN, RESOLVER]);

const RESOLVER: &[Directive<Cx>] = &resolver::directives(MS);

const OWN: &[Directive<Cx>] = &[
    directive(
        "server",
        C::MAIL,
        Args::BLOCK.or(Args::NONE),
        "",
        "A proxy for IMAP, POP3 or SMTP.",
        Cx::server_block,
    ),
    directive(
        "listen",
        C::MAIL_SERVER,
        Args::ONE_MORE,
        "",
        "The address and port, or unix: path, to listen on, with socket options.",
        core_listen::listen,
    ),
    directive(
        "protocol",
        C::MAIL_SERVER,
        Args::T1,
        "",
        "The protocol: imap, pop3 or smtp; by default derived from a well-known port.",
        protocol,
    ),
    directive(
        "server_name",
        MS,
        Args::T1,
        "the host's name",
        "The host name for greetings, challenges, and HELO or EHLO to mail servers.",
        |cx, n| set_str(&mut cx.loc::<CoreDraft>().server_name, n),
    ),
    directive(
        "error_log",
        MS,
        Args::ONE_MORE,
        "logs/error.log error",
        "The error log: a file, stderr or syslog, then the level, `json`, `rate=N/s`.",
        |cx, n| {
            let logs = cx.env.logs.clone();
            cx.loc::<CoreDraft>().error_log.add(&logs, n)
        },
    ),
    directive(
        "timeout",
        MS,
        Args::T1,
        "60s",
        "The timeout for a client's login, and for each response of a mail server.",
        |cx, n| set_msec(&mut cx.loc::<CoreDraft>().timeout, n),
    ),
    directive(
        "max_errors",
        MS,
        Args::T1,
        "5",
        "Closes the connection after this number of invalid commands.",
        |cx, n| set_num(&mut cx.loc::<CoreDraft>().max_errors, n),
    ),
    directive(
        "handover",
        MS,
        Args::FLAG,
        "on",
        "Lets sessions after their login move to the new workers at a reload or upgrade.",
        |cx, n| set_flag(&mut cx.loc::<CoreDraft>().handover, n),
    ),
];

fn protocol(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let block = &mut cx.top().block;
    if block.protocol.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let all = [Protocol::Imap, Protocol::Pop3, Protocol::Smtp];
    let word = n.arg(0)?;
    let named = all.into_iter().find(|p| p.name().as_bytes() == word.bytes());
    let unknown = || ConfError::at(word, format!("unknown protocol \"{}\"", word.lossy()));
    block.protocol = Some(named.ok_or_else(unknown)?);
    Ok(())
}
