//! HTTP/1 heads: requests from clients, responses from upstreams.
//!
//! A parser works on one contiguous buffer that the caller grows. It keeps its position, so that a
//! head which arrives byte by byte is read once; a head that lies complete in the buffer takes the
//! fast path, line by line. Positions are [`Span`]s into that buffer: the caller may move the
//! bytes, as long as they keep their offsets.

mod error;
mod field;
mod head;
mod limits;
mod line;
mod lines;
mod method;
mod reason;
mod request;
mod response;
mod scan;
mod write;

pub use error::{H1Error, H1ErrorKind, Stage, dropped_message, show};
pub use field::{FieldId, FieldSet};
pub use head::{Connection, Field, Head, HostRef, Span, TargetForm, Version};
pub use limits::Limits;
pub(crate) use lines::{Line, Lines, RawField};
pub use method::Method;
pub use reason::reason;
pub use request::HeadParser;
pub(crate) use request::{host_of_line, known_field, parse_length};
pub(crate) use response::add_response_field;
pub use response::{
    ResponseError, ResponseErrorKind, ResponseHead, ResponseParser, ResponseStep, ignored_message,
};
pub(crate) use scan::is_value;
pub use write::{
    encode_target, is_method, sanitize_value, write_field, write_location, write_value,
};

/// The result of parsing the present bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The head is complete; it took the first `len` bytes of the buffer.
    Done {
        /// Bytes of the buffer that belong to the head, leading empty lines included.
        len: usize,
    },
    /// The head is not complete: call again with more bytes behind the present ones.
    More,
    /// The head is refused.
    Bad(H1Error),
}

#[cfg(test)]
mod tests;
