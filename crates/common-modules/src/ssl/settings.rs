//! The `ssl_…` directives of a server, as far as they are set at one level.

use std::path::PathBuf;
use std::rc::Rc;

use conf::table::{Args, Contexts, Directive, directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::tls_certificates::CacheTerms;
use engine::tls_files::{self, Named};
use engine::tls_settings;
use engine::{Cx, Session};
use event::Pool;
use pki::pem::Passwords;
use tls::KeyLog;
use tls::ciphers::Ciphers;
use tls::conf_command::Command;
use tls::groups::Groups;
use tls::protocols::Version;
use tls::session_cache::CacheSetting;

use super::client_status::{self, OcspMode, OcspZone};
use super::shared::SslShared;

/// `ssl_verify_client`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VerifyClient {
    /// No certificate is asked for.
    #[default]
    Off,
    /// A good one is needed.
    On,
    /// One that is shown must be good.
    Optional,
    /// One that is shown may lack a trusted issuer.
    OptionalNoCa,
}

engine::settings! {
    /// The `ssl_…` directives of one level.
    pub struct SslSettings {
        pub(super) certificates: Option<Vec<(Named, Template)>>,
        pub(super) keys: Option<Vec<(Named, Template)>>,
        /// The folder of names of files that are relative.
        pub(super) folder: Option<PathBuf>,
        pub(super) certificate_cache: Option<Option<CacheTerms>>,
        pub(super) passwords: Option<Passwords>,
        pub(super) protocols: Option<Vec<Version>>,
        pub(super) ciphers: Option<Ciphers>,
        pub(super) groups: Option<Groups>,
        pub(super) prefer_server_ciphers: Option<bool>,
        pub(super) buffer_size: Option<usize>,
        /// `ssl_alpn`; the engine's own where it is unset.
        pub(super) alpn: Option<Vec<Vec<u8>>>,
        pub(super) verify: Option<VerifyClient>,
        pub(super) depth: Option<u64>,
        pub(super) client_certificate: Option<Named>,
        pub(super) trusted_certificate: Option<Named>,
        pub(super) crl: Option<Named>,
        pub(super) cache: Option<CacheSetting>,
        pub(super) timeout_s: Option<u64>,
        pub(super) tickets: Option<bool>,
        pub(super) ticket_keys: Option<Vec<Named>>,
        pub(super) early_data: Option<bool>,
        pub(super) compression: Option<bool>,
        pub(super) commands: Option<Vec<Command>>,
        pub(super) reject: Option<bool>,
        pub(super) key_log: Option<KeyLog>,
        /// `ssl_handshake_threads`; `None` within where it is off.
        pub(super) threads: Option<Option<Pool>>,
        pub(super) stapling: Option<bool>,
        pub(super) stapling_file: Option<Named>,
        pub(super) stapling_responder: Option<Word>,
        pub(super) stapling_verify: Option<bool>,
        pub(super) ocsp: Option<OcspMode>,
        pub(super) ocsp_responder: Option<Word>,
        pub(super) ocsp_cache: Option<Option<Rc<OcspZone>>>,
    }
}

const VERIFY: &[(&str, VerifyClient)] = &[
    ("off", VerifyClient::Off),
    ("on", VerifyClient::On),
    ("optional", VerifyClient::Optional),
    ("optional_no_ca", VerifyClient::OptionalNoCa),
];

/// `ssl_alpn`, for the table of an engine whose clients may speak any protocol.
pub const fn alpn<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 1] {
    let doc = "The protocols to negotiate by ALPN; a client that offers none of them is rejected.";
    [directive("ssl_alpn", contexts, Args::ONE_MORE, "", doc, |cx, n| {
        value::set_once(&mut of(cx).alpn, n, |n| {
            let is_name = |w: &&Word| (1..=255).contains(&w.bytes().len());
            match n.args.iter().find(|w| !is_name(w)) {
                Some(w) => Err(ConfError::at(w, "protocol too long")),
                None => Ok(n.args.iter().map(|w| w.bytes().to_vec()).collect()),
            }
        })
    })]
}

/// The directives of certificates and keys, for an engine's table.
pub const fn certificates<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 4] {
    [
        directive(
            "ssl_certificate",
            contexts,
            Args::T1,
            "",
            "The server's certificate and its intermediate certificates, a PEM file.",
            |cx, n| {
                let named = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                of(cx).folder = Some(cx.env.conf_path(b""));
                of(cx).certificates.get_or_insert_default().push(named);
                SslShared::make_keys(cx, n)
            },
        ),
        directive(
            "ssl_certificate_key",
            contexts,
            Args::T1,
            "",
            "The private key of the certificate, a PEM file.",
            |cx, n| {
                let named = (Named::of(cx, n)?, cx.template(n.arg(0)?)?);
                of(cx).keys.get_or_insert_default().push(named);
                Ok(())
            },
        ),
        directive(
            "ssl_certificate_cache",
            contexts,
            Args::T123,
            "off",
            "Caches certificates and keys whose file names have variables: max=N [inactive=] \
             [valid=].",
            |cx, n| value::set_once(&mut of(cx).certificate_cache, n, CacheTerms::read),
        ),
        directive(
            "ssl_password_file",
            contexts,
            Args::T1,
            "",
            "Passphrases of private keys, one per line, tried in order.",
            set_passwords,
        ),
    ]
}

/// The directives of versions, cipher suites and records.
pub const fn algorithms<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 6] {
    [
        directive(
            "ssl_protocols",
            contexts,
            Args::ONE_MORE,
            "TLSv1.2 TLSv1.3",
            "TLS versions; versions before 1.2 are not available.",
            |cx, n| value::set_once(&mut of(cx).protocols, n, tls_settings::protocols),
        ),
        directive(
            "ssl_ciphers",
            contexts,
            Args::T1,
            "HIGH:!aNULL:!MD5",
            "TLS 1.2 cipher suites, in OpenSSL's syntax; only AEAD suites are available.",
            |cx, n| value::set_once(&mut of(cx).ciphers, n, tls_settings::ciphers),
        ),
        directive(
            "ssl_ecdh_curve",
            contexts,
            Args::T1,
            "auto",
            "Key exchange groups, in order of preference.",
            |cx, n| value::set_once(&mut of(cx).groups, n, tls_settings::groups),
        ),
        directive(
            "ssl_conf_command",
            contexts,
            Args::T2,
            "",
            "Applies an OpenSSL configuration command.",
            |cx, n| {
                let commands = tls_settings::command(cx, n)?;
                of(cx).commands.get_or_insert_default().extend(commands);
                Ok(())
            },
        ),
        directive(
            "ssl_prefer_server_ciphers",
            contexts,
            Args::FLAG,
            "off",
            "Prefers the server's order of cipher suites over the client's.",
            |cx, n| value::set_flag(&mut of(cx).prefer_server_ciphers, n),
        ),
        directive(
            "ssl_buffer_size",
            contexts,
            Args::T1,
            "16k",
            "The maximum payload of a TLS record sent to clients.",
            |cx, n| value::set_size(&mut of(cx).buffer_size, n),
        ),
    ]
}

/// The directives of the certificates of clients.
pub const fn clients<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "ssl_verify_client",
            contexts,
            Args::T1,
            "off",
            "Client certificates: off, on (required), optional, or optional_no_ca (not verified).",
            |cx, n| value::set_enum(&mut of(cx).verify, n, VERIFY),
        ),
        directive(
            "ssl_verify_depth",
            contexts,
            Args::T1,
            "1",
            "The maximum number of intermediate certificates in a client's chain.",
            |cx, n| value::set_num(&mut of(cx).depth, n),
        ),
        directive(
            "ssl_client_certificate",
            contexts,
            Args::T1,
            "",
            "CA certificates for verifying clients; their names are sent in the handshake.",
            |cx, n| set_file(cx, n, |s| &mut s.client_certificate),
        ),
        directive(
            "ssl_trusted_certificate",
            contexts,
            Args::T1,
            "",
            "CA certificates for verification; their names are not sent to clients.",
            |cx, n| set_file(cx, n, |s| &mut s.trusted_certificate),
        ),
        directive(
            "ssl_crl",
            contexts,
            Args::T1,
            "",
            "Revocation lists (CRLs) for verifying clients, a PEM file.",
            |cx, n| set_file(cx, n, |s| &mut s.crl),
        ),
    ]
}

/// The directives of sessions that are resumed.
pub const fn sessions<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 5] {
    [
        directive(
            "ssl_session_cache",
            contexts,
            Args::T12,
            "none",
            "The cache of TLS sessions for resumption: off, none, builtin, or shared:NAME:SIZE.",
            |cx, n| {
                let mut setting = of(cx).cache.take();
                let done = SslShared::set_cache(cx, n, &mut setting);
                of(cx).cache = setting;
                done
            },
        ),
        directive(
            "ssl_session_timeout",
            contexts,
            Args::T1,
            "5m",
            "The time during which a session can be resumed.",
            |cx, n| value::set_sec(&mut of(cx).timeout_s, n),
        ),
        directive(
            "ssl_session_tickets",
            contexts,
            Args::FLAG,
            "on",
            "Enables session resumption by tickets.",
            |cx, n| value::set_flag(&mut of(cx).tickets, n),
        ),
        directive(
            "ssl_session_ticket_key",
            contexts,
            Args::T1,
            "",
            "A session ticket key file, 48 or 80 bytes; the first one given encrypts new tickets.",
            |cx, n| {
                let named = Named::of(cx, n)?;
                of(cx).ticket_keys.get_or_insert_default().push(named);
                Ok(())
            },
        ),
        directive(
            "ssl_early_data",
            contexts,
            Args::FLAG,
            "off",
            "Accepts TLS 1.3 early data (0-RTT), which attackers can replay.",
            |cx, n| value::set_flag(&mut of(cx).early_data, n),
        ),
    ]
}

/// The directives of handshakes in general.
pub const fn further<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 6] {
    [
        directive(
            "ssl_handshake_threads",
            contexts,
            Args::T1,
            "off",
            "Runs the signature part of handshakes in a thread pool: the default one (on), or a \
             named one.",
            set_threads,
        ),
        directive(
            "ssl_certificate_compression",
            contexts,
            Args::FLAG,
            "off",
            "Compresses the certificate for clients that support it (RFC 8879).",
            |cx, n| value::set_flag(&mut of(cx).compression, n),
        ),
        directive(
            "ssl_reject_handshake",
            contexts,
            Args::FLAG,
            "off",
            "Rejects handshakes for this server's names.",
            |cx, n| value::set_flag(&mut of(cx).reject, n),
        ),
        directive(
            "ssl_dhparam",
            contexts,
            Args::T1,
            "",
            "Accepted without effect: no available cipher suite uses DHE.",
            set_dhparam,
        ),
        directive(
            "ssl_key_log",
            contexts,
            Args::T1,
            "",
            "Logs the secrets of TLS sessions (SSLKEYLOGFILE format), for debugging.",
            |cx, n| {
                let log = tls_settings::key_log(cx, n)?;
                value::set_once(&mut of(cx).key_log, n, |_| Ok(log))
            },
        ),
        directive(
            "ssl_ech_file",
            contexts,
            Args::T1,
            "",
            "Accepted without effect: Encrypted ClientHello is not supported.",
            |_, n| {
                conf::warn(&n.name, "\"ssl_ech_file\" is not supported on this platform, ignored");
                Ok(())
            },
        ),
    ]
}

/// The directives about OCSP, for an engine's table.
pub const fn ocsp<S: Session>(contexts: Contexts) -> [Directive<Cx<S>>; 7] {
    [
        directive(
            "ssl_stapling",
            contexts,
            Args::FLAG,
            "off",
            "Staples the issuer's OCSP response to the certificate.",
            |cx, n| value::set_flag(&mut of(cx).stapling, n),
        ),
        directive(
            "ssl_stapling_file",
            contexts,
            Args::T1,
            "",
            "The OCSP response to staple, a DER file, instead of asking the responder.",
            |cx, n| set_file(cx, n, |s| &mut s.stapling_file),
        ),
        directive(
            "ssl_stapling_responder",
            contexts,
            Args::T1,
            "",
            "The OCSP responder's URL for stapling, instead of the one in the certificate.",
            |cx, n| value::set_once(&mut of(cx).stapling_responder, n, |n| n.arg(0).cloned()),
        ),
        directive(
            "ssl_stapling_verify",
            contexts,
            Args::FLAG,
            "off",
            "Verifies the signature of OCSP responses before stapling them.",
            |cx, n| value::set_flag(&mut of(cx).stapling_verify, n),
        ),
        directive(
            "ssl_ocsp",
            contexts,
            Args::T1,
            "off",
            "Checks client certificates by OCSP: the whole chain (on), or only the leaf.",
            |cx, n| value::set_enum(&mut of(cx).ocsp, n, client_status::MODES),
        ),
        directive(
            "ssl_ocsp_responder",
            contexts,
            Args::T1,
            "",
            "The OCSP responder's URL for client certificates, instead of the one they name.",
            |cx, n| value::set_once(&mut of(cx).ocsp_responder, n, |n| n.arg(0).cloned()),
        ),
        directive(
            "ssl_ocsp_cache",
            contexts,
            Args::T1,
            "off",
            "Caches OCSP responses for client certificates in a shared zone.",
            |cx, n| {
                if of(cx).ocsp_cache.is_some() {
                    return Err(ConfError::directive(n, "is duplicate"));
                }
                let zone = client_status::cache(cx, n)?;
                of(cx).ocsp_cache = Some(zone);
                Ok(())
            },
        ),
    ]
}

fn of<S: Session>(cx: &mut Cx<S>) -> &mut SslSettings {
    cx.srv()
}

fn set_file<S: Session>(
    cx: &mut Cx<S>,
    node: &Node,
    field: fn(&mut SslSettings) -> &mut Option<Named>,
) -> Result<(), ConfError> {
    let named = Named::of(cx, node)?;
    value::set_once(field(of(cx)), node, |_| Ok(named))
}

fn set_threads<S: Session>(cx: &mut Cx<S>, node: &Node) -> Result<(), ConfError> {
    let word = node.arg(0)?;
    let name = match word.bytes() {
        b"off" => None,
        b"on" => Some(event::pool::DEFAULT_NAME.as_bytes()),
        name => Some(name),
    };
    let unknown = |name: &[u8]| {
        let name = base::log::lossy(name);
        ConfError::at(word, format!("unknown thread pool \"{name}\""))
    };
    let found = |name| cx.env.pools.get(name).ok_or_else(|| unknown(name));
    let pool = name.map(found).transpose()?;
    value::set_once(&mut of(cx).threads, node, |_| Ok(pool))
}

fn set_passwords<S: Session>(cx: &mut Cx<S>, node: &Node) -> Result<(), ConfError> {
    let named = Named::of(cx, node)?;
    value::set_once(&mut of(cx).passwords, node, |_| tls_files::passwords(&named))
}

fn set_dhparam<S: Session>(cx: &mut Cx<S>, node: &Node) -> Result<(), ConfError> {
    let Named { word, path, .. } = Named::of(cx, node)?;
    let text = std::fs::read(&path).map_err(|e| {
        let (path, e) = (path.display(), base::log::os_error(&e));
        ConfError::at(&word, format!("BIO_new_file(\"{path}\") failed {e}"))
    })?;
    if !has_dh_parameters(&text) {
        let m = format!("PEM_read_bio_DHparams(\"{}\") failed", path.display());
        return Err(ConfError::at(&word, m));
    }
    conf::warn(&word, "\"ssl_dhparam\" has no effect: no cipher suite with DHE is to be had");
    Ok(())
}

/// Whether a file has parameters in one of the forms that OpenSSL reads: `openssl dhparam
/// -dsaparam` writes the second.
fn has_dh_parameters(text: &[u8]) -> bool {
    let forms = [&b"-----BEGIN DH PARAMETERS-----"[..], b"-----BEGIN X9.42 DH PARAMETERS-----"];
    forms.iter().any(|form| memchr::memmem::find(text, form).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_parameters_are_known() {
        assert!(has_dh_parameters(b"# mine\n-----BEGIN DH PARAMETERS-----\nMI"));
        assert!(has_dh_parameters(b"-----BEGIN X9.42 DH PARAMETERS-----\nMI"));
        assert!(!has_dh_parameters(b"-----BEGIN CERTIFICATE-----\nMI"));
    }
}
