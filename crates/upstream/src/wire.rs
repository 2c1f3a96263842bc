//! The carrier of an exchange: a connection that it has to itself, or a stream of one that
//! exchanges share ([`crate::h2`]).
//!
//! A connection of its own carries bytes that the `Protocol` frames. A stream carries only a body:
//! the request's fields go next to it as a list (`http_wire::fields`), because only the connection
//! knows the state of their compression; the response's header section arrives as HTTP/1's does,
//! and trailers after it. So a stream is not one more kind of `Transport`: header sections,
//! trailers and the reason of an end do not fit into a stream of bytes.

use std::io;

use event::Deadline;
use mem::{Buf, Chain, Page};
use net::Transport;

use crate::h2::{Stream, StreamEnd, Taken};
use crate::pool::UpConn;

/// The carrier of an exchange.
pub enum Wire {
    /// A connection.
    Conn(UpConn),
    /// A stream: its bytes are the body's. Heads and trailers go beside them.
    Stream(Stream),
}

/// The result of a receive.
pub enum Received {
    /// Nothing is there yet.
    Nothing,
    /// Bytes.
    Piece(Buf),
    /// Nothing more will come.
    End,
}

/// The reason why nothing more can be received.
pub enum RecvError {
    /// The connection's.
    Io(io::Error),
    /// The stream's.
    Stream(StreamEnd),
}

impl Wire {
    /// The connection, for what concerns all of it.
    pub fn transport(&self) -> &Transport {
        match self {
            Wire::Conn(conn) => &conn.sock,
            Wire::Stream(stream) => stream.carrier(),
        }
    }

    /// The stream, if it is one.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Wire::Conn(_) => None,
            Wire::Stream(stream) => Some(stream),
        }
    }

    /// Whether the connection was used before: an error on it may just be its end.
    pub fn is_cached(&self) -> bool {
        match self {
            Wire::Conn(conn) => conn.cached,
            Wire::Stream(stream) => stream.is_cached(),
        }
    }

    /// Whether parts of files may be sent; else they are read into memory first.
    pub fn sends_files(&self) -> bool {
        match self {
            Wire::Conn(conn) => conn.sock.sends_files(),
            Wire::Stream(_) => false,
        }
    }

    /// Sends what is taken without waiting; `last`: nothing follows it.
    ///
    /// # Errors
    /// The server takes no more.
    pub fn try_send(&self, chain: &mut Chain, last: bool) -> io::Result<usize> {
        match self {
            Wire::Conn(conn) => conn.sock.try_send(chain, None),
            Wire::Stream(stream) => stream.try_send(chain, last),
        }
    }

    /// Whether something is to be sent still that left no chain: bytes held back, or the end of a
    /// body; `last` as in [`Wire::try_send`].
    pub fn has_unsent(&self, last: bool) -> bool {
        match self {
            Wire::Conn(conn) => conn.sock.has_unsent(),
            Wire::Stream(stream) => last && !stream.is_sent(),
        }
    }

    /// Receives what is there, without waiting.
    ///
    /// # Errors
    /// Nothing more will come, and the end is not the response's.
    pub fn try_recv(&self) -> Result<Received, RecvError> {
        match self {
            Wire::Conn(conn) => {
                let mut page = Page::new();
                match conn.sock.try_recv_into(&mut page).map_err(RecvError::Io)? {
                    None => Ok(Received::Nothing),
                    Some(0) => Ok(Received::End),
                    Some(_) => Ok(Received::Piece(page.into())),
                }
            }
            Wire::Stream(stream) => Ok(match stream.take().map_err(RecvError::Stream)? {
                Taken::Nothing => Received::Nothing,
                Taken::Piece(piece) => Received::Piece(piece),
                Taken::End => Received::End,
            }),
        }
    }

    /// Waits until something can be received.
    ///
    /// # Errors
    /// The connection's; `TimedOut`.
    pub async fn readable(&self, deadline: Deadline) -> io::Result<()> {
        match self {
            Wire::Conn(conn) => conn.sock.readable(deadline).await,
            Wire::Stream(stream) => stream.readable(deadline).await,
        }
    }

    /// Waits until something can be sent.
    ///
    /// # Errors
    /// The connection's; `TimedOut`.
    pub async fn writable(&self, deadline: Deadline) -> io::Result<()> {
        match self {
            Wire::Conn(conn) => conn.sock.writable(deadline).await,
            Wire::Stream(stream) => stream.writable(deadline).await,
        }
    }
}
