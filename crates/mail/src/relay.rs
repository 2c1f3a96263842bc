//! The relay of a session whose client is logged in: bytes go both ways until a side ends.

use std::io;
use std::pin::pin;

use base::future::boxed;
use base::log::Level;
use base::time::now_ms;
use engine::Client;
use event::Deadline;
use mem::Chain;
use net::Transport;
use net::moves::{self, Candidate, Kind, unless_due};
use net::relay::wait::{Event, Times, held};
use net::relay::{Flow, Moved, Resting, withdraw};

use crate::client::LoggedIn;
use crate::moved;
use crate::session::MailSession;

/// A direction.
type Way<'a> = Flow<'a, Transport, Transport>;

/// A session behind the login.
pub(crate) struct Relayed {
    /// The connection to the mail server.
    pub server: Transport,
    /// From the client to the server.
    pub up: Resting,
    /// From the server to the client.
    pub down: Resting,
    /// The last time that bytes moved, milliseconds.
    pub moved_ms: u64,
}

impl From<LoggedIn> for Relayed {
    fn from(LoggedIn { server, first, pending }: LoggedIn) -> Relayed {
        let resting = |bytes: Vec<u8>| {
            let mut chain = Chain::new();
            if !bytes.is_empty() {
                chain.push_bytes(bytes.into());
            }
            Resting::new(chain)
        };
        Relayed { server, up: resting(pending), down: resting(first), moved_ms: now_ms() }
    }
}

/// The end of a relay.
enum End {
    /// A side has closed, or the session was too long silent, which was logged.
    Over,
    Broken(io::Error),
    /// Another process serves it.
    Moved,
}

/// Relays until the end.
///
/// An idle session keeps this future and little else. It is a block within a function, as an
/// `async fn` has its arguments twice.
pub(crate) fn run<'a>(
    s: &'a mut MailSession,
    relayed: Relayed,
) -> impl Future<Output = ()> + use<'a> {
    let Relayed { server, up, down, mut moved_ms } = relayed;
    async move {
        let Some(client) = s.take_sock() else { return };
        s.now("proxying");
        let mut candidate = s.main.life.moves().and_then(|moves| moves.candidate(Kind::Mail));
        let mut up: Way<'_> = Flow::resumed(&client, &server, up);
        let mut down: Way<'_> = Flow::resumed(&server, &client, down);
        let timeout = s.server.proxy.timeout;
        let mut last = Event::Both;
        let end = 'relay: loop {
            match turn(&mut up, &mut down, last) {
                Ok(true) => moved_ms = now_ms(),
                Ok(false) => {}
                Err(e) => break End::Broken(e),
            }
            if up.is_done() || down.is_done() || up.ended && down.ended {
                break End::Over;
            }
            if std::mem::take(&mut up.busy) | std::mem::take(&mut down.busy) {
                event::task::yield_now().await;
                last = Event::Both;
                continue;
            }
            let look = moved_ms.saturating_add(timeout);
            last = loop {
                let Some(event) = wait(&up, &down, candidate.as_ref(), look).await else {
                    // One that cannot move now has no second turn.
                    let turn = candidate.take().and_then(|candidate| candidate.turn());
                    let Some(turn) = turn else { continue };
                    match boxed(|| leave(&*s, turn, (&mut up, &mut down), moved_ms)).await {
                        true => break 'relay End::Moved,
                        false => break Event::Both,
                    }
                };
                match event {
                    Event::Look if now_ms() >= look => {
                        let m = format_args!("client timed out (110: Connection timed out)");
                        s.log(Level::Info, m);
                        break 'relay End::Over;
                    }
                    Event::Look => {}
                    Event::Displaced => {
                        s.tell_displaced();
                        break 'relay End::Over;
                    }
                    Event::Failed(kind) => break 'relay End::Broken(kind.into()),
                    event => break event,
                }
            };
        };
        drop((up, down));
        if matches!(end, End::Moved) {
            return;
        }
        s.now("");
        if let End::Broken(e) = end {
            s.log_os(Level::Info, format_args!("send()"), &e);
        }
        s.log(Level::Info, format_args!("proxied session done"));
        s.now("proxying");
        s.put_sock(client);
    }
}

/// Waits for the next event until `look`; `None` when it is known whether the session moves.
async fn wait(
    up: &Way<'_>,
    down: &Way<'_>,
    candidate: Option<&Candidate>,
    look: u64,
) -> Option<Event> {
    if up.wants_read() && down.wants_read() {
        let (client, server) = (up.from, up.to);
        let wait = pin!(server.either_readable(client, Deadline::at(look)));
        return unless_due(candidate, wait).await.map(Event::of_idle);
    }
    let times = Times { client: Times::NEVER, server: Times::NEVER, look };
    unless_due(candidate, boxed(|| held(up, down, times))).await
}

/// Gives the session to another process. False: it goes on here.
async fn leave<'a>(
    s: &MailSession,
    turn: moves::Turn,
    (up, down): (&mut Way<'a>, &mut Way<'a>),
    moved_ms: u64,
) -> bool {
    let (client, server) = (up.from, up.to);
    if let Err(why) = withdraw(client, server).await {
        turn.stays(why);
        return false;
    }
    down.take_received();
    up.take_received();
    let empty = |from, to| Flow::new(from, to, Chain::new());
    let up_rests = std::mem::replace(up, empty(client, server)).rest();
    let down_rests = std::mem::replace(down, empty(server, client)).rest();
    let rests = (&up_rests, &down_rests);
    let moved = moved::offer(s, turn, (client, server), rests, moved_ms).await;
    if moved {
        client.part();
        server.part();
    } else {
        *up = Flow::resumed(client, server, up_rests);
        *down = Flow::resumed(server, client, down_rests);
    }
    moved
}

/// Moves what can be moved without a wait, in the direction of the last event; in both at first.
/// Returns whether there was something.
fn turn(up: &mut Way<'_>, down: &mut Way<'_>, last: Event) -> io::Result<bool> {
    let mut moved = Moved::default();
    if last != Event::Up {
        moved = down.go()?;
    }
    if last != Event::Down {
        let up = up.go()?;
        (moved.read, moved.written) = (moved.read + up.read, moved.written + up.written);
    }
    Ok(moved != Moved::default())
}
