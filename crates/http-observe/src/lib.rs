//! The HTTP modules that show the state of the server, one file or folder each: the API of NGINX
//! Plus, Prometheus and OTLP metrics, the dashboard, `stub_status` and `ready`.
//!
//! They read what the other crates count (`engine::metrics`, the zones of upstreams, caches and
//! limits) and count nothing themselves. Their order among all modules is in `http-modules`.
#![forbid(unsafe_code)]

pub mod api;
pub mod dashboard;
pub mod otel_metrics;
pub mod prometheus;
pub mod ready;
pub mod shared_state;
pub mod stub_status;
