//! Messages in the error log.
//!
//! `r.log(Level::Error, format_args!("…"))` writes to the log of the request's location, with
//! client, server and request behind the message as nginx does; nothing is formatted unless the
//! level is on. `r.log_os` adds the text of a system call's error, `r.debug` is for tracking down a
//! fault. Outside of requests, [`default`] is the worker's log and [`write`](fn@write) writes to
//! it. A message that a client can cause is `Info` or `Error`, never more.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static MODULE: Module = Module { name: "says", install: Some(install), ..Module::EMPTY };
//!
//! fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     p.preaccess.push(Box::new(|r: &mut Request| {
//!         r.log(Level::Error, format_args!("odd: {}", r.target.args.len()));
//!         Verdict::Next
//!     }));
//!     Ok(())
//! }
//!
//! let run = weir_module::testing::serve(&MODULE, "location / { }", &["/?abc"]);
//! assert!(run.log.contains("[error]") && run.log.contains("odd: 3, client: 127.0.0.1"));
//! ```

use std::fmt;

pub use base::log::{Level, Log, default, lossy, os_error};

/// Writes a message to the worker's own log.
pub fn write(level: Level, message: fmt::Arguments<'_>) {
    base::log!(default(), level, None, "{message}");
}
