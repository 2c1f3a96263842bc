//! Variables that a module brings, and those that its directives define.
//!
//! [`VarDef`]s in the module's table exist from the start: `new` is computed on each use, `kept`
//! once a request, `prefix` stands for a family of names (`$arg_…`). They append their value to a
//! vector of bytes; `false` says that there is none. A directive that defines a variable by name
//! (as `map` does) calls `cx.vars.define_value(word, volatile, f)` in its setter.
//!
//! Templates in a module's own directives (`cx.template(word)`) are evaluated with `r.eval(&t)`.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static MODULE: Module = Module {
//!     name: "lengths",
//!     variables: &[VarDef::new("uri_length", |r, out| {
//!         out.extend_from_slice(r.target.uri.len().to_string().as_bytes());
//!         true
//!     })],
//!     ..Module::EMPTY
//! };
//!
//! let run = weir_module::testing::serve(
//!     &MODULE,
//!     "location / { return 200 $uri_length; }",
//!     &["/seven77"],
//! );
//! assert_eq!(run.answers[0].text(), "8");
//! ```

pub use conf::template::{Template, VarId};
pub use engine::vars::{Get, PrefixFn, WriteFn};
pub use http::vars::{Registry, SetFn, ValueFn, VarDef};
