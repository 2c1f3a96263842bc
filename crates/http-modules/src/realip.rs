//! `realip`: the client's address as trusted proxies report it.

use std::io::Write as _;

use base::ascii::write_u64;
use bytes::Bytes;
use common_modules::forwarded;
use common_modules::realip::TrustedProxies;
use conf::table::{Args, Directive};
use conf::{ConfError, Node, value};
use engine::Session;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::vars::VarDef;
use http_wire::h1::FieldId;
use os::SockAddr;

/// The module's table.
pub static MODULE: Module =
    Module { variables: VARIABLES, ..Module::of::<RealipConf>("realip", DIRECTIVES, install) };

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "set_real_ip_from",
        HSL,
        Args::T1,
        "",
        "A trusted proxy, whose client address is used: an address, CIDR range, name or unix:.",
        |cx, n| cx.loc::<RealipConf>().from.add(n),
    ),
    directive(
        "real_ip_header",
        HSL,
        Args::T1,
        "X-Real-IP",
        "The source of the client's address: a header field, or proxy_protocol.",
        real_ip_header,
    ),
    directive(
        "real_ip_recursive",
        HSL,
        Args::FLAG,
        "off",
        "Takes the last address that is not a trusted proxy, rather than the last one.",
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

/// The place of the address in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    /// The first field of that name.
    Header(Bytes),
    /// All fields of that name together are one list.
    ForwardedFor,
    ProxyProtocol,
}

engine::settings! {
    struct RealipConf {
        from: TrustedProxies,
        source: Option<Source>,
        recursive: Option<bool>,
    }
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
    if r.client.real_peer.is_none() {
        r.client.real_peer = client(r, conf);
    }
    Verdict::Next
}

fn client(r: &Request, conf: &RealipConf) -> Option<SockAddr> {
    let peer = &r.c().peer;
    let trusted = |addr: &SockAddr| conf.from.trust(addr);
    if !trusted(peer) {
        return None;
    }
    let recursive = conf.recursive.unwrap_or(false);
    let one = |text| forwarded::client(peer, [text].into_iter(), trusted, recursive);
    match &conf.source {
        None => one(r.header(FieldId::XRealIp)?),
        Some(Source::Header(name)) => one(r.header_named(name)?),
        Some(Source::ForwardedFor) => {
            forwarded::client(peer, r.forwarded_for().into_iter(), trusted, recursive)
        }
        Some(Source::ProxyProtocol) => {
            let source = &r.c().proxy_header()?.source;
            Some(one(source.text.as_bytes())?.with_port(source.port))
        }
    }
}
