//! Filters: over heads of responses, and over their bodies.
//!
//! A [`HeaderFilter`] runs once a response, before its head is written, and may edit `r.out`. One
//! that is for the body as well pushes a [`BodyFilter`] to `r.out.filters`: so only responses that
//! need it have it. It says what that does to the head: `r.out.body_changes()` where length and
//! bytes change, `r.out.weaken_etag()` where the entity is no longer the same byte by byte.
//!
//! A [`BodyFilter`] gets the body by the [`Piece`]: a [`Chain`] of input to take from, the output
//! to append to, and whether this is the last. It never waits itself: it answers with a
//! [`FilterStep`] (`Go`, `More`, `Wait(future)`, `Include(subrequest)`, `Fail`) and is called
//! again. Files come as memory, unless it `takes_files`.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static MODULE: Module = Module { name: "shout", install: Some(install), ..Module::EMPTY };
//!
//! fn install(_: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     p.header_filters.push(Box::new(|r: &mut Request| {
//!         r.out.weaken_etag();
//!         r.out.filters.push(Box::new(Shout));
//!         Verdict::Next
//!     }));
//!     Ok(())
//! }
//!
//! struct Shout;
//!
//! impl BodyFilter for Shout {
//!     fn filter(&mut self, _: &mut Request, Piece { input, out, .. }: Piece<'_>) -> FilterStep {
//!         while let Some(piece) = input.pop_front() {
//!             if let Some(bytes) = piece.memory() {
//!                 out.write(&bytes.to_ascii_uppercase());
//!             }
//!         }
//!         FilterStep::Go
//!     }
//! }
//!
//! let run =
//!     weir_module::testing::serve(&MODULE, "location / { return 200 \"quiet\"; }", &["/"]);
//! assert_eq!(run.answers[0].text(), "QUIET");
//! ```

pub use http::module::HeaderFilter;
pub use http::output::{
    Body, BodyFilter, BodySource, Broken, FilterStep, NextPiece, Piece, Response, Until,
};
pub use mem::{Buf, Chain, Page};
