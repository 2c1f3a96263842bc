//! The switches as a command line has them.

use os::signal::Signal;

/// The switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// `-h`, `-?`
    pub help: bool,
    /// `-v`, and switches that imply it.
    pub version: bool,
    /// `-V`
    pub build: bool,
    /// `-t`, and `-T`.
    pub test: bool,
    /// `-T`
    pub dump: bool,
    /// `-q`
    pub quiet: bool,
    /// `-s`
    pub signal: Option<Signal>,
    /// `-p`
    pub prefix: Option<Vec<u8>>,
    /// `-e`; empty for standard error.
    pub error_log: Option<Vec<u8>>,
    /// `-c`
    pub conf_file: Option<Vec<u8>>,
    /// `-g`
    pub directives: Option<Vec<u8>>,
}
