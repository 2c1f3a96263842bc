//! HTTP/2 (RFC 9113): frames, header blocks, windows. Sans-IO, for servers and clients.
//!
//! | file | concern |
//! | --- | --- |
//! | [`hpack`] | compressed fields |
//! | [`frame`] | the layout of frames: constants, and writing them |
//! | [`read`] | bytes to frames, and what a connection may not receive |
//! | [`repeated`] | heads that equal an earlier one of their connection |
//! | [`reset_ids`] | the streams that one side has reset |
//! | [`settings`] | the parameters of a connection |
//! | [`tree`] | the dependencies of RFC 7540 among streams |
//! | [`unread`] | clients that send requests and do not read |
//! | [`window`] | flow control |
//!
//! The fields of header blocks are [`hpack`]'s; the heads that are made of them,
//! [`crate::fields`]'.

pub mod frame;
pub mod hpack;
pub mod read;
pub mod repeated;
pub mod reset_ids;
pub mod settings;
pub mod tree;
pub mod unread;
pub mod window;

#[cfg(test)]
mod tests;
