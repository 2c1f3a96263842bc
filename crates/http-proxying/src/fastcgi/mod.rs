//! `fastcgi`: requests passed on to FastCGI responders.

mod protocol;

use std::rc::Rc;

use bytes::Bytes;
use conf::join_directives;
use conf::pattern::{Pattern, Span};
use conf::table::{Args, Directive};
use conf::value::{set_flag, set_str};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step};
use http::request::Request;
use http::vars::VarDef;
use http_upstream::conf::Conf as UpConf;
use http_upstream::directives::{Group, named};

use crate::gateway;
use crate::gateway::params;
use crate::gateway::pass::{self, To};
use crate::gateway::{Common, HIDDEN};
use protocol::{FastCgi, Shape};

/// The module's table.
pub static MODULE: Module =
    Module { variables: VARIABLES, ..pass::module::<FastCgiConf>("fastcgi", DIRECTIVES, install) };

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "fastcgi_bind",
        "fastcgi_bind_dynamic",
        "fastcgi_allow_upstream",
        "fastcgi_socket_keepalive",
        "fastcgi_connect_timeout",
        "fastcgi_send_timeout",
        "fastcgi_read_timeout",
        "fastcgi_buffer_size",
        "fastcgi_next_upstream",
        "fastcgi_next_upstream_tries",
        "fastcgi_next_upstream_timeout",
        "fastcgi_request_dynamic",
        "fastcgi_socket_rcvbuf",
        "fastcgi_socket_sndbuf",
        "fastcgi_hide_header",
        "fastcgi_pass_header",
        "fastcgi_ignore_headers",
        "fastcgi_intercept_errors",
        "fastcgi_buffering",
        "fastcgi_request_buffering",
        "fastcgi_ignore_client_abort",
        "fastcgi_pass_request_headers",
        "fastcgi_pass_request_body",
        "fastcgi_force_ranges",
        "fastcgi_buffers",
        "fastcgi_busy_buffers_size",
        "fastcgi_max_temp_file_size",
        "fastcgi_temp_file_write_size",
        "fastcgi_temp_path",
        "fastcgi_store",
        "fastcgi_store_access",
        "fastcgi_limit_rate",
        "fastcgi_cache",
        "fastcgi_cache_path",
        "fastcgi_cache_key",
        "fastcgi_cache_methods",
        "fastcgi_cache_min_uses",
        "fastcgi_cache_valid",
        "fastcgi_cache_bypass",
        "fastcgi_no_cache",
        "fastcgi_cache_purge",
        "fastcgi_cache_lock",
        "fastcgi_cache_lock_timeout",
        "fastcgi_cache_lock_age",
        "fastcgi_cache_use_stale",
        "fastcgi_cache_background_update",
        "fastcgi_cache_revalidate",
        "fastcgi_cache_max_range_offset",
        "fastcgi_cache_rfc9111",
        "fastcgi_send_lowat",
    ],
    &[
        Group::<FastCgiConf>::CONNECTING,
        Group::<FastCgiConf>::REQUESTS,
        Group::<FastCgiConf>::SOCKETS,
        Group::<FastCgiConf>::FIELDS,
        Group::<FastCgiConf>::PASSING,
        Group::<FastCgiConf>::CACHING,
        Group::<FastCgiConf>::SEND_LOWAT,
    ],
);

const OWN: &[Directive<Cx>] = &[
    directive(
        "fastcgi_index",
        HSL,
        Args::T1,
        "",
        "The file name that $fastcgi_script_name appends to a URI that ends with a slash.",
        |cx, n| set_str(&mut cx.loc::<FastCgiConf>().index, n),
    ),
    directive(
        "fastcgi_split_path_info",
        HSL,
        Args::T1,
        "",
        "A regular expression; its two groups set $fastcgi_script_name and $fastcgi_path_info.",
        set_split,
    ),
    directive(
        "fastcgi_keep_conn",
        HSL,
        Args::FLAG,
        "off",
        "Asks the FastCGI server to keep connections open (FCGI_KEEP_CONN).",
        |cx, n| set_flag(&mut cx.loc::<FastCgiConf>().keep_conn, n),
    ),
    directive(
        "fastcgi_catch_stderr",
        HSL,
        Args::T1,
        "",
        "A response is invalid if the FastCGI server's stderr contains this text.",
        |cx, n| {
            let text = n.arg(0)?.text.clone();
            cx.loc::<FastCgiConf>().catch_stderr.get_or_insert_default().push(text);
            Ok(())
        },
    ),
    pass::pass::<FastCgiConf>("fastcgi_pass"),
    params::param::<FastCgiConf>("fastcgi_param"),
];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct FastCgiConf {
        common: Common,
        index: Option<Bytes>,
        split: Option<Rc<Pattern>>,
        keep_conn: Option<bool>,
        catch_stderr: Option<Vec<Bytes>>,
    }
}

gateway!(FastCgiConf, "fastcgi", "fastcgi://", None, FastCgi);

fn set_split(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let pattern = Pattern::compile(word, word.bytes(), false)?;
    if pattern.groups() != 2 {
        let m = format!("pattern \"{}\" must have 2 captures", word.lossy());
        return Err(ConfError::at(word, m));
    }
    // A second one takes the place of the first, as in nginx.
    cx.loc::<FastCgiConf>().split = Some(Rc::new(pattern));
    Ok(())
}

struct Handler {
    to: To<FastCgiConf>,
    conf: Rc<UpConf>,
    shape: Rc<Shape>,
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<FastCgiConf>::of(l) else { return Ok(()) };
    let own = l.conf::<FastCgiConf>();
    let (conf, params) = own.common.finish(l, &to, HIDDEN)?;
    let shape = Rc::new(Shape {
        params,
        keep_conn: own.keep_conn.unwrap_or(false),
        catch_stderr: own.catch_stderr.clone().unwrap_or_default(),
    });
    p.auto_redirect = true;
    p.content_handler = Some(Box::new(Handler { to, conf, shape }));
    Ok(())
}

impl PhaseHandler for Handler {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        self.to.pass(r, &self.conf, |_| Box::new(FastCgi::new(self.shape.clone())))
    }
}

static VARIABLES: &[VarDef] = &[
    VarDef::new("fastcgi_script_name", |r, out| {
        let name = split(r);
        out.extend_from_slice(&r.target.uri[name]);
        if out.last() == Some(&b'/')
            && let Some(conf) = r.loc.confs.get::<FastCgiConf>()
        {
            out.extend_from_slice(conf.index.as_deref().unwrap_or_default());
        }
        true
    }),
    VarDef::new("fastcgi_path_info", |r, out| {
        split(r);
        out.extend_from_slice(r.ctx::<PathInfo>().map_or(b"", |info| &info.0));
        true
    }),
];

/// The path info of the last URI that the pattern has split. It outlasts `try_files
/// $fastcgi_script_name`, which makes the script the URI, as in nginx.
#[derive(Default)]
struct PathInfo(Vec<u8>);

/// The place of the script's name in the URI; notes the path info behind it.
fn split(r: &mut Request) -> std::ops::Range<usize> {
    let whole = 0..r.target.uri.len();
    let loc = r.loc.clone();
    let conf = loc.confs.get::<FastCgiConf>();
    let Some(pattern) = conf.and_then(|c| c.split.as_deref()) else { return whole };
    let mut spans: Vec<Span> = Vec::with_capacity(3);
    match pattern.find(&r.target.uri, &mut spans) {
        Ok(true) => {
            let group = |n: usize| match spans.get(n) {
                Some(&Some((from, to))) => from as usize..to as usize,
                _ => 0..0,
            };
            let (name, info) = (group(1), r.target.uri[group(2)].to_vec());
            r.ctx_mut::<PathInfo>().0 = info;
            name
        }
        Ok(false) => whole,
        Err(gave_up) => {
            r.log(base::log::Level::Alert, format_args!("{gave_up}"));
            whole
        }
    }
}
