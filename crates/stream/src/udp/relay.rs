//! The state of a UDP session's relay, which is in the session's client. The proxy works on it
//! ([`crate::proxy::datagrams`]).

use std::io;

use base::log::Level;
use bytes::Bytes;
use engine::Client as _;
use event::Member;
use net::relay::Rate;
use upstream::lease::Lease;

use crate::proxy::choice::Others;
use crate::session::StreamSession;

/// The state of a session across all servers that it tries. Kept small, because every idle session
/// has one.
pub(crate) struct Relay {
    pub s: StreamSession,
    pub(crate) lease: Lease,
    pub(crate) server: Option<Member>,
    pub(crate) questions: u64,
    pub(crate) answers: u64,
    pub(crate) aside: Option<Box<Aside>>,
}

/// Flags of a relay, in three bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The PROXY protocol header was sent to the current server.
    pub(crate) is_headed: bool,
    /// A question was sent after the last answer.
    pub(crate) has_asked: bool,
    /// UDP_GRO is on for the current server's socket.
    pub(crate) may_join: bool,
}

impl Relay {
    /// Returns the session after the exchange has ended.
    pub(crate) fn into_session(self) -> StreamSession {
        self.s
    }

    /// An answer could not be sent to the client: corrects the counter and logs the error.
    pub(crate) fn answer_failed(&self, bytes: u64, e: &io::Error) {
        let s = &self.s;
        s.sent.set(s.sent.get().saturating_sub(bytes));
        let e = base::log::os_error(e);
        s.log(Level::Info, format_args!("sendmsg() failed {e} while proxying connection"));
    }
}

/// State that most idle sessions do not need.
pub(crate) struct Aside {
    /// Unanswered questions; `None` after the first answer.
    pub(crate) unanswered: Option<Unanswered>,
    pub(crate) others: Others,
    pub(crate) upload: Option<Rate>,
    pub(crate) download: Option<Rate>,
    /// The PROXY protocol header for each datagram.
    pub(crate) header: Vec<u8>,
}

/// Unanswered questions, to be repeated to the next server.
pub(crate) struct Unanswered {
    pub(crate) first: Bytes,
    pub(crate) others: Vec<Bytes>,
    /// The number of questions sent to the current server.
    pub(crate) sent: usize,
}

impl Unanswered {
    pub(crate) fn unsent(&self) -> Option<&Bytes> {
        match self.sent {
            0 => Some(&self.first),
            n => self.others.get(n - 1),
        }
    }
}

/// What follows a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// There may be more to do, after other sessions had their turn.
    Busy,
    /// Nothing to do until a datagram arrives, or until this time in milliseconds.
    Until(u64),
}
