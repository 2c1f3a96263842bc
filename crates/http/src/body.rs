//! Request bodies.

use proto::h1::Head;

use crate::request::Request;

/// A request's body: how much of it came, and where it is.
#[derive(Default)]
pub struct ReqBody {
    left: u64,
    from_buffer: usize,
    discarding: bool,
}

impl ReqBody {
    pub(crate) fn begin(&mut self, head: &Head) {
        self.left = if head.chunked { 1 } else { head.content_length.unwrap_or(0) };
    }
    pub(crate) fn reset(&mut self) {
        *self = ReqBody::default();
    }
    pub(crate) fn discarding(&self) -> bool {
        self.discarding
    }
    /// How many bytes behind the head in the client's buffer belong to the body.
    pub(crate) fn from_buffer(&self) -> usize {
        self.from_buffer
    }
    /// Whether all of it was read.
    pub(crate) fn is_finished(&self) -> bool {
        self.left == 0
    }
}

impl Request {
    /// Reads and drops what is left of the body.
    pub(crate) async fn discard_rest(&mut self) -> Result<(), ()> {
        Err(())
    }
}
