//! `memcached`: responses that are values of a memcached server.

use std::collections::VecDeque;
use std::rc::Rc;

use base::future::boxed;
use base::log::Level;
use bytes::Bytes;
use conf::join_directives;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{Bufs, set_num};
use conf::{ConfError, Node, Word};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{ConfType, Dry, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::request::Request;
use http_upstream::conf::{Conf as UpConf, Draft, next};
use http_upstream::directives::{Group, Shared, named};
use http_upstream::{Fault, HeadStep, Job, Progress, Protocol, Sink};
use http_wire::h1::{Field, FieldId, Method, ResponseHead, Span};
use http_wire::uri::{Escape, escape};
use mem::{Buf, Chain};
use proto::memcached::{self, Reply, Value};

use crate::gateway::Gateway;
use crate::gateway::pass::{self, Pass, To};

/// The module's table.
pub static MODULE: Module = Module {
    name: "memcached",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Pass<MemcachedConf>>(Scope::Location),
        ConfType::of::<Key>(Scope::Location),
        ConfType::of::<MemcachedConf>(Scope::Location),
    ],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "memcached_bind",
        "memcached_bind_dynamic",
        "memcached_allow_upstream",
        "memcached_socket_keepalive",
        "memcached_connect_timeout",
        "memcached_send_timeout",
        "memcached_read_timeout",
        "memcached_buffer_size",
        "memcached_next_upstream",
        "memcached_next_upstream_tries",
        "memcached_next_upstream_timeout",
    ],
    &[Group::<MemcachedConf>::CONNECTING],
);

const OWN: &[Directive<Cx>] = &[
    directive(
        "memcached_pass",
        C::LOCATION.or(C::IF_LOCATION),
        Args::T1,
        "",
        "The memcached server or group from which the value of $memcached_key is served.",
        set_pass,
    ),
    directive(
        "memcached_gzip_flag",
        HSL,
        Args::T1,
        "",
        "The flag bit that marks a value as gzip-compressed.",
        |cx, n| set_num(&mut cx.loc::<MemcachedConf>().gzip_flag, n),
    ),
];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct MemcachedConf {
        up: Draft,
        gzip_flag: Option<u64>,
    }
}

engine::settings! {
    /// `$memcached_key`, where a server is asked.
    pub(crate) struct Key(Option<Template>);
}

impl Shared for MemcachedConf {
    const NEXT_UPSTREAM: &[(&str, u64)] = &[
        ("error", next::ERROR),
        ("timeout", next::TIMEOUT),
        ("denied", next::DENIED),
        ("invalid_response", next::INVALID_HEADER),
        ("not_found", next::HTTP_404),
        ("off", next::OFF),
    ];

    fn shared(&mut self) -> &mut Draft {
        &mut self.up
    }
}

impl Gateway for MemcachedConf {
    const PREFIX: &'static str = "memcached";
    const SCHEME: &'static str = "memcached://";
    const USES_FILES: bool = false;
}

fn set_pass(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    pass::set::<MemcachedConf>(cx, n)?;
    let name = Bytes::from_static(b"$memcached_key");
    let key = cx.template(&Word { text: name, ..n.arg(0)?.clone() })?;
    cx.loc::<Key>().0 = Some(key);
    Ok(())
}

struct Handler {
    to: To<MemcachedConf>,
    conf: Rc<UpConf>,
    key: Template,
    gzip_flag: u64,
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<MemcachedConf>::of(l) else { return Ok(()) };
    let Some(key) = l.conf::<Key>().0.clone() else { return Ok(()) };
    let own = l.conf::<MemcachedConf>();
    let mut up = own.up.clone();
    up.buffering = Some(false);
    up.intercept_errors = Some(true);
    up.intercept_404 = Some(true);
    up.pass_request_body = Some(false);
    up.force_ranges = Some(true);
    // There are none, so that any first buffer fits to them.
    up.buffers = up.buffer_size.map(|size| Bufs { num: 8, size });
    let conf = up.finish("memcached", &[], &pass::folder::<MemcachedConf>(l))?.at("memcached", l);
    to.check_health(l, &conf)?;
    p.auto_redirect = true;
    let gzip_flag = own.gzip_flag.unwrap_or(0);
    p.content_handler = Some(Box::new(Handler { to, conf, key, gzip_flag }));
    Ok(())
}

impl PhaseHandler for Handler {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if !r.method_is(&[Method::Get, Method::Head]) {
            return Verdict::Status(405).into();
        }
        r.set_content_type();
        let (target, _) = match self.to.target(r) {
            Ok(target) => target,
            Err(status) => return Verdict::Status(status).into(),
        };
        let protocol = Box::new(Memcached {
            template: self.key.clone(),
            gzip_flag: self.gzip_flag,
            key: Vec::new(),
            value: None,
            said: VecDeque::new(),
            whole: false,
        });
        let job = Job { conf: self.conf.clone(), target, protocol, tls: None };
        Step::Wait(boxed(|| http_upstream::run(r, job)))
    }
}

/// One exchange.
struct Memcached {
    template: Template,
    gzip_flag: u64,
    /// As it was sent.
    key: Vec<u8>,
    value: Option<Value>,
    said: VecDeque<(Level, String)>,
    /// All that belongs to the answer came, and nothing else.
    whole: bool,
}

/// The field of a compressed value's response; memcached's own head has no fields.
const GZIP: &[u8] = b"Content-Encoding: gzip";

impl Memcached {
    #[cold]
    fn invalid(&self, what: &str, buf: &[u8]) -> HeadStep {
        let line = buf.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = base::log::lossy(line.strip_suffix(b"\r").unwrap_or(line));
        HeadStep::Bad(match what {
            "response" => format!("memcached sent invalid response: \"{line}\""),
            _ => {
                let key = base::log::lossy(&self.key);
                format!("memcached sent invalid {what} in response \"{line}\" for key \"{key}\"")
            }
        })
    }
}

impl Protocol for Memcached {
    fn scheme(&self) -> &'static str {
        MemcachedConf::SCHEME
    }

    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16> {
        let key = self.template.eval(r);
        if key.is_empty() {
            r.log(Level::Error, format_args!("the \"$memcached_key\" variable is not set"));
            return Err(500);
        }
        (self.value, self.whole) = (None, false);
        self.key.clear();
        escape(&key, Escape::Memcached, &mut self.key);
        let w = out.writer_for(self.key.len() + 8);
        w.extend_from_slice(b"get ");
        w.extend_from_slice(&self.key);
        w.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn reads_body(&self) -> bool {
        false
    }

    fn sends_body(&self) -> bool {
        false
    }

    fn chunked_requests(&self) -> bool {
        false
    }

    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep {
        match memcached::reply(buf, &self.key) {
            Reply::More => HeadStep::More,
            Reply::Invalid(what) => self.invalid(&what.to_string(), buf),
            Reply::NotFound { line } => {
                let key = base::log::lossy(&self.key);
                let m = format!("key: \"{key}\" was not found by memcached");
                self.said.push_back((Level::Info, m));
                head.status = 404;
                head.content_length = Some(0);
                HeadStep::Done(line)
            }
            Reply::Value { flags: None, .. } if self.gzip_flag != 0 => self.invalid("flags", buf),
            Reply::Value { line, flags, len } => {
                head.status = 200;
                head.content_length = Some(len);
                if flags.unwrap_or(0) & self.gzip_flag != 0 {
                    head.fields.push(Field {
                        name: Span { start: 0, end: 16 },
                        value: Span { start: 18, end: 22 },
                        id: FieldId::ContentEncoding,
                        invalid: false,
                        dropped: false,
                        ignored: false,
                    });
                }
                self.value = Some(Value::new(len));
                HeadStep::Done(line)
            }
        }
    }

    fn text(&mut self) -> Option<Bytes> {
        Some(Bytes::from_static(GZIP))
    }

    fn begin_body(&mut self, _: &ResponseHead) -> Progress {
        self.whole = self.value.is_none();
        if self.whole { Progress::Done } else { Progress::More }
    }

    fn body(&mut self, mut input: Buf, sink: &mut Sink) -> Result<Progress, Fault> {
        let (Some(value), Some(bytes)) = (&mut self.value, input.memory()) else {
            self.whole = false;
            return Ok(Progress::Done);
        };
        let piece = value.next(bytes);
        if piece.data > 0 {
            sink.out.push(input.split_to(piece.data));
        }
        if piece.broken {
            self.said.push_back((Level::Error, "memcached sent invalid trailer".to_owned()));
        }
        self.whole = piece.over && !piece.broken;
        Ok(if piece.over { Progress::Done } else { Progress::More })
    }

    fn ends_with_connection(&self) -> bool {
        false
    }

    fn reusable(&self) -> bool {
        self.whole
    }

    fn complaint(&mut self) -> Option<(Level, String)> {
        self.said.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_of_compressed_values() {
        assert_eq!(Span { start: 0, end: 16 }.of(GZIP), b"Content-Encoding");
        assert_eq!(Span { start: 18, end: 22 }.of(GZIP), b"gzip");
    }
}
