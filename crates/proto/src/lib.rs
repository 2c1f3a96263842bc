//! Wire protocols other than HTTP, without I/O: every parser here takes bytes and its own state,
//! and returns a verdict. Nothing blocks, nothing allocates on the fast path, and no input panics.
//!
//! FastCGI and the parameters of gateways, gRPC, LDAP, memcached, MQTT, DNS, the PROXY protocol,
//! the hello of TLS clients, the messages of QUIC, ACME, trace context. HTTP is in `http-wire`.
#![forbid(unsafe_code)]

pub mod acme;
pub mod dns;
pub mod fastcgi;
pub mod grpc;
pub mod handover;
pub mod ldap;
pub mod memcached;
pub mod mqtt;
pub mod params;
pub mod proxy_protocol;
pub mod quic;
pub mod tls_hello;
pub mod tls_names;
pub mod trace_context;
