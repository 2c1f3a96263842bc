//! Why a name has no addresses, in nginx's words.

use std::fmt;

/// The reason why a name has no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The name server did not understand the question.
    Format,
    /// The name server failed.
    Server,
    /// There is no such name, or it has no such addresses.
    NotFound,
    /// The name server does not know such questions.
    NotImplemented,
    /// The name server does not want to answer.
    Refused,
    /// No answer came in time.
    TimedOut,
    /// Another code of the name server's.
    Other(u8),
}

impl Failure {
    /// The failure of a response code; none for 0.
    pub fn of_code(code: u8) -> Option<Failure> {
        Some(match code {
            0 => return None,
            1 => Failure::Format,
            2 => Failure::Server,
            3 => Failure::NotFound,
            4 => Failure::NotImplemented,
            5 => Failure::Refused,
            other => Failure::Other(other),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Format => f.write_str("1: Format error"),
            Failure::Server => f.write_str("2: Server failure"),
            Failure::NotFound => f.write_str("3: Host not found"),
            Failure::NotImplemented => f.write_str("4: Unimplemented"),
            Failure::Refused => f.write_str("5: Operation refused"),
            Failure::TimedOut => f.write_str("110: Operation timed out"),
            Failure::Other(code) => write!(f, "{code}: Unknown error"),
        }
    }
}
