//! A request as the object `r` reaches it.

use rquickjs::{Ctx, Error, Exception};

use crate::host::Level;
use crate::ids::Ticket;
use crate::value::Data;

/// A request, or the reply of a subrequest.
pub type RequestId = u64;

/// Texts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// `1.1`
    HttpVersion,
    /// `GET`
    Method,
    /// The client's address.
    RemoteAddress,
    /// `GET / HTTP/1.1`
    RequestLine,
    /// The normalized path.
    Uri,
    /// The arguments, as sent.
    Args,
}

/// Which fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those of the request.
    In,
    /// Those of the response.
    Out,
}

/// What a handler does without further words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `r.done()`
    Done,
    /// `r.finish()`
    Finish,
    /// `r.sendHeader()`
    SendHeader,
    /// `r.decline()`
    Decline,
}

/// The request's body, as far as it is known.
#[derive(Debug)]
pub enum RequestBody {
    /// It was not read, or there is none.
    Unread,
    /// All of it.
    Bytes(Vec<u8>),
    /// It was read, and cannot be had in memory.
    Lost,
}

/// A call that is wrong here: the class of the error and its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A `TypeError`.
    Type(&'static str),
    /// An `InternalError`.
    Internal(&'static str),
}

impl Refusal {
    /// Throws it in a script.
    pub(crate) fn throw(self, ctx: &Ctx<'_>) -> Error {
        match self {
            Refusal::Type(message) => Exception::throw_type(ctx, message),
            Refusal::Internal(message) => Exception::throw_internal(ctx, message),
        }
    }
}

/// A subrequest as a script asks for it.
#[derive(Debug)]
pub struct Ask {
    /// Path and, behind a `?`, arguments, escaped.
    pub uri: Vec<u8>,
    /// Arguments; those of the URI hold if there are none.
    pub args: Vec<u8>,
    /// The method; empty: GET.
    pub method: Vec<u8>,
    /// The body in place of the client's.
    pub body: Option<Vec<u8>>,
    /// Whom the reply is for, as the number of a request; nobody waits for a detached subrequest.
    pub ticket: Option<Ticket>,
}

/// What `r` reaches of a request, and of the replies of its subrequests.
pub trait HttpHost {
    /// The request that handlers are given.
    fn main(&self) -> RequestId;

    /// Whether that is a run of `js_periodic`.
    fn is_periodic(&self) -> bool;

    /// Whether the request is that of the running handler, or a reply to it.
    fn is_alive(&self, of: RequestId) -> bool;

    /// The request that a reply is for.
    fn parent(&self, of: RequestId) -> Option<RequestId>;

    /// A text.
    fn text(&mut self, of: RequestId, what: Text) -> Vec<u8>;

    /// Whether it came from inside the server.
    fn is_internal(&mut self, of: RequestId) -> bool;

    /// The response's status; 0 before there is one.
    fn status(&mut self, of: RequestId) -> u16;

    /// Sets it.
    fn set_status(&mut self, of: RequestId, status: i64);

    /// All fields, in order, each by its name as written.
    fn fields(&mut self, of: RequestId, side: Side) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// The names of all fields, those included that [`HttpHost::fields`] does not list: the type
    /// and the length of a response.
    fn names(&mut self, of: RequestId, side: Side) -> Vec<Vec<u8>>;

    /// The values of a field.
    fn field(&mut self, of: RequestId, side: Side, name: &[u8]) -> Vec<Vec<u8>>;

    /// Replaces a field of the response. Names and values were checked.
    fn set_field(
        &mut self,
        of: RequestId,
        name: &[u8],
        values: Vec<Vec<u8>>,
    ) -> std::result::Result<(), Refusal>;

    /// A variable's value; of digits, a group of the last regular expression.
    fn variable(&mut self, of: RequestId, name: &[u8]) -> Option<Vec<u8>>;

    /// Assigns to a variable.
    fn set_variable(
        &mut self,
        of: RequestId,
        name: &[u8],
        value: Vec<u8>,
    ) -> std::result::Result<(), Refusal>;

    /// The variables of `js_var`.
    fn variable_names(&mut self) -> Vec<String>;

    /// The request's body.
    fn request_body(&mut self, of: RequestId) -> RequestBody;

    /// Has the request's body read; the answer of the ticket is its bytes.
    fn read_body(&mut self, ticket: Ticket);

    /// Whether a ticket of [`HttpHost::read_body`] has no answer yet.
    fn is_reading_body(&self) -> bool;

    /// The body of a reply.
    fn response_body(&mut self, of: RequestId) -> Option<Vec<u8>>;

    /// Writes a line about the request to the error log.
    fn log(&mut self, of: RequestId, level: Level, text: &str);

    /// `r.done()` and the like.
    fn act(&mut self, of: RequestId, act: Act) -> std::result::Result<(), Refusal>;

    /// `r.internalRedirect()`
    fn redirect(&mut self, of: RequestId, uri: Vec<u8>) -> std::result::Result<(), Refusal>;

    /// `r.return()`: a whole response, or a status alone.
    fn answer(
        &mut self,
        of: RequestId,
        status: u16,
        body: Option<Vec<u8>>,
    ) -> std::result::Result<(), Refusal>;

    /// `r.send()`
    fn send(&mut self, of: RequestId, piece: Vec<u8>) -> std::result::Result<(), Refusal>;

    /// `r.sendBuffer()`; with `flush` the client gets the piece as soon as it can. The body ends
    /// when the response does, whatever flags say.
    fn send_buffer(
        &mut self,
        of: RequestId,
        piece: Vec<u8>,
        flush: Option<bool>,
    ) -> std::result::Result<(), Refusal>;

    /// `r.setReturnValue()`
    fn set_return_value(&mut self, of: RequestId, value: Data);

    /// Whether the request may have subrequests.
    fn may_ask(&self, of: RequestId) -> bool;

    /// Starts a subrequest.
    fn subrequest(&mut self, ask: Ask) -> std::result::Result<(), Refusal>;
}
