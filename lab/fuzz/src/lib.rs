//! The fuzz targets: a module each, with `run`, which takes any bytes and panics when a property
//! that must always hold does not.
//!
//! A target is plain code: it runs under libFuzzer (`src/bin`), and on given files by itself.
#![forbid(unsafe_code)]

pub mod accept;
pub mod acme;
pub mod base_time;
pub mod cache_control;
pub mod cache_index;
pub mod chunked;
pub mod conf_fmt;
pub mod conf_glob;
pub mod conf_parse;
pub mod conf_pattern;
pub mod conf_template;
pub mod conf_value;
pub mod content_range;
pub mod dns;
pub mod f4f_index;
pub mod gateways;
pub mod gzip_small;
pub mod h1_connection;
pub mod h1_request;
pub mod h1_response;
pub mod h2_connection;
pub mod h2_frames;
pub mod h2_tree;
pub mod h2_upstream;
pub mod h3_connection;
pub mod h3_frames;
pub mod handover;
pub mod hls_fragment;
pub mod hpack_decode;
pub mod hpack_encode;
pub mod hpack_h2;
pub mod jose_keys;
pub mod jose_token;
pub mod keyval_tables;
pub mod ldap;
pub mod mail;
pub mod mp4_cut;
pub mod mqtt_connect;
pub mod oidc_callback;
pub mod otlp;
pub mod proxy_protocol;
pub mod qpack_decode;
pub mod quic_packets;
pub mod script;
pub mod shared_state;
pub mod simulated;
pub mod sub_patterns;
pub mod tls_certificate;
pub mod tls_crl;
pub mod tls_hello;
pub mod tls_ocsp;
pub mod tls_pem;
pub mod tls_settings;
pub mod tls_ticket;
pub mod uri;
pub mod xslt_expression;
pub mod xslt_parse;
