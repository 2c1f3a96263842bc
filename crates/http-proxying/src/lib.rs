//! The HTTP modules that forward requests to other servers, one file or folder each, and the health
//! checks of those servers.
//!
//! Each supplies a protocol to the engine of `http-upstream`, which does what they have in common:
//! choosing a server, connecting, trying the next one, caching, sending the response. The modules
//! of gateways (`fastcgi`, `uwsgi`, `scgi`, `memcached`, `tunnel`) share their directives in
//! [`gateway`]. Their order among all modules is in `http-modules`.
#![forbid(unsafe_code)]

pub mod fastcgi;
pub mod gateway;
pub mod grpc;
pub mod health;
pub mod memcached;
pub mod proxy;
pub mod scgi;
pub mod tunnel;
pub mod uwsgi;
