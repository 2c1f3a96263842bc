//! The relays of QUIC in the master: which process has which slot, and who can reach whom.
//!
//! A worker's slot is its number among the master's processes, which no other has while it lives.
//! Where an address is QUIC's, the master makes a relay just before it forks a worker, and keeps
//! the sending end until the worker has ended: workers that are forked later inherit it, and the
//! new binary gets it. So the newest worker of an index reaches all older ones. This costs the
//! master one descriptor for each living worker.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log, os_error};
use engine::SLOTS;
use net::quic_id::{Key, PLACES_MAX, Place};
use net::quic_relay::{self, Elder, Handover, Inbox, Living, Relay};

const _: () = assert!(SLOTS <= PLACES_MAX, "an id has room for every slot");

/// See the module.
#[derive(Default)]
pub struct Relays {
    /// Of the running configuration; none where no address is QUIC's.
    key: Option<Rc<Key>>,
    /// Marks the connection ids of this binary; the next binary has the other value.
    half: bool,
    /// Made with the first relay.
    living: Option<Living>,
    /// The sending ends of this binary's workers, with their slots.
    own: Vec<(usize, OwnedFd)>,
    /// Processes of the binary before.
    before: Vec<Elder>,
}

impl Relays {
    /// Without workers yet; after a binary that had some, with theirs.
    pub fn new(handover: Option<Handover>) -> Relays {
        let Some(Handover { half, elders, .. }) = handover else { return Relays::default() };
        Relays { half: !half, before: elders, ..Relays::default() }
    }

    /// Another configuration begins, with this key.
    pub fn set_key(&mut self, key: Option<Rc<Key>>) {
        self.key = key;
    }

    /// Makes the relay of a worker that is about to be forked; its own end.
    pub fn prepare(&mut self, slot: usize, log: &Log) -> Option<Inbox> {
        self.key.as_ref()?;
        self.before.retain(|elder| !elder.has_ended());
        let living = match &self.living {
            Some(living) => Ok(living.clone()),
            None => Living::new(SLOTS),
        };
        let made = living.and_then(|living| Ok((quic_relay::pair()?, living)));
        match made {
            Ok(((sends, inbox), living)) => {
                living.set(slot, true);
                self.living = Some(living);
                self.own.push((slot, sends));
                Some(inbox)
            }
            Err(e) => {
                let m = "connections over QUIC end with the worker that has them";
                log!(log, Level::Alert, None, "{m}: socketpair() failed {}", os_error(&e));
                None
            }
        }
    }

    /// The process has ended, or was not forked after all.
    pub fn ended(&mut self, slot: usize) {
        self.own.retain(|(own, _)| *own != slot);
        if let Some(living) = &self.living {
            living.set(slot, false);
        }
    }

    /// The relays as a worker that was just forked sees them.
    pub(crate) fn into_worker(
        self,
        index: usize,
        slot: usize,
        inbox: Option<Inbox>,
    ) -> Option<Relay> {
        let Relays { key, half, living, own, before } = self;
        let number = |n: usize| u16::try_from(n).ok();
        let place = Place { index: number(index)?, slot: number(slot)?, half };
        let others = own.into_iter().filter(|(other, _)| *other != slot);
        let others = others.filter_map(|(slot, fd)| Some(Elder { slot: number(slot)?, half, fd }));
        Some(Relay::new(key?, place, living, others.chain(before).collect(), inbox))
    }

    /// The value of the variable for a new binary, in a child that was just forked for it; nothing
    /// where there is none to be made.
    pub fn for_new_binary(&self, log: &Log) -> Option<String> {
        let key = self.key.as_ref()?;
        let own = self.own.iter();
        let own = own.filter_map(|(slot, fd)| Some((u16::try_from(*slot).ok()?, fd)));
        let value = Handover::for_new_binary(key, self.half, own);
        let tell = |e: &std::io::Error| {
            let m = "connections over QUIC cannot be handed over";
            log!(log, Level::Alert, None, "{m} {}", os_error(e));
        };
        value.inspect_err(tell).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::quic_relay::{Owner, Passed, Relayed};
    use os::SockAddr;

    fn log() -> Log {
        base::log::capture(Level::Info).0
    }

    /// As a fork gives it: the descriptors of the master's, once more.
    fn copy(relays: &Relays) -> Relays {
        let dup = |fd: &OwnedFd| os::fd::dup(fd).unwrap();
        let before = relays.before.iter().map(|e| Elder { fd: dup(&e.fd), ..*e });
        Relays {
            key: relays.key.clone(),
            half: relays.half,
            living: relays.living.clone(),
            own: relays.own.iter().map(|(slot, fd)| (*slot, dup(fd))).collect(),
            before: before.collect(),
        }
    }

    fn fork(relays: &mut Relays, slot: usize) -> (Relay, Inbox) {
        let inbox = relays.prepare(slot, &log()).unwrap();
        let relay = copy(relays).into_worker(1, slot, Some(inbox)).unwrap();
        let inbox = relay.take_inbox().unwrap();
        assert!(relay.take_inbox().is_none());
        (relay, inbox)
    }

    fn datagram() -> Relayed<'static> {
        let addr = SockAddr::ip([127, 0, 0, 1].into(), 443);
        let listener = addr.clone();
        Relayed { from: addr, listener, to: None, ecn: 1, segment: 3, bytes: b"abc" }
    }

    #[test]
    fn without_quic_there_is_nothing() {
        let mut relays = Relays::new(None);
        assert!(relays.prepare(0, &log()).is_none() && relays.own.is_empty());
        assert!(relays.for_new_binary(&log()).is_none());
        assert!(relays.into_worker(0, 0, None).is_none());
    }

    #[test]
    fn later_workers_reach_elder_ones() {
        let mut relays = Relays::new(None);
        relays.set_key(Some(Rc::new(Key::random())));
        let (elder, inbox) = fork(&mut relays, 0);
        let (later, other) = fork(&mut relays, 1);
        let place = elder.place();
        assert_eq!((later.owner(place), elder.owner(place)), (Owner::Elder, Owner::Own));
        // Not the other way, where it is known to live.
        assert_eq!(elder.owner(later.place()), Owner::Other);
        assert_eq!(later.pass_on(place, &datagram()), Passed::On);
        assert_eq!(inbox.recv(&mut [0; 99]).unwrap(), Some(datagram()));
        drop(inbox);
        relays.ended(0);
        assert_eq!(later.pass_on(place, &datagram()), Passed::Ended);
        let (newest, _inbox) = fork(&mut relays, 2);
        assert_eq!((newest.owner(place), newest.owner(later.place())), (Owner::None, Owner::Elder));
        drop(other);
    }

    #[test]
    fn a_new_binary_reaches_the_workers_of_the_old_one() {
        let mut old = Relays::new(None);
        old.set_key(Some(Rc::new(Key::random())));
        let (elder, inbox) = fork(&mut old, 0);
        let value = copy(&old).for_new_binary(&log());
        // The copy's descriptors are closed by now, which this process's are not: once more.
        assert!(value.is_some());
        let child = std::mem::ManuallyDrop::new(copy(&old));
        let value = child.for_new_binary(&log()).unwrap();
        let handover = Handover::from_binary(&value).unwrap();
        let key = Rc::new(handover.key.clone());
        let mut new = Relays::new(Some(handover));
        new.set_key(Some(key));
        let (later, _inbox) = fork(&mut new, 0);
        assert_ne!(later.place(), elder.place(), "of another half");
        assert_eq!(later.owner(elder.place()), Owner::Elder);
        assert_eq!(later.pass_on(elder.place(), &datagram()), Passed::On);
        let id = elder.new_id();
        assert_eq!(net::quic_id::read(later.key(), &id.0).unwrap().place, elder.place());
        drop(inbox);
        // One that has ended costs no descriptor. A program that another test starts has all
        // descriptors until it runs, the inbox among them.
        testkit::wait_for("the one that has ended to be forgotten", || {
            let _next = fork(&mut new, 1);
            new.before.is_empty().then_some(())
        });
    }
}
