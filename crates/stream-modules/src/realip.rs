//! `realip`: the client's address as the PROXY protocol header of a trusted proxy has it.

use std::io::Write;

use base::ascii::write_u64;
use common_modules::realip::TrustedProxies;
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Directive};
use os::SockAddr;
use proto::proxy_protocol::Header;
use stream::module::SS;
use stream::module::VarDef;
use stream::{Cx, Module, Pipeline, StreamSession, Verdict, View};

/// The module's table.
pub static MODULE: Module =
    Module { variables: VARIABLES, ..Module::of::<RealipConf>("realip", DIRECTIVES, install) };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "set_real_ip_from",
    SS,
    Args::T1,
    "",
    "A trusted proxy, whose client address is used: an address, CIDR range, name or unix:.",
    |cx, n| cx.loc::<RealipConf>().from.add(n),
)];

static VARIABLES: &[VarDef] = &[
    VarDef::new("realip_remote_addr", |s, out| {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{}", s.peer.host());
        true
    }),
    VarDef::new("realip_remote_port", |s, out| {
        match s.peer.port() {
            0 => {}
            port => write_u64(out, port.into()),
        }
        true
    }),
];

engine::settings! {
    struct RealipConf {
        from: TrustedProxies,
    }
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = view.conf::<RealipConf>();
    if !conf.from.is_empty() {
        p.post_accept.push(Box::new(move |s| {
            if conf.from.trust(&s.peer)
                && let Some(client) = client(s)
            {
                s.set_real_peer(client);
            }
            Verdict::Next
        }));
    }
    Ok(())
}

/// The client's address in the header.
fn client(s: &StreamSession) -> Option<SockAddr> {
    use common_modules::connection_vars::Connected;
    let Header { source, .. } = s.proxy_header()?;
    Some(SockAddr::ip(source.ip?, source.port))
}
