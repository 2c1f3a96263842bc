//! The socket of an address that a reload has removed: connections of the workers of before go on.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::log::{Level, os_error};
use event::{Deadline, Fd, Gate};
use net::listeners::{Removal, State};
use net::quic_id;
use net::quic_relay::{Owner, Relay, Relayed};
use os::SockAddr;
use os::datagram::Batch;

use crate::endpoint::DATAGRAM_MAX;
use crate::ids::id_of;

/// The time between two looks whether the workers of before have ended, milliseconds.
const LOOK_MS: u64 = 1000;

/// A worker's socket of such an address.
pub struct Parting {
    /// The address, as it was listened on.
    pub listener: SockAddr,
    /// Whether there is still somebody to pass on to.
    pub removal: Removal,
    /// The socket.
    pub fd: OwnedFd,
    /// The processes that have connections.
    pub relay: Rc<Relay>,
}

impl Parting {
    /// Passes on what belongs to workers of before, and drops the rest, once `alone` is closed and
    /// until those workers have ended.
    pub async fn run(self, alone: Gate) {
        let Parting { listener, removal, fd, relay } = self;
        let fd = Fd::new(fd);
        if !alone.is_closed() {
            alone.closed().await;
        }
        let mut batch = match Batch::new(DATAGRAM_MAX) {
            Ok(batch) => batch,
            Err(e) => return fail("memory for datagrams", &e),
        };
        while removal.get() == State::Removed {
            match batch.recv(fd.fd()) {
                Ok(_) => pass_on(&batch, &listener, &relay),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match fd.readable(Deadline::in_ms(LOOK_MS)).await {
                        Err(e) if e.kind() != io::ErrorKind::TimedOut => return,
                        _ => continue,
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(e) => {
                    fail("recvmsg() failed", &e);
                    event::sleep(100).await;
                }
            }
            event::task::next_turn().await;
        }
    }
}

fn pass_on(batch: &Batch, listener: &SockAddr, relay: &Relay) {
    for (received, bytes) in batch.iter() {
        let Some(from) = &received.from else { continue };
        for one in bytes.chunks(received.segment.max(1)) {
            let Some(read) = id_of(one).and_then(|id| quic_id::read(relay.key(), id)) else {
                continue;
            };
            if !read.is_genuine || relay.owner(read.place) != Owner::Elder {
                continue;
            }
            let segment = u16::try_from(one.len()).unwrap_or(u16::MAX);
            let (from, listener) = (from.clone(), listener.clone());
            let (to, ecn) = (received.to, received.ecn);
            let message = Relayed { from, listener, to, ecn, segment, bytes: one };
            // What does not reach the other worker is lost, as on a network.
            let _ = relay.pass_on(read.place, &message);
        }
    }
}

#[cold]
fn fail(what: &str, e: &io::Error) {
    let (log, e) = (base::log::default(), os_error(e));
    base::log!(log, Level::Alert, None, "{what} {e}");
}
