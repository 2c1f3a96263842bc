//! Values that all crates share: the error log's front, cached time, small byte helpers.
//!
//! Nothing here does input or output of its own, except the last-resort sink that writes to
//! standard error; nothing here may block, allocate without need or panic.
#![forbid(unsafe_code)]

pub mod ascii;
pub mod base64;
pub mod crc;
pub mod dice;
pub mod future;
pub mod hash;
pub mod json;
pub mod log;
pub mod murmur2;
pub mod time;

/// The version of nginx whose configurations and scripts are understood.
pub const NGINX_VERSION: &str = "1.31.5";
