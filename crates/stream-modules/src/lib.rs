//! The modules of `stream` that are built in, one file each.
//!
//! This list is the order of handlers within a phase.
#![forbid(unsafe_code)]

pub mod access;
pub mod balancing;
pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod keyval;
pub mod limit_conn;
pub mod limit_req;
pub mod log;
pub mod map;
pub(crate) mod mqtt_filter;
pub mod mqtt_preread;
pub mod num_map;
pub mod pass;
pub mod realip;
pub mod return_;
pub mod set;
pub mod split_clients;
pub mod ssl_preread;

use stream::module::Modules;

/// All modules, the engine's own first.
pub static MODULES: Modules = &[
    &stream::core_directives::MODULE,
    &stream::status_zone::MODULE,
    &realip::MODULE,
    &limit_conn::MODULE,
    &limit_req::MODULE,
    &access::MODULE,
    &geo::MODULE,
    &geoip::MODULE,
    &geoip2::MODULE,
    &map::MODULE,
    &num_map::MODULE,
    &split_clients::MODULE,
    &keyval::MODULE,
    &stream::ssl::MODULE,
    &ssl_preread::MODULE,
    &mqtt_preread::MODULE,
    &set::MODULE,
    &mqtt_filter::MODULE,
    &return_::MODULE,
    &pass::MODULE,
    &stream::proxy::directives::MODULE,
    &stream::upstreams::MODULE,
    &stream::proxy::health::MODULE,
    &balancing::HASH,
    &balancing::LEAST_CONN,
    &balancing::LEAST_TIME,
    &balancing::RANDOM,
    &log::MODULE,
    // Ends the scripts of sessions after their log was written.
    #[cfg(feature = "script")]
    &stream_script::MODULE,
];
