//! The writing side of the shared zone: collects certificates and challenge responses of all
//! issuers and publishes them to the workers.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use engine::Stats;
use engine::history::{Event, EventKind, Severity};
use proto::acme::Identifier;

use crate::issuer::Order;
use crate::zone::{Answer, Shared, Shown, View};

/// The polling interval while another order proves the same names, in milliseconds.
const CLAIM_MS: u64 = 100;

/// The only writer of the zone.
pub(crate) struct Board {
    shared: Rc<Shared>,
    view: RefCell<View>,
    /// The names for which an order currently shows a tls-alpn-01 certificate.
    claimed: RefCell<Vec<Identifier>>,
    log: Log,
    /// The last view did not fit into the zone, and this was logged.
    is_full: Cell<bool>,
    /// The history of the server, if it is kept.
    stats: OnceCell<Rc<Stats>>,
}

impl Board {
    /// Starts with the view that the previous acme process published: certificates of issuers
    /// without `state_path` exist only there, and those that are not configured any more become
    /// stand-ins. Publishes nothing yet, so that workers keep the old challenge responses until
    /// those of unfinished orders have been read from the folder.
    pub fn new(shared: &Rc<Shared>, keys: &[&str], log: &Log) -> Board {
        let mut view = View::clone(&shared.view());
        for shown in &mut view.certificates {
            shown.is_stand_in = !keys.contains(&shown.key.as_str());
        }
        view.certificates.retain(|shown| !shown.is_stand_in || !shown.chain.is_empty());
        view.answers.clear();
        view.follows = false;
        Board {
            shared: shared.clone(),
            view: RefCell::new(view),
            claimed: RefCell::default(),
            log: log.clone(),
            is_full: Cell::new(false),
            stats: OnceCell::new(),
        }
    }

    /// Adds issued certificates to the server's history from now on.
    pub fn keep_history(&self, stats: &Rc<Stats>) {
        let _ = self.stats.set(stats.clone());
    }

    /// A certificate was issued: an event of the history.
    pub fn issued(&self, key: &str) {
        let Some(stats) = self.stats.get() else { return };
        stats.history.note(&Event {
            at_ms: engine::beat::now_ms(),
            kind: EventKind::Certificate,
            severity: Severity::Good,
            subject: key.as_bytes(),
            text: format!("certificate {key} was issued").as_bytes(),
        });
    }

    /// A copy of the published certificate with this key.
    pub fn shown(&self, key: &str) -> Option<Shown> {
        self.view.borrow().certificates.iter().find(|shown| shown.key == key).cloned()
    }

    /// Changes the entry of a certificate, which is created if it is missing, and publishes it if
    /// it differs.
    pub fn change(&self, key: &str, change: impl FnOnce(&mut Shown)) {
        let mut view = self.view.borrow_mut();
        let at = view.certificates.iter().position(|shown| shown.key == key);
        let at = at.unwrap_or_else(|| {
            view.certificates.push(Shown { key: key.to_owned(), ..Shown::default() });
            view.certificates.len() - 1
        });
        let before = view.certificates[at].clone();
        change(&mut view.certificates[at]);
        let same = view.certificates[at] == before;
        drop(view);
        if !same {
            self.show();
        }
    }

    /// Publishes a certificate that stands in for others.
    pub fn stand_in(&self, key: &str, show: impl FnOnce(&mut Shown)) {
        self.change(key, |shown| {
            show(shown);
            shown.is_stand_in = true;
        });
    }

    /// Removes the issuer's stand-ins once all of its `orders` have their own certificates.
    pub(crate) fn end_stand_ins(&self, issuer: &str, orders: &[Rc<Order>]) {
        let mut view = self.view.borrow_mut();
        let is_issued = |order: &Rc<Order>| {
            view.certificates.iter().any(|s| s.key == order.key && !s.chain.is_empty())
        };
        if !orders.iter().all(is_issued) {
            return;
        }
        let before = view.certificates.len();
        let is_of = |key: &str| key.rsplit_once('/').is_some_and(|(of, _)| of == issuer);
        view.certificates.retain(|shown| !shown.is_stand_in || !is_of(&shown.key));
        let same = view.certificates.len() == before;
        drop(view);
        if !same {
            self.show();
        }
    }

    /// Publishes challenge responses. Each replaces an older one of the same name, because a
    /// validator for tls-alpn-01 only sends the name, and the older one belongs to a finished
    /// challenge.
    pub(crate) fn add_answers(&self, answers: Vec<Answer>) {
        if answers.is_empty() {
            return;
        }
        let mut view = self.view.borrow_mut();
        let is_same = |a: &Answer, b: &Answer| {
            a.name == b.name && a.private.is_empty() == b.private.is_empty()
        };
        view.answers.retain(|old| !answers.iter().any(|new| is_same(old, new)));
        view.answers.extend(answers);
        drop(view);
        self.show();
    }

    /// Waits until no other order proves one of these names by tls-alpn-01, then reserves them
    /// until the returned value is dropped.
    pub async fn claim(&self, names: &[Identifier]) -> Claim<'_> {
        while names.iter().any(|name| self.claimed.borrow().contains(name)) {
            event::sleep(CLAIM_MS).await;
        }
        self.claimed.borrow_mut().extend_from_slice(names);
        Claim { board: self, names: names.to_vec() }
    }

    /// Removes challenge responses.
    pub(crate) fn remove_answers(&self, answers: &[Answer]) {
        if answers.is_empty() {
            return;
        }
        self.view.borrow_mut().answers.retain(|answer| !answers.contains(answer));
        self.show();
    }

    /// Publishes whether another host leads, which orders certificates for the shared folder.
    pub(crate) fn set_follows(&self, follows: bool) {
        if std::mem::replace(&mut self.view.borrow_mut().follows, follows) != follows {
            self.show();
        }
    }

    /// Publishes the view. If it does not fit, drops the stand-ins and tries again; logs when the
    /// zone becomes full and when it fits again.
    pub fn show(&self) {
        let mut fits = self.shared.show(&self.view.borrow());
        if !fits {
            // Certificates that the configuration asks for take precedence.
            self.view.borrow_mut().certificates.retain(|shown| !shown.is_stand_in);
            fits = self.shared.show(&self.view.borrow());
        }
        if self.is_full.replace(!fits) == fits {
            let (level, m) = match fits {
                true => (Level::Notice, "has room again"),
                false => (Level::Error, "is too small: \"acme_shared_zone\" gives it more"),
            };
            log!(self.log, level, None, "acme: the shared zone {m}");
        }
    }
}

/// The reservation of names by one order; ends when dropped.
pub(crate) struct Claim<'a> {
    board: &'a Board,
    names: Vec<Identifier>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.board.claimed.borrow_mut().retain(|name| !self.names.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use base::log::capture;
    use pki::pem::Secret;

    use super::*;

    #[test]
    fn issued_certificates_are_events() {
        let (log, _lines) = capture(Level::Notice);
        let board = Board::new(&Rc::new(Shared::of_tests()), &[], &log);
        let stats = Rc::new(Stats::new(1).unwrap());
        board.issued("a");
        board.keep_history(&stats);
        board.issued("b.example");
        let text = |event: &Event<'_>| event.text == b"certificate b.example was issued";
        assert_eq!(stats.history.event_numbers(), 0..1);
        assert_eq!(stats.history.event(0, text), Some(true));
    }

    #[test]
    fn answers_stay_until_those_of_orders_under_way_are_known() {
        let (log, _lines) = capture(Level::Notice);
        let shared = Rc::new(Shared::of_tests());
        let answer =
            Answer { name: "token".to_owned(), text: b"text".to_vec(), private: Secret::default() };
        Board::new(&shared, &[], &log).add_answers(vec![answer.clone()]);
        let successor = Board::new(&shared, &[], &log);
        assert_eq!(shared.view().answers, [answer]);
        successor.remove_answers(&[]);
        assert_eq!(shared.view().answers.len(), 1);
        successor.show();
        assert!(shared.view().answers.is_empty());
    }

    #[test]
    fn a_name_has_one_certificate_of_a_challenge() {
        let (log, _lines) = capture(Level::Notice);
        let board = Board::new(&Rc::new(Shared::of_tests()), &[], &log);
        let answer = |text: &str, private: &[u8]| Answer {
            name: "a.test".to_owned(),
            text: text.as_bytes().to_vec(),
            private: Secret::new(private.to_vec()),
        };
        let [old, new, http] = [answer("1", b"key"), answer("2", b"key"), answer("3", b"")];
        board.add_answers(vec![old.clone(), http.clone()]);
        board.add_answers(vec![new.clone()]);
        assert_eq!(board.shared.view().answers, [http.clone(), new.clone()]);
        // The end of the one before does not touch it.
        board.remove_answers(&[old]);
        assert_eq!(board.shared.view().answers, [http, new]);
    }
}
