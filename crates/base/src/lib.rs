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

use std::ffi::OsString;
use std::sync::LazyLock;

/// The version of nginx whose configurations and scripts are understood.
pub const NGINX_VERSION: &str = "1.31.5";

/// The command line. The first call has to come before the process writes its title, which takes
/// the place of the arguments in memory.
pub fn arguments() -> &'static [OsString] {
    static ARGUMENTS: LazyLock<Vec<OsString>> = LazyLock::new(|| std::env::args_os().collect());
    &ARGUMENTS
}
