//! Attacks, for the loads that have them beside a well-behaved client.

pub mod h2;
pub mod h3;
