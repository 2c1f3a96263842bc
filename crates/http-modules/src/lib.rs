//! The HTTP modules that are built in, one file or folder each.
//!
//! This list is the order: of handlers within a phase, and of header filters within a response.
#![forbid(unsafe_code)]

pub mod access;
pub mod addition;
pub mod autoindex;
pub mod brotli;
pub mod browser;
pub mod charset;
pub mod compress;
pub mod dav;
pub(crate) mod early_read;
pub mod empty_gif;
pub mod error_log_tag;
pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod gunzip;
pub mod gzip;
pub mod headers;
pub mod headers_more;
pub mod https_redirect;
pub mod image_filter;
pub mod index;
pub mod internal_redirect;
pub mod keyval;
pub mod limits;
pub mod log;
pub mod map;
pub mod mirror;
pub mod not_modified;
pub mod num_map;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
pub mod rewrite;
pub mod secure_link;
pub mod session_log;
pub mod slice;
pub mod split_clients;
pub mod ssi;
pub mod sub_filter;
pub mod try_files;
pub mod userid;
pub mod welcome;
pub(crate) mod xslt_filter;
pub mod zstd;

pub use http_files::{f4f, flv, hls, mp4, static_file};
use http_files::{file_notes, handled_here};

use http::Module;
use http::module::Modules;

/// All modules, the engine's own first.
pub static MODULES: Modules = &[
    &http::core_directives::MODULE,
    &http::status_zone::MODULE,
    &http::core_rates::MODULE,
    &http::flight::MODULE,
    &http_upstream::early_hints::MODULE,
    &http::ssl::MODULE,
    &http::http2::MODULE,
    &http::http3::MODULE,
    &acme::MODULE,
    &early_read::MODULE,
    &realip::MODULE,
    // Before the modules that may log a request: its tags are known from here on.
    &error_log_tag::MODULE,
    &https_redirect::MODULE,
    // It decides before `rewrite` does: nginx asks modules of other parties first.
    &otel::MODULE,
    &rewrite::MODULE,
    &map::MODULE,
    &num_map::MODULE,
    &geo::MODULE,
    &geoip::MODULE,
    &geoip2::MODULE,
    &referer::MODULE,
    &split_clients::MODULE,
    &keyval::MODULE,
    &browser::MODULE,
    &http_observe::stub_status::MODULE,
    &http_observe::shared_state::MODULE,
    &empty_gif::MODULE,
    &access::MODULE,
    &http_identity::auth_basic::MODULE,
    &http_identity::auth_ldap::MODULE,
    // Tokens may be those of its sessions.
    &http_identity::auth_oidc::MODULE,
    &http_identity::auth_jwt::MODULE,
    &http_identity::auth_request::MODULE,
    // It looks at what the modules before it have found.
    &http_identity::auth_require::MODULE,
    &http_identity::limit_auth::MODULE,
    &internal_redirect::MODULE,
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
    &session_log::MODULE,
    &slice::MODULE,
    &not_modified::MODULE,
    // nginx's place for filters of other parties: they do not see what add_header adds.
    #[cfg(feature = "script")]
    &http_script::MODULE,
    &headers_more::MODULE,
    &headers::MODULE,
    // Adds what the two before have not set.
    &http_identity::auth_oidc::private::MODULE,
    &userid::MODULE,
    &gunzip::MODULE,
    &addition::MODULE,
    &sub_filter::MODULE,
    &image_filter::MODULE,
    &xslt_filter::MODULE,
    &charset::MODULE,
    &ssi::MODULE,
    &gzip::negotiate::MODULE,
    &gzip::MODULE,
    &brotli::MODULE,
    &zstd::MODULE,
    &compress::MODULE,
    &range::MODULE,
    &http_upstream::modules::UPSTREAM,
    &http_upstream::modules::RESOLVER,
    &http_upstream::balancing::methods::HASH,
    &http_upstream::balancing::ip_hash::MODULE,
    &http_upstream::balancing::methods::LEAST_CONN,
    &http_upstream::balancing::methods::LEAST_TIME,
    &http_upstream::balancing::methods::RANDOM,
    &http_upstream::balancing::sticky::MODULE,
    &http_upstream::caching::directives::MODULE,
    &http_observe::api::MODULE,
    &http_observe::prometheus::MODULE,
    &http_observe::otel_metrics::MODULE,
    &http_observe::dashboard::MODULE,
    &http_observe::ready::MODULE,
    &http_proxying::proxy::MODULE,
    &http_proxying::fastcgi::MODULE,
    &http_proxying::uwsgi::MODULE,
    &http_proxying::scgi::MODULE,
    &http_proxying::memcached::MODULE,
    &http_proxying::grpc::MODULE,
    &http_proxying::tunnel::MODULE,
    // Behind the modules that pass requests on.
    &http_proxying::health::MODULE,
    &flv::MODULE,
    &mp4::MODULE,
    &hls::MODULE,
    &f4f::MODULE,
    &welcome::MODULE,
];

/// The name of the module that those from outside stand before.
const BEFORE: &str = "random_index";

/// A module from outside that cannot be built in.
#[derive(Debug, PartialEq, Eq)]
pub enum Clash {
    /// A module of this name is built in already.
    Module(&'static str),
    /// Another module has a directive of this name already.
    Directive {
        /// The directive.
        name: &'static str,
        /// The module from outside.
        module: &'static str,
        /// The module that has the directive already.
        other: &'static str,
    },
}

impl std::fmt::Display for Clash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Clash::Module(name) => write!(f, "module \"{name}\" is built in already"),
            Clash::Directive { name, module, other } => write!(
                f,
                "directive \"{name}\" of module \"{module}\" belongs to module \"{other}\" \
                 already"
            ),
        }
    }
}

impl std::error::Error for Clash {}

/// A list with modules from outside the project in it, in the order given: behind the project's
/// handlers of the access phase and before those that look for files, and so before the project's
/// filters. Made once a process, and kept to its end.
///
/// # Errors
/// Two modules, or directives of two modules, have the same name.
pub fn with(
    modules: Modules,
    added: impl Iterator<Item = &'static Module>,
) -> Result<Modules, Clash> {
    let mut list = modules.to_vec();
    let first = list.iter().position(|m| m.name == BEFORE).unwrap_or(list.len());
    for (place, module) in (first..).zip(added) {
        for other in &list {
            if other.name == module.name {
                return Err(Clash::Module(module.name));
            }
            let taken = |name| other.directives.iter().any(|d| d.name == name);
            if let Some(d) = module.directives.iter().find(|d| taken(d.name)) {
                return Err(Clash::Directive {
                    name: d.name,
                    module: module.name,
                    other: other.name,
                });
            }
        }
        list.insert(place, Box::leak(Box::new(module.added())));
    }
    Ok(Box::leak(list.into_boxed_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    static HELLO: Module = Module { name: "hello", ..Module::EMPTY };
    static WORLD: Module = Module { name: "world", ..Module::EMPTY };
    static NAMED: Module = Module { name: "index", ..Module::EMPTY };
    static THIEF: Module =
        Module { name: "thief", directives: autoindex::MODULE.directives, ..Module::EMPTY };

    #[test]
    fn modules_from_outside_keep_their_order_before_those_of_files() {
        let list = with(MODULES, [&HELLO, &WORLD].into_iter()).unwrap();
        let at = |name| list.iter().position(|m| m.name == name).unwrap();
        assert_eq!((at("world"), at(BEFORE)), (at("hello") + 1, at("hello") + 2));
        assert!(at("access") < at("hello") && at("world") < at("static"));
        assert_eq!(list.iter().filter(|m| m.added).count(), 2);
        assert_eq!(list.len(), MODULES.len() + 2);
    }

    #[test]
    fn names_that_are_taken_are_refused() {
        let said = |m| with(MODULES, [m].into_iter()).err().unwrap().to_string();
        assert_eq!(said(&NAMED), "module \"index\" is built in already");
        assert_eq!(
            said(&THIEF),
            "directive \"autoindex\" of module \"thief\" belongs to module \"autoindex\" already"
        );
        assert!(with(MODULES, [&HELLO, &HELLO].into_iter()).is_err());
    }
}
