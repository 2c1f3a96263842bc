//! Handlers, which inspect requests or make their responses.
//!
//! [`Module::install`](crate::Module) is called once a location when a configuration is loaded; it
//! pushes handlers into the [`Pipeline`] of that location where they are on, so that a location
//! without pays nothing. The phases are nginx's: `post_read`, `server_rewrite`, `rewrite`,
//! `preaccess`, `access`, `precontent`, `content`, `log`. Within a phase the handlers of modules
//! from outside run behind those of the project, but in `content` before those that look for files.
//! `content_handler` is the one handler that a directive of the location itself names.
//!
//! A [`PhaseHandler`] answers with a [`Step`]: a [`Verdict`] at once, or a future for it. In the
//! access phase `Ok` allows and `Status(403)` refuses (`satisfy` combines them); elsewhere
//! `Next` lets the next handler go on. A content handler fills `r.out` (status, type, length in
//! bytes, body) and answers `Done`; `Status(n)` is answered through `error_page`. Closures
//! `Fn(&mut Request) -> Verdict` are handlers, too.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static MODULE: Module = Module { name: "tea", install: Some(install), ..Module::EMPTY };
//!
//! fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     p.access.push(Box::new(|r: &mut Request| match r.header_named(b"X-Drink") {
//!         Some(b"coffee") => Verdict::Status(418),
//!         _ => Verdict::Next,
//!     }));
//!     Ok(())
//! }
//!
//! let run = weir_module::testing::serve(
//!     &MODULE,
//!     "location / { return 204; } location /pot { root /nowhere; }",
//!     &["GET /pot HTTP/1.1\r\nHost: t\r\nX-Drink: coffee\r\nConnection: close\r\n\r\n"],
//! );
//! assert_eq!(run.answers[0].status, 418);
//! ```
//!
//! A handler that wants the request's body reads it with `r.read_body().await` inside
//! [`Step::Wait`]; its error is the verdict to give back. A response whose body comes piece by
//! piece is a [`BodySource`](crate::filter::BodySource) in `r.out.body`.

pub use http::module::{LocView, PhaseHandler, Pipeline, Step, Verdict};
pub use http::request::Request;
pub use http::server::location::LocationInfo;
pub use http_wire::h1::{FieldId, Method, Version};
