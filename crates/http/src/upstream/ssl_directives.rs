//! The directives of TLS to servers, which modules share: see [`Group`].

use conf::table::{Args, Directive};
use conf::value::{set_flag, set_num, set_once};
use engine::tls_certificates::CacheTerms;
use engine::tls_files::Named;

use super::directives::{Group, Shared, draft, shared};
use crate::cx::Cx;

impl<T: Shared> Group<T> {
    /// TLS to servers.
    pub const TLS: &'static [Directive<Cx>] = &[
        shared(
            "_ssl_session_reuse",
            Args::FLAG,
            "on",
            "Sessions with servers are resumed.",
            |cx, n| set_flag(&mut draft::<T>(cx).ssl.session_reuse, n),
        ),
        shared(
            "_ssl_protocols",
            Args::ONE_MORE,
            "TLSv1.2 TLSv1.3",
            "The versions of TLS to servers; those before 1.2 are not to be had.",
            |cx, n| {
                let protocols = &mut draft::<T>(cx).ssl.protocols;
                set_once(protocols, n, engine::tls_settings::protocols)
            },
        ),
        shared(
            "_ssl_ciphers",
            Args::T1,
            "DEFAULT",
            "The cipher suites of TLS 1.2 to servers; those with AEAD are to be had.",
            |cx, n| {
                let ciphers = &mut draft::<T>(cx).ssl.ciphers;
                set_once(ciphers, n, engine::tls_settings::ciphers)
            },
        ),
        shared(
            "_ssl_conf_command",
            Args::T2,
            "",
            "A command of OpenSSL's configuration, for sessions with servers.",
            |cx, n| {
                let commands = engine::tls_settings::command(cx, n)?;
                draft::<T>(cx).ssl.commands.get_or_insert_default().extend(commands);
                Ok(())
            },
        ),
        shared(
            "_ssl_name",
            Args::T1,
            "",
            "The name that servers are verified by and, with _ssl_server_name, told.",
            |cx, n| {
                let name = cx.template(n.arg(0)?)?;
                set_once(&mut draft::<T>(cx).ssl.name, n, |_| Ok(name))
            },
        ),
        shared(
            "_ssl_server_name",
            Args::FLAG,
            "off",
            "Servers are told the name that they are asked by (SNI).",
            |cx, n| set_flag(&mut draft::<T>(cx).ssl.server_name, n),
        ),
        shared(
            "_ssl_verify",
            Args::FLAG,
            "off",
            "The certificates of servers must be good, and theirs.",
            |cx, n| set_flag(&mut draft::<T>(cx).ssl.verify, n),
        ),
        shared(
            "_ssl_verify_depth",
            Args::T1,
            "1",
            "The certificates that may stand between a server's own and the trusted one.",
            |cx, n| set_num(&mut draft::<T>(cx).ssl.depth, n),
        ),
        shared(
            "_ssl_trusted_certificate",
            Args::T1,
            "",
            "A file with trusted certificates for servers, in PEM.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                set_once(&mut draft::<T>(cx).ssl.trusted, n, |_| Ok(named))
            },
        ),
        shared(
            "_ssl_crl",
            Args::T1,
            "",
            "A file with revocation lists for the certificates of servers.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                set_once(&mut draft::<T>(cx).ssl.crl, n, |_| Ok(named))
            },
        ),
        shared(
            "_ssl_certificate",
            Args::T1,
            "",
            "A file with the certificate to show to servers, in PEM.",
            |cx, n| {
                let file = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                draft::<T>(cx).ssl.folder = Some(cx.env.conf_path(b""));
                set_once(&mut draft::<T>(cx).ssl.certificate, n, |_| Ok(file))
            },
        ),
        shared(
            "_ssl_certificate_key",
            Args::T1,
            "",
            "A file with the key of that certificate, in PEM.",
            |cx, n| {
                let file = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                set_once(&mut draft::<T>(cx).ssl.key, n, |_| Ok(file))
            },
        ),
        shared(
            "_ssl_certificate_cache",
            Args::T123,
            "off",
            "Certificates whose files are named by variables are kept in memory.",
            |cx, n| set_once(&mut draft::<T>(cx).ssl.cache, n, CacheTerms::read),
        ),
        shared(
            "_ssl_key_log",
            Args::T1,
            "",
            "A file for the keys of sessions with servers (NSS key log format), for debugging.",
            |cx, n| {
                let log = engine::tls_settings::key_log(cx, n)?;
                set_once(&mut draft::<T>(cx).ssl.key_log, n, |_| Ok(log))
            },
        ),
        shared(
            "_ssl_password_file",
            Args::T1,
            "",
            "A file with passwords of that key, one a line, tried in turn.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                let passwords = &mut draft::<T>(cx).ssl.passwords;
                set_once(passwords, n, |_| engine::tls_files::passwords(&named))
            },
        ),
    ];
}
