//! `tunnel`: CONNECT requests, whose connections are carried to another server as they are.

use std::rc::Rc;

use base::future::boxed;
use bytes::Bytes;
use conf::join_directives;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::Bufs;
use conf::{ConfError, Node, Word};
use http::core_conf::CoreSrvDraft;
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_upstream::conf::{Conf as UpConf, Draft, next};
use http_upstream::directives::{Group, Shared, named};
use http_upstream::{Fault, HeadStep, Job, Progress, Protocol, Sink};
use http_wire::h1::{Method, ResponseHead};
use mem::{Buf, Chain};

use crate::gateway::Gateway;
use crate::gateway::pass::{self, To};

/// The module's table.
pub static MODULE: Module = pass::module::<TunnelConf>("tunnel", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "tunnel_bind",
        "tunnel_bind_dynamic",
        "tunnel_allow_upstream",
        "tunnel_socket_keepalive",
        "tunnel_connect_timeout",
        "tunnel_send_timeout",
        "tunnel_read_timeout",
        "tunnel_buffer_size",
        "tunnel_next_upstream",
        "tunnel_next_upstream_tries",
        "tunnel_next_upstream_timeout",
        "tunnel_socket_rcvbuf",
        "tunnel_socket_sndbuf",
        "tunnel_send_lowat",
    ],
    &[
        Group::<TunnelConf>::CONNECTING,
        Group::<TunnelConf>::SOCKETS,
        Group::<TunnelConf>::SEND_LOWAT,
    ],
);

const OWN: &[Directive<Cx>] = &[directive(
    "tunnel_pass",
    C::SERVER.or(C::LOCATION).or(C::IF_LOCATION),
    Args::NONE.or(Args::T1),
    "$host:$request_port",
    "The server to which CONNECT requests are tunneled.",
    set_pass,
)];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct TunnelConf {
        up: Draft,
    }
}

impl Shared for TunnelConf {
    const NEXT_UPSTREAM: &[(&str, u64)] = &[
        ("error", next::ERROR),
        ("timeout", next::TIMEOUT),
        ("denied", next::DENIED),
        ("off", next::OFF),
    ];

    fn shared(&mut self) -> &mut Draft {
        &mut self.up
    }
}

impl Gateway for TunnelConf {
    const PREFIX: &'static str = "tunnel";
    const SCHEME: &'static str = "";
    const USES_FILES: bool = false;
}

fn set_pass(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let asked = Bytes::from_static(b"$host:$request_port");
    let word = match n.args.first() {
        Some(word) => word.clone(),
        None => Word { text: asked, ..n.name.clone() },
    };
    pass::set_to::<TunnelConf>(cx, n, &word)?;
    cx.srv::<CoreSrvDraft>().allow_connect = Some(true);
    Ok(())
}

struct Handler {
    to: To<TunnelConf>,
    conf: Rc<UpConf>,
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<TunnelConf>::of(l) else { return Ok(()) };
    let mut up = l.conf::<TunnelConf>().up.clone();
    // There are none, so that any first buffer fits to them.
    up.buffers = up.buffer_size.map(|size| Bufs { num: 8, size });
    let conf = up.finish("tunnel", &[], &pass::folder::<TunnelConf>(l))?;
    p.content_handler = Some(Box::new(Handler { to, conf }));
    Ok(())
}

impl PhaseHandler for Handler {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if r.target.method != Method::Connect {
            return Verdict::Status(405).into();
        }
        let (target, _) = match self.to.target(r) {
            Ok(target) => target,
            Err(status) => return Verdict::Status(status).into(),
        };
        let protocol = Box::new(Tunnel);
        let job = Job { conf: self.conf.clone(), target, protocol, tls: None };
        Step::Wait(boxed(|| http_upstream::run(r, job)))
    }
}

/// An exchange that consists of a connection.
struct Tunnel;

impl Protocol for Tunnel {
    fn scheme(&self) -> &'static str {
        TunnelConf::SCHEME
    }

    fn only_connects(&self) -> bool {
        true
    }

    fn request(&mut self, _: &mut Request, _: &mut Chain) -> Result<(), u16> {
        Ok(())
    }

    fn sends_body(&self) -> bool {
        false
    }

    fn chunked_requests(&self) -> bool {
        false
    }

    fn head(&mut self, _: &[u8], head: &mut ResponseHead) -> HeadStep {
        head.clear();
        head.status = 200;
        HeadStep::Done(0)
    }

    fn begin_body(&mut self, _: &ResponseHead) -> Progress {
        Progress::More
    }

    fn body(&mut self, _: Buf, _: &mut Sink) -> Result<Progress, Fault> {
        Ok(Progress::More)
    }

    fn ends_with_connection(&self) -> bool {
        true
    }

    fn reusable(&self) -> bool {
        false
    }
}
