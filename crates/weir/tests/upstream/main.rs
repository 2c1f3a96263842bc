//! Requests that are forwarded to other servers: protocols, balancing, health, faults.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/tls.rs"]
mod tls;

mod accel;
mod balancing;
mod chosen_server;
mod dns;
mod gateways;
mod grpc;
mod handover;
mod health;
mod kept_moves;
mod misbehaving;
mod ntlm;
mod passing;
mod peers;
mod proxy;
mod proxy_http2;
mod proxy_http2_again;
mod proxy_http2_repeated;
mod proxy_ssl;
mod proxy_websocket;
mod resolver;
mod switches;
mod upstream_defects;
mod upstream_faults;
mod upstream_fields;
