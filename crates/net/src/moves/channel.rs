//! The queue between workers, in the master and across binaries.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use proto::handover::INLINE_MAX;

/// The variable by which a new binary gets the descriptors: `SENDS;RECEIVES`.
pub const VAR: &str = "WEIR_MOVES";

/// Room for messages that wait in the queue, as far as the system allows: half of it is the
/// kernel's own.
const ROOM: usize = 8 * INLINE_MAX;

/// Both ends of the queue: every process of the server has them.
#[derive(Debug)]
pub struct Channel {
    /// Messages are sent here,
    pub(super) sends: OwnedFd,
    /// and received here.
    pub(super) receives: OwnedFd,
}

impl Channel {
    /// An empty queue.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Channel> {
        let (sends, receives) = os::socket::message_pair()?;
        let _ = os::socket::set_sndbuf_large(&sends, ROOM);
        Ok(Channel { sends, receives })
    }

    /// The queue of the binary before, which gave this value; `None` if there is none.
    pub fn from_binary(value: &str) -> Option<Channel> {
        let (sends, receives) = value.split_once(';')?;
        let adopt = |number: &str| os::fd::adopt(number.parse().ok()?).ok();
        Some(Channel { sends: adopt(sends)?, receives: adopt(receives)? })
    }

    /// The value of the variable; the descriptors live on in the program that this process, a child
    /// forked for it, becomes.
    ///
    /// # Errors
    /// The system's.
    pub fn for_new_binary(&self) -> io::Result<String> {
        for fd in [&self.sends, &self.receives] {
            os::fd::set_cloexec(fd, false)?;
        }
        Ok(format!("{};{}", self.sends.as_raw_fd(), self.receives.as_raw_fd()))
    }
}
