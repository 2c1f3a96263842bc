//! Directives, their arguments, and configuration that is inherited.
//!
//! A directive is declared once, with [`directive`]: its name, the blocks it may stand in
//! ([`EVERYWHERE`], [`LOCATION`], …), how many arguments it takes ([`Args`]), its default, a line
//! for the reference page, and a setter. Before the setter runs, name, place and number of
//! arguments were checked. It gets [`Cx`], where the values of the present level are
//! (`cx.loc::<MyConf>()`), and the [`Node`] with the arguments; [`value`] reads flags, numbers,
//! sizes (bytes) and times (milliseconds or seconds) from it, and says `"x" directive is duplicate`
//! by itself.
//!
//! The values are a type of the module's own that implements [`Conf`]: `Default` is "nothing was
//! said", and `merge` takes from the enclosing level what this one left open. Its [`Scope`] says at
//! which levels it lives.
//!
//! Errors are [`ConfError`]s, with the place: `ConfError::at(word, "…")` for an argument,
//! `ConfError::directive(node, "…")` for `"NAME" directive …`.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! static DIRECTIVES: &[Directive<Cx>] = &[directive(
//!     "pace",
//!     EVERYWHERE,
//!     Args::T1,
//!     "10ms",
//!     "How long to wait between two steps.",
//!     |cx, n| value::set_msec(&mut cx.loc::<PaceConf>().ms, n),
//! )];
//!
//! #[derive(Default)]
//! struct PaceConf {
//!     ms: Option<u64>,
//! }
//!
//! impl Conf for PaceConf {
//!     fn merge(&mut self, outer: &Self) -> Result<(), ConfError> {
//!         self.ms = self.ms.or(outer.ms);
//!         Ok(())
//!     }
//! }
//!
//! static MODULE: Module = Module {
//!     name: "pace",
//!     directives: DIRECTIVES,
//!     confs: &[ConfType::of::<PaceConf>(Scope::Location)],
//!     ..Module::EMPTY
//! };
//!
//! let said = weir_module::testing::load(&MODULE, "pace 10ms; pace 1s;").unwrap_err();
//! assert_eq!(said, "\"pace\" directive is duplicate in test.conf:1");
//! assert!(weir_module::testing::load(&MODULE, "pace 10ms;").is_ok());
//! ```

pub use conf::table::{Args, Contexts, Directive};
pub use conf::template::{Template, VarId};
pub use conf::{ConfError, Node, Word, value, warn};
pub use http::core_directives::directive;
pub use http::cx::{Cx, LoadEnv};
pub use http::module::{Conf, ConfType, Scope};
pub use http::types::TypeList;

/// `http`, `server` and `location`.
pub const EVERYWHERE: Contexts = http::core_directives::HSL;
/// `location`, and `if` inside of one.
pub const LOCATION: Contexts = Contexts::LOCATION.or(Contexts::IF_LOCATION);
/// `http` and `server`.
pub const SERVERS: Contexts = http::core_directives::HS;
/// `http` alone.
pub const HTTP: Contexts = Contexts::HTTP;
/// `upstream`.
pub const UPSTREAM: Contexts = Contexts::UPSTREAM;
