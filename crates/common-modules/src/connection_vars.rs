//! Variables of a client's connection and of the process, for the tables of engines.

use std::cell::OnceCell;
use std::io::Write;
use std::net::IpAddr;

use base::ascii::{write_millis, write_u64};
use base::log::Level;
use engine::Session;
use engine::vars::VarDef;
use os::SockAddr;
use proto::proxy_protocol::{Endpoint, Header, TlvName, find_tlv};

/// A session whose client's connection is known.
pub trait Connected: Session {
    /// The local address.
    fn local(&self) -> Option<&SockAddr>;

    /// The local port; 0 for unix sockets.
    fn local_port(&self) -> u16;

    /// The PROXY protocol header that came with the connection.
    fn proxy_header(&self) -> Option<&Header>;
}

/// The variables, for the table of an engine's core.
pub const fn variables<S: Connected>() -> [VarDef<S>; 19] {
    [
        VarDef::new("connection", number),
        VarDef::new("remote_addr", remote_addr),
        VarDef::new("binary_remote_addr", binary_remote_addr),
        VarDef::new("remote_port", remote_port),
        VarDef::new("server_addr", server_addr),
        VarDef::new("server_port", server_port),
        VarDef::new("proxy_protocol_addr", proxy_addr),
        VarDef::new("proxy_protocol_port", proxy_port),
        VarDef::new("proxy_protocol_server_addr", proxy_server_addr),
        VarDef::new("proxy_protocol_server_port", proxy_server_port),
        VarDef::prefix("proxy_protocol_tlv_", proxy_tlv),
        VarDef::new("hostname", hostname),
        VarDef::new("pid", pid),
        VarDef::new("nginx_version", version),
        VarDef::new("weir_version", version),
        VarDef::new("msec", msec),
        VarDef::new("time_iso8601", time_iso8601),
        VarDef::new("time_local", time_local),
        VarDef::new("time_rfc3339", time_rfc3339),
    ]
}

/// Writes the value if there is one; false for none.
pub fn write_some(out: &mut Vec<u8>, value: Option<&[u8]>) -> bool {
    if let Some(v) = value {
        out.extend_from_slice(v);
    }
    value.is_some()
}

/// A port, or an empty value for none.
pub fn write_port(out: &mut Vec<u8>, port: u16) -> bool {
    if port > 0 {
        write_u64(out, port.into());
    }
    true
}

/// `$connection`
fn number<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_u64(out, s.connection());
    true
}

fn remote_addr<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_host(out, s.address())
}

/// Writes an address without its port. Gateways are told addresses with every request: the usual
/// ones are written without formatting.
pub(crate) fn write_host(out: &mut Vec<u8>, addr: &SockAddr) -> bool {
    let Some(IpAddr::V4(ip)) = addr.ip_addr() else {
        return write!(out, "{}", addr.host()).is_ok();
    };
    let mut text = [0; 16];
    let mut len = 0;
    let mut put = |byte: u8| {
        text[len] = byte;
        len += 1;
    };
    for octet in ip.octets() {
        if octet >= 100 {
            put(b'0' + octet / 100);
        }
        if octet >= 10 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
        put(b'.');
    }
    // Without the last dot.
    out.extend_from_slice(&text[..len - 1]);
    true
}

/// `$binary_remote_addr`: the address's bytes in network order, a key half as long as its text.
fn binary_remote_addr<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    match s.address().ip_addr() {
        Some(IpAddr::V4(ip)) => out.extend_from_slice(&ip.octets()),
        Some(IpAddr::V6(ip)) => out.extend_from_slice(&ip.octets()),
        None => return remote_addr(s, out),
    }
    true
}

fn remote_port<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_port(out, s.address().port())
}

fn server_addr<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    let Some(local) = s.local() else { return false };
    match local {
        SockAddr::Unix(_) => write!(out, "{local}").is_ok(),
        _ => write_host(out, local),
    }
}

fn server_port<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_port(out, s.local_port())
}

fn write_end(out: &mut Vec<u8>, end: Option<&Endpoint>) -> bool {
    write_some(out, end.map(|e| e.text.as_bytes()))
}

/// `$proxy_protocol_addr`
fn proxy_addr<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_end(out, s.proxy_header().map(|h| &h.source))
}

/// `$proxy_protocol_server_addr`
fn proxy_server_addr<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    write_end(out, s.proxy_header().map(|h| &h.destination))
}

/// `$proxy_protocol_port`
fn proxy_port<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    s.proxy_header().is_some_and(|h| write_port(out, h.source.port))
}

/// `$proxy_protocol_server_port`
fn proxy_server_port<S: Connected>(s: &mut S, out: &mut Vec<u8>) -> bool {
    s.proxy_header().is_some_and(|h| write_port(out, h.destination.port))
}

/// `$proxy_protocol_tlv_…`
fn proxy_tlv<S: Connected>(s: &mut S, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(header) = s.proxy_header() else { return false };
    let Some(wanted) = TlvName::parse(name) else {
        let name = base::log::lossy(name);
        s.log(Level::Error, format_args!("unknown PROXY protocol TLV \"{name}\""));
        return false;
    };
    match find_tlv(&header.tlvs, wanted) {
        Ok(value) => write_some(out, value.as_deref()),
        Err(_) => {
            s.log(Level::Error, format_args!("broken PROXY protocol TLV"));
            false
        }
    }
}

fn hostname<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    thread_local!(static NAME: OnceCell<String> = const { OnceCell::new() });
    NAME.with(|name| {
        let name = name.get_or_init(|| os::process::hostname().to_ascii_lowercase());
        out.extend_from_slice(name.as_bytes());
    });
    true
}

fn pid<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    write_u64(out, std::process::id().into());
    true
}

/// `$nginx_version`, `$weir_version`
fn version<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    true
}

fn msec<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    write_millis(out, base::time::unix_ms());
    true
}

fn time_iso8601<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&base::time::iso8601());
    true
}

fn time_rfc3339<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&base::time::rfc3339_ms());
    true
}

fn time_local<S>(_: &mut S, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&base::time::clf_time());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_shown() {
        for text in ["0.0.0.0:1", "127.0.0.1:80", "10.20.255.199:65535", "[::1]:80", "unix:/a"] {
            let addr = SockAddr::parse(text.as_bytes()).unwrap();
            let mut out = Vec::new();
            assert!(write_host(&mut out, &addr));
            assert_eq!(out, addr.host().to_string().into_bytes());
        }
    }
}
