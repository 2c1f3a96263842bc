//! Subrequests: requests that the server makes to itself while it answers one.
//!
//! [`Subrequest::new`] names a path (unescaped) and arguments; `take` selects the destination of
//! the body: a part of this response (a body filter answers `FilterStep::Include(handle)`), kept in
//! memory (up to `subrequest_output_buffer_size`), or dropped, where only the status matters.
//! `r.subrequest(…)` starts it; it runs by itself, goes through the phases of its own location, and
//! ends with the handle. They nest 50 deep at most; a refusal was logged.
//!
//! ```
//! use weir_module::prelude::*;
//! use weir_module::subrequest::{Subrequest, Use};
//!
//! static MODULE: Module = Module { name: "ask", install: Some(install), ..Module::EMPTY };
//!
//! fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     if l.info.name.as_ref() == b"/door" {
//!         p.access.push(Box::new(Ask));
//!     }
//!     Ok(())
//! }
//!
//! struct Ask;
//!
//! impl PhaseHandler for Ask {
//!     fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
//!         Step::Wait(Box::pin(async move {
//!             let ask = Subrequest::new(Bytes::from_static(b"/keeper"), Bytes::new());
//!             let Ok(handle) = r.subrequest(Subrequest { take: Use::Head, ..ask }) else {
//!                 return Verdict::Status(500);
//!             };
//!             if let Err(gone) = r.await_subrequest(&handle).await {
//!                 return gone;
//!             }
//!             match handle.status() {
//!                 200..=299 => Verdict::Next,
//!                 _ => Verdict::Status(403),
//!             }
//!         }))
//!     }
//! }
//!
//! let status = |keeper: &str| {
//!     let server = format!("location /door {{ empty_gif; }} location /keeper {{ {keeper} }}");
//!     weir_module::testing::serve(&MODULE, &server, &["/door"]).answers[0].status
//! };
//! assert_eq!(status("return 204;"), 200);
//! assert_eq!(status("return 401;"), 403);
//! ```

pub use http::subrequest::{AtEnd, Handle, Refused, Subrequest, Use};
