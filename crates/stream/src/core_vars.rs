//! The core's variables.

use base::ascii::{write_millis, write_u64};
use common_modules::connection_vars as shared;

use crate::module::VarDef;
use crate::session::StreamSession;

/// All of them.
pub(crate) static VARIABLES: &[VarDef] = &[
    VarDef::new("binary_remote_addr", shared::binary_remote_addr),
    VarDef::new("remote_addr", shared::remote_addr),
    VarDef::new("remote_port", shared::remote_port),
    VarDef::new("server_addr", shared::server_addr),
    VarDef::new("server_port", shared::server_port),
    VarDef::new("server_name", |s, out| {
        out.extend_from_slice(&s.server.name);
        true
    }),
    VarDef::new("proxy_protocol_addr", shared::proxy_addr),
    VarDef::new("proxy_protocol_port", shared::proxy_port),
    VarDef::new("proxy_protocol_server_addr", shared::proxy_server_addr),
    VarDef::new("proxy_protocol_server_port", shared::proxy_server_port),
    VarDef::prefix("proxy_protocol_tlv_", shared::proxy_tlv),
    VarDef::new("bytes_sent", |s, out| {
        write_u64(out, s.sent.get());
        true
    }),
    VarDef::new("bytes_received", |s, out| {
        write_u64(out, s.received.get());
        true
    }),
    VarDef::new("session_time", |s, out| {
        write_millis(out, base::time::now_ms().saturating_sub(s.start_ms));
        true
    }),
    VarDef::new("status", status),
    VarDef::new("connection", shared::number),
    VarDef::new("protocol", |s, out| {
        out.extend_from_slice(if s.is_udp() { b"UDP" } else { b"TCP" });
        true
    }),
    VarDef::new("hostname", shared::hostname),
    VarDef::new("pid", shared::pid),
    VarDef::new("nginx_version", shared::version),
    VarDef::new("weir_version", shared::version),
    VarDef::new("msec", shared::msec),
    VarDef::new("time_iso8601", shared::time_iso8601),
    VarDef::new("time_local", shared::time_local),
];

fn status(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let digits = s.status.min(999);
    out.extend([digits / 100, digits / 10 % 10, digits % 10].map(|d| b'0' + d as u8));
    true
}
