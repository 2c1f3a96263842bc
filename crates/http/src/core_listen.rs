//! `listen`: the words of it that are HTTP's own.

use conf::{ConfError, Node, Word};
use engine::addresses::ListenAddress;
use net::{Kind, ListenSpec};

use crate::cx::Cx;

/// The words of a `listen` that are no socket options.
#[derive(Default)]
struct Words {
    default_server: bool,
    proxy_protocol: bool,
    ssl: bool,
    http2: bool,
    quic: bool,
}

pub(crate) fn listen(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let mut words = Words::default();
    let listen = net::listen::parse(n, Some(80), &mut |w| {
        match w.bytes() {
            b"default_server" | b"default" => words.default_server = true,
            b"proxy_protocol" => words.proxy_protocol = true,
            b"ssl" => words.ssl = true,
            b"http2" => {
                let m =
                    "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive";
                conf::warn(w, format!("{m} instead"));
                words.http2 = true;
            }
            b"quic" => words.quic = true,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let word = n.arg(0)?;
    let Words { default_server, proxy_protocol, ssl, http2, quic } = words;
    for mut spec in listen.specs {
        if quic {
            to_quic(n, &mut spec, &words)?;
        }
        let server = &mut cx.top().block;
        let same = |l: &ListenAddress| l.spec.addr == spec.addr && l.spec.kind == spec.kind;
        if server.listens.iter().any(same) {
            return Err(ConfError::at(word, format!("a duplicate listen {}", spec.addr)));
        }
        let (set, at) = (listen.has_options, word.clone());
        let listen = ListenAddress { spec, default_server, proxy_protocol, ssl, http2, set, at };
        server.listens.push(listen);
    }
    Ok(())
}

/// Makes a spec that of a QUIC address.
///
/// # Errors
/// A parameter goes with TCP alone, or QUIC has it in its own way.
fn to_quic(n: &Node, spec: &mut ListenSpec, words: &Words) -> Result<(), ConfError> {
    let at = |name: &str| -> Option<&Word> {
        let is = |w: &&Word| w.bytes().split(|b| *b == b'=').next() == Some(name.as_bytes());
        n.args.iter().skip(1).find(is)
    };
    let conflicts = [
        (spec.fastopen.is_some(), "fastopen"),
        (spec.backlog.is_some(), "backlog"),
        (spec.deferred.is_some(), "deferred"),
        (spec.multipath, "multipath"),
        (words.ssl, "ssl"),
        (words.http2, "http2"),
        (spec.keepalive.is_some(), "so_keepalive"),
        (words.proxy_protocol, "proxy_protocol"),
    ];
    if let Some((_, name)) = conflicts.iter().find(|(given, _)| *given) {
        let m = format!("\"listen\" directive \"{name}\" parameter is incompatible with \"quic\"");
        return Err(ConfError::at(at(name).unwrap_or(&n.name), m));
    }
    if spec.addr.is_unix() {
        return Err(ConfError::at(n.arg(0)?, "QUIC over unix sockets is not supported"));
    }
    (spec.kind, spec.quic) = (Kind::Datagram, true);
    // A socket for each worker, whatever is written: see `net::listeners`.
    (spec.reuseport, spec.steered) = (true, false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use conf::Pos;
    use std::path::Path;

    fn read(text: &str) -> Result<ListenSpec, String> {
        let pos = Pos { file: Path::new("f").into(), line: 1, column: 1 };
        let mut all = text.split(' ').map(|text| Word {
            text: Bytes::copy_from_slice(text.as_bytes()),
            pos: pos.clone(),
            quoted: false,
        });
        let name = all.next().unwrap();
        let node = Node { name, args: all.collect(), block: None, broken: None };
        let mut words = Words::default();
        let listen = net::listen::parse(&node, Some(80), &mut |w| {
            let own = [
                ("ssl", &mut words.ssl),
                ("http2", &mut words.http2),
                ("proxy_protocol", &mut words.proxy_protocol),
                ("quic", &mut words.quic),
            ];
            let found = own.into_iter().find(|(name, _)| w.bytes() == name.as_bytes());
            Ok(found.map(|(_, given)| *given = true).is_some())
        });
        let mut spec = listen.map_err(|e| e.to_string())?.specs.remove(0);
        to_quic(&node, &mut spec, &words).map_err(|e| e.to_string())?;
        Ok(spec)
    }

    #[test]
    fn a_quic_address_has_a_datagram_socket_for_each_worker() {
        let spec = read("listen 443 quic").unwrap();
        assert!(spec.quic && spec.reuseport && spec.kind == Kind::Datagram && !spec.bind);
        let text = "listen [::]:443 quic reuseport rcvbuf=4m sndbuf=1m ipv6only=off";
        let spec = read(text).unwrap();
        assert!(spec.bind && spec.ipv6only == Some(false));
        assert_eq!((spec.rcvbuf, spec.sndbuf), (Some(4 << 20), Some(1 << 20)));
    }

    #[test]
    fn what_does_not_go_with_quic_is_refused_in_nginx_s_words() {
        for text in [
            "fastopen=3",
            "backlog=5",
            "deferred",
            "multipath",
            "ssl",
            "http2",
            "so_keepalive=off",
            "proxy_protocol",
        ] {
            let name = text.split('=').next().unwrap();
            let message =
                format!("\"listen\" directive \"{name}\" parameter is incompatible with \"quic\"");
            let told = read(&format!("listen 443 {text} quic")).unwrap_err();
            assert_eq!(told, format!("{message} in f:1"));
        }
        assert!(read("listen unix:/s quic").unwrap_err().contains("unix sockets"));
    }
}
