//! HTTP/2 to servers: exchanges of a worker share connections.
//!
//! ```text
//!  exchange ─Stream─┐                    ┌─ head, DATA ─▶ waiting exchange
//!  exchange ─Stream─┼─▶ output ─▶ task ──┼─ windows ────▶ exchange with something to send
//!  exchange ─Stream─┘      (Mux)         └─ GOAWAY ─────▶ no new streams
//! ```
//!
//! | file | concern |
//! | --- | --- |
//! | [`mux`] | the state of a connection and of its streams |
//! | [`receive`] | the server's frames |
//! | [`repeated`] | header blocks that equal an earlier one, copied in both directions |
//! | [`connection`] | the task |
//! | [`stream`] | the exchange's handle of its stream |
//! | [`dial`] | connections that are being made |
//!
//! **Only the connection's task receives and sends.** Exchanges append frames to its output and
//! wake it. It runs at the end of a turn of the loop (`event::task::turn_end`). If the worker is
//! busy with other work, the task skips up to eight turns, so that one send takes the frames that
//! many exchanges have appended, and one receive wakes many of them. It stops skipping when 16
//! requests wait to be sent, after a millisecond, or when a turn had no other work.
//!
//! **Bursts.** An exchange that finds no connection, but one that is being made, waits for that one
//! ([`dial::Dial`]), if it will have a stream left. Otherwise the exchange makes another one. So a
//! burst opens no more connections than its streams need.
//!
//! **Flow control.** Each stream's window follows its client, so a slow client stalls only its own
//! stream. The connection's window is kept open and never limits.

mod connection;
mod dial;
mod mux;
mod receive;
mod repeated;
mod stream;

pub use connection::start;
pub use dial::{Dial, Dialling, Dials, Outcome};
pub use mux::{Mux, MuxConf, StreamEnd};
pub use stream::{Stream, Taken};
