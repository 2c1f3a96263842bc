//! A request over a stream and its response, as far as they are the same over every protocol.

use http_wire::h1::{Field, Head};
use mem::Chain;

/// The head of a response on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum HeadState {
    /// Not begun.
    #[default]
    Unknown,
    /// Begun; it is encoded when something follows it, so that it can be taken back until then.
    Begun,
    /// It is in the connection's output, or further.
    Sent,
}

/// The largest vector for the text of a head that is kept for another one.
const TEXT_KEPT: usize = 1 << 10;

/// A request and its response. It is recycled with the request's box.
#[derive(Default)]
pub(crate) struct Exchange {
    /// The text that the request head's spans point into.
    pub text: Vec<u8>,
    /// Bytes of that head on the wire.
    pub head_len: usize,
    /// No body came behind it.
    pub is_bare: bool,
    /// Bytes of another protocol follow it, not a body.
    pub is_tunnel: bool,
    /// `100 Continue` was sent or refused already.
    pub expect_tested: bool,
    /// The client did not take or send bytes in time.
    pub timed_out: bool,
    /// The response's head.
    pub head: HeadState,
    /// A body follows the response's head.
    pub has_body: bool,
    /// The response is the beginning of another protocol.
    pub is_upgraded: bool,
    /// The connection has all of the response.
    pub is_whole: bool,
    /// Bytes of the response's body that the connection has not got yet.
    pub output: Chain,
}

impl Exchange {
    /// Bytes of memory for the request's head.
    pub(crate) fn head_size(&self, head: &Head) -> usize {
        self.text.capacity() + head.fields.len() * size_of::<Field>()
    }

    /// Ends it; the memory serves the next one.
    pub fn release(&mut self) {
        // One by one: putting a new value in the place of the old one would move the buffers.
        let Exchange {
            text,
            head_len,
            is_bare,
            is_tunnel,
            expect_tested,
            timed_out,
            head,
            has_body,
            is_upgraded,
            is_whole,
            output,
        } = self;
        match text.capacity() <= TEXT_KEPT {
            true => text.clear(),
            false => *text = Vec::new(),
        }
        *head_len = 0;
        (*is_bare, *is_tunnel, *expect_tested, *timed_out) = (false, false, false, false);
        *head = HeadState::Unknown;
        (*has_body, *is_upgraded, *is_whole) = (false, false, false);
        output.clear();
    }

    /// Whether nothing of the response is on its way, so that another may take its place.
    pub(crate) fn can_retract(&self) -> bool {
        self.head != HeadState::Sent
    }

    /// Takes back all of the output but the first `before` bytes.
    pub(crate) fn retract(&mut self, before: u64) {
        self.output = self.output.split_to(before);
    }

    /// Another response is made in place of one that was taken back.
    pub(crate) fn start_anew(&mut self) {
        self.head = HeadState::Unknown;
        self.output.clear();
    }

    /// Whether a response that ends now has only its head, which was kept for its end.
    pub(crate) fn is_head_alone(&self) -> bool {
        self.head == HeadState::Begun && self.output.is_empty()
    }

    /// Whether the head waits for something to follow it, and nothing will before the end.
    pub fn waits_for_end(&self) -> bool {
        self.head == HeadState::Begun && !self.has_body && !self.is_upgraded
    }
}
