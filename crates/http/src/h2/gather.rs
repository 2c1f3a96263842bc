//! A connection whose streams are tunnels moves to another process together with them.

use event::{Deadline, Either};
use mem::Page;
use net::moves::{ASK_MS, Stay, Turn};

use super::leaving::leave;
use super::mux::{Entry, Mux};
use super::receive::Receiver;
use super::receive::moving::offer;
use crate::channel::streams::kept_ms;

/// The time in which the client has to read all that is in the output, milliseconds. If it does
/// not, the connection stays.
const SEND_MS: u64 = 50;

/// The most tunnels of a connection that moves: a message carries no more descriptors, and some of
/// them are the connection's own.
const TUNNELS_MAX: usize = os::socket::PASSED_MAX - 8;

/// Has the tunnels rest, and offers the connection with them to other processes. Returns the bytes
/// that have arrived meanwhile, unless one serves it from here on.
pub(super) async fn gather(mux: &Mux, receiver: &mut Receiver, turn: Turn) -> Option<Page> {
    let party = &mux.party;
    party.call();
    let page = match ready(mux).await {
        Ok(()) => {
            let tunnels = party.take();
            let until = Deadline::in_ms(kept_ms(&mux.c));
            // One of them may have ended, or its client has reset it.
            let are_whole = mux.with(|state| {
                let entry = |id| state.find(id).and_then(|i| state.streams.get(i));
                let all =
                    || tunnels.iter().all(|berth| entry(berth.id).is_some_and(Entry::is_whole));
                state.open == tunnels.len() && all()
            });
            match are_whole {
                true => offer(mux, receiver, turn, until, &tunnels).await,
                false => {
                    turn.stays(Stay::State);
                    Some(Page::new())
                }
            }
        }
        Err(why) => {
            turn.stays(why);
            Some(Page::new())
        }
    };
    if page.is_none() {
        // Before the tunnels are told: nothing of them is to be sent here.
        mux.with(|state| state.set_ended());
        party.settle(true);
        return None;
    }
    party.settle(false);
    mux.c.stays.set(true);
    leave(mux, receiver);
    page
}

/// Waits until all tunnels rest, and the output is sent.
async fn ready(mux: &Mux) -> Result<(), Stay> {
    mux.c.is_movable()?;
    if mux.party.len() > TUNNELS_MAX {
        return Err(Stay::State);
    }
    match event::race(mux.party.gathered(), event::sleep(ASK_MS)).await {
        Either::First(gathered) => gathered?,
        Either::Second(()) => return Err(Stay::State),
    }
    let (sock, until) = (mux.c.sock(), Deadline::in_ms(SEND_MS));
    loop {
        let left = mux.with(|state| {
            let sent = sock.try_send(&mut state.output, None);
            state.sent += *sent.as_ref().unwrap_or(&0) as u64;
            state.out_len = state.output.len() as usize;
            sent.map(|_| state.out_len)
        });
        match left {
            Ok(0) => return Ok(()),
            Ok(_) => sock.writable(until).await.map_err(|_| Stay::State)?,
            Err(_) => return Err(Stay::State),
        }
    }
}
