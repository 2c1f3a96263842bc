//! The kit's small HTTP server, by the name that tests knew it by.

#[allow(unused_imports)]
pub use testkit::Backend;
