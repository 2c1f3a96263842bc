//! Access logs: formats of lines, and the files that lines go to.

mod file_log;
mod format;

pub use file_log::{Buffer, FileLog};
pub use format::Format;
