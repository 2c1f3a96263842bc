//! Variables of the connection that a request came over.

use std::io::Write;
use std::net::IpAddr;

use base::ascii::{write_millis, write_u64};
use base::log::Level;
use os::SockAddr;
use os::socket::TcpInfo;
use proto::proxy_protocol::{Endpoint, Header, TlvName, find_tlv};

use super::{write_port, write_some};
use crate::request::Request;

pub(super) fn number(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.c().number);
    true
}

pub(super) fn requests(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.c().requests.get());
    true
}

pub(super) fn time(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_millis(out, base::time::now_ms().saturating_sub(r.c().start_ms));
    true
}

pub(super) fn remote_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_host(out, r.peer())
}

/// Gateways are told addresses with every request: the usual ones are written without formatting.
fn write_host(out: &mut Vec<u8>, addr: &SockAddr) -> bool {
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

/// The address's bytes in network order: a key half as long as its text.
pub(super) fn binary_remote_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.peer().ip_addr() {
        Some(IpAddr::V4(ip)) => out.extend_from_slice(&ip.octets()),
        Some(IpAddr::V6(ip)) => out.extend_from_slice(&ip.octets()),
        None => return remote_addr(r, out),
    }
    true
}

pub(super) fn remote_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_port(out, r.peer().port())
}

pub(super) fn server_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let c = r.c();
    let Some(local) = c.local() else { return false };
    match local {
        SockAddr::Unix(_) => write!(out, "{local}").is_ok(),
        _ => write_host(out, local),
    }
}

pub(super) fn server_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_port(out, r.c().local_port())
}

pub(super) fn scheme(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(if r.is_secured() { b"https" } else { b"http" });
    true
}

pub(super) fn https(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.is_secured() {
        out.extend_from_slice(b"on");
    }
    true
}

fn told(r: &Request) -> Option<&Header> {
    r.c().proxy_header()
}

fn write_end(out: &mut Vec<u8>, end: Option<&Endpoint>) -> bool {
    write_some(out, end.map(|e| e.text.as_bytes()))
}

pub(super) fn proxy_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_end(out, told(r).map(|h| &h.source))
}

pub(super) fn proxy_server_addr(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_end(out, told(r).map(|h| &h.destination))
}

pub(super) fn proxy_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    told(r).is_some_and(|h| write_port(out, h.source.port))
}

pub(super) fn proxy_server_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    told(r).is_some_and(|h| write_port(out, h.destination.port))
}

pub(super) fn proxy_tlv(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(header) = told(r) else { return false };
    let Some(wanted) = TlvName::parse(name) else {
        let name = base::log::lossy(name);
        r.log(Level::Error, format_args!("unknown PROXY protocol TLV \"{name}\""));
        return false;
    };
    match find_tlv(&header.tlvs, wanted) {
        Ok(value) => write_some(out, value.as_deref()),
        Err(_) => {
            r.log(Level::Error, format_args!("broken PROXY protocol TLV"));
            false
        }
    }
}

pub(super) fn tcp_info(r: &mut Request, out: &mut Vec<u8>, of: fn(&TcpInfo) -> u32) -> bool {
    match r.c().tcp_info() {
        Ok(info) => {
            write_u64(out, of(&info).into());
            true
        }
        Err(_) => false,
    }
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
