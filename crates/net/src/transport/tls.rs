//! TLS over a socket: a session's records in both directions.

use std::cell::RefCell;
use std::io;

use event::{Deadline, Sock};
use mem::{Chain, Page};
use proto::handover::Sealed;
use proto::tls_hello::{self, ClientHello, Malformed, Verdict};
use tls::{Info, Received, Session};

use super::until;
use crate::wiped::Wiped;

/// Bytes that are sealed for one send. More would leave the cache before the kernel copies it.
const BATCH: usize = 64 * 1024;
/// The same while the peer takes bytes slowly: they wait in memory.
const SLOW_BATCH: usize = 16 * 1024;
/// Bytes of one turn of the loop; the handshakes and requests of others come between.
const TURN_MAX: usize = 1024 * 1024;
/// Room for the records that end a session.
const END_ROOM: usize = 64;

thread_local! {
    /// Records on their way into a socket. What the socket does not take is copied.
    static SEALED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket that carries TLS, or is about to.
#[derive(Debug)]
pub(super) struct TlsSock {
    pub sock: Sock,
    pub(super) state: RefCell<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub mode: Mode,
    /// Bytes that arrived and are not used yet.
    pub input: Page,
    /// Plaintext that was opened with the handshake's last message, or while the connection was
    /// asked whether it is quiet.
    pub plain: Page,
    /// Records that the socket did not take.
    pub unsent: Chain,
}

#[derive(Debug)]
pub(super) enum Mode {
    /// Nothing was decided: the client's hello is to come.
    Waiting,
    /// A thread of a pool has the session, with the bytes that arrived. Where nobody waits for it
    /// any more, it does not come back. Or the connection is to be reset.
    Away,
    /// The client speaks plain text.
    Clear,
    Sealed(Session),
}

/// A copy of a session and of its bytes on their way, for another process.
pub struct SealedCopy {
    state: Wiped,
    input: Wiped,
    plain: Wiped,
    unsent: Wiped,
}

impl SealedCopy {
    /// The session as it travels.
    pub fn sealed(&self) -> Sealed<'_> {
        let SealedCopy { state, input, plain, unsent } = self;
        Sealed { state, input, plain, unsent }
    }
}

/// The first bytes of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// A hello: [`Transport::with_hello`](super::Transport::with_hello) shows it.
    Hello,
    /// Bytes that are not TLS.
    Other,
    /// The client went away without a byte.
    Nothing,
}

impl TlsSock {
    pub fn waiting(sock: Sock) -> TlsSock {
        TlsSock::new(sock, Mode::Waiting)
    }

    pub fn with_session(sock: Sock, session: Session) -> TlsSock {
        TlsSock::new(sock, Mode::Sealed(session))
    }

    /// A socket whose session another process has had, with the bytes that were on their way. The
    /// session itself follows by [`TlsSock::go_sealed`]; until then nothing is said to the peer.
    pub fn resumed(sock: Sock, sealed: &Sealed<'_>) -> TlsSock {
        let mut tls = TlsSock::new(sock, Mode::Away);
        let state = tls.state.get_mut();
        let page = |bytes: &[u8]| if bytes.is_empty() { Page::new() } else { Page::copied(bytes) };
        (state.input, state.plain) = (page(sealed.input), page(sealed.plain));
        if !sealed.unsent.is_empty() {
            state.unsent.write(sealed.unsent);
        }
        tls
    }

    /// The session and its bytes for another process; `None` if it cannot go there.
    pub fn copy(&self) -> Option<SealedCopy> {
        let state = &*self.state.borrow();
        let Mode::Sealed(session) = &state.mode else { return None };
        let copy = |bytes: &[u8]| Wiped::from(bytes.to_vec());
        Some(SealedCopy {
            state: Wiped::from(std::mem::take(&mut *session.state()?)),
            input: copy(&state.input),
            plain: copy(&state.plain),
            unsent: crate::relay::memory(&state.unsent),
        })
    }

    /// Takes the bytes that the driver has received.
    pub fn take_received(&self) {
        let input = &mut self.state.borrow_mut().input;
        while let Some(page) = self.sock.take_received() {
            input.reserve(page.len());
            input.extend_from_slice(&page);
        }
    }

    /// Another process has the session: nothing is said to the peer any more.
    pub fn part(&self) {
        self.state.borrow_mut().mode = Mode::Away;
        self.sock.part();
    }

    fn new(sock: Sock, mode: Mode) -> TlsSock {
        let (input, plain, unsent) = (Page::new(), Page::new(), Chain::new());
        let state = RefCell::new(State { mode, input, plain, unsent });
        TlsSock { sock, state }
    }

    /// Puts bytes before those that are to come: something read them from the socket already.
    pub fn prepend(&self, bytes: Page) {
        self.state.borrow_mut().input = bytes;
    }

    /// Waits for the client's hello, whole.
    pub async fn first(&self, deadline: Deadline) -> io::Result<First> {
        let attempt = || {
            let state = &mut *self.state.borrow_mut();
            loop {
                let first = match tls_hello::parse(&state.input) {
                    Verdict::Hello(_) => Some(First::Hello),
                    // Its alert is the answer.
                    Verdict::Malformed(_) => Some(First::Hello),
                    Verdict::NotTls => Some(First::Other),
                    Verdict::Incomplete { .. } => None,
                };
                if first.is_some() {
                    return Ok(first);
                }
                state.input.try_reserve(1)?;
                match self.sock.try_recv_into(&mut state.input)? {
                    Some(0) if state.input.is_empty() => return Ok(Some(First::Nothing)),
                    Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(_) => {}
                    None => {
                        release(&mut state.input);
                        return Ok(None);
                    }
                }
            }
        };
        until(attempt, || self.sock.owed(deadline)).await
    }

    /// Lets `see` look at the hello that [`TlsSock::first`] waited for; none where it is malformed.
    pub fn with_hello<R>(&self, see: impl FnOnce(Option<&ClientHello<'_>>) -> R) -> R {
        match tls_hello::parse(&self.state.borrow().input) {
            Verdict::Hello(hello) => see(Some(&hello)),
            _ => see(None),
        }
    }

    /// Why the hello is malformed.
    pub fn hello_fault(&self) -> Option<Malformed> {
        match tls_hello::parse(&self.state.borrow().input) {
            Verdict::Malformed(fault) => Some(fault),
            _ => None,
        }
    }

    /// The client speaks plain text, and so do we.
    pub fn go_clear(&self) {
        self.state.borrow_mut().mode = Mode::Clear;
    }

    /// Speaks TLS from the client's hello on.
    pub fn go_sealed(&self, session: Session) {
        self.state.borrow_mut().mode = Mode::Sealed(session);
    }

    pub fn take_info(&self) -> Option<Info> {
        match &mut self.state.borrow_mut().mode {
            Mode::Sealed(session) => session.take_info(),
            _ => None,
        }
    }

    /// Whether a receive would give something without the socket.
    pub(crate) fn is_at_hand(&self) -> bool {
        let state = &*self.state.borrow();
        !state.plain.is_empty()
            || match &state.mode {
                // A PROXY protocol header can bring the hello with it.
                Mode::Waiting => !state.input.is_empty(),
                Mode::Clear => !state.input.is_empty(),
                Mode::Away => false,
                Mode::Sealed(session) => session.is_ended() || session.has_record(&state.input),
            }
    }

    pub fn is_ended(&self) -> bool {
        match &self.state.borrow().mode {
            Mode::Sealed(session) => session.is_ended(),
            _ => false,
        }
    }

    pub fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        let state = &mut *self.state.borrow_mut();
        if !state.plain.is_empty() {
            return Ok(Some(hand_over(&mut state.plain, page)));
        }
        let session = match &mut state.mode {
            Mode::Sealed(session) => session,
            Mode::Away => return Err(io::ErrorKind::NotConnected.into()),
            Mode::Waiting | Mode::Clear => {
                return match state.input.is_empty() {
                    true => self.sock.try_recv_into(page),
                    false => Ok(Some(hand_over(&mut state.input, page))),
                };
            }
        };
        loop {
            if session.has_record(&state.input) || session.is_ended() {
                let before = page.len();
                let received = session.receive(&mut state.input, page, &mut state.unsent);
                if !state.unsent.is_empty() {
                    // An error comes again with the next send.
                    let _ = self.sock.try_send(&mut state.unsent, None);
                }
                let received = received.map_err(broken)?;
                release(&mut state.input);
                match page.len() - before {
                    0 if received == Received::End => return Ok(Some(0)),
                    // The record does not fit behind what the page holds.
                    0 if received == Received::Full => {
                        page.try_reserve(state.input.len())?;
                        continue;
                    }
                    0 => {}
                    n => return Ok(Some(n)),
                }
            }
            match self.sock.try_recv_into(&mut state.input)? {
                // Many peers end the connection alone, as OpenSSL lets them.
                Some(0) => return Ok(Some(0)),
                Some(_) => {}
                None => {
                    release(&mut state.input);
                    return Ok(None);
                }
            }
        }
    }

    /// Whether nothing but tickets and the like arrived.
    pub fn is_quiet(&self) -> bool {
        let mut page = Page::new();
        match self.is_at_hand() {
            true => false,
            false => {
                let nothing = matches!(self.try_recv_into(&mut page), Ok(None));
                nothing && !self.is_ended() && !self.sock.peer_closed()
            }
        }
    }

    /// Sends what is taken without waiting. With `last`, the end of the session goes behind.
    pub fn try_send(
        &self,
        chain: &mut Chain,
        limit: Option<usize>,
        last: bool,
    ) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let session = match &mut state.mode {
            Mode::Sealed(session) => session,
            Mode::Clear => return self.sock.try_send(chain, limit),
            Mode::Waiting | Mode::Away => return Err(io::ErrorKind::NotConnected.into()),
        };
        let limit = limit.unwrap_or(TURN_MAX);
        let was_slow = !state.unsent.is_empty();
        let batch = if was_slow { SLOW_BATCH } else { BATCH };
        let mut taken = 0;
        loop {
            if !state.unsent.is_empty() {
                self.sock.try_send(&mut state.unsent, None)?;
                if !state.unsent.is_empty() {
                    return Ok(taken);
                }
            }
            if taken >= limit || chain.is_empty() {
                return Ok(taken);
            }
            if chain.front_file().is_some() {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "a file under TLS"));
            }
            SEALED.with_borrow_mut(|sealed| {
                sealed.clear();
                taken += session.seal(chain, batch.min(limit - taken), sealed).map_err(broken)?;
                if last && chain.is_empty() {
                    session.close(sealed);
                }
                let sent = self.sock.try_send_bytes(sealed)?;
                if let Some(left @ [_, ..]) = sealed.get(sent..) {
                    state.unsent.write(left);
                }
                Ok::<_, io::Error>(())
            })?;
        }
    }

    pub fn has_unsent(&self) -> bool {
        !self.state.borrow().unsent.is_empty()
    }

    /// Sends all of `chain`, and the end of the session with `last`.
    pub fn send<'a>(
        &'a self,
        chain: &'a mut Chain,
        deadline: Deadline,
        last: bool,
    ) -> impl Future<Output = io::Result<()>> + Unpin + use<'a> {
        let attempt = move || {
            self.try_send(chain, None, last)?;
            let is_done = chain.is_empty() && !self.has_unsent();
            if is_done && last {
                self.shutdown_write()?;
            }
            Ok(is_done.then_some(()))
        };
        until(attempt, move || self.sock.writable(deadline.renewed()))
    }

    /// Sends what the socket did not take before.
    pub fn flush(
        &self,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + Unpin + use<'_> {
        let attempt = move || {
            let state = &mut *self.state.borrow_mut();
            if !state.unsent.is_empty() {
                self.sock.try_send(&mut state.unsent, None)?;
            }
            Ok(state.unsent.is_empty().then_some(()))
        };
        until(attempt, move || self.sock.writable(deadline.renewed()))
    }

    pub fn reset_at_end(&self) {
        // The session's end would be sent when this is dropped.
        self.state.borrow_mut().mode = Mode::Away;
        self.sock.reset_at_end();
    }

    pub fn shutdown_write(&self) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        if let Mode::Sealed(session) = &mut state.mode {
            session.close(state.unsent.writer_for(END_ROOM));
        }
        if !state.unsent.is_empty() {
            self.sock.try_send(&mut state.unsent, None)?;
            // A full socket takes a part of the last alert, and nothing behind the end: an attempt
            // to send the rest would break the other direction as well.
            state.unsent.clear();
        }
        self.sock.shutdown_write()
    }
}

/// However a connection ends, the peer is told that the session does, as far as the socket takes
/// it: without that, the end could be an attacker's.
impl Drop for TlsSock {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Mode::Sealed(session) = &mut state.mode
            && state.unsent.is_empty()
        {
            session.close(state.unsent.writer_for(END_ROOM));
            // Nobody waits for it.
            let _ = self.sock.try_send(&mut state.unsent, None);
        }
    }
}

/// Moves the bytes of `from` to the end of `to`.
fn hand_over(from: &mut Page, to: &mut Page) -> usize {
    let n = from.len();
    match to.is_empty() && to.capacity() <= from.capacity() {
        true => *to = std::mem::take(from),
        false => {
            to.extend_from_slice(from);
            from.release();
        }
    }
    n
}

/// An idle connection holds no page.
pub(super) fn release(page: &mut Page) {
    if page.is_empty() {
        page.release();
    }
}

/// A session's error as a connection's.
pub(super) fn broken(error: tls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
