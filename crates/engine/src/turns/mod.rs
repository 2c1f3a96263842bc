//! The tasks of a connection with streams: requests that are polled within the connection's task,
//! and tasks that wait for a stream. [`crate::slice`] has the time that a connection gets.

pub mod run;
pub mod wakers;
