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

const fn algorithms<S: Session, T: Place<S>>(contexts: Contexts) -> [Directive<Cx<S>>; 4] {
    [
        entry(
            contexts,
            "_ssl_session_reuse",
            Args::FLAG,
            "on",
            "Resumes TLS sessions with the upstream.",
            |cx, n| set_flag(&mut T::draft(cx).session_reuse, n),
        ),
        entry(
            contexts,
            "_ssl_protocols",
            Args::ONE_MORE,
            "TLSv1.2 TLSv1.3",
            "TLS versions for the upstream; versions before 1.2 are not available.",
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
            "TLS 1.2 cipher suites for the upstream; only AEAD suites are available.",
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
            "Applies an OpenSSL configuration command to upstream TLS connections.",
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
            "The name to verify in the upstream's certificate and, with _ssl_server_name, to send.",
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
            "Sends the server name (SNI) to the upstream.",
            |cx, n| set_flag(&mut T::draft(cx).server_name, n),
        ),
        entry(
            contexts,
            "_ssl_verify",
            Args::FLAG,
            "off",
            "Verifies the upstream's certificate and its name.",
            |cx, n| set_flag(&mut T::draft(cx).verify, n),
        ),
        entry(
            contexts,
            "_ssl_verify_depth",
            Args::T1,
            "1",
            "The maximum number of intermediate certificates in the upstream's chain.",
            |cx, n| set_num(&mut T::draft(cx).depth, n),
        ),
        entry(
            contexts,
            "_ssl_trusted_certificate",
            Args::T1,
            "",
            "CA certificates for verifying the upstream, a PEM file.",
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
            "Revocation lists (CRLs) for verifying the upstream, a PEM file.",
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
            "The client certificate for the upstream, a PEM file.",
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
            "The private key of the client certificate, a PEM file.",
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
            "Caches certificates and keys whose file names have variables: max=N [inactive=] \
             [valid=].",
            |cx, n| set_once(&mut T::draft(cx).cache, n, CacheTerms::read),
        ),
        entry(
            contexts,
            "_ssl_key_log",
            Args::T1,
            "",
            "Logs the secrets of upstream TLS sessions (SSLKEYLOGFILE format), for debugging.",
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
            "Passphrases of the client certificate's key, one per line, tried in order.",
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
