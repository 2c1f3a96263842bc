//! Code that blocks, run where it may: on a thread of a pool.
//!
//! [`run_blocking`] uses the pool `default` (32 threads, 65536 tasks in its queue, both settable
//! with `thread_pool`); a pool of another name is found at load with `cx.env.pools.get(name)` and
//! used with [`Pool::run`]. The task owns what it works on, and runs to its end even where nobody
//! waits for it any more: a client that leaves drops the future, not the task. Where the queue is
//! full the error is [`TaskError::QueueFull`], which is logged in nginx's words; where the code
//! panics it is [`TaskError::Panicked`].
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static MODULE: Module = Module { name: "slow", install: Some(install), ..Module::EMPTY };
//!
//! fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     p.content.push(Box::new(Slow));
//!     Ok(())
//! }
//!
//! struct Slow;
//!
//! impl PhaseHandler for Slow {
//!     fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
//!         Step::Wait(Box::pin(async move {
//!             let name = String::from_utf8_lossy(&r.target.uri).into_owned();
//!             let found = run_blocking(move || {
//!                 // A library that takes its time. Other requests are answered meanwhile.
//!                 std::thread::sleep(std::time::Duration::from_millis(20));
//!                 format!("{name} took 20 ms")
//!             });
//!             match found.await {
//!                 Ok(text) => {
//!                     r.respond(200, Bytes::from_static(b"text/plain"), Bytes::from(text));
//!                     Verdict::Done
//!                 }
//!                 Err(_) => Verdict::Status(503),
//!             }
//!         }))
//!     }
//! }
//!
//! let run = weir_module::testing::serve(&MODULE, "location / { }", &["/this"]);
//! assert_eq!(run.answers[0].text(), "/this took 20 ms");
//! ```

pub use event::pool::{Pool, Pools, Run, TaskError};
pub use event::run_blocking;
