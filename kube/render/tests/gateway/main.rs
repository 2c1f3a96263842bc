//! The Gateway API: facts of the conformance suite in our own objects, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic)] // that is how a test fails

#[path = "../common/mod.rs"]
mod common;
mod places;
mod routes;
mod world;
