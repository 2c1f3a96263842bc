//! `proxy`: requests passed on to other HTTP servers.

mod cookie;
mod form;
pub(crate) mod http2;
pub(crate) mod pass;
mod protocol;
mod redirect;
pub(crate) mod request;
pub(crate) mod uri;

use std::rc::Rc;

use base::ascii::write_u64;
use bytes::Bytes;
use conf::join_directives;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::value::{self, set_enum, set_flag};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{ConfType, Module, Scope};
use http::vars::VarDef;
use http_upstream::caching::Caching;
use http_upstream::conf::{Draft, next};
use http_upstream::directives::{Group, Shared, named};
use http_wire::h1::FieldId;

use cookie::CookieFlags;
use pass::Pass;
use redirect::{Redirects, Rewrite};
use request::Version;

/// The module's table.
pub static MODULE: Module = Module {
    name: "proxy",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<Pass>(Scope::Location), ConfType::of::<ProxyConf>(Scope::Location)],
    install: Some(pass::install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED, TLS, CONVERT_HEAD);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "proxy_bind",
        "proxy_bind_dynamic",
        "proxy_allow_upstream",
        "proxy_socket_keepalive",
        "proxy_connect_timeout",
        "proxy_send_timeout",
        "proxy_read_timeout",
        "proxy_buffer_size",
        "proxy_next_upstream",
        "proxy_next_upstream_tries",
        "proxy_next_upstream_timeout",
        "proxy_request_dynamic",
        "proxy_socket_rcvbuf",
        "proxy_socket_sndbuf",
        "proxy_send_lowat",
        "proxy_hide_header",
        "proxy_pass_header",
        "proxy_ignore_headers",
        "proxy_intercept_errors",
        "proxy_buffering",
        "proxy_request_buffering",
        "proxy_ignore_client_abort",
        "proxy_pass_request_headers",
        "proxy_pass_request_body",
        "proxy_force_ranges",
        "proxy_buffers",
        "proxy_busy_buffers_size",
        "proxy_max_temp_file_size",
        "proxy_temp_file_write_size",
        "proxy_temp_path",
        "proxy_store",
        "proxy_store_access",
        "proxy_limit_rate",
        "proxy_cache",
        "proxy_cache_path",
        "proxy_cache_key",
        "proxy_cache_methods",
        "proxy_cache_min_uses",
        "proxy_cache_valid",
        "proxy_cache_bypass",
        "proxy_no_cache",
        "proxy_cache_purge",
        "proxy_cache_lock",
        "proxy_cache_lock_timeout",
        "proxy_cache_lock_age",
        "proxy_cache_use_stale",
        "proxy_cache_background_update",
        "proxy_cache_revalidate",
        "proxy_cache_max_range_offset",
        "proxy_cache_rfc9111",
    ],
    &[
        Group::<ProxyConf>::CONNECTING,
        Group::<ProxyConf>::REQUESTS,
        Group::<ProxyConf>::SOCKETS,
        Group::<ProxyConf>::SEND_LOWAT,
        Group::<ProxyConf>::FIELDS,
        Group::<ProxyConf>::PASSING,
        Group::<ProxyConf>::CACHING,
    ],
);

/// TLS to servers.
const TLS: &[Directive<Cx>] = &named(&upstream::ssl_names!("proxy"), &[Group::<ProxyConf>::TLS]);

/// Other protocols have no methods of their own to convert.
const CONVERT_HEAD: &[Directive<Cx>] = &[directive(
    "proxy_cache_convert_head",
    HSL,
    Args::FLAG,
    "on",
    "Sends HEAD requests upstream as GET, so that the response can be cached.",
    |cx, n| set_flag(&mut cx.loc::<ProxyConf>().cache.convert_head, n),
)];

const OWN: &[Directive<Cx>] = &[
    directive(
        "proxy_pass",
        C::LOCATION.or(C::IF_LOCATION).or(C::LIMIT_EXCEPT),
        Args::T1,
        "",
        "The upstream URL; a URI in it replaces the location's prefix.",
        pass::set,
    ),
    directive(
        "proxy_redirect",
        HSL,
        Args::T12,
        "default",
        "Rewrites the Location and Refresh response fields.",
        redirect::set,
    ),
    directive(
        "proxy_cookie_domain",
        HSL,
        Args::T12,
        "off",
        "Rewrites the Domain attribute of Set-Cookie.",
        |cx, n| cookie::set_rewrite(cx, n, |c| &mut c.cookie_domains, Rewrite::parse_domain),
    ),
    directive(
        "proxy_cookie_path",
        HSL,
        Args::T12,
        "off",
        "Rewrites the Path attribute of Set-Cookie.",
        |cx, n| cookie::set_rewrite(cx, n, |c| &mut c.cookie_paths, Rewrite::parse),
    ),
    directive(
        "proxy_cookie_flags",
        HSL,
        Args::T1234,
        "off",
        "Sets or removes flags of Set-Cookie: secure, httponly, samesite.",
        cookie::set_flags,
    ),
    directive(
        "proxy_set_header",
        HSL,
        Args::T2,
        "Host $proxy_host",
        "Sets a header field of upstream requests; an empty value removes it.",
        |cx, n| request::add_field(cx, n, |cx| &mut cx.loc::<ProxyConf>().headers),
    ),
    directive(
        "proxy_set_body",
        HSL,
        Args::T1,
        "",
        "The body of upstream requests, instead of the client's.",
        |cx, n| cx.set_template(n, |conf: &mut ProxyConf| &mut conf.body),
    ),
    directive(
        "proxy_method",
        HSL,
        Args::T1,
        "",
        "The method of upstream requests, instead of the client's.",
        |cx, n| cx.set_template(n, |conf: &mut ProxyConf| &mut conf.method),
    ),
    directive(
        "proxy_http_version",
        HSL,
        Args::T1,
        "1.1",
        "The HTTP version for upstream requests: 1.0, 1.1 or 2. Over 2, WebSocket works if the \
         server supports extended CONNECT (RFC 8441).",
        |cx, n| set_enum(&mut cx.loc::<ProxyConf>().version, n, Version::WORDS),
    ),
    directive(
        "proxy_http09",
        HSL,
        Args::FLAG,
        "off",
        "Accepts responses without a status line as HTTP/0.9. Weir's own.",
        |cx, n| set_flag(&mut cx.loc::<ProxyConf>().http09, n),
    ),
    directive(
        "proxy_pass_trailers",
        HSL,
        Args::FLAG,
        "off",
        "Forwards response trailers to the client.",
        |cx, n| set_flag(&mut cx.loc::<ProxyConf>().up.pass_trailers, n),
    ),
    directive(
        "proxy_headers_hash_max_size",
        HSL,
        Args::T1,
        "512",
        "Accepted without effect: header names need no sized hash table.",
        |_, n| value::number(n, 0).map(drop),
    ),
    directive(
        "proxy_headers_hash_bucket_size",
        HSL,
        Args::T1,
        "64",
        "Accepted without effect: header names need no sized hash table.",
        |_, n| value::number(n, 0).map(drop),
    ),
];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct ProxyConf {
        pub up: Draft,
        pub cache: http_upstream::caching::Draft,
        pub headers: Option<Rc<Vec<(Bytes, Template)>>>,
        pub body: Option<Template>,
        pub method: Option<Template>,
        pub version: Option<Version>,
        /// `proxy_http09`.
        pub http09: Option<bool>,
        pub redirects: Option<Redirects>,
        pub cookie_domains: Option<Rc<Vec<Rewrite>>>,
        pub cookie_paths: Option<Rc<Vec<Rewrite>>>,
        pub cookie_flags: Option<Rc<Vec<CookieFlags>>>,
    }
}

impl Shared for ProxyConf {
    const NEXT_UPSTREAM: &[(&str, u64)] = next::WORDS;
    const TEMP_PATH: &str = "proxy_temp 1 2";

    fn shared(&mut self) -> &mut Draft {
        &mut self.up
    }
}

impl Caching for ProxyConf {
    const PREFIX: &'static str = "proxy";
    const CONVERTS_HEAD: bool = true;

    fn caching(&mut self) -> &mut http_upstream::caching::Draft {
        &mut self.cache
    }
}

fn write(out: &mut Vec<u8>, text: Option<&Bytes>) -> bool {
    text.inspect(|text| out.extend_from_slice(text)).is_some()
}

static VARIABLES: &[VarDef] = &[
    VarDef::new("proxy_host", |r, out| write(out, r.upstream().map(|u| &u.host))).changeable(),
    VarDef::new("proxy_port", |r, out| write(out, r.upstream().map(|u| &u.port))).changeable(),
    VarDef::new("proxy_add_x_forwarded_for", |r, out| {
        for f in r.head.fields.all(FieldId::XForwardedFor) {
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
