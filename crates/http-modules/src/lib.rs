//! The HTTP modules that are built in, one file or folder each.
//!
//! This list is the order: of handlers within a phase, and of header filters within a response.
#![forbid(unsafe_code)]

pub mod access;
pub mod addition;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
pub mod charset;
pub mod compress;
pub mod dav;
pub mod empty_gif;
mod escape;
pub mod geo;
pub mod gunzip;
pub mod gzip;
pub mod headers;
pub mod index;
pub mod limits;
pub mod log;
pub mod map;
pub mod mirror;
pub mod not_modified;
pub mod proxy;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
pub mod rewrite;
pub mod secure_link;
pub mod split_clients;
pub mod ssi;
pub mod static_file;
pub mod stub_status;
pub mod try_files;
pub mod welcome;

use http::build::Modules;

/// All modules, the engine's own first.
pub static MODULES: Modules = &[
    &http::core_directives::MODULE,
    &realip::MODULE,
    &rewrite::MODULE,
    &map::MODULE,
    &geo::MODULE,
    &referer::MODULE,
    &split_clients::MODULE,
    &stub_status::MODULE,
    &empty_gif::MODULE,
    &access::MODULE,
    &auth_basic::MODULE,
    &auth_request::MODULE,
    &try_files::MODULE,
    &mirror::MODULE,
    &secure_link::MODULE,
    &limits::req::MODULE,
    &limits::conn::MODULE,
    &random_index::MODULE,
    &index::MODULE,
    &autoindex::MODULE,
    &dav::MODULE,
    &gzip::statics::MODULE,
    &compress::precompressed::MODULE,
    &static_file::MODULE,
    &log::MODULE,
    &not_modified::MODULE,
    &headers::MODULE,
    &gunzip::MODULE,
    &addition::MODULE,
    &charset::MODULE,
    &ssi::MODULE,
    &gzip::negotiate::MODULE,
    &gzip::MODULE,
    &range::MODULE,
    &http::upstream::group::MODULE,
    &proxy::MODULE,
    &welcome::MODULE,
];
