//! A step of a handshake that another thread takes: a signature of RSA costs a millisecond.

use mem::{Chain, Page};

use super::{Received, Session};
use crate::Error;
use crate::key_log::{self, Lines};

/// A session with all that [`Session::receive`] works on.
#[derive(Debug)]
pub struct Step {
    /// The session, whose handshake is done.
    pub session: Session,
    /// Bytes that arrived.
    pub input: Page,
    /// Where the plaintext goes.
    pub plain: Page,
    /// Where the records for the peer go.
    pub out: Chain,
}

/// A step that was taken.
#[derive(Debug)]
pub struct Taken {
    step: Step,
    received: Result<Received, Error>,
    lines: Lines,
}

impl Step {
    /// Takes the step, on any thread.
    pub fn take(mut self) -> Taken {
        let Step { session, input, plain, out } = &mut self;
        let (received, lines) = key_log::gather(|| session.receive(input, plain, out));
        Taken { step: self, received, lines }
    }
}

impl Taken {
    /// The outcome, on the session's own thread: there its key log is written.
    pub fn back(self) -> (Step, Result<Received, Error>) {
        self.lines.write();
        (self.step, self.received)
    }
}
