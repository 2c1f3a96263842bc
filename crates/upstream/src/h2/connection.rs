//! The task of a connection: reads what is there, sends what there is, and waits.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::Poll;

use base::future::{keep, poll_kept};
use event::{Deadline, Gate, Wake};
use net::Transport;

use super::dial::Dialling;
use super::mux::{Mux, MuxConf, StreamEnd};
use super::receive::Receiver;
use crate::failure::may_have_answered;
use crate::pool::Pool;

/// Receives that may follow each other before other tasks have their turn.
const ROUNDS: usize = 16;

/// Turns of the loop that a connection waits for more to send and receive at once.
const GATHER_TURNS: usize = 8;

/// The time for the rest of what a server sent that has closed its connection, in milliseconds. The
/// kernel has it already; a driver that receives by completion has it a turn later.
const REST_MS: u64 = 1_000;

/// Requests to send at which it waits no longer.
const GATHER_STREAMS: u32 = 16;

/// Begins to speak HTTP/2 over a new connection. `pool` is where other exchanges find it, and
/// `dialling` the note for those that wait for it; `gate` closes when the worker leaves.
pub fn start(
    sock: Transport,
    conf: MuxConf,
    pool: Weak<Pool>,
    dialling: Option<Dialling>,
    gate: Gate,
) -> Rc<Mux> {
    // The connection outlives the exchange that made it.
    dialling.iter().for_each(Dialling::fails);
    let mux = Mux::new(sock, conf, pool, dialling);
    let of_task = mux.clone();
    event::spawn(async move {
        let ending = Ending(of_task);
        let end = run(&ending.0, &gate).await;
        ending.0.end(end);
    });
    mux
}

/// Tells the streams when the task is gone, be it by a panic.
struct Ending(Rc<Mux>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(StreamEnd::Closed);
    }
}

/// The next step.
enum Turn {
    /// There may be more at once.
    Again,
    /// Nothing can be done: whether something is unsent, and the time for which the connection is
    /// kept if it is idle.
    Wait {
        unsent: bool,
        idle: Option<u64>,
    },
    End(StreamEnd),
    /// Nothing can be sent any more. The server's last responses may be on their way.
    Broken(io::Error),
}

fn turn(mux: &Mux, receiver: &mut Receiver) -> Turn {
    let received = receiver.receive(mux, &mux.sock);
    if let Err(end @ (StreamEnd::Closed | StreamEnd::Broken(_))) = received {
        // What is not sent yet can go to another server, whatever it does.
        return Turn::End(end);
    }
    let sent = mux.with(|state| {
        let sent = mux.sock.try_send(&mut state.out, None);
        state.fresh = 0;
        if sent.is_ok() {
            state.unsent = None;
        }
        let before = std::mem::take(&mut state.out_len);
        state.out_len = if state.out.is_empty() { 0 } else { state.out.len() as usize };
        if state.out_len < before {
            state.wake_writers();
        }
        sent.map(|_| state.out_len > 0)
    });
    match (received, sent) {
        (Err(end), _) => Turn::End(end),
        (Ok(true), _) => Turn::Again,
        (Ok(false), Err(e)) => Turn::Broken(e),
        (Ok(false), Ok(unsent)) => {
            let is_idle = mux.users() == 0;
            let unsent = unsent || mux.sock.has_unsent();
            match is_idle.then(|| mux.idle_ms()) {
                // Nor is one kept whose server does not even take control frames.
                Some(kept) if kept.is_none() || unsent => Turn::End(StreamEnd::Closed),
                idle => Turn::Wait { unsent, idle: idle.flatten() },
            }
        }
    }
}

/// Lets others run first where exchanges share the connection: what they add goes with what there
/// is, and what comes meanwhile is received with it. While the worker has other work that brings
/// little for this connection, some turns pass, a millisecond at most; when it has none, none does.
async fn gather(mux: &Mux) {
    if mux.users() < 2 {
        return;
    }
    let began_ms = base::time::now_ms();
    let mut alone = 1;
    for _ in 0..GATHER_TURNS {
        let polls = event::task::turn_end().await;
        let enough = mux.with(|state| state.fresh >= GATHER_STREAMS);
        if polls <= alone || enough || base::time::now_ms() > began_ms {
            return;
        }
        // From here on the turns are those in which this task runs at their end alone.
        alone = 0;
    }
}

/// Runs a connection to its end.
async fn run(mux: &Rc<Mux>, gate: &Gate) -> StreamEnd {
    let mut receiver = Receiver::new();
    let sock = &mux.sock;
    // Each stays in place while others end.
    let mut readable = pin!(None);
    let mut writable = pin!(None);
    let mut stirred = pin!(None);
    let mut rounds = 0;
    loop {
        let (unsent, idle) = match turn(mux, &mut receiver) {
            Turn::End(end) => return end,
            Turn::Again if rounds < ROUNDS => {
                rounds += 1;
                continue;
            }
            Turn::Again => {
                rounds = 0;
                event::task::yield_now().await;
                continue;
            }
            Turn::Wait { unsent, idle } => (unsent, idle),
            Turn::Broken(e) => return read_rest(mux, &mut receiver, &e).await,
        };
        rounds = 0;
        if let Some(ms) = idle {
            readable.set(None);
            if !receiver.is_inside() {
                receiver.shrink();
                mux.with(super::mux::State::shrink);
            }
            if let Some(end) = idle_wait(mux, gate, ms).await {
                return end;
            }
            continue;
        }
        keep(readable.as_mut(), true, || sock.readable(Deadline::NEVER));
        keep(writable.as_mut(), unsent, || sock.writable(Deadline::NEVER));
        keep(stirred.as_mut(), true, || mux.stirred.notified());
        let woken = poll_fn(|cx| {
            let kept: [Poll<io::Result<()>>; 2] =
                [poll_kept(readable.as_mut(), cx), poll_kept(writable.as_mut(), cx)];
            for slot in kept {
                if let Poll::Ready(done) = slot {
                    return Poll::Ready(done);
                }
            }
            poll_kept(stirred.as_mut(), cx).map(Ok)
        })
        .await;
        if let Err(e) = woken {
            return StreamEnd::Broken(e.raw_os_error().unwrap_or(0));
        }
        gather(mux).await;
    }
}

/// Reads what a server sent before it closed, until the end that the kernel reports. A server that
/// answers and closes at once leaves bytes of ours unread, its acknowledgement of our parameters
/// for example; then its kernel sends a reset behind the response.
async fn read_rest(mux: &Mux, receiver: &mut Receiver, e: &io::Error) -> StreamEnd {
    let broken = StreamEnd::Broken(e.raw_os_error().unwrap_or(0));
    if !may_have_answered(e) {
        return broken;
    }
    // No other exchange begins a stream here.
    mux.with(|state| state.is_leaving = true);
    loop {
        mux.with(|state| {
            state.out.clear();
            state.out_len = 0;
        });
        match receiver.receive(mux, &mux.sock) {
            Ok(true) => continue,
            // The first error is the one that tells why.
            Err(StreamEnd::Closed | StreamEnd::Broken(_)) => return broken,
            Err(end) => return end,
            Ok(false) if mux.users() == 0 => return broken,
            Ok(false) => {}
        }
        let readable = mux.sock.readable(Deadline::in_ms(REST_MS));
        if let event::Either::First(Err(_)) = event::race(readable, mux.stirred.notified()).await {
            return broken;
        }
    }
}

/// Waits without streams: for one, for a word of the server, for the worker's end, or for `ms`. The
/// connection is to end where something is returned.
async fn idle_wait(mux: &Rc<Mux>, gate: &Gate, ms: u64) -> Option<StreamEnd> {
    let readable = mux.sock.readable_or(gate, Deadline::in_ms(ms));
    let stirred: Pin<Box<dyn Future<Output = ()>>> = {
        let mux = mux.clone();
        Box::pin(async move { mux.stirred.notified().await })
    };
    match event::race(readable, stirred).await {
        event::Either::First(Ok(Wake::Ready)) | event::Either::Second(()) => None,
        // It may have got a stream at this moment.
        event::Either::First(_) => (mux.users() == 0).then_some(StreamEnd::Closed),
    }
}
