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
    /// Whether a handler asked for it and got all of it.
    pub fn was_read(&self) -> bool {
        false
    }
    /// Bytes of it that came so far, without framing.
    pub fn len(&self) -> u64 {
        0
    }
    /// Bytes of it that came so far over the wire, framing included.
    pub fn received(&self) -> u64 {
        self.from_buffer as u64
    }
    /// The temporary file that holds it.
    pub fn file_path(&self) -> Option<&std::path::Path> {
        None
    }
    /// Whether all of it was read.
    pub(crate) fn is_finished(&self) -> bool {
        self.left == 0
    }
}

impl Request {
    /// Appends the body to `out` where it was read and is in memory; false elsewhere.
    pub fn write_body(&self, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Reads and drops what is left of the body.
    pub(crate) async fn discard_rest(&mut self) -> Result<(), ()> {
        Err(())
    }
}
