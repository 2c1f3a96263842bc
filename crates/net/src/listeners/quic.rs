//! The sockets of QUIC: who gets which datagram.
//!
//! The datagrams of a connection may come from any address, and its id alone says which worker has
//! it ([`crate::quic_id`]). A program in the kernel reads it. It counts the sockets of the group in
//! the order in which they were bound, and that order is the workers' for as long as the address is
//! listened on:
//!
//! - A reload to fewer workers keeps the sockets of the others, as *spare* ones that the program
//!   chooses no more. Were they closed, leaving workers would keep them in the group while they
//!   have connections, and the sockets of a reload to more workers would come behind them.
//! - The program changes when the new workers serve ([`Quic::take_over`]): until then the old ones
//!   read their sockets. A reload that fails has changed nothing.
//! - A new binary gets all sockets, in this order, and the key.

use std::cell::Cell;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, os_error};
use os::socket::{self, Kind};
use os::{SockAddr, datagram, filter};

use super::{Bound, Listeners, OpenEnv, OpenFailed};
use crate::quic_id::{self, Key};
use crate::quic_relay::Handover;
use crate::spec::ListenSpec;

/// The program that a group has: for so many sockets, and ids of this key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Steering {
    count: usize,
    key: Rc<Key>,
}

/// The state that the sockets of QUIC have in common; kept over reloads.
#[derive(Clone, Default, Debug)]
pub(super) struct Quic {
    /// Where an address is QUIC's, or was: connections may live on.
    key: Option<Rc<Key>>,
    /// It was logged that there is no steering.
    told: Rc<Cell<bool>>,
}

impl Listeners {
    /// Whether an address is QUIC's, or was and its connections go on.
    pub fn have_quic(&self) -> bool {
        self.with_parting().any(|bound| bound.spec.quic)
    }

    /// The key of connection ids; none where no address is or was QUIC's.
    pub fn quic_key(&self) -> Option<&Rc<Key>> {
        self.quic.key.as_ref()
    }
}

/// Refuses an address that is QUIC's and another engine's: their sockets would be one group.
pub(super) fn check(specs: &[ListenSpec], env: OpenEnv<'_>) -> Result<(), OpenFailed> {
    for quic in specs.iter().filter(|spec| spec.quic) {
        let same = |s: &&ListenSpec| s.addr == quic.addr && s.kind == quic.kind;
        if specs.iter().filter(same).count() > 1 {
            let (addr, e) = (&quic.addr, std::io::Error::from_raw_os_error(os::errno::EADDRINUSE));
            log!(env.log, Level::Emerg, None, "bind() to {addr} failed {}", os_error(&e));
            return Err(OpenFailed);
        }
    }
    Ok(())
}

impl Quic {
    /// The same for the next configuration.
    pub(crate) fn for_next(&self, specs: &[ListenSpec], handover: Option<&Handover>) -> Quic {
        let mut next = self.clone();
        if specs.iter().any(|spec| spec.quic) {
            let before = || handover.map_or_else(Key::random, |handover| handover.key.clone());
            next.key.get_or_insert_with(|| Rc::new(before()));
        }
        next
    }

    /// Whether sockets that no worker has are kept: where the kernel does not choose them.
    pub(crate) fn keeps_spare(&self) -> bool {
        !self.told.get()
    }

    /// Steers what is not steered yet: addresses that no configuration before had.
    pub fn begin(&self, list: &[Bound], log: &Log) {
        for bound in list.iter().filter(|bound| bound.steering.borrow().is_none()) {
            self.steer(bound, log);
        }
    }

    /// The workers of this configuration serve: what comes from now on is theirs.
    pub fn take_over<'a>(&self, all: impl Iterator<Item = &'a Bound>, log: &Log) {
        for bound in all {
            self.steer(bound, log);
            if !bound.spec.quic && bound.steering.take().is_some() {
                release(bound);
            }
        }
    }

    /// Gives a group the program that fits it.
    fn steer(&self, bound: &Bound, log: &Log) {
        let Some(key) = self.key.clone().filter(|_| bound.spec.quic) else { return };
        let count = bound.sockets.len();
        let wanted = Some(Steering { count, key: key.clone() });
        let Some(first) = bound.sockets.first() else { return };
        if *bound.steering.borrow() == wanted || count + bound.spare.len() < 2 {
            return;
        }
        match filter::attach_reuseport(first, &quic_id::program(&key, count)) {
            Ok(()) => *bound.steering.borrow_mut() = wanted,
            Err(e) => {
                if !self.told.replace(true) {
                    let (addr, e) = (&bound.spec.addr, os_error(&e));
                    let m = "a connection over QUIC is lost when its client's address changes";
                    let call = "setsockopt(SO_ATTACH_REUSEPORT_CBPF)";
                    log!(log, Level::Notice, None, "{m}: {call} {addr} failed {e}");
                }
            }
        }
    }
}

/// The set is in force again: what another one has made of its sockets is undone.
pub(super) fn come_back(list: &[Bound]) {
    let datagrams = list.iter().filter(|bound| bound.spec.kind == Kind::Datagram);
    datagrams.filter(|bound| !bound.spec.quic).for_each(release);
}

/// The sockets of a group are no longer QUIC's.
fn release(bound: &Bound) {
    let v6 = matches!(bound.spec.addr, SockAddr::V6(_));
    for (i, fd) in bound.sockets.iter().enumerate() {
        if i == 0 {
            let _ = socket::unlimit_reuseport_group(fd);
        }
        let _ = datagram::set_unfragmented(fd, v6, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inherit::Inherited;
    use crate::quic_id::{Id, Place};
    use base::log::capture;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    fn spec() -> ListenSpec {
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        ListenSpec {
            kind: Kind::Datagram,
            quic: true,
            reuseport: true,
            ..ListenSpec::new(socket::local_addr(&probe).unwrap())
        }
    }

    fn open(
        specs: &[ListenSpec],
        previous: &Listeners,
        workers: usize,
        log: &Log,
    ) -> Result<Listeners, OpenFailed> {
        let env = OpenEnv { workers, test: false, log };
        let mut set = Listeners::open(specs, previous, &mut Inherited::default(), env)?;
        set.configure(log);
        Ok(set)
    }

    fn numbers(set: &Listeners) -> Vec<RawFd> {
        set.list[0].sockets.iter().map(|fd| fd.as_raw_fd()).collect()
    }

    /// The descriptor that a datagram with an id of worker `index` comes to, among all of the sets.
    fn comes_to(set: &Listeners, all: &[RawFd], index: u16) -> RawFd {
        let key = set.quic_key().unwrap();
        let id =
            Id::new(key, Place { index, slot: 3, half: true }, os::random::number().to_ne_bytes());
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let datagram = [&[0x40][..], &id.0, &[0; 20]].concat();
        client.send_to(&datagram, set.list[0].spec.addr.to_string()).unwrap();
        let come = |fd: &Rc<OwnedFd>| socket::recv(fd, &mut [0; 99]).is_ok();
        let found = set.fds().find(|fd| come(fd)).map(|fd| fd.as_raw_fd());
        found.filter(|fd| all.contains(fd)).expect("it came to a socket of the set")
    }

    #[test]
    fn sockets_stay_the_workers_over_reloads() {
        let (log, lines) = capture(Level::Notice);
        let specs = [spec()];
        let four = open(&specs, &Listeners::default(), 4, &log).unwrap();
        let all = numbers(&four);
        let reads = |set: &Listeners| -> Vec<RawFd> {
            (0..4).map(|index| comes_to(set, &all, index)).collect()
        };
        assert_eq!(reads(&four), all);
        // The old workers read until the new ones serve.
        let two = open(&specs, &four, 2, &log).unwrap();
        assert_eq!(numbers(&two), all[..2]);
        assert_eq!(reads(&two), all);
        four.retire(&two, &log);
        let ids = reads(&two);
        assert_eq!(ids[..2], all[..2]);
        assert!(ids.iter().all(|fd| all[..2].contains(fd)), "others go to those that there are");
        drop(four);
        // A reload that fails, and one to more workers: with the same sockets as before.
        assert!(open(&[specs[0].clone(), specs[0].clone()], &two, 3, &log).is_err());
        let text = lines.take();
        assert!(text.contains("failed (98: Address already in use)"), "{text}");
        let again = open(&specs, &two, 4, &log).unwrap();
        assert_eq!(numbers(&again), all);
        assert!(reads(&again)[2..].iter().all(|fd| all[..2].contains(fd)));
        two.retire(&again, &log);
        assert_eq!(reads(&again), all);
        assert_eq!(lines.take(), "");
    }

    #[test]
    fn a_new_binary_has_the_sockets_and_the_key() {
        let (log, _lines) = capture(Level::Notice);
        let specs = [spec()];
        let three = open(&specs, &Listeners::default(), 3, &log).unwrap();
        let two = open(&specs, &three, 2, &log).unwrap();
        three.retire(&two, &log);
        // As a new binary gets them, with descriptors of its own.
        let own: Vec<_> = two.fds().map(|fd| os::fd::dup(fd).unwrap()).collect();
        let own = own.into_iter().map(std::os::fd::IntoRawFd::into_raw_fd).collect::<Vec<_>>();
        let text: String = own.iter().map(|fd| format!("{fd};")).collect();
        let mut inherited = Inherited::from_binary(&text, &log);
        let key = Key::new(two.quic_key().unwrap().secret());
        inherited.quic = Some(Handover { key, half: false, elders: Vec::new() });
        let env = OpenEnv { workers: 3, test: false, log: &log };
        let mut next = Listeners::open(&specs, &Listeners::default(), &mut inherited, env).unwrap();
        next.configure(&log);
        assert_eq!(numbers(&next), own);
        assert_eq!(comes_to(&next, &own, 2), own[2]);
        assert_eq!(next.quic_key(), two.quic_key());
    }

    #[test]
    fn an_address_becomes_another_engine_s_and_comes_back() {
        let (log, lines) = capture(Level::Notice);
        let quic = spec();
        let udp = ListenSpec { quic: false, ..quic.clone() };
        let steered = |set: &Listeners| {
            let first = set.list[0].sockets.first().unwrap();
            // It is an error to take a program away that is not there.
            let key = Key::random();
            let was = os::filter::detach_reuseport(first).unwrap();
            if was {
                filter::attach_reuseport(first, &quic_id::program(&key, 2)).unwrap();
            }
            was
        };
        let before = open(std::slice::from_ref(&udp), &Listeners::default(), 2, &log).unwrap();
        assert!(!steered(&before));
        let refused = open(std::slice::from_ref(&quic), &before, 2, &log).unwrap();
        assert!(steered(&refused));
        refused.abandon();
        before.come_back(&log);
        assert!(!steered(&before));
        let now = open(&[quic], &before, 2, &log).unwrap();
        before.retire(&now, &log);
        assert!(steered(&now));
        let then = open(&[udp], &now, 2, &log).unwrap();
        now.retire(&then, &log);
        assert!(!steered(&then));
        assert_eq!(lines.take(), "");
    }
}
