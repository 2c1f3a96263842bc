//! Modules that several engines have: one implementation each, generic over the engine's sessions,
//! with a thin shell in the engine's own list of modules.
#![forbid(unsafe_code)]

pub mod accepting;
pub mod access;
pub mod connection_vars;
pub mod forwarded;
pub mod geo;
pub mod geoip;
pub mod geoip2;
pub mod limits;
pub mod log;
pub mod map;
pub mod moved;
pub mod num_map;
pub mod passing;
pub mod proxies;
pub mod realip;
pub mod split_clients;
pub mod ssl;
