//! What works for a request besides its handlers: questions to the file system, subrequests, the
//! exchange with an upstream.

use crate::exchanges::Exchanges;
use crate::subrequest::Subrequests;

/// The memory that a request, its task and its connection take besides buffers, in bytes. It is
/// counted because the control group's memory is only sampled: otherwise a burst of clients would
/// take it unnoticed between two samples. Measured on HTTP/1: 10 KB in the worker, 2 KB in the
/// kernel.
const BESIDE_BUFFERS: usize = 12 << 10;

/// The operations in progress for a request.
pub(crate) struct Work {
    /// Questions to the file system.
    pub questions: files::Questions,
    /// Its subrequests, and output that waits for them.
    pub subrequests: Subrequests,
    /// The state of being passed on to an upstream; the box is kept for reuse.
    pub exchanges: Option<Box<Exchanges>>,
    #[expect(dead_code, reason = "kept for its drop")]
    memory: os::memory::Counted,
}

impl Work {
    pub(super) fn new() -> Work {
        Work {
            questions: files::Questions::default(),
            subrequests: Subrequests::default(),
            exchanges: None,
            memory: os::memory::Counted::new(BESIDE_BUFFERS),
        }
    }

    /// Clears the state of one request.
    pub(super) fn reset(&mut self) {
        self.subrequests.queue.clear();
        self.subrequests.family = None;
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.clear();
        }
        self.questions.reset();
    }
}
