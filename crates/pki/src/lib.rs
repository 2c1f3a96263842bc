//! Certificates and keys, without I/O and without TLS: everything that decides whom a server
//! trusts, in one crate that can be audited alone.
//!
//! - [`x509`] parses certificates and revocation lists, and checks signatures: those on
//!   certificates, and those by which a peer proves its key in a handshake.
//! - [`verify`] builds a chain to a trusted certificate and checks it: constraints, usages, host
//!   names, revocation lists. rustls's own verification differs from nginx's: it knows no
//!   certificates of version 1, no depth and no common names. Tests compare it with
//!   `openssl verify` over generated chains: what OpenSSL refuses is never accepted.
//! - [`ocsp`] writes requests, judges responses and keeps their verdicts; [`stapling`] decides when
//!   the next response is fetched. `upstream::ocsp_client` fetches them.
//! - [`pem`] reads certificates and private keys, encrypted ones among them, as OpenSSL does.
//! - [`issue`] makes keys, requests for certificates and the certificates of challenges, for ACME.
//!
//! Sessions, ciphers and tickets are in the crate `tls`, which is a user of this one. Input is
//! foreign throughout (peers, responders, files); each parser has a fuzz target.
#![forbid(unsafe_code)]

pub mod issue;
pub mod ocsp;
pub mod pem;
pub mod stapling;
pub mod verify;
pub mod x509;
