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
//! wake it. It runs at the end of a turn of the loop (`event::task::turn_end`), and skips up to
//! eight turns while they bring little for it, so that one send takes what many exchanges have
//! appended and one receive wakes many. If nothing else is to be done, it does not wait.
//!
//! **Bursts.** An exchange that finds no connection, but one that is being made, waits for that one
//! ([`dial::Dial`]), so a burst opens no more connections than it needs.
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
