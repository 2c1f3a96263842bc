//! `proxy_protocol`: the header that informs an upstream of the client's address.

use std::net::SocketAddr;

use common_modules::connection_vars::Connected;
use engine::Client;
use os::SockAddr;
use proto::proxy_protocol::{write_v1, write_v2};

use super::conf::HeaderVersion;
use crate::session::StreamSession;

/// The header of our own connections, such as health checks: UNKNOWN or LOCAL.
pub(super) fn of_none(version: HeaderVersion) -> Vec<u8> {
    let mut out = Vec::new();
    match version {
        HeaderVersion::V1 => write_v1(None, None, &mut out),
        HeaderVersion::V2 => {
            write_v2(None, None, false, &[], &mut out);
        }
    }
    out
}

/// The header for a session's client.
pub(super) fn of(s: &StreamSession, version: HeaderVersion) -> Vec<u8> {
    let socket = |addr: &SockAddr| Some(SocketAddr::new(addr.ip_addr()?, addr.port()));
    let source = socket(s.address());
    let destination = s.local().and_then(socket);
    let mut out = Vec::with_capacity(128);
    match version {
        HeaderVersion::V1 => write_v1(source, destination, &mut out),
        HeaderVersion::V2 => {
            // Cannot fail, because there are no TLVs.
            write_v2(source, destination, s.is_udp(), &[], &mut out);
        }
    }
    out
}
