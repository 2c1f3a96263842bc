//! `uwsgi`: requests passed on to servers that speak uwsgi.

use bytes::Bytes;
use conf::join_directives;
use conf::table::{Args, Directive};
use conf::value::{self, set_str};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline};
use http_upstream::directives::{Group, named};

use crate::gateway;
use crate::gateway::params;
use crate::gateway::pass::{self, To};
use crate::gateway::plain::{self, Kind, Shape};
use crate::gateway::{Common, HIDDEN};

/// The module's table.
pub static MODULE: Module = pass::module::<UwsgiConf>("uwsgi", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED, TLS);

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "uwsgi_bind",
        "uwsgi_bind_dynamic",
        "uwsgi_allow_upstream",
        "uwsgi_socket_keepalive",
        "uwsgi_connect_timeout",
        "uwsgi_send_timeout",
        "uwsgi_read_timeout",
        "uwsgi_buffer_size",
        "uwsgi_next_upstream",
        "uwsgi_next_upstream_tries",
        "uwsgi_next_upstream_timeout",
        "uwsgi_request_dynamic",
        "uwsgi_socket_rcvbuf",
        "uwsgi_socket_sndbuf",
        "uwsgi_hide_header",
        "uwsgi_pass_header",
        "uwsgi_ignore_headers",
        "uwsgi_intercept_errors",
        "uwsgi_buffering",
        "uwsgi_request_buffering",
        "uwsgi_ignore_client_abort",
        "uwsgi_pass_request_headers",
        "uwsgi_pass_request_body",
        "uwsgi_force_ranges",
        "uwsgi_buffers",
        "uwsgi_busy_buffers_size",
        "uwsgi_max_temp_file_size",
        "uwsgi_temp_file_write_size",
        "uwsgi_temp_path",
        "uwsgi_store",
        "uwsgi_store_access",
        "uwsgi_limit_rate",
        "uwsgi_cache",
        "uwsgi_cache_path",
        "uwsgi_cache_key",
        "uwsgi_cache_methods",
        "uwsgi_cache_min_uses",
        "uwsgi_cache_valid",
        "uwsgi_cache_bypass",
        "uwsgi_no_cache",
        "uwsgi_cache_purge",
        "uwsgi_cache_lock",
        "uwsgi_cache_lock_timeout",
        "uwsgi_cache_lock_age",
        "uwsgi_cache_use_stale",
        "uwsgi_cache_background_update",
        "uwsgi_cache_revalidate",
        "uwsgi_cache_max_range_offset",
        "uwsgi_cache_rfc9111",
    ],
    Group::<UwsgiConf>::CACHED,
);

/// TLS to servers.
const TLS: &[Directive<Cx>] = &named(&upstream::ssl_names!("uwsgi"), &[Group::<UwsgiConf>::TLS]);

const OWN: &[Directive<Cx>] = &[
    directive(
        "uwsgi_modifier1",
        HSL,
        Args::T1,
        "0",
        "The uwsgi modifier1 byte: the type of application.",
        |cx, n| set_byte(&mut cx.loc::<UwsgiConf>().modifier1, n),
    ),
    directive("uwsgi_modifier2", HSL, Args::T1, "0", "The uwsgi modifier2 byte.", |cx, n| {
        set_byte(&mut cx.loc::<UwsgiConf>().modifier2, n)
    }),
    directive(
        "uwsgi_string",
        HSL,
        Args::T1,
        "",
        "A string that is sent after a request's parameters.",
        |cx, n| set_str(&mut cx.loc::<UwsgiConf>().string, n),
    ),
    pass::pass::<UwsgiConf>("uwsgi_pass"),
    params::param::<UwsgiConf>("uwsgi_param"),
];

engine::settings! {
    /// The directives of one level.
    pub(crate) struct UwsgiConf {
        common: Common,
        modifier1: Option<u8>,
        modifier2: Option<u8>,
        string: Option<Bytes>,
    }
}

/// A number of one byte.
fn set_byte(slot: &mut Option<u8>, n: &Node) -> Result<(), ConfError> {
    value::set_once(slot, n, |n| {
        let number = value::number(n, 0)?;
        u8::try_from(number)
            .map_err(|_| ConfError::at(&n.name, "value must be between 0 and 255".to_owned()))
    })
}

gateway!(UwsgiConf, "uwsgi", "uwsgi://", Some("suwsgi://"), Uwsgi);

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<UwsgiConf>::of(l) else { return Ok(()) };
    let own = l.conf::<UwsgiConf>();
    let (conf, params) = own.common.finish(l, &to, &HIDDEN[1..])?;
    let kind = Kind::Uwsgi {
        modifier1: own.modifier1.unwrap_or(0),
        modifier2: own.modifier2.unwrap_or(0),
        string: own.string.clone().unwrap_or_default(),
    };
    plain::install(to, conf, Shape { params, kind }, p);
    Ok(())
}
