//! The `$upstream_…` variables of a session's attempts.

use base::ascii::{write_millis, write_u64};

use super::exchanges::Attempt;
use crate::module::VarDef;
use crate::session::StreamSession;

/// `$upstream_…`
pub(crate) static VARIABLES: &[VarDef] = &[
    VarDef::new("upstream_addr", |s, out| {
        let x = &s.exchanges;
        x.write(out, |a, out| out.extend_from_slice(x.name(a)));
        x.last.is_some()
    }),
    VarDef::new("upstream_bytes_sent", |s, out| each(s, out, |a, out| write_u64(out, a.sent))),
    VarDef::new("upstream_bytes_received", |s, out| {
        each(s, out, |a, out| write_u64(out, a.received))
    }),
    VarDef::new("upstream_connect_time", |s, out| {
        each(s, out, |a, out| millis(a.connect_ms(), out))
    }),
    VarDef::new("upstream_first_byte_time", |s, out| {
        each(s, out, |a, out| millis(a.first_byte_ms(), out))
    }),
    VarDef::new("upstream_session_time", |s, out| {
        each(s, out, |a, out| millis(a.session_ms(), out))
    }),
];

/// Writes one value per attempt, separated by commas.
fn each(s: &mut StreamSession, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) -> bool {
    s.exchanges.write(out, write);
    s.exchanges.last.is_some()
}

fn millis(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        None => out.push(b'-'),
        Some(ms) => write_millis(out, ms),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use os::SockAddr;
    use upstream::peer::ServerSpec;
    use upstream::servers::Servers;

    use super::super::exchanges::Exchanges;
    use super::*;

    #[test]
    fn values_of_servers_are_joined() {
        base::time::update();
        let addr = SockAddr::parse(b"127.0.0.1:1").unwrap();
        let group = Bytes::from_static(b"group");
        let servers = Servers::own(group.clone(), &[ServerSpec::new(addr)]);
        let mut x = Exchanges::default();
        x.begin(Some(servers.lists().main[0].clone()), &group);
        x.over();
        x.begin(None, &group);
        assert_eq!((x.bytes_now(), x.peer()), (None, Some(&group)));
        x.connected();
        x.now().unwrap().sent = 7;
        assert_eq!(x.bytes_now(), Some((0, 7)));
        let text = |write: &dyn Fn(&Attempt, &mut Vec<u8>)| {
            let mut out = Vec::new();
            x.write(&mut out, write);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(&|a, out| out.extend_from_slice(x.name(a))), "127.0.0.1:1, group");
        assert_eq!(text(&|a, out| write_u64(out, a.sent)), "0, 7");
        assert_eq!(text(&|a, out| millis(a.first_byte_ms(), out)), "-, -");
        assert!(text(&|a, out| millis(a.connect_ms(), out)).starts_with("-, 0.0"));
        assert!(text(&|a, out| millis(a.session_ms(), out)).ends_with(", -"));
    }
}
