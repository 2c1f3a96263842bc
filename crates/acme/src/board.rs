//! The view of the acme process that workers get, put together from all issuers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};

use crate::zone::{Answer, Shared, Shown, View};

/// The one writer of the zone.
pub(crate) struct Board {
    shared: Rc<Shared>,
    view: RefCell<View>,
    log: Log,
    /// The last view did not fit.
    is_full: Cell<bool>,
}

impl Board {
    /// Begins with what the process before has shown: certificates whose issuers have no folder go
    /// on.
    pub fn new(shared: &Rc<Shared>, keys: &[&str], log: &Log) -> Board {
        let mut view = View::clone(&shared.view());
        view.certificates.retain(|shown| keys.contains(&shown.key.as_str()));
        view.answers.clear();
        view.follows = false;
        let board = Board {
            shared: shared.clone(),
            view: RefCell::new(view),
            log: log.clone(),
            is_full: Cell::new(false),
        };
        board.show();
        board
    }

    /// The part of a certificate that is shown.
    pub fn shown(&self, key: &str) -> Option<Shown> {
        self.view.borrow().certificates.iter().find(|shown| shown.key == key).cloned()
    }

    /// Changes what is shown of a certificate.
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

    /// Shows the answers to challenges.
    pub fn add_answers(&self, answers: Vec<Answer>) {
        self.view.borrow_mut().answers.extend(answers);
        self.show();
    }

    /// Shows these answers no longer.
    pub fn remove_answers(&self, answers: &[Answer]) {
        self.view.borrow_mut().answers.retain(|answer| !answers.contains(answer));
        self.show();
    }

    /// Whether another host leads.
    pub fn set_follows(&self, follows: bool) {
        if std::mem::replace(&mut self.view.borrow_mut().follows, follows) != follows {
            self.show();
        }
    }

    fn show(&self) {
        let fits = self.shared.show(&self.view.borrow());
        if self.is_full.replace(!fits) == fits {
            let (level, m) = match fits {
                true => (Level::Notice, "has room again"),
                false => (Level::Error, "is too small: \"acme_shared_zone\" gives it more"),
            };
            log!(self.log, level, None, "acme: the shared zone {m}");
        }
    }
}
