//! The modules of HTTP, one by one: files, bodies, limits, filters, logs.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/disk.rs"]
mod disk;
#[path = "../common/tmpfs.rs"]
mod tmpfs;

mod access;
mod aio;
mod api;
mod auth_jwt;
mod auth_ldap;
mod auth_oidc;
mod auth_require;
mod autoindex;
mod bodies;
mod canaries;
mod charset;
mod clients;
mod compress;
mod dav;
mod disk_faults;
mod error_log;
mod f4f;
mod flight;
mod geo;
mod geoip;
mod gunzip;
mod gzip;
mod headers;
mod headers_more;
mod history;
mod hls;
mod image_filter;
mod keyval;
mod limit_auth;
mod limits;
mod locations;
mod log;
mod log_disk;
mod map;
mod metrics;
mod min_rate;
mod mp4;
mod otel;
mod pipelined;
mod proxy_protocol;
mod range;
mod refused;
mod rewrite;
mod scraping;
#[cfg(feature = "script")]
mod script_projects;
#[cfg(feature = "script")]
mod script_turns;
#[cfg(feature = "script")]
mod script_waits;
#[cfg(feature = "script")]
mod scripts;
mod session_log;
mod splitting;
mod ssi;
mod stalled;
mod static_files;
mod sub_filter;
mod subrequests;
mod traps;
mod try_files;
mod variables;
mod xslt;
mod xslt_limits;
