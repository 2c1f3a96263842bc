//! TLS with clients: handshakes, sessions, certificates, and those that ACME orders.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/disk.rs"]
mod disk;
#[path = "../common/tls.rs"]
mod tls;

mod acme;
mod acme_faults;
mod acme_kills;
mod acme_names;
mod acme_orders;
mod acme_shared;
mod acme_site;
mod https_redirect;
mod memory_search;
mod moves;
mod ssl;
mod ssl_algorithms;
mod ssl_certificates;
mod ssl_files;
mod ssl_hellos;
mod ssl_key_log;
mod ssl_ocsp;
mod ssl_records;
mod ssl_sessions;
mod ssl_slow_disk;
mod ssl_threads;
