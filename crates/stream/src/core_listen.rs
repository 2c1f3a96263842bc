//! `listen` of a server of `stream`.

use conf::{ConfError, Node, Word};
use engine::addresses::ListenAddress;

use crate::module::Cx;

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut default_server, mut proxy_protocol, mut ssl) = (false, false, false);
    let listen = net::listen::parse(n, None, &mut |w| {
        match w.bytes() {
            b"default_server" => default_server = true,
            b"proxy_protocol" => proxy_protocol = true,
            b"ssl" => ssl = true,
            b"udp" => return Err(unsupported(w)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    for spec in listen.specs {
        let listens = &mut cx.top().block.listens;
        if listens.iter().any(|l| l.spec.addr == spec.addr) {
            return Err(ConfError::at(word, format!("a duplicate listen {}", spec.addr)));
        }
        let listen = ListenAddress {
            default_server,
            proxy_protocol,
            ssl,
            set: listen.has_options,
            ..ListenAddress::new(spec, word)
        };
        listens.push(listen);
    }
    Ok(())
}

fn unsupported(w: &Word) -> ConfError {
    let m = "parameter of \"listen\" is not supported by this version of weir";
    ConfError::at(w, format!("the \"{}\" {m}", w.lossy()))
}
