//! Operations: one file each, with the attempt that is made at once and the wait that follows.

mod connect;
pub(crate) mod fd_set;
mod flight;
pub(crate) mod read;
pub(crate) mod ready;
mod recv;
mod send;
pub(crate) mod wait;
