//! `realip`: the client's address as the PROXY protocol header of a trusted proxy has it.

use common_modules::realip::TrustedProxies;
use conf::table::{Args, Directive, directive};
use engine::settings::{ConfType, Scope};
use os::SockAddr;
use proto::proxy_protocol::Header;

use crate::module::{Cx, MS, Module};
use crate::session::MailSession;

/// The module's table.
pub static MODULE: Module = Module {
    name: "realip",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<RealipConf>(Scope::Server)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "set_real_ip_from",
    MS,
    Args::T1,
    "",
    "A trusted proxy, whose client address is used: an address, CIDR range, name or unix:.",
    |cx, n| cx.loc::<RealipConf>().from.add(n),
)];

engine::settings! {
    struct RealipConf {
        from: TrustedProxies,
    }
}

/// The client's address is the header's, if a trusted proxy sent it.
pub(crate) fn apply(s: &mut MailSession, header: &Header) {
    let trusted = s.conf::<RealipConf>().from.trust(&s.peer);
    if let Some(ip) = header.source.ip
        && trusted
    {
        s.set_real_peer(SockAddr::ip(ip, header.source.port));
    }
}
