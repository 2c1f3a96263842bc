//! Output of a page that waits for subrequests before it.

use std::collections::VecDeque;

use mem::Chain;

use super::Handle;

/// A part of the page.
pub(crate) enum Queued {
    /// Bytes; the body may end with them.
    Bytes { piece: Chain, last: bool },
    /// The place of a subrequest's body.
    Subrequest(Handle),
}

/// The parts, in the order of the page.
pub(crate) type Queue = VecDeque<Queued>;
