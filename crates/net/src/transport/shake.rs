//! The handshake over a socket. A server's steps that sign may run in a pool of threads:
//!
//! ```text
//!  receive ─▶ a whole hello? ── no, or no pool ──▶ step on the loop ─▶ send ─▶ …
//!                  └─ yes ─▶ Away ─▶ step in the pool ─▶ back ─▶ send ─▶ …
//!                              └─ deadline, or the future is dropped: the session ends in the pool
//! ```

use std::io;

use ::tls::Step;
use event::{Deadline, Either, Pool};
use proto::tls_hello::{self, Verdict};

use super::tls::{Mode, State, TlsSock, broken, release};

/// The time of a handshake was over before a thread of its pool came to it.
#[derive(Debug)]
pub struct Overdue;

impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the thread pool did not come to the handshake in time")
    }
}

impl std::error::Error for Overdue {}

/// The outcome of an attempt to go on.
enum Turn {
    Done,
    /// Bytes must arrive.
    Wait,
    /// A hello is there, for a pool.
    Hello,
}

impl TlsSock {
    /// Runs the handshake to its end; a step that answers a hello runs in `pool`, if there is one.
    pub async fn handshake(&self, deadline: Deadline, pool: Option<&Pool>) -> io::Result<()> {
        let mut is_fresh = true;
        loop {
            match self.attempt(&mut is_fresh, pool.is_some())? {
                Turn::Done => return self.flush(deadline).await,
                Turn::Wait => {
                    // The peer waits for what the socket did not take.
                    self.flush(deadline).await?;
                    self.sock.owed(deadline).await?;
                }
                Turn::Hello => {
                    if let Some(pool) = pool {
                        // Here alone: the connections of others need no room for it.
                        Box::pin(self.step_in(pool, deadline)).await?;
                    }
                }
            }
        }
    }

    /// `is_fresh`: there are bytes that no step has seen, or the first step is to come.
    fn attempt(&self, is_fresh: &mut bool, has_pool: bool) -> io::Result<Turn> {
        let state = &mut *self.state.borrow_mut();
        let Mode::Sealed(session) = &mut state.mode else { return Ok(Turn::Done) };
        loop {
            if !session.is_handshaking() {
                release(&mut state.input);
                return Ok(Turn::Done);
            }
            if std::mem::take(is_fresh) {
                if has_pool && holds_hello(&state.input) {
                    return Ok(Turn::Hello);
                }
                let (input, plain) = (&mut state.input, &mut state.plain);
                let received = session.receive(input, plain, &mut state.unsent);
                let sent = self.sock.try_send(&mut state.unsent, None);
                received.map_err(broken)?;
                sent?;
                continue;
            }
            match self.sock.try_recv_into(&mut state.input)? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => *is_fresh = true,
                None => return Ok(Turn::Wait),
            }
        }
    }

    /// Takes a step in the pool.
    async fn step_in(&self, pool: &Pool, deadline: Deadline) -> io::Result<()> {
        let step = match &mut *self.state.borrow_mut() {
            State { mode: mode @ Mode::Sealed(_), input, plain, unsent } => {
                let Mode::Sealed(session) = std::mem::replace(mode, Mode::Away) else {
                    return Ok(());
                };
                let (input, plain) = (std::mem::take(input), std::mem::take(plain));
                Step { session, input, plain, out: std::mem::take(unsent) }
            }
            _ => return Ok(()),
        };
        let run = pool.run_short(move || step.take());
        let (step, received) = match event::race(run, event::sleep_until(deadline)).await {
            Either::First(taken) => taken?.back(),
            Either::Second(()) => return Err(io::Error::new(io::ErrorKind::TimedOut, Overdue)),
        };
        let state = &mut *self.state.borrow_mut();
        let Step { session, input, plain, out } = step;
        *state = State { mode: Mode::Sealed(session), input, plain, unsent: out };
        let sent = self.sock.try_send(&mut state.unsent, None);
        received.map_err(broken)?;
        sent.map(drop)
    }
}

/// Whether a whole hello is there, behind what clients send between two of them (RFC 8446 appendix
/// D.4).
fn holds_hello(mut input: &[u8]) -> bool {
    const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];
    while let Some(behind) = input.strip_prefix(CHANGE) {
        input = behind;
    }
    matches!(tls_hello::parse(input), Verdict::Hello(_))
}
