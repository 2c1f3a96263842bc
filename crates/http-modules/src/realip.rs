//! `realip`: the client's address as proxies that are trusted tell it.

use std::io::Write as _;
use std::rc::Rc;

use base::ascii::write_u64;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, Node, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;
use http::vars::VarDef;
use net::{Cidr, Origin, forwarded};
use os::SockAddr;
use proto::h1::FieldId;

/// The module's table.
pub static MODULE: Module = Module {
    name: "realip",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<RealipConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "set_real_ip_from",
        HSL,
        Args::T1,
        "",
        "Proxies whose word about the client's address is taken: address, range, name or unix:.",
        set_real_ip_from,
    ),
    directive(
        "real_ip_header",
        HSL,
        Args::T1,
        "X-Real-IP",
        "The field in which proxies tell the client's address, or proxy_protocol.",
        real_ip_header,
    ),
    directive(
        "real_ip_recursive",
        HSL,
        Args::FLAG,
        "off",
        "Whether the last address that is no trusted proxy's is taken, not the very last.",
        |cx, n| value::set_flag(&mut cx.loc::<RealipConf>().recursive, n),
    ),
];

static VARIABLES: &[VarDef] = &[
    VarDef::new("realip_remote_addr", |r, out| {
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{}", r.c().peer.host());
        true
    }),
    VarDef::new("realip_remote_port", |r, out| {
        match r.c().peer.port() {
            0 => {}
            port => write_u64(out, port.into()),
        }
        true
    }),
];

/// Where the address is told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// The first field of that name.
    Header(Bytes),
    /// All fields of that name together are one list.
    ForwardedFor,
    ProxyProtocol,
}

#[derive(Default)]
struct RealipConf {
    from: Rc<Vec<Origin>>,
    source: Option<Source>,
    recursive: Option<bool>,
}

impl Conf for RealipConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.from.is_empty() {
            self.from.clone_from(&prev.from);
        }
        if self.source.is_none() {
            self.source.clone_from(&prev.source);
        }
        self.recursive = self.recursive.or(prev.recursive);
        Ok(())
    }
}

fn set_real_ip_from(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = &n.args[0];
    let mut origins = Vec::new();
    if word.bytes() == b"unix:" {
        origins.push(Origin::Unix);
    } else if let Some((net, meaningless)) = Cidr::parse(word.bytes()) {
        if meaningless {
            let m = format!("low address bits of {} are meaningless", word.lossy());
            conf::warn(word, m);
        }
        origins.push(Origin::Net(net));
    } else {
        let wrong =
            |m: &str| ConfError::at(word, format!("{m} in set_real_ip_from \"{}\"", word.lossy()));
        let found = net::addr::resolve(word.bytes()).map_err(wrong)?;
        origins.extend(found.into_iter().map(|ip| Origin::Net(Cidr::host(ip))));
    }
    Rc::make_mut(&mut cx.loc::<RealipConf>().from).extend(origins);
    Ok(())
}

fn real_ip_header(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let conf = cx.loc::<RealipConf>();
    if conf.source.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    conf.source = Some(match n.args[0].bytes() {
        b"X-Forwarded-For" => Source::ForwardedFor,
        b"proxy_protocol" => Source::ProxyProtocol,
        _ => Source::Header(n.args[0].text.clone()),
    });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<RealipConf>();
    if !conf.from.is_empty() {
        for phase in [&mut p.post_read, &mut p.preaccess] {
            let conf = conf.clone();
            phase.push(Box::new(move |r: &mut Request| handle(r, &conf)));
        }
    }
    Ok(())
}

fn handle(r: &mut Request, conf: &RealipConf) -> Verdict {
    if r.real_peer.is_none() {
        r.real_peer = client(r, conf);
    }
    Verdict::Next
}

fn client(r: &Request, conf: &RealipConf) -> Option<SockAddr> {
    let peer = &r.c().peer;
    let trusted = |addr: &SockAddr| conf.from.iter().any(|o| o.matches(addr));
    if !trusted(peer) {
        return None;
    }
    let recursive = conf.recursive.unwrap_or(false);
    let one = |text| forwarded::client(peer, [text].into_iter(), trusted, recursive);
    match &conf.source {
        None => one(r.header(FieldId::XRealIp)?),
        Some(Source::Header(name)) => one(r.header_named(name)?),
        Some(Source::ForwardedFor) => {
            let buf = r.head_bytes();
            let fields: Vec<_> =
                r.head.all(FieldId::XForwardedFor).map(|f| f.value.of(buf)).collect();
            forwarded::client(peer, fields.into_iter(), trusted, recursive)
        }
        Some(Source::ProxyProtocol) => {
            let source = &r.c().proxy_header()?.source;
            Some(one(source.text.as_bytes())?.with_port(source.port))
        }
    }
}
