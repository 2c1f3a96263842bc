//! `listen` of a server of `stream`.

use conf::{ConfError, Node, Word};
use engine::addresses::ListenAddress;
use net::Kind;

use crate::module::Cx;

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut default_server, mut proxy_protocol, mut ssl, mut udp) = (false, false, false, false);
    let listen = net::listen::parse(n, None, &mut |w| {
        match w.bytes() {
            b"default_server" => default_server = true,
            b"proxy_protocol" => proxy_protocol = true,
            b"ssl" => ssl = true,
            b"udp" => udp = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    for mut spec in listen.specs {
        if udp {
            check_udp(n, &spec, ssl, proxy_protocol)?;
            spec.kind = Kind::Datagram;
            // One socket per worker, because then the kernel sends all datagrams of a client to the
            // same worker.
            spec.reuseport = true;
        }
        let listens = &mut cx.top().block.listens;
        if listens.iter().any(|l| l.spec.addr == spec.addr && l.spec.kind == spec.kind) {
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

/// Rejects parameters that are only valid for TCP.
fn check_udp(
    n: &Node,
    spec: &net::ListenSpec,
    ssl: bool,
    proxy_protocol: bool,
) -> Result<(), ConfError> {
    let at = |name: &[u8]| -> Option<&Word> {
        let is = |w: &&Word| w.bytes().split(|b| *b == b'=').next() == Some(name);
        n.args.iter().skip(1).find(is)
    };
    let conflicts: [(bool, &str); 6] = [
        (ssl, "ssl"),
        (proxy_protocol, "proxy_protocol"),
        (spec.backlog.is_some(), "backlog"),
        (spec.keepalive.is_some(), "so_keepalive"),
        (spec.fastopen.is_some(), "fastopen"),
        (spec.deferred.is_some(), "deferred"),
    ];
    for (given, name) in conflicts {
        if given {
            let m = format!("\"{name}\" parameter is incompatible with \"udp\"");
            return Err(ConfError::at(at(name.as_bytes()).unwrap_or(&n.name), m));
        }
    }
    if spec.multipath {
        let m = "\"multipath\" parameter is incompatible with \"udp\"";
        return Err(ConfError::at(at(b"multipath").unwrap_or(&n.name), m));
    }
    if spec.addr.is_unix() {
        return Err(ConfError::at(n.arg(0)?, "datagrams over unix sockets are not supported"));
    }
    Ok(())
}
