//! HTTP/2 to servers: exchanges of a worker share connections.
//!
//! A connection has a task of its own, which alone reads and sends. Exchanges write frames to the
//! connection's output and wake the task: what several of them write within a turn of the loop
//! leaves in one send, and what comes in one receive wakes them all.
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
//! | [`repeated`] | heads that are the same as before |
//! | [`connection`] | the task |
//! | [`stream`] | the exchange's handle of its stream |
//! | [`dial`] | connections that are being made |

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
