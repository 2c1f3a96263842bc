//! Connections without requests that go to another process (`net::moves`): the wait for their turn,
//! and what all protocols have in common. [`crate::moves`] is the other end.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;

use common_modules::moved::Texts;
use event::Deadline;
use mem::Page;
use net::moves::{Berth, Kind, Moves, Offered, Stay, Turn};
use net::transport::SealedCopy;
use proto::handover::{Handshake, Idle, Message};

use super::conn::Conn;

impl Conn {
    /// Whether another process is to take the connection when it is idle, as far as that is known.
    #[cold]
    pub(crate) fn may_move(&self, moves: Option<&Rc<Moves>>) -> bool {
        let takes = |moves: &Rc<Moves>| moves.has_receiver() || moves.is_asking();
        !self.stays.get() && moves.is_some_and(takes) && self.is_movable().is_ok()
    }

    pub(crate) fn is_movable(&self) -> Result<(), Stay> {
        if !self.server().core.handover {
            return Err(Stay::Off);
        }
        // The limits of the engine before count it until it ends here.
        match self.is_passed || self.is_surplus.get() || self.owner.get().is_some() {
            true => Err(Stay::State),
            false => Ok(()),
        }
    }

    /// Another process serves the connection from now on.
    pub(crate) fn set_moved(&self) {
        if !self.has_moved.replace(true) {
            self.transport().part();
        }
    }

    /// The numbers of the connection, as they travel.
    pub(crate) fn facts(&self) -> (u64, u64, u64, u64) {
        (self.number, self.start_ms, self.requests.get(), self.moved_in)
    }

    /// The facts of the client's handshake, as they travel.
    pub(crate) fn handshake(&self) -> Option<Handshake<'_>> {
        self.tls.get().and_then(|tls| tls.session.described())
    }
}

/// The longest wait for the end of a send, milliseconds. A client that does not read keeps its
/// connection where it is.
const SEND_MS: u32 = 20;

/// What has come of the wait for a connection's turn to move.
pub(crate) enum Due {
    /// It is to rest.
    Turn(Turn),
    /// It cannot move, at least not now.
    Stays,
    /// Something can be read, or the time has passed.
    Woken(io::Result<()>),
}

/// Waits for the turn of a connection without requests, whose worker is leaving. It is kept until
/// `until` if others take connections, and else until `grace`.
pub(crate) async fn due(
    c: &Conn,
    moves: Option<&Rc<Moves>>,
    kind: Kind,
    (grace, until): (Deadline, Deadline),
) -> Due {
    let Some(moves) = moves.filter(|_| !c.stays.get()) else { return Due::Stays };
    let Some(candidate) = moves.candidate(kind) else { return Due::Stays };
    let mut end = grace;
    loop {
        let wait = pin!(c.sock().readable(end));
        match candidate.unless_due(wait).await {
            // Others are before it.
            Some(Err(e))
                if e.kind() == io::ErrorKind::TimedOut && end != until && moves.has_receiver() =>
            {
                end = until;
            }
            Some(woken) => return Due::Woken(woken),
            None => return candidate.turn().map_or(Due::Stays, Due::Turn),
        }
    }
}

/// A connection that rests between two requests.
pub(crate) struct Resting {
    texts: Texts,
    sealed: Option<SealedCopy>,
    /// Bytes that have arrived.
    pub read: Page,
}

impl Resting {
    /// Describes it; it is closed at `until` if nothing comes.
    pub fn idle<'a>(&'a self, c: &'a Conn, until: Deadline) -> Idle<'a> {
        let tls = (self.sealed.as_ref().map(SealedCopy::sealed), c.handshake());
        Idle {
            client: self.texts.client(c.facts(), c.proxy_header(), tls),
            read: &self.read,
            left_ms: until.at_ms().saturating_sub(base::time::now_ms()),
        }
    }
}

/// Has nothing of a connection received for this process any more, so that it can be described.
///
/// # Errors
/// It stays: the bytes that have arrived.
pub(crate) async fn rest(c: &Conn, turn: Turn) -> Result<(Turn, Resting), Page> {
    let mut read = Page::new();
    match withdrawn(c, &mut read).await {
        Ok((texts, sealed)) => Ok((turn, Resting { texts, sealed, read })),
        Err(why) => {
            turn.stays(why);
            Err(read)
        }
    }
}

/// Offers a connection that rests to other processes. Returns whether one serves it from here on.
/// `servers` are the connections of its tunnels.
pub(crate) async fn give(c: &Conn, turn: Turn, message: &Message<'_>, servers: &[Berth]) -> bool {
    let servers = servers.iter().map(|berth| berth.server.as_fd());
    let ends: Vec<_> = [c.transport().descriptor()].into_iter().chain(servers).collect();
    let offered = turn.offer(message, &ends).await;
    let moved = offered.is_ok_and(Offered::give_up);
    if moved {
        c.set_moved();
    }
    moved
}

/// Has nothing received for this process any more, and takes what has been.
async fn withdrawn(c: &Conn, read: &mut Page) -> Result<(Texts, Option<SealedCopy>), Stay> {
    c.is_movable()?;
    let local = c.local().ok_or(Stay::State)?;
    let mut left = SEND_MS;
    while let Err(e) = c.transport().withdraw().await {
        // The kernel may be about to end the send of a response.
        if e.kind() != io::ErrorKind::ResourceBusy || left == 0 {
            return Err(Stay::State);
        }
        left -= 1;
        event::sleep(1).await;
    }
    while let Some(page) = c.transport().take_received() {
        read.reserve(page.len());
        read.extend_from_slice(&page);
    }
    // As a new connection has it.
    c.set_nodelay(true);
    let sealed = c.transport().copy_session()?;
    if sealed.is_some() && c.handshake().is_none() {
        return Err(Stay::State);
    }
    Ok((Texts::new((&c.listen.addr, local, &c.peer), None, c.proxy_header()), sealed))
}
