//! The interface for modules from outside the project.
//!
//! A module is one static table, [`Module`]: its directives, its variables, the types of its
//! configuration, and a function that puts its handlers and filters into the pipeline of each
//! location where they are on. `weir build --with CRATE` makes a server that has it.
//!
//! ```
//! use weir_module::prelude::*;
//!
//! /// The crate's one public item, which `weir build` expects.
//! pub static MODULE: Module = Module {
//!     name: "hello",
//!     directives: DIRECTIVES,
//!     confs: &[ConfType::of::<HelloConf>(Scope::Location)],
//!     install: Some(install),
//!     ..Module::EMPTY
//! };
//!
//! static DIRECTIVES: &[Directive<Cx>] = &[directive(
//!     "hello",
//!     LOCATION,
//!     Args::T1,
//!     "",
//!     "Answers with a greeting to NAME, which may have variables.",
//!     |cx, n| {
//!         let name = cx.template(n.arg(0)?)?;
//!         cx.loc::<HelloConf>().name = Some(name);
//!         Ok(())
//!     },
//! )];
//!
//! #[derive(Default)]
//! struct HelloConf {
//!     name: Option<Template>,
//! }
//!
//! impl Conf for HelloConf {
//!     fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
//!         Ok(()) // a location's handler is its own: nothing is inherited
//!     }
//! }
//!
//! fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     if let (true, Some(name)) = (l.set_here::<HelloConf>(), &l.conf::<HelloConf>().name) {
//!         p.content_handler = Some(Box::new(Hello(name.clone())));
//!     }
//!     Ok(())
//! }
//!
//! struct Hello(Template);
//!
//! impl PhaseHandler for Hello {
//!     fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
//!         let name = r.eval(&self.0);
//!         let text = [b"hello, ", &name[..], b"\n"].concat();
//!         r.respond(200, Bytes::from_static(b"text/plain"), Bytes::from(text));
//!         Step::Now(Verdict::Done)
//!     }
//! }
//!
//! let run = weir_module::testing::serve(
//!     &MODULE,
//!     "location /hi { hello $arg_who; }",
//!     &["/hi?who=Ada"],
//! );
//! assert_eq!((run.answers[0].status, run.answers[0].text()), (200, "hello, Ada\n".into()));
//! ```
//!
//! # Contents
//!
//! | for | see |
//! | --- | --- |
//! | directives, their arguments, configuration and how it is inherited | [`config`] |
//! | handlers of the phases, and of a location's content | [`handler`] |
//! | filters over heads and bodies of responses | [`filter`] |
//! | variables | [`variable`] |
//! | code that blocks: libraries, files, computing | [`blocking`] |
//! | timers and tasks | [`timer`] |
//! | subrequests | [`subrequest`] |
//! | memory that all workers share | [`zone`] |
//! | balancing methods and protocols of upstreams | [`upstream`] |
//! | messages in the error log | [`log`] |
//! | running a module in a test | [`testing`] |
//!
//! # Order
//!
//! Modules from outside stand together in the server's list of modules, in the order in which `weir
//! build` got them, in front of `random_index` (`http_modules::with`). So their handlers run after
//! the project's handlers of the access phase and before those that look for files, and their
//! filters stand before the project's.
//!
//! # Rules for modules
//!
//! - **It uses this crate alone**, which re-exports what an author needs. `cargo xtask tiers`
//!   checks that for the modules of the repository, in `modules/`.
//! - **It never blocks the event loop.** A worker is one thread that serves thousands of
//!   connections; blocking work goes through [`blocking`], and a wait is a future. A stretch of 100
//!   ms on the loop is logged: `event loop was held for N ms by module NAME`.
//! - **It needs no `unsafe`.** Nothing here asks for it; crates begin with
//!   `#![forbid(unsafe_code)]`.
//! - **A panic costs one connection**, or one task of a pool, and is logged at level alert; the
//!   worker goes on. It is a fault all the same.
//! - **It keeps nothing of a request.** Handlers borrow [`Request`](handler::Request); the compiler
//!   refuses to keep that, or anything borrowed from it, beyond the call:
//!
//! ```compile_fail
//! use weir_module::prelude::*;
//!
//! struct Thief(std::cell::RefCell<Option<&'static [u8]>>);
//!
//! impl PhaseHandler for Thief {
//!     fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
//!         *self.0.borrow_mut() = Some(&r.target.args); // does not live long enough
//!         Step::Now(Verdict::Next)
//!     }
//! }
//! ```
//!
//! # Versions
//!
//! The crate follows semantic versioning on its own, apart from the server's version. Before 1.0 a
//! new middle number may break modules, and the changelog says how to follow; a new last number
//! does not. A module states the version that it was written for (`weir-module = "0.1"`), and `weir
//! build` fails where the server's sources have none that is compatible. There is no binary
//! interface: modules are compiled with the server, by the same compiler.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod config;
pub mod filter;
pub mod handler;
pub mod log;
pub mod prelude;
pub mod subrequest;
pub mod testing;
pub mod timer;
pub mod upstream;
pub mod variable;
pub mod zone;

pub use bytes::Bytes;
pub use http::module::Module;

/// The version of this interface, as `weir build` compares it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
