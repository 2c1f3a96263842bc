//! `listen`: which words of it are the engine's own, and which socket a server without it gets.

use std::net::{IpAddr, Ipv4Addr};

use conf::{ConfError, Node, Word};
use net::ListenSpec;
use os::SockAddr;

use crate::core_blocks::ServerDef;
use crate::cx::Cx;

/// One address of a `listen` directive with its options.
#[derive(Clone)]
pub(crate) struct ListenDef {
    pub spec: ListenSpec,
    pub default_server: bool,
    pub proxy_protocol: bool,
    /// Socket options were given: they may stand once an address.
    pub set: bool,
    pub at: Word,
}

impl ListenDef {
    /// What a server without `listen` answers on: port 80, or 8000 where low ports are not ours.
    pub fn default_of(at: &Word) -> ListenDef {
        let port = if os::process::geteuid().is_root() { 80 } else { 8000 };
        let addr = SockAddr::ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        ListenDef {
            spec: ListenSpec::new(addr),
            default_server: false,
            proxy_protocol: false,
            set: false,
            at: at.clone(),
        }
    }
}

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut default_server, mut proxy_protocol) = (false, false);
    let listen = net::listen::parse(n, Some(80), &mut |w| {
        match w.bytes() {
            b"default_server" | b"default" => default_server = true,
            b"proxy_protocol" => proxy_protocol = true,
            b"ssl" | b"http2" | b"quic" => return Err(unsupported(w)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    for spec in listen.specs {
        let srv = cx.srv::<ServerDef>();
        if srv.listens.iter().any(|l| l.spec.addr == spec.addr) {
            return Err(ConfError::at(word, format!("a duplicate listen {}", spec.addr)));
        }
        let (set, at) = (listen.has_options, word.clone());
        srv.listens.push(ListenDef { spec, default_server, proxy_protocol, set, at });
    }
    Ok(())
}

fn unsupported(w: &Word) -> ConfError {
    let m = "parameter of \"listen\" is not supported by this version of weir";
    ConfError::at(w, format!("the \"{}\" {m}", w.lossy()))
}
