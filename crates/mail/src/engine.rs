//! The `mail` block as an engine of the server: its sockets, its life in a worker.

use std::io;
use std::rc::Rc;

use common_modules::passing;
use engine::life::Accepting;
use engine::{Engine, Seat};
use event::{Accepted, Listener};
use net::ListenSpec;

use crate::accept::accept;
use crate::moved;
use crate::server::MailMain;

/// The engine of one loaded `mail` block.
pub struct MailEngine {
    main: Rc<MailMain>,
    accepting: Accepting,
}

impl MailEngine {
    /// The engine of a loaded block.
    pub fn new(main: Rc<MailMain>) -> MailEngine {
        MailEngine { main, accepting: Accepting::default() }
    }
}

impl Engine for MailEngine {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn listeners(&self) -> Vec<ListenSpec> {
        self.main.listens.iter().map(|l| l.spec.clone()).collect()
    }

    fn start(&self, seat: &Seat, listeners: Vec<Listener>) -> io::Result<()> {
        self.main.stats.use_slot(seat.slot);
        let _ = self.main.seat.set(seat.clone());
        self.main.life.set_moves(seat.moves.as_ref());
        seat.moves.iter().for_each(|moves| moved::register(&self.main, moves));
        let main = self.main.clone();
        passing::register(&main, main.listens.iter().map(|l| &l.spec));
        self.accepting.begin(listeners, move |i, a| accept(&main, i, a.sock, a.addr));
        self.main.starts.iter().try_for_each(|start| start(&self.main, seat))
    }

    fn take(&self, listener: usize, a: Accepted) {
        accept(&self.main, listener, a.sock, a.addr);
    }

    fn quit(&self) {
        self.accepting.end(|i, a| accept(&self.main, i, a.sock, a.addr));
        self.main.life.gate.close();
    }

    fn idle(&self) -> bool {
        self.main.life.active() == 0
    }

    fn force(&self) {
        self.main.life.give_up();
    }

    fn worker_died(&self, slot: usize) {
        self.main.stats.worker_died(slot);
    }
}
