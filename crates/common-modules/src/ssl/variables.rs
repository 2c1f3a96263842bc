//! `$ssl_…`: the facts of a client's session.

use bytes::Bytes;
use engine::Session;
use engine::vars::{VarDef, WriteFn};
use pki::x509::{Certificate, Kind};
use proto::tls_hello::{ClientHello, Verdict, fingerprint, parse_message};
use proto::tls_names;
use tls::Info;

use super::established::{Established, Secured};

/// The variables whose values come from the hello, which is kept for them.
pub const OF_HELLO: &[&str] =
    &["ssl_ciphers", "ssl_curves", "ssl_sigalgs", "ssl_ja3", "ssl_ja3_hash", "ssl_ja4"];

/// The variables of a server's sessions, for an engine's table.
pub const fn variables<S: Session + Secured>() -> [VarDef<S>; 39] {
    [
        of(|s, out| info(s, out, |i, out| write(out, i.version_name())), "ssl_protocol"),
        of(cipher, "ssl_cipher"),
        of(curve, "ssl_curve"),
        of(|s, out| hello(s, out, tls_names::write_ciphers), "ssl_ciphers"),
        of(|s, out| hello(s, out, tls_names::write_curves), "ssl_curves"),
        of(|s, out| hello(s, out, tls_names::write_sigalgs), "ssl_sigalgs"),
        of(|s, out| hello(s, out, |h, out| write(out, &fingerprint::ja3_text(h))), "ssl_ja3"),
        of(|s, out| hello(s, out, |h, out| write(out, &fingerprint::ja3(h))), "ssl_ja3_hash"),
        of(|s, out| hello(s, out, ja4), "ssl_ja4"),
        of(|s, out| info(s, out, |i, out| scheme(out, i.signed_with)), "ssl_sigalg"),
        of(session_id, "ssl_session_id"),
        of(reused, "ssl_session_reused"),
        of(early_data, "ssl_early_data"),
        of(server_name, "ssl_server_name"),
        of(alpn, "ssl_alpn_protocol"),
        of(|s, out| session(s, out, |e, out| write(out, &e.verdict())), "ssl_client_verify"),
        of(|s, out| peer(s, out, |c, out| out.extend(c.pem_for_header())), "ssl_client_cert"),
        of(|s, out| peer(s, out, |c, out| out.extend(c.pem())), "ssl_client_raw_cert"),
        of(|s, out| peer(s, out, |c, out| out.extend(c.pem_escaped())), "ssl_client_escaped_cert"),
        of(|s, out| peer(s, out, |c, out| write(out, &c.subject().rfc2253())), "ssl_client_s_dn"),
        of(|s, out| peer(s, out, |c, out| write(out, &c.issuer().rfc2253())), "ssl_client_i_dn"),
        of(
            |s, out| peer(s, out, |c, out| write(out, &c.subject().one_line())),
            "ssl_client_s_dn_legacy",
        ),
        of(
            |s, out| peer(s, out, |c, out| write(out, &c.issuer().one_line())),
            "ssl_client_i_dn_legacy",
        ),
        of(|s, out| peer(s, out, |c, out| write(out, &c.serial_text())), "ssl_client_serial"),
        of(|s, out| peer(s, out, |c, out| write(out, &c.fingerprint())), "ssl_client_fingerprint"),
        of(|s, out| peer(s, out, start), "ssl_client_v_start"),
        of(|s, out| peer(s, out, end), "ssl_client_v_end"),
        of(|s, out| peer(s, out, remain), "ssl_client_v_remain"),
        of(|s, out| info(s, out, |i, out| scheme(out, i.peer_signed_with)), "ssl_client_sigalg"),
        of(|s, out| own(s, out, |c, out| write(out, key_type(c))), "ssl_server_cert_type"),
        of(
            |s, out| own(s, out, |c, out| write(out, &c.subject().rfc2253())),
            "ssl_server_cert_s_dn",
        ),
        of(
            |s, out| own(s, out, |c, out| write(out, &c.issuer().rfc2253())),
            "ssl_server_cert_i_dn",
        ),
        of(|s, out| own(s, out, |c, out| write(out, &c.serial_text())), "ssl_server_cert_serial"),
        of(
            |s, out| own(s, out, |c, out| write(out, &c.fingerprint())),
            "ssl_server_cert_fingerprint",
        ),
        of(|s, out| own(s, out, start), "ssl_server_cert_v_start"),
        of(|s, out| own(s, out, end), "ssl_server_cert_v_end"),
        of(|s, out| own(s, out, remain), "ssl_server_cert_v_remain"),
        // Servers here cannot take an encrypted hello.
        of(|_, _| false, "ssl_ech_status"),
        of(|_, _| false, "ssl_ech_outer_server_name"),
    ]
}

const fn of<S: Session>(get: WriteFn<S>, name: &'static str) -> VarDef<S> {
    VarDef::new(name, get)
}

fn write(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// Lets `tell` write of the session; an empty text is no value.
fn session<S: Secured>(s: &S, out: &mut Vec<u8>, tell: fn(&Established, &mut Vec<u8>)) -> bool {
    let Some(established) = s.established() else { return false };
    let before = out.len();
    tell(established, out);
    out.len() > before
}

/// The same for what both ends agreed on.
fn info<S: Secured>(s: &S, out: &mut Vec<u8>, tell: fn(&Info, &mut Vec<u8>)) -> bool {
    let Some(info) = s.established().and_then(Established::info) else { return false };
    let before = out.len();
    tell(info, out);
    out.len() > before
}

fn peer<S: Secured>(s: &S, out: &mut Vec<u8>, tell: fn(&Certificate, &mut Vec<u8>)) -> bool {
    let Some(certificate) = s.established().and_then(Established::certificate) else {
        return false;
    };
    tell(certificate, out);
    true
}

/// The same for the server's own certificate. It is read again for each value: whoever logs it
/// pays, and connections stay small.
fn own<S: Secured>(s: &S, out: &mut Vec<u8>, tell: fn(&Certificate, &mut Vec<u8>)) -> bool {
    let info = s.established().and_then(Established::info);
    let Some(der) = info.and_then(Info::own_certificate) else { return false };
    let Ok(certificate) = Certificate::parse(Bytes::copy_from_slice(der)) else { return false };
    tell(&certificate, out);
    true
}

fn key_type(certificate: &Certificate) -> &'static str {
    match certificate.public_key().kind() {
        Kind::Rsa(_) | Kind::RsaPss(..) => "rsa",
        Kind::P256 | Kind::P384 | Kind::P521 => "ecdsa",
        Kind::Ed25519 => "ed25519",
        Kind::Unknown => "",
    }
}

fn hello<S: Secured>(s: &S, out: &mut Vec<u8>, tell: fn(&ClientHello<'_>, &mut Vec<u8>)) -> bool {
    let kept = s.established().and_then(|e| e.hello.as_deref());
    let Some(Verdict::Hello(hello)) = kept.map(parse_message) else { return false };
    tell(&hello, out);
    true
}

/// An extension's number.
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;

fn ja4(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    // Each hello over QUIC has its parameters, and no other has (RFC 9001 section 8.2).
    let carrier = match hello.extension(QUIC_TRANSPORT_PARAMETERS) {
        Some(_) => fingerprint::Carrier::Quic,
        None => fingerprint::Carrier::Tcp,
    };
    write(out, &fingerprint::ja4(hello, carrier));
}

fn cipher<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| write(out, tls_names::cipher_suite(i.suite).unwrap_or_default()))
}

fn curve<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| write(out, tls_names::group(i.group).unwrap_or_default()))
}

fn scheme(out: &mut Vec<u8>, number: u16) {
    write(out, tls_names::signature_algorithm(number).unwrap_or_default());
}

fn session_id<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| base::ascii::write_hex(out, &i.session_id))
}

fn reused<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| out.push(if i.is_resumed { b'r' } else { b'.' }))
}

fn early_data<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| {
        if i.has_early_data {
            out.push(b'1');
        }
    })
}

fn server_name<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    session(s, out, |e, out| out.extend_from_slice(e.server_name.as_deref().unwrap_or_default()))
}

fn alpn<S: Secured>(s: &mut S, out: &mut Vec<u8>) -> bool {
    info(s, out, |i, out| out.extend_from_slice(i.alpn.as_deref().unwrap_or_default()))
}

fn start(certificate: &Certificate, out: &mut Vec<u8>) {
    write(out, &certificate.not_before().to_string());
}

fn end(certificate: &Certificate, out: &mut Vec<u8>) {
    write(out, &certificate.not_after().to_string());
}

fn remain(certificate: &Certificate, out: &mut Vec<u8>) {
    if let Some(days) = certificate.days_left(base::time::unix_secs().cast_signed()) {
        write(out, &days.to_string());
    }
}
