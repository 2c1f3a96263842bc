//! `mirror`: copies of requests, as subrequests whose responses nobody looks at.

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, Node, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::subrequest::{Subrequest, Use};

/// The module's table.
pub static MODULE: Module = Module::of::<MirrorConf>("mirror", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "mirror",
        HSL,
        Args::T1,
        "off",
        "Sends a copy of each request to this URI, as a subrequest whose response is discarded.",
        mirror,
    ),
    directive(
        "mirror_request_body",
        HSL,
        Args::FLAG,
        "on",
        "Mirrors the request body, too, and so reads it completely before other processing.",
        |cx, n| value::set_flag(&mut cx.loc::<MirrorConf>().body, n),
    ),
];

engine::settings! {
    struct MirrorConf {
        /// Empty is `off`.
        uris: Option<Vec<Bytes>>,
        body: Option<bool>,
    }
}

fn mirror(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let text = n.args[0].text.clone();
    let uris = &mut cx.loc::<MirrorConf>().uris;
    match uris {
        None if &text[..] == b"off" => *uris = Some(Vec::new()),
        None => *uris = Some(vec![text]),
        Some(list) if list.is_empty() || &text[..] == b"off" => {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        Some(list) => list.push(text),
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<MirrorConf>();
    if let Some(uris) = conf.uris.clone().filter(|u| !u.is_empty()) {
        p.precontent.push(Box::new(Mirror { uris, body: conf.body.unwrap_or(true) }));
    }
    Ok(())
}

struct Mirror {
    uris: Vec<Bytes>,
    body: bool,
}

impl PhaseHandler for Mirror {
    fn dry(&self) -> Dry {
        Dry::Skipped
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if r.is_subrequest() {
            return Step::Now(Verdict::Next);
        }
        if !self.body {
            return Step::Now(self.copy(r));
        }
        Step::Wait(Box::pin(async move {
            match r.read_body().await {
                Ok(()) => self.copy(r),
                Err(v) => v,
            }
        }))
    }
}

impl Mirror {
    fn copy(&self, r: &mut Request) -> Verdict {
        for uri in &self.uris {
            let args = Bytes::copy_from_slice(&r.target.args);
            let ask = Subrequest {
                take: Use::Head,
                same_method: true,
                with_body: self.body,
                ..Subrequest::new(uri.clone(), args)
            };
            match r.subrequest(ask) {
                Ok(handle) => handle.detach(),
                Err(_) => return Verdict::Status(500),
            }
        }
        Verdict::Next
    }
}
