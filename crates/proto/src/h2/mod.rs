//! HTTP/2 (RFC 9113): frames, header blocks, windows. Sans-IO, for servers and clients.
//!
//! | file | concern |
//! | --- | --- |
//! | [`hpack`] | compressed fields |
//! | [`fields`] | the fields of a request before their compression |
//! | [`frame`] | the layout of frames: constants, and writing them |
//! | [`read`] | bytes to frames, and what a connection may not receive |
//! | [`request`] | the fields of a header block to a request's head |
//! | [`response`] | the fields of a header block to a response's head |
//! | [`settings`] | the parameters of a connection |
//! | [`tree`] | the dependencies of RFC 7540 among streams |
//! | [`websocket`] | requests for WebSocket as HTTP/1 has them, for servers of HTTP/2 |
//! | [`window`] | flow control |

pub mod fields;
pub mod frame;
pub mod hpack;
pub mod read;
pub mod request;
pub mod response;
pub mod settings;
pub mod tree;
pub mod websocket;
pub mod window;

#[cfg(test)]
mod tests;
