//! What FastCGI, uwsgi, SCGI and memcached have in common: where requests go, and parameters.

pub mod params;
pub mod pass;
pub mod plain;

use base::log::Level;
use http::request::Request;
use http::upstream::directives::Shared;

/// A module that passes requests to a gateway; it is its configuration.
pub trait Gateway: Shared {
    /// What its directives begin with.
    const PREFIX: &'static str;
    /// What addresses begin with in logs.
    const SCHEME: &'static str;
    /// What they begin with where the connection is to be encrypted.
    const TLS_SCHEME: Option<&'static str> = None;
    /// Whether responses may go to files.
    const USES_FILES: bool = true;
}

/// Fields of gateways' responses that are meant for us.
pub const HIDDEN: &[&str] = &[
    "Status",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

/// A request has more parameters than the protocol can tell.
#[cold]
pub fn too_big(r: &Request, what: &str, len: usize) -> u16 {
    r.log(Level::Alert, format_args!("{what} is too big: {len}"));
    500
}
