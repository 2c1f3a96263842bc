//! `proxy`: requests passed on to other HTTP servers.

mod cookie;
mod pass;
mod protocol;
mod redirect;
mod request;

use std::rc::Rc;

use base::ascii::write_u64;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{self, set_bitmask, set_bufs, set_enum, set_flag, set_msec, set_num, set_size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, Module, Scope};
use http::upstream::conf::{self as up, Draft, add_name};
use http::vars::VarDef;
use proto::h1::FieldId;

use cookie::CookieFlags;
use pass::Pass;
use redirect::{Redirects, Rewrite};

/// The module's table.
pub static MODULE: Module = Module {
    name: "proxy",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<Pass>(Scope::Location), ConfType::of::<ProxyConf>(Scope::Location)],
    install: Some(pass::install),
    ..Module::EMPTY
};

/// One-value settings that all modules have which pass requests on.
macro_rules! simple {
    ($name:literal, $args:expr, $default:literal, $set:ident($field:ident), $doc:literal) => {
        directive($name, HSL, $args, $default, $doc, |cx, n| {
            $set(&mut cx.loc::<ProxyConf>().up.$field, n)
        })
    };
}

/// The same of several words.
macro_rules! bits {
    ($name:literal, $default:literal, $field:ident, $words:expr, $doc:literal) => {
        directive($name, HSL, Args::ONE_MORE, $default, $doc, |cx, n| {
            set_bitmask(&mut cx.loc::<ProxyConf>().up.$field, n, $words)
        })
    };
}

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "proxy_pass",
        C::LOCATION.or(C::IF_LOCATION).or(C::LIMIT_EXCEPT),
        Args::T1,
        "",
        "The server that requests are passed to, and the URI that replaces the location's name.",
        pass::set,
    ),
    directive(
        "proxy_redirect",
        HSL,
        Args::T12,
        "default",
        "Changes in the Location and Refresh fields of responses.",
        redirect::set,
    ),
    directive(
        "proxy_cookie_domain",
        HSL,
        Args::T12,
        "off",
        "Changes in the Domain attribute of cookies.",
        cookie::set_domain,
    ),
    directive(
        "proxy_cookie_path",
        HSL,
        Args::T12,
        "off",
        "Changes in the Path attribute of cookies.",
        cookie::set_path,
    ),
    directive(
        "proxy_cookie_flags",
        HSL,
        Args::T1234,
        "off",
        "Flags of cookies to set or to take away.",
        cookie::set_flags,
    ),
    directive(
        "proxy_set_header",
        HSL,
        Args::T2,
        "Host $proxy_host",
        "A field of requests to the server; an empty value leaves it out.",
        set_header,
    ),
    directive(
        "proxy_set_body",
        HSL,
        Args::T1,
        "",
        "The body of requests to the server, instead of the client's.",
        |cx, n| {
            if cx.loc::<ProxyConf>().body.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            let t = cx.template(n.arg(0)?)?;
            cx.loc::<ProxyConf>().body = Some(t);
            Ok(())
        },
    ),
    directive(
        "proxy_method",
        HSL,
        Args::T1,
        "",
        "The method of requests to the server, instead of the client's.",
        |cx, n| {
            if cx.loc::<ProxyConf>().method.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            let t = cx.template(n.arg(0)?)?;
            cx.loc::<ProxyConf>().method = Some(t);
            Ok(())
        },
    ),
    directive(
        "proxy_http_version",
        HSL,
        Args::T1,
        "1.1",
        "The version of HTTP spoken to the server.",
        |cx, n| {
            if n.arg(0)?.bytes() == b"2" {
                let m = "version \"2\" is not supported by this version of weir";
                return Err(ConfError::at(n.arg(0)?, m));
            }
            set_enum(&mut cx.loc::<ProxyConf>().http_11, n, &[("1.0", false), ("1.1", true)])
        },
    ),
    directive(
        "proxy_hide_header",
        HSL,
        Args::T1,
        "",
        "A field of responses that is not passed on.",
        |cx, n| add_name(&mut cx.loc::<ProxyConf>().up.hide_headers, n),
    ),
    directive(
        "proxy_pass_header",
        HSL,
        Args::T1,
        "",
        "A field of responses that is passed on although it is usually hidden.",
        |cx, n| add_name(&mut cx.loc::<ProxyConf>().up.pass_headers, n),
    ),
    bits!(
        "proxy_ignore_headers",
        "",
        ignore_headers,
        up::ignore::WORDS,
        "Fields of responses that have no effect on us."
    ),
    bits!(
        "proxy_next_upstream",
        "error timeout",
        next_upstream,
        up::next::WORDS,
        "When a request is passed to the next server."
    ),
    simple!(
        "proxy_next_upstream_tries",
        Args::T1,
        "0",
        set_num(next_upstream_tries),
        "How many servers are tried; 0 is no limit."
    ),
    simple!(
        "proxy_next_upstream_timeout",
        Args::T1,
        "0",
        set_msec(next_upstream_timeout),
        "How long other servers are tried; 0 is no limit."
    ),
    simple!(
        "proxy_buffering",
        Args::FLAG,
        "on",
        set_flag(buffering),
        "Whether responses are read ahead of a slow client."
    ),
    simple!(
        "proxy_request_buffering",
        Args::FLAG,
        "on",
        set_flag(request_buffering),
        "Whether a request's body is read before a server is asked."
    ),
    simple!(
        "proxy_ignore_client_abort",
        Args::FLAG,
        "off",
        set_flag(ignore_client_abort),
        "Whether an exchange goes on when the client is gone."
    ),
    simple!(
        "proxy_intercept_errors",
        Args::FLAG,
        "off",
        set_flag(intercept_errors),
        "Whether error_page answers for the server's errors."
    ),
    simple!(
        "proxy_pass_request_headers",
        Args::FLAG,
        "on",
        set_flag(pass_request_headers),
        "Whether the client's fields are passed on."
    ),
    simple!(
        "proxy_pass_request_body",
        Args::FLAG,
        "on",
        set_flag(pass_request_body),
        "Whether the client's body is passed on."
    ),
    simple!(
        "proxy_pass_trailers",
        Args::FLAG,
        "off",
        set_flag(pass_trailers),
        "Whether trailers of responses are passed on."
    ),
    simple!(
        "proxy_force_ranges",
        Args::FLAG,
        "off",
        set_flag(force_ranges),
        "Whether ranges are taken from responses whatever these say of ranges."
    ),
    simple!(
        "proxy_socket_keepalive",
        Args::FLAG,
        "off",
        set_flag(socket_keepalive),
        "TCP keepalive on connections to servers."
    ),
    simple!(
        "proxy_socket_rcvbuf",
        Args::T1,
        "",
        set_size(socket_rcvbuf),
        "The receive buffer of connections to servers."
    ),
    simple!(
        "proxy_socket_sndbuf",
        Args::T1,
        "",
        set_size(socket_sndbuf),
        "The send buffer of connections to servers."
    ),
    simple!(
        "proxy_connect_timeout",
        Args::T1,
        "60s",
        set_msec(connect_timeout),
        "How long a connection may take to be made."
    ),
    simple!(
        "proxy_send_timeout",
        Args::T1,
        "60s",
        set_msec(send_timeout),
        "How long the server may take nothing of a request."
    ),
    simple!(
        "proxy_read_timeout",
        Args::T1,
        "60s",
        set_msec(read_timeout),
        "How long the server may send nothing of a response."
    ),
    simple!(
        "proxy_buffer_size",
        Args::T1,
        "4k|8k",
        set_size(buffer_size),
        "How long the head of a response may be."
    ),
    simple!(
        "proxy_buffers",
        Args::T2,
        "8 4k|8k",
        set_bufs(buffers),
        "How much of a response is read ahead of a slow client: number and size of buffers."
    ),
    simple!(
        "proxy_busy_buffers_size",
        Args::T1,
        "8k|16k",
        set_size(busy_buffers_size),
        "How much of a response is given to the client at once."
    ),
    simple!(
        "proxy_max_temp_file_size",
        Args::T1,
        "1024m",
        set_size(max_temp_file_size),
        "How much of a response that fits no buffer goes to a file; 0 uses no files."
    ),
    simple!(
        "proxy_temp_file_write_size",
        Args::T1,
        "8k|16k",
        set_size(temp_file_write_size),
        "How much of a response goes to a file at once."
    ),
    directive(
        "proxy_temp_path",
        HSL,
        Args::T1234,
        "proxy_temp 1 2",
        "The folder for responses in files.",
        |cx, n| up::set_temp_path(cx, n, |cx| &mut cx.loc::<ProxyConf>().up),
    ),
    directive(
        "proxy_limit_rate",
        HSL,
        Args::T1,
        "0",
        "How fast a response is read, bytes a second; 0 is no limit.",
        |cx, n| up::set_rate(cx, n, |cx| &mut cx.loc::<ProxyConf>().up),
    ),
    directive(
        "proxy_bind",
        HSL,
        Args::T12,
        "off",
        "The local address of connections to servers.",
        |cx, n| up::set_bind(cx, n, |cx| &mut cx.loc::<ProxyConf>().up),
    ),
    directive(
        "proxy_headers_hash_max_size",
        HSL,
        Args::T1,
        "512",
        "Checked, without effect: names of fields are found without tables that have a size.",
        |_, n| value::number(n, 0).map(drop),
    ),
    directive(
        "proxy_headers_hash_bucket_size",
        HSL,
        Args::T1,
        "64",
        "Checked, without effect: names of fields are found without tables that have a size.",
        |_, n| value::number(n, 0).map(drop),
    ),
];

/// What was written at one level; see the directives.
#[derive(Default)]
pub(crate) struct ProxyConf {
    pub up: Draft,
    pub headers: Option<Rc<Vec<(Bytes, Template)>>>,
    pub body: Option<Template>,
    pub method: Option<Template>,
    pub http_11: Option<bool>,
    pub redirects: Option<Redirects>,
    pub cookie_domains: Option<Rc<Vec<Rewrite>>>,
    pub cookie_paths: Option<Rc<Vec<Rewrite>>>,
    pub cookie_flags: Option<Rc<Vec<CookieFlags>>>,
}

impl Conf for ProxyConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.up.merge(&prev.up);
        macro_rules! inherit {
            ($($field:ident)*) => {
                $(if self.$field.is_none() { self.$field.clone_from(&prev.$field); })*
            };
        }
        inherit!(headers body method http_11 cookie_domains cookie_paths cookie_flags);
        redirect::merge(&mut self.redirects, prev.redirects.as_ref());
        Ok(())
    }
}

fn set_header(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let name = n.arg(0)?.text.clone();
    let value = cx.template(n.arg(1)?)?;
    let list = cx.loc::<ProxyConf>().headers.get_or_insert_default();
    Rc::make_mut(list).push((name, value));
    Ok(())
}

static VARIABLES: &[VarDef] = &[
    VarDef::new("proxy_host", |r, out| match r.upstream() {
        Some(u) => {
            out.extend_from_slice(&u.host);
            true
        }
        None => false,
    })
    .changeable(),
    VarDef::new("proxy_port", |r, out| match r.upstream() {
        Some(u) => {
            out.extend_from_slice(&u.port);
            true
        }
        None => false,
    })
    .changeable(),
    VarDef::new("proxy_add_x_forwarded_for", |r, out| {
        for f in r.head.all(FieldId::XForwardedFor) {
            out.extend_from_slice(f.value.of(r.head_bytes()));
            out.extend_from_slice(b", ");
        }
        use std::io::Write;
        write!(out, "{}", r.peer().host()).is_ok()
    }),
    VarDef::new("proxy_internal_body_length", |r, out| {
        match r.upstream().and_then(|u| u.body_length) {
            Some(n) => {
                write_u64(out, n);
                true
            }
            None => false,
        }
    }),
    VarDef::new("proxy_internal_chunked", |r, out| match r.upstream() {
        Some(u) if u.body_chunked => {
            out.extend_from_slice(b"chunked");
            true
        }
        _ => false,
    }),
];
