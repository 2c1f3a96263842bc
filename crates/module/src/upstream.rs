//! Upstreams: balancing methods, and protocols of servers that requests are passed to.
//!
//! A method's directive stands in `upstream` blocks and calls [`Block::set_method`] with how to
//! make its [`Balancer`] for the [`Servers`] of the block. The balancer makes a [`Picker`] for each
//! session of a [`Client`] (a request's, of any engine), which chooses: each server at most once,
//! and each that it gave comes back to it with a [`ServerOutcome`] and [`ExchangeTimes`] in
//! milliseconds. Pickers begin with a [`Round`], which knows what was tried, and has weighted round
//! robin for when the method itself has no answer. The state of servers is shared by workers where
//! the block has a `zone`: a picker looks and takes under `servers.lock()`.
//!
//! ```
//! use std::rc::Rc;
//! use weir_module::config::UPSTREAM;
//! use weir_module::prelude::*;
//! use weir_module::upstream::{
//!     Balancer, Block, Client, ExchangeTimes, Peer, Picker, Round, ServerOutcome, Servers,
//! };
//!
//! static MODULE: Module = Module {
//!     name: "last_first",
//!     directives: &[directive("last_first", UPSTREAM, Args::NONE, "", "The last.", |cx, n| {
//!         let make = |servers: &Rc<Servers>| Box::new(LastFirst(servers.clone())) as Box<_>;
//!         cx.loc::<Block>().set_method(n, true, Box::new(make));
//!         Ok(())
//!     })],
//!     ..Module::EMPTY
//! };
//!
//! struct LastFirst(Rc<Servers>);
//!
//! impl Balancer for LastFirst {
//!     fn picker(&self, _: &mut dyn Client) -> Box<dyn Picker> {
//!         Box::new(Choosing(Round::new(&self.0)))
//!     }
//! }
//!
//! struct Choosing(Round);
//!
//! impl Picker for Choosing {
//!     fn tries(&self) -> u32 {
//!         self.0.tries()
//!     }
//!     fn next(&mut self, _: Option<&[u8]>) -> Option<Rc<Peer>> {
//!         let servers = self.0.servers();
//!         let _lock = servers.lock();
//!         let now = weir_module::timer::unix_secs().cast_signed();
//!         let last = (0..self.0.list().len()).rev().find(|&i| self.0.may_ask(i, now))?;
//!         Some(self.0.take(last, now))
//!     }
//!     fn done(&mut self, peer: &Peer, outcome: ServerOutcome, _: ExchangeTimes) -> bool {
//!         self.0.done(peer, outcome)
//!     }
//! }
//!
//! // Nobody listens on these ports; the log says in which order they were tried.
//! let ran = weir_module::testing::serve_http(
//!     &MODULE,
//!     "upstream u { last_first; server 127.0.0.1:1; server 127.0.0.1:2; }
//!      server { location / { proxy_pass http://u; } }",
//!     &["/"],
//! );
//! assert_eq!(ran.answers[0].status, 502);
//! assert!(ran.log.find("127.0.0.1:2/").unwrap() < ran.log.find("127.0.0.1:1/").unwrap());
//! ```
//!
//! A [`Protocol`] is the wire format of exchanges with a kind of server, without input or output of
//! its own; a content handler makes a [`Job`] with it and calls [`run`](fn@run), as the project's
//! `memcached` module does.

pub use ::upstream::Target;
pub use ::upstream::balance::{Balancer, ExchangeTimes, Picker, Round, ServerOutcome};
pub use ::upstream::block::{Block, MakeAffinity, MakeBalancer};
pub use ::upstream::lease::{Affinity, Binding};
pub use ::upstream::peer::Peer;
pub use ::upstream::servers::Servers;
pub use engine::Client;
pub use http_upstream::{HeadStep, Job, Progress, Protocol, Sink, run};
