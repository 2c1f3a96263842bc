//! Upstreams: balancing methods, and protocols of servers that requests are passed to.
//!
//! A method's directive stands in `upstream` blocks and calls [`Block::set_method`]; its
//! [`Picker`]s begin with a [`Round`].

pub use http::upstream::balance::{Balancer, Outcome, Picker, Round, Times};
pub use http::upstream::block::{Block, Make};
pub use http::upstream::lease::{Affinity, Session};
pub use http::upstream::peer::Peer;
pub use http::upstream::servers::Servers;
pub use http::upstream::{HeadStep, Job, Progress, Protocol, Sink, Target, run};
