//! `listen`: the words of it that are HTTP's own.

use conf::{ConfError, Node, Word};
use engine::addresses::ListenAddress;

use crate::cx::Cx;

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut default_server, mut proxy_protocol, mut ssl) = (false, false, false);
    let mut http2 = false;
    let listen = net::listen::parse(n, Some(80), &mut |w| {
        match w.bytes() {
            b"default_server" | b"default" => default_server = true,
            b"proxy_protocol" => proxy_protocol = true,
            b"ssl" => ssl = true,
            b"http2" => {
                let m =
                    "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive";
                conf::warn(w, format!("{m} instead"));
                http2 = true;
            }
            b"quic" => return Err(unsupported(w)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    for spec in listen.specs {
        let server = &mut cx.top().block;
        if server.listens.iter().any(|l| l.spec.addr == spec.addr) {
            return Err(ConfError::at(word, format!("a duplicate listen {}", spec.addr)));
        }
        let (set, at) = (listen.has_options, word.clone());
        let listen = ListenAddress { spec, default_server, proxy_protocol, ssl, http2, set, at };
        server.listens.push(listen);
    }
    Ok(())
}

fn unsupported(w: &Word) -> ConfError {
    let m = "parameter of \"listen\" is not supported by this version of weir";
    ConfError::at(w, format!("the \"{}\" {m}", w.lossy()))
}
