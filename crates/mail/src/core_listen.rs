//! `listen` of a server of `mail`.

use conf::{ConfError, Node};
use engine::addresses::ListenAddress;
use mail_proto::Protocol;
use os::SockAddr;

use crate::module::Cx;

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut proxy_protocol, mut ssl) = (false, false);
    let listen = net::listen::parse(n, None, &mut |w| {
        match w.bytes() {
            b"proxy_protocol" => proxy_protocol = true,
            b"ssl" => ssl = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    for spec in listen.specs {
        let block = &mut cx.top().block;
        if block.by_port.is_none() {
            block.by_port = by_port(&spec.addr);
        }
        let listen = ListenAddress {
            proxy_protocol,
            ssl,
            set: listen.has_options,
            ..ListenAddress::new(spec, word)
        };
        block.listens.push(listen);
    }
    Ok(())
}

/// The protocol of a port, as nginx guesses it.
fn by_port(addr: &SockAddr) -> Option<Protocol> {
    match addr.port() {
        143 | 993 => Some(Protocol::Imap),
        110 | 995 => Some(Protocol::Pop3),
        25 | 465 | 587 => Some(Protocol::Smtp),
        _ => None,
    }
}
