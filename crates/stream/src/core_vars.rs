//! The core's variables.

use base::ascii::{write_millis, write_u64};
use common_modules::connection_vars;
use conf::table::join;

use crate::module::VarDef;
use crate::session::StreamSession;

/// The core's variables.
pub(crate) static VARIABLES: &[VarDef] = &join::<_, { OWN.len() + SHARED.len() }>(&[OWN, SHARED]);

/// The variables that all engines have in common.
const SHARED: &[VarDef] = &connection_vars::variables();

const OWN: &[VarDef] = &[
    VarDef::new("server_name", |s, out| {
        out.extend_from_slice(&s.server.name);
        true
    }),
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
    VarDef::new("protocol", |s, out| {
        out.extend_from_slice(if s.is_udp() { b"UDP" } else { b"TCP" });
        true
    }),
];

fn status(s: &mut StreamSession, out: &mut Vec<u8>) -> bool {
    let digits = s.status.min(999);
    out.extend([digits / 100, digits / 10 % 10, digits % 10].map(|d| b'0' + d as u8));
    true
}
