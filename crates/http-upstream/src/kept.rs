//! Idle connections to servers that move to another process: see [`net::moves`].
//!
//! The pools of a leaving worker give them up, and the worker lives until they are gone. The
//! receiver keeps those to servers that its configuration has in the same group. A connection that
//! belongs to one location stays with that: the same server has it, and the settings of the
//! connection are the same (`Conf::place`). If there is no such location, it is closed.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::{Rc, Weak};

use base::time::now_ms;
use bytes::Bytes;
use event::Sock;
use http::server::HttpMain;
use net::Transport;
use net::moves::{self, Moves, Ready, Stay, Taker, Turn};
use os::SockAddr;
use proto::handover::{self, Leased, Message, Refusal};
use upstream::group::Group;
use upstream::pool::{Kept, Pool, UpConn};
use upstream::upstreams::Upstreams;

/// The longest wait of a pool for the turn of its next connection, milliseconds.
const TURN_MS: u64 = 5_000;

/// Takes idle connections into this worker's pools.
struct Pools(Weak<HttpMain>);

/// Has this worker take idle connections to servers, and give away its own when it leaves.
pub(crate) fn register(main: &Rc<HttpMain>) {
    let (Some(moves), Some(all)) = (main.life.moves(), main.confs.get::<Upstreams>()) else {
        return;
    };
    moves.take_by(moves::Kind::Kept, Rc::new(Pools(Rc::downgrade(main))));
    for group in all.named() {
        let Some(pool) = &group.pool else { continue };
        let (main, moves, name) = (Rc::downgrade(main), moves.clone(), group.name.clone());
        let is_local = pool.is_local();
        pool.at_leave(Box::new(move |kept| {
            // Nobody takes them, or the worker is about to exit.
            if let Some(main) = main.upgrade().filter(|_| moves.is_asking() || moves.has_receiver())
            {
                let work = main.life.work();
                let kept = known(&main, kept, is_local);
                let run = leave(moves.clone(), name.clone(), kept);
                event::spawn(async move {
                    run.await;
                    drop(work);
                });
            }
        }));
    }
}

/// The connections whose locations other processes can find, if they belong to locations.
fn known(main: &HttpMain, mut kept: Vec<Kept>, is_local: bool) -> Vec<Kept> {
    let Some(all) = main.confs.get::<Upstreams>() else { return Vec::new() };
    match is_local {
        true => kept.retain(|kept| all.is_place(kept.tag as u64)),
        // Any location may have used them.
        false => kept.iter_mut().for_each(|kept| kept.tag = 0),
    }
    kept
}

/// Gives a pool's connections to other processes, one after the other.
async fn leave(moves: Rc<Moves>, group: Bytes, all: Vec<Kept>) {
    for kept in all {
        let Some(candidate) = moves.candidate(moves::Kind::Kept) else { return };
        let late = pin!(event::sleep(TURN_MS));
        if candidate.unless_due(late).await.is_some() {
            return;
        }
        if let Some(turn) = candidate.turn() {
            offer(turn, &group, &kept).await;
        }
    }
}

/// Offers a connection. It is closed here in any case.
async fn offer(turn: Turn, group: &Bytes, kept: &Kept) {
    let Kept { conn, addr, tag, until_ms } = kept;
    if conn.sock.withdraw().await.is_err() {
        turn.stays(Stay::State);
        return;
    }
    // A server that says something unasked is about to close.
    if conn.sock.take_received().is_some() || !conn.sock.is_quiet() {
        return;
    }
    let (now, server) = (now_ms(), addr.to_string());
    let message = Message::Kept(Box::new(handover::Kept {
        leased: Leased { group, server: server.as_bytes() },
        place: *tag as u64,
        requests: conn.requests,
        age_ms: now.saturating_sub(conn.start_ms),
        left_ms: until_ms.saturating_sub(now),
        moved_in: conn.moved_in,
    }));
    if let Ok(offered) = turn.offer(&message, &[conn.sock.descriptor()]).await
        && offered.give_up()
    {
        conn.sock.part();
    }
}

impl Taker for Pools {
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal> {
        let Message::Kept(kept) = message else { return Err(Refusal::Version) };
        let [fd] = moves::ends(fds)?;
        let main = self.0.upgrade().ok_or(Refusal::Other)?;
        let addr = SockAddr::parse(kept.leased.server).ok_or(Refusal::Other)?;
        let all = main.confs.get::<Upstreams>().ok_or(Refusal::Configuration)?;
        let pool = pool(all, kept.leased.group, &addr).ok_or(Refusal::Configuration)?;
        if pool.is_local() && !all.is_place(kept.place) {
            return Err(Refusal::Configuration);
        }
        let (sock, _) = Transport::resumed(Sock::of_server(fd), None)?;
        let now = now_ms();
        let conn = UpConn {
            sock,
            requests: kept.requests,
            start_ms: now.saturating_sub(kept.age_ms),
            cached: true,
            moved_in: main.stats.run(),
        };
        let until_ms = now.saturating_add(kept.left_ms);
        let kept = Kept { conn, addr, tag: kept.place as usize, until_ms };
        let expected = pool.expect(kept, &main.life.gate).ok_or(Refusal::Other)?;
        Ok(Box::new(move || expected.arrive(&main.life.gate)))
    }
}

/// The pool of the group of this name, if the server is in it.
fn pool(all: &Upstreams, name: &[u8], addr: &SockAddr) -> Option<Rc<Pool>> {
    let has = |group: &Group| group.servers.lists().all().any(|peer| peer.spec.addr == *addr);
    let group = all.named().find(|group| group.name == name)?;
    group.pool.clone().filter(|_| has(group))
}
