//! Timers, tasks and wake-ups on the event loop.
//!
//! Times are milliseconds. [`sleep`] waits; [`timeout`] gives a future so long and no longer
//! (`Err(Elapsed)`); [`spawn`] starts a task of its own, which nothing but its end or
//! [`cancel`] stops: use it for work that must go on when the client has left. [`Notify`] wakes a
//! task that waits for another one. [`now_ms`] is the loop's clock, which does not jump;
//! [`unix_secs`] is the time of day.
//!
//! ```
//! use weir_module::prelude::*;
//! use weir_module::timer::{sleep, timeout};
//!
//! static MODULE: Module = Module { name: "wait", install: Some(install), ..Module::EMPTY };
//!
//! fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     p.content.push(Box::new(Waits));
//!     Ok(())
//! }
//!
//! struct Waits;
//!
//! impl PhaseHandler for Waits {
//!     fn run<'a>(&'a self, _: &'a mut Request) -> Step<'a> {
//!         Step::Wait(Box::pin(async {
//!             match timeout(10, sleep(60_000)).await {
//!                 Ok(()) => Verdict::Status(200),
//!                 Err(_) => Verdict::Status(504),
//!             }
//!         }))
//!     }
//! }
//!
//! let run = weir_module::testing::serve(&MODULE, "location / { }", &["/"]);
//! assert_eq!(run.answers[0].status, 504);
//! ```

pub use base::time::{now_ms, unix_ms, unix_secs};
pub use event::task::{cancel, yield_now};
pub use event::{Deadline, Either, Elapsed, Notify, TaskId, race, sleep, spawn, timeout};
