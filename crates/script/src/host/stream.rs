//! A session of `stream` as the object `s` reaches it.

use crate::host::Level;
use crate::host::http::Refusal;
use crate::value::Data;

/// A session, by a number that no other session of the process has.
pub type SessionId = u64;

/// The way that bytes take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the client to the server: the events `upload` and `upstream`.
    Up,
    /// From the server to the client: `download` and `downstream`.
    Down,
}

/// The form in which a callback gets its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As a string: `upload` and `download`.
    Text,
    /// As a `Buffer`: `upstream` and `downstream`.
    Buffer,
}

/// Bytes that a script sends.
#[derive(Debug)]
pub struct Sending {
    /// Where they go; without one: the way of the piece that the script works on.
    pub way: Option<Way>,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// `flags.last`, if the script says: nothing follows.
    pub last: Option<bool>,
    /// `flags.flush`, if the script says: the piece is not held back.
    pub flush: Option<bool>,
}

/// What `s` reaches of a session.
pub trait StreamHost {
    /// The session that handlers are given.
    fn session(&self) -> SessionId;

    /// Whether that is a run of `js_periodic`.
    fn is_periodic(&self) -> bool;

    /// The client's address.
    fn remote_address(&mut self) -> Vec<u8>;

    /// The status so far; 0 before the end.
    fn status(&mut self) -> u16;

    /// A variable's value; of digits, a group of the last regular expression.
    fn variable(&mut self, name: &[u8]) -> Option<Vec<u8>>;

    /// Assigns to a variable.
    ///
    /// # Errors
    /// It cannot be assigned to.
    fn set_variable(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), Refusal>;

    /// The variables of `js_var`.
    fn variable_names(&mut self) -> Vec<String>;

    /// Writes a line about the session to the error log.
    fn log(&mut self, level: Level, text: &str);

    /// `s.done()` and its siblings: 0, -5 or a status. The callbacks are gone then.
    ///
    /// # Errors
    /// The script filters.
    fn done(&mut self, code: i64) -> Result<(), Refusal>;

    /// A callback for a way was set, or taken away.
    fn listen(&mut self, way: Way, form: Option<Form>);

    /// `s.send()` and its siblings.
    ///
    /// # Errors
    /// The handler cannot send, or has sent too much.
    fn send(&mut self, sending: Sending) -> Result<(), Refusal>;

    /// `s.setReturnValue()`
    fn set_return_value(&mut self, value: Data);
}
