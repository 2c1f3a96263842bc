//! How a tunnel learns that it is to move to another process: see [`net::moves`].

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use net::moves::{Candidate, Member, Turn};

/// How a tunnel learns that it is to rest.
pub(crate) enum Caller {
    /// It is a connection of its own.
    Candidate(Candidate),
    /// It is one of the tunnels of a connection.
    Member(Rc<Member>),
}

/// How it is to move.
pub(crate) enum Called {
    Alone(Turn),
    Together,
}

impl Caller {
    /// Whether it is known if the tunnel rests.
    fn is_decided(&self) -> bool {
        match self {
            Caller::Candidate(candidate) => candidate.is_decided(),
            Caller::Member(member) => member.is_called(),
        }
    }

    pub fn called(&self) -> Option<Called> {
        match self {
            Caller::Candidate(candidate) => candidate.turn().map(Called::Alone),
            Caller::Member(_) => Some(Called::Together),
        }
    }
}

/// Waits for `future`, or until it is known whether the tunnel rests: `None`.
pub(crate) async fn unless_due<F: Future + Unpin>(
    caller: Option<&Caller>,
    mut future: F,
) -> Option<F::Output> {
    poll_fn(|cx| match caller {
        Some(caller) if caller.is_decided() => Poll::Ready(None),
        _ => Pin::new(&mut future).poll(cx).map(Some),
    })
    .await
}
