//! `grpc`: calls passed on to gRPC servers, over HTTP/2.
//!
//! A call is an HTTP/2 request that is passed on as it comes, in both directions and without
//! waiting for its end, with the fields behind its body.

use std::rc::Rc;

use base::future::boxed;
use bytes::Bytes;
use conf::ConfError;
use conf::join_directives;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::value::Bufs;
use engine::TempPath;
use event::Deadline;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::vars::VarDef;
use http_upstream::Job;
use http_upstream::conf::{Conf as UpConf, Draft, next};
use http_upstream::directives::{Group, Shared, named};
use proto::grpc;

use crate::gateway::Gateway;
use crate::gateway::pass::{self, Named, To};
use crate::health::Speaks;
use crate::proxy::http2::Http2;
use crate::proxy::pass::Vars;
use crate::proxy::request::{Head, add_field, wants_trailers};
use crate::proxy::uri::Uri;

/// The module's table.
pub static MODULE: Module =
    Module { variables: VARIABLES, ..pass::module::<GrpcConf>("grpc", DIRECTIVES, install) };

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED, TLS);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "grpc_bind",
        "grpc_bind_dynamic",
        "grpc_allow_upstream",
        "grpc_socket_keepalive",
        "grpc_connect_timeout",
        "grpc_send_timeout",
        "grpc_read_timeout",
        "grpc_buffer_size",
        "grpc_next_upstream",
        "grpc_next_upstream_tries",
        "grpc_next_upstream_timeout",
        "grpc_request_dynamic",
        "grpc_socket_rcvbuf",
        "grpc_socket_sndbuf",
        "grpc_hide_header",
        "grpc_pass_header",
        "grpc_ignore_headers",
        "grpc_intercept_errors",
    ],
    &[
        Group::<GrpcConf>::CONNECTING,
        Group::<GrpcConf>::REQUESTS,
        Group::<GrpcConf>::SOCKETS,
        Group::<GrpcConf>::FIELDS,
    ],
);

/// TLS to servers.
const TLS: &[Directive<Cx>] = &named(&upstream::ssl_names!("grpc"), &[Group::<GrpcConf>::TLS]);

const OWN: &[Directive<Cx>] = &[
    pass::pass::<GrpcConf>("grpc_pass"),
    directive(
        "grpc_set_header",
        HSL,
        Args::T2,
        "Content-Length $content_length",
        "Sets a header field of upstream requests; an empty value removes it.",
        |cx, n| add_field(cx, n, |cx| &mut cx.loc::<GrpcConf>().headers),
    ),
];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct GrpcConf {
        up: Draft,
        headers: Option<Rc<Vec<(Bytes, Template)>>>,
    }
}

impl Shared for GrpcConf {
    const NEXT_UPSTREAM: &[(&str, u64)] = next::WORDS;
    const TEMP_PATH: &str = "";

    fn shared(&mut self) -> &mut Draft {
        &mut self.up
    }
}

impl Gateway for GrpcConf {
    const PREFIX: &'static str = "grpc";
    const SCHEME: &'static str = "grpc://";
    const TLS_SCHEME: Option<&'static str> = Some("grpcs://");
    const SPEAKS: Speaks = Speaks::Grpc;
    const USES_FILES: bool = false;
}

static VARIABLES: &[VarDef] = &[VarDef::new("grpc_internal_trailers", |r, out| {
    let found = wants_trailers(r);
    if found {
        out.extend_from_slice(b"trailers");
    }
    found
})];

/// Fields that say things of the server that ours says itself, or that are meant for us.
const HIDDEN: &[&str] = &[
    "Date",
    "Server",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

struct Handler {
    to: To<GrpcConf>,
    conf: Rc<UpConf>,
    head: Rc<Head>,
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<GrpcConf>::of(l) else { return Ok(()) };
    let grpc = l.conf::<GrpcConf>();
    let mut up = grpc.up.clone();
    // A call may go on for ever in both directions.
    up.buffering = Some(false);
    up.request_buffering = Some(false);
    up.pass_trailers = Some(true);
    // Nothing is read ahead: there are no buffers but the one of the head.
    let size = up.buffer_size.unwrap_or(0);
    up.buffers = (size > 0).then_some(Bufs { num: 4, size });
    let no_files = TempPath::named("".into(), [0; 3]);
    let conf = up.finish("grpc", HIDDEN, &no_files)?;
    let conf = match to.uses_tls() {
        true => conf.with_tls(up.ssl.finish("grpc", &["h2"])?),
        false => conf,
    };
    to.check_health(l, &conf)?;
    let set: &[(Bytes, Template)] = grpc.headers.as_deref().map_or(&[], Vec::as_slice);
    p.content_handler = Some(Box::new(Handler { to, conf, head: Rc::new(Head::of_grpc(set)) }));
    Ok(())
}

impl PhaseHandler for Handler {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let (target, Named { tls, authority }) = match self.to.target(r) {
            Ok(target) => target,
            Err(status) => return Verdict::Status(status).into(),
        };
        let scheme = if tls.is_some() { "grpcs://" } else { "grpc://" };
        let vars = Rc::new(Vars { host: authority, tls: tls.is_some(), ..Vars::default() });
        // As the client wrote it, unless it was rewritten.
        let uri = Rc::new(Uri::Replace { with: Bytes::new(), location: 0 });
        let until = time(r).map_or(Deadline::NEVER, Deadline::in_ms);
        let protocol = Box::new(Http2::new(scheme, self.head.clone(), uri, vars).until(until));
        let job = Job { conf: self.conf.clone(), target, protocol, tls };
        if until == Deadline::NEVER {
            return Step::Wait(boxed(|| http_upstream::run(r, job)));
        }
        Step::Wait(boxed(|| async move {
            match http_upstream::run(r, job).await {
                Verdict::Status(504) if until.has_passed() => too_late(r),
                verdict => verdict,
            }
        }))
    }
}

/// The time that the client gives to the call, milliseconds.
fn time(r: &Request) -> Option<u64> {
    grpc::timeout_ms(r.header_named(grpc::TIMEOUT)?)
}

/// Answers a call that the server did not begin to answer in time: a head alone.
#[cold]
fn too_late(r: &mut Request) -> Verdict {
    r.respond(200, Bytes::from_static(b"application/grpc"), Bytes::new());
    for (name, value) in grpc::LATE {
        r.out.add(name, Bytes::from_static(value.as_bytes()));
    }
    Verdict::Done
}
