//! HTTP on the wire, without I/O: every parser here takes bytes and its own state, and returns a
//! verdict. Nothing blocks, nothing allocates on the fast path, and no input panics.
//!
//! - **The three versions**: header sections and chunks of HTTP/1 ([`h1`], [`chunked`]), frames
//!   and field compression of HTTP/2 ([`h2`]) and HTTP/3 ([`h3`], [`qpack`]; common to both:
//!   [`compression`]).
//! - **Common to the versions**: a header section from a list of fields ([`fields`]), URIs
//!   ([`uri`]), priorities of responses ([`priority`]), and limits on frames that cost work and
//!   bring nothing ([`waste`]), also by client address ([`address`]).
//! - **Fields whose rules are HTTP's own**: [`range`], [`cache_control`], [`accept`] and [`basic`]
//!   are not with the module that uses them, because RFC 9110 and RFC 9111 define them and fuzzers
//!   test them without a server. [`user_agent`] knows clients that misread responses.
//!
//! Protocols that are carried in HTTP (gRPC, trace context) or that stand next to it (FastCGI, the
//! PROXY protocol) are in the crate `proto`. The two crates do not know each other.
#![forbid(unsafe_code)]

pub mod accept;
pub mod address;
pub mod basic;
pub mod cache_control;
pub mod chunked;
pub mod compression;
pub mod fields;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod priority;
pub mod qpack;
pub mod range;
pub mod uri;
pub mod user_agent;
pub mod waste;
