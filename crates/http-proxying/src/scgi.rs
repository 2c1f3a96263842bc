//! `scgi`: requests passed on to SCGI servers.

use conf::ConfError;
use conf::join_directives;
use conf::table::Directive;
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline};
use http_upstream::directives::{Group, named};

use crate::gateway;
use crate::gateway::params;
use crate::gateway::pass::{self, To};
use crate::gateway::plain::{self, Kind, Shape};
use crate::gateway::{Common, HIDDEN};

/// The module's table.
pub static MODULE: Module = pass::module::<ScgiConf>("scgi", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = join_directives!(OWN, SHARED);

const OWN: &[Directive<Cx>] =
    &[pass::pass::<ScgiConf>("scgi_pass"), params::param::<ScgiConf>("scgi_param")];

/// The directives that all modules have which pass requests on.
const SHARED: &[Directive<Cx>] = &named(
    &[
        "scgi_bind",
        "scgi_bind_dynamic",
        "scgi_allow_upstream",
        "scgi_socket_keepalive",
        "scgi_connect_timeout",
        "scgi_send_timeout",
        "scgi_read_timeout",
        "scgi_buffer_size",
        "scgi_next_upstream",
        "scgi_next_upstream_tries",
        "scgi_next_upstream_timeout",
        "scgi_request_dynamic",
        "scgi_socket_rcvbuf",
        "scgi_socket_sndbuf",
        "scgi_hide_header",
        "scgi_pass_header",
        "scgi_ignore_headers",
        "scgi_intercept_errors",
        "scgi_buffering",
        "scgi_request_buffering",
        "scgi_ignore_client_abort",
        "scgi_pass_request_headers",
        "scgi_pass_request_body",
        "scgi_force_ranges",
        "scgi_buffers",
        "scgi_busy_buffers_size",
        "scgi_max_temp_file_size",
        "scgi_temp_file_write_size",
        "scgi_temp_path",
        "scgi_store",
        "scgi_store_access",
        "scgi_limit_rate",
        "scgi_cache",
        "scgi_cache_path",
        "scgi_cache_key",
        "scgi_cache_methods",
        "scgi_cache_min_uses",
        "scgi_cache_valid",
        "scgi_cache_bypass",
        "scgi_no_cache",
        "scgi_cache_purge",
        "scgi_cache_lock",
        "scgi_cache_lock_timeout",
        "scgi_cache_lock_age",
        "scgi_cache_use_stale",
        "scgi_cache_background_update",
        "scgi_cache_revalidate",
        "scgi_cache_max_range_offset",
        "scgi_cache_rfc9111",
    ],
    Group::<ScgiConf>::CACHED,
);

engine::settings! {
    /// The settings written at one level; see the directives.
    pub(crate) struct ScgiConf {
        common: Common,
    }
}

gateway!(ScgiConf, "scgi", "scgi://", None, Scgi);

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<ScgiConf>::of(l) else { return Ok(()) };
    let (conf, params) = l.conf::<ScgiConf>().common.finish(l, &to, HIDDEN)?;
    plain::install(to, conf, Shape { params, kind: Kind::Scgi }, p);
    Ok(())
}
