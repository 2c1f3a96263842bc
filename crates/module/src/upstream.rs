//! Upstreams: balancing methods, and protocols of servers that requests are passed to.

pub use http::upstream::balance::{Balancer, Outcome, Peer, Picker};
pub use http::upstream::{HeadStep, Job, Progress, Protocol, Sink, Target, run};
