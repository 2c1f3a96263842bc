//! HTTP/3 (RFC 9114): streams, frames, settings. Sans-IO, for servers and clients.
//!
//! A connection reads each stream by a reader of its own, which takes the bytes of the stream cut
//! anywhere and holds what it needs of them:
//!
//! ```text
//! request stream ──── message::Reader   sections, data, trailers
//! unidirectional ──── stream::Reader ── Kind::Control ── control::Reader   settings, GOAWAY, …
//!                                       Kind::Encoder ── qpack::Decoder::encoder_stream
//!                                       Kind::Decoder ── qpack::Encoder::decoder_stream
//! ```
//!
//! | file | concern |
//! | --- | --- |
//! | [`varint`] | integers of QUIC |
//! | [`error`] | codes, and what ends by a fault |
//! | [`frame`] | types of frames; where frames begin and end; writing them |
//! | [`stream`] | types of unidirectional streams, and which of them a peer may open |
//! | [`control`] | the frames of a peer's control stream |
//! | [`message`] | the frames of a request or a response |
//! | [`leaving`] | the end of a connection, as the server announces it |
//! | [`settings`] | the parameters of a connection |
//!
//! The fields of sections are [`crate::qpack`]'s; the heads that are made of them,
//! [`crate::fields`]'.

pub mod control;
pub mod error;
pub mod frame;
pub mod leaving;
pub mod message;
pub mod settings;
pub mod stream;
pub mod varint;

pub use error::{Code, Ends, Fault};

/// The side of a connection that we are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The peer is a client.
    Server,
    /// The peer is a server. It may push nothing: we announce no MAX_PUSH_ID.
    Client,
}

#[cfg(test)]
mod tests;
