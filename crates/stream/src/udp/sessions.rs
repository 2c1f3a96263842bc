//! The UDP sessions of a worker, and the choice of the one to evict when there are too many.
//!
//! An attacker with spoofed addresses can start any number of sessions, but cannot send a datagram
//! after an answer. So sessions whose clients have never done that (*unproven*) are evicted first,
//! the oldest first. Proven ones are only evicted if there are no others, the longest idle first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use super::client::Client;

/// The UDP sessions of a worker.
#[derive(Default)]
pub(crate) struct Sessions {
    count: Cell<usize>,
    /// The number of evicted sessions that have not ended yet.
    leaving: Cell<usize>,
    /// In order of their start. Some entries have ended, or are proven by now.
    unproven: RefCell<VecDeque<Weak<Client>>>,
    /// With the time of their last datagram when queued. Some entries have ended.
    proven: RefCell<VecDeque<(u64, Weak<Client>)>>,
}

/// While evicted sessions end, the limit may be exceeded by one part in this number.
const LEAVING_PART: usize = 8;

/// Slack: dead entries are swept once a queue exceeds twice the live sessions plus this.
const OVER_MAX: usize = 64;

impl Sessions {
    /// Makes room for one more session, with at most `max` in total. False if too many evicted
    /// sessions have not ended yet.
    pub fn make_room(&self, max: usize) -> bool {
        while self.count.get() - self.leaving.get() >= max {
            let Some(client) = self.take_least() else { break };
            self.leaving.set(self.leaving.get() + 1);
            client.shed();
        }
        self.count.get() < max + max / LEAVING_PART
    }

    /// Whether there are `max` sessions or more.
    pub(crate) fn are_full(&self, max: usize) -> bool {
        self.count.get() >= max
    }

    /// Adds a session.
    pub fn begin(&self, client: &Rc<Client>) {
        self.count.set(self.count.get() + 1);
        let mut unproven = self.unproven.borrow_mut();
        if unproven.len() > 2 * self.count.get() + OVER_MAX {
            unproven.retain(|client| client.strong_count() > 0);
        }
        unproven.push_back(Rc::downgrade(client));
        let mut proven = self.proven.borrow_mut();
        if proven.len() > 2 * self.count.get() + OVER_MAX {
            proven.retain(|(_, client)| client.strong_count() > 0);
        }
    }

    /// Removes a session.
    pub fn end(&self, client: &Client) {
        self.count.set(self.count.get().saturating_sub(1));
        if client.is_shed() {
            self.leaving.set(self.leaving.get().saturating_sub(1));
        }
    }

    /// Takes the eviction victim.
    fn take_least(&self) -> Option<Rc<Client>> {
        let (mut unproven, mut proven) = (self.unproven.borrow_mut(), self.proven.borrow_mut());
        while let Some(client) = unproven.pop_front() {
            match client.upgrade() {
                Some(client) if client.is_proven() => {
                    proven.push_back((client.last_ms(), Rc::downgrade(&client)));
                }
                Some(client) if client.is_open() => return Some(client),
                _ => {}
            }
        }
        while let Some((at, client)) = proven.pop_front() {
            match client.upgrade() {
                // It was active since it was queued: queue it again.
                Some(client) if client.last_ms() > at => {
                    proven.push_back((client.last_ms(), Rc::downgrade(&client)));
                }
                Some(client) if client.is_open() => return Some(client),
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session, as far as it counts.
    struct Held(Rc<Sessions>, Rc<Client>);

    impl Held {
        fn client(&self) -> &Rc<Client> {
            &self.1
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.end(&self.1);
        }
    }

    fn client(sessions: &Rc<Sessions>, last_ms: u64, proven: bool) -> Held {
        let client = Rc::new(Client::for_test(last_ms, proven));
        sessions.begin(&client);
        Held(sessions.clone(), client)
    }

    #[test]
    fn those_that_never_said_a_word_after_an_answer_go_first() {
        let sessions = Rc::<Sessions>::default();
        let all = [(30, true), (40, false), (20, true), (50, false)];
        let all = all.map(|(ms, proven)| client(&sessions, ms, proven));
        assert!(sessions.are_full(4) && !sessions.are_full(5));
        let taken = || sessions.take_least().map(|client| client.last_ms());
        assert_eq!([taken(), taken()], [Some(40), Some(50)]);
        // The first of the others has not been idle.
        all[0].client().heard_at(60);
        assert_eq!([taken(), taken(), taken()], [Some(20), Some(60), None]);
        drop(all);
        assert!(!sessions.are_full(1));
    }

    #[test]
    fn no_more_of_them_leave_than_room_is_needed_for() {
        let sessions = Rc::<Sessions>::default();
        let mut all: Vec<_> = (0..16).map(|ms| client(&sessions, ms, false)).collect();
        assert!(sessions.make_room(17) && sessions.make_room(16));
        all.push(client(&sessions, 16, false));
        assert!(sessions.make_room(16));
        all.push(client(&sessions, 17, false));
        assert!(!sessions.make_room(16), "two leave, and are there still");
        assert_eq!(all.iter().filter(|held| held.client().is_shed()).count(), 3);
        all.retain(|held| !held.client().is_shed());
        assert!(!sessions.are_full(16) && sessions.make_room(16));
        assert!(all.iter().all(|held| !held.client().is_shed()));
    }

    #[test]
    fn entries_of_sessions_that_are_over_are_dropped() {
        let sessions = Rc::<Sessions>::default();
        let kept = client(&sessions, 1, false);
        for _ in 0..1000 {
            client(&sessions, 2, false);
        }
        assert!(sessions.unproven.borrow().len() <= OVER_MAX + 4);
        assert!(Rc::ptr_eq(&sessions.take_least().unwrap(), kept.client()));
    }
}
