//! Wire protocols without I/O: every parser here takes bytes and its own state, and returns a
//! verdict. Nothing blocks, nothing allocates on the fast path, and no input panics.
//!
//! HTTP/1 header sections and chunks, frames and compressed fields of HTTP/2 and HTTP/3, URIs,
//! FastCGI and the parameters of gateways, gRPC, memcached, DNS, the PROXY protocol, the hello of
//! TLS clients, ACME, trace context.
#![forbid(unsafe_code)]

pub mod acme;
pub mod cache_control;
pub mod chunked;
pub mod compression;
pub mod dns;
pub mod fastcgi;
pub mod fields;
pub mod grpc;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod memcached;
pub mod params;
pub mod priority;
pub mod proxy_protocol;
pub mod qpack;
pub mod quic;
pub mod range;
pub mod tls_hello;
pub mod tls_names;
pub mod trace_context;
pub mod uri;
pub mod waste;
