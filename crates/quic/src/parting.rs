//! The socket of a listening address that a reload removed. Connections on it continue in the old
//! workers, which need the new workers to forward their datagrams.

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

/// The interval at which to check whether the old workers have exited, in milliseconds.
const LOOK_MS: u64 = 1000;

/// A worker's socket for a removed address.
pub struct Parting {
    /// The listening address as configured.
    pub listener: SockAddr,
    /// Whether there are still old workers with connections on this address.
    pub removal: Removal,
    /// The socket.
    pub fd: OwnedFd,
    /// The channel to the processes that have connections.
    pub relay: Rc<Relay>,
}

impl Parting {
    /// Forwards datagrams of the old workers' connections and drops all others. Starts once `alone`
    /// is closed, that is when no other process reads the socket, and returns once those workers
    /// have exited.
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
                // An ICMP error about an earlier datagram to some client; it says nothing about the
                // socket.
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
        // With UDP_GRO the kernel joins datagrams of one sender, which may belong to different
        // connections.
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
            // A datagram that cannot be forwarded is lost, as it could be in the network; QUIC
            // retransmits.
            let _ = relay.pass_on(read.place, &message);
        }
    }
}

#[cold]
fn fail(what: &str, e: &io::Error) {
    let (log, e) = (base::log::default(), os_error(e));
    base::log!(log, Level::Alert, None, "{what} {e}");
}
