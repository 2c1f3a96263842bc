//! Subrequests: requests that the server makes to itself while it answers a client: a part of a
//! page (`ssi`, `addition`), an authorization check (`auth_request`), a copy (`mirror`).
//!
//! [`Subrequest::new`] names a path (unescaped) and arguments; `take` selects the destination of
//! the body: a part of this response (a body filter returns `FilterStep::Include(handle)`), kept in
//! memory (up to `subrequest_output_buffer_size`), or dropped, where only the status matters.
//! `r.subrequest(…)` starts it; a refusal was logged.
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
//!
//! # How they run
//!
//! A subrequest is a request of its own on a task of its own, so that several run at the same time.
//! It has the client's header section, connection and address; URI, arguments, location, phases,
//! filters and response are its own. The whole family shares cached values of variables and the
//! state that modules keep with `r.shared()`. Subrequests begin at server-rewrite, skip the access
//! phase, send no header section, and are logged if `log_subrequest` is on. Only the client's own
//! request watches for the client's end; subrequests wait for their upstreams alone.
//!
//! ```text
//!  source ─▶ filter ─▶ filter ─▶ queue ─▶ coding ─▶ channel
//!                                  ▲
//!              pipe ◀─ queue ◀─ filters ◀─ source of the subrequest
//! ```
//!
//! - **Order.** After `Include(handle)`, the body of the subrequest follows the filter's output so
//!   far. The filters continue meanwhile and subrequests run side by side; the queue keeps the
//!   order of the page. `Wait(until)` stops the filters until a future completes (the end of a
//!   subrequest, work in a thread) while the queue is sent.
//! - **Filters.** The body of a subrequest has passed the filters of its own location. It joins the
//!   page after all of the page's filters except the *codings* (`BodyFilter::is_coding`, such as
//!   gzip), which see the whole body.
//! - **Limits.** A subrequest that is not yet first in the queue stops when its pipe holds 64 KB. A
//!   page stops when 64 KB or 48 pieces wait in its queue. Once 64 subrequests of a family run,
//!   only those that are first in a queue continue. Subrequests nest 50 deep, and a family has
//!   64,535 at most: a page that includes itself twice would otherwise be a tree of any size.
//! - **Failure.** A part that breaks off ends the page without a proper end, so that the client
//!   does not treat half of it as the whole.
//! - **Cancelling.** Dropping a handle cancels its subrequest. Only the copies of `mirror` are
//!   detached and outlive the client's request: they neither keep the client's connection open nor
//!   delay its next request (nginx keeps the connection until they have ended), but a leaving
//!   worker waits for them.

pub use http::subrequest::{AtEnd, Handle, Refused, Subrequest, Use};
