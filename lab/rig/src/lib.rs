//! The rig of the loads: servers under test and the programs beside them, the client that checks
//! every byte, and what is measured of a process.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod client;
pub mod deploy;
pub mod disk;
pub mod helper;
pub mod options;
pub mod proc;
pub mod report;
pub mod server;
pub mod subject;
pub mod syscalls;
pub mod wrk;

/// Anything that can go wrong here ends the load with a sentence.
pub type Outcome<T = ()> = Result<T, String>;
