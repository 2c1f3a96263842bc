//! The directives of TLS to servers, which engines and modules have under prefixes of their own.

use conf::table::{Args, Contexts, Directive, directive, join};
use conf::value::{set_flag, set_num, set_once};
use conf::{ConfError, Node};
use engine::tls_certificates::CacheTerms;
use engine::tls_files::Named;
use engine::{Cx, Session};

use crate::ssl::SslDraft;

/// The place of the settings of TLS to servers.
pub trait Place<S: Session>: 'static {
    /// The settings of the directive's level.
    fn draft(cx: &mut Cx<S>) -> &mut SslDraft;
}

/// The number of the directives.
pub const COUNT: usize = 15;

/// The directives under the ends of their names; [`conf::table::named`] gives them the rest.
pub const fn directives<S: Session, T: Place<S>>(contexts: Contexts) -> [Directive<Cx<S>>; COUNT] {
    join(&[
        &algorithms::<S, T>(contexts),
        &names::<S, T>(contexts),
        &certificates::<S, T>(contexts),
    ])
}

/// The names of the directives of [`directives`] under a prefix, in their order: for
/// [`conf::table::named`]. `ssl_names!("proxy")` begins with `proxy_ssl_session_reuse`.
#[macro_export]
macro_rules! ssl_names {
    ($prefix:literal) => {
        [
            concat!($prefix, "_ssl_session_reuse"),
            concat!($prefix, "_ssl_protocols"),
            concat!($prefix, "_ssl_ciphers"),
            concat!($prefix, "_ssl_conf_command"),
            concat!($prefix, "_ssl_name"),
            concat!($prefix, "_ssl_server_name"),
            concat!($prefix, "_ssl_verify"),
            concat!($prefix, "_ssl_verify_depth"),
            concat!($prefix, "_ssl_trusted_certificate"),
            concat!($prefix, "_ssl_crl"),
            concat!($prefix, "_ssl_certificate"),
            concat!($prefix, "_ssl_certificate_key"),
            concat!($prefix, "_ssl_certificate_cache"),
            concat!($prefix, "_ssl_key_log"),
            concat!($prefix, "_ssl_password_file"),
        ]
    };
}

/// Sessions and algorithms.
const fn algorithms<S: Session, T: Place<S>>(contexts: Contexts) -> [Directive<Cx<S>>; 4] {
    [
        entry(
            contexts,
            "_ssl_session_reuse",
            Args::FLAG,
            "on",
            "Sessions with servers are resumed.",
            |cx, n| set_flag(&mut T::draft(cx).session_reuse, n),
        ),
        entry(
            contexts,
            "_ssl_protocols",
            Args::ONE_MORE,
            "TLSv1.2 TLSv1.3",
            "The versions of TLS to servers; those before 1.2 are not to be had.",
            |cx, n| {
                let protocols = &mut T::draft(cx).protocols;
                set_once(protocols, n, engine::tls_settings::protocols)
            },
        ),
        entry(
            contexts,
            "_ssl_ciphers",
            Args::T1,
            "DEFAULT",
            "The cipher suites of TLS 1.2 to servers; those with AEAD are to be had.",
            |cx, n| {
                let ciphers = &mut T::draft(cx).ciphers;
                set_once(ciphers, n, engine::tls_settings::ciphers)
            },
        ),
        entry(
            contexts,
            "_ssl_conf_command",
            Args::T2,
            "",
            "A command of OpenSSL's configuration, for sessions with servers.",
            |cx, n| {
                let commands = engine::tls_settings::command(cx, n)?;
                T::draft(cx).commands.get_or_insert_default().extend(commands);
                Ok(())
            },
        ),
    ]
}

/// The name of a server, and whether it is verified.
const fn names<S: Session, T: Place<S>>(contexts: Contexts) -> [Directive<Cx<S>>; 6] {
    [
        entry(
            contexts,
            "_ssl_name",
            Args::T1,
            "",
            "The name that servers are verified by and, with _ssl_server_name, told.",
            |cx, n| {
                let name = cx.template(n.arg(0)?)?;
                set_once(&mut T::draft(cx).name, n, |_| Ok(name))
            },
        ),
        entry(
            contexts,
            "_ssl_server_name",
            Args::FLAG,
            "off",
            "Servers are told the name that they are asked by (SNI).",
            |cx, n| set_flag(&mut T::draft(cx).server_name, n),
        ),
        entry(
            contexts,
            "_ssl_verify",
            Args::FLAG,
            "off",
            "The certificates of servers must be good, and theirs.",
            |cx, n| set_flag(&mut T::draft(cx).verify, n),
        ),
        entry(
            contexts,
            "_ssl_verify_depth",
            Args::T1,
            "1",
            "The certificates that may stand between a server's own and the trusted one.",
            |cx, n| set_num(&mut T::draft(cx).depth, n),
        ),
        entry(
            contexts,
            "_ssl_trusted_certificate",
            Args::T1,
            "",
            "A file with trusted certificates for servers, in PEM.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                set_once(&mut T::draft(cx).trusted, n, |_| Ok(named))
            },
        ),
        entry(
            contexts,
            "_ssl_crl",
            Args::T1,
            "",
            "A file with revocation lists for the certificates of servers.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                set_once(&mut T::draft(cx).crl, n, |_| Ok(named))
            },
        ),
    ]
}

/// The certificate to show.
const fn certificates<S: Session, T: Place<S>>(contexts: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        entry(
            contexts,
            "_ssl_certificate",
            Args::T1,
            "",
            "A file with the certificate to show to servers, in PEM.",
            |cx, n| {
                let file = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                T::draft(cx).folder = Some(cx.env.conf_path(b""));
                set_once(&mut T::draft(cx).certificate, n, |_| Ok(file))
            },
        ),
        entry(
            contexts,
            "_ssl_certificate_key",
            Args::T1,
            "",
            "A file with the key of that certificate, in PEM.",
            |cx, n| {
                let file = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                set_once(&mut T::draft(cx).key, n, |_| Ok(file))
            },
        ),
        entry(
            contexts,
            "_ssl_certificate_cache",
            Args::T123,
            "off",
            "Certificates whose files are named by variables are kept in memory.",
            |cx, n| set_once(&mut T::draft(cx).cache, n, CacheTerms::read),
        ),
        entry(
            contexts,
            "_ssl_key_log",
            Args::T1,
            "",
            "A file for the keys of sessions with servers (NSS key log format), for debugging.",
            |cx, n| {
                let log = engine::tls_settings::key_log(cx, n)?;
                set_once(&mut T::draft(cx).key_log, n, |_| Ok(log))
            },
        ),
        entry(
            contexts,
            "_ssl_password_file",
            Args::T1,
            "",
            "A file with passwords of that key, one a line, tried in turn.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                let passwords = &mut T::draft(cx).passwords;
                set_once(passwords, n, |_| engine::tls_files::passwords(&named))
            },
        ),
    ]
}

const fn entry<S: Session>(
    contexts: Contexts,
    name: &'static str,
    args: Args,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut Cx<S>, &Node) -> Result<(), ConfError>,
) -> Directive<Cx<S>> {
    directive(name, contexts, args, default, doc, set)
}
