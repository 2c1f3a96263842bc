//! The `http` block as an engine of the server: its sockets, its life in a worker.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use base::log::Level;
use conf::ConfError;
use engine::{Engine, Help, Helper, Seat};
use event::{Accepted, Listener, TaskId};
use net::ListenSpec;

use crate::accept::accept;
use crate::server::HttpMain;

/// The engine of one loaded `http` block.
pub struct HttpEngine {
    main: Rc<HttpMain>,
    accepting: RefCell<Vec<(Rc<Listener>, TaskId)>>,
}

impl HttpEngine {
    /// The engine of a loaded block.
    pub fn new(main: Rc<HttpMain>) -> HttpEngine {
        HttpEngine { main, accepting: RefCell::default() }
    }

    /// The loaded block.
    pub fn main(&self) -> &Rc<HttpMain> {
        &self.main
    }
}

impl Engine for HttpEngine {
    fn name(&self) -> &'static str {
        "http"
    }

    fn listeners(&self) -> Vec<ListenSpec> {
        self.main.listens.iter().map(|l| l.spec.clone()).collect()
    }

    fn create_paths(&self, owner: Option<u32>) -> Result<(), ConfError> {
        self.main.temp_paths.iter().try_for_each(|t| t.create(owner))
    }

    fn start(&self, seat: &Seat, listeners: Vec<Listener>) -> io::Result<()> {
        self.main.stats.use_slot(seat.slot);
        crate::cache::start(crate::cache::caches(&self.main), &self.main.bells, seat.slot)?;
        let _ = self.main.debug_from.set(seat.debug_connections.clone());
        let mut accepting = self.accepting.borrow_mut();
        for (i, listener) in listeners.into_iter().enumerate() {
            let listener = Rc::new(listener);
            let task = event::spawn(listen(self.main.clone(), i, listener.clone()));
            accepting.push((listener, task));
        }
        let serving = Rc::downgrade(&self.main);
        engine::status::begin(&self.main.stats, &self.main.pools, move || {
            // One that leaves still works, until it has nothing to do.
            serving.upgrade().is_some_and(|main| !main.gate.is_closed() || main.active() > 0)
        });
        self.main.starts.iter().for_each(|start| start(&self.main, seat));
        Ok(())
    }

    fn take(&self, listener: usize, a: Accepted) {
        accept(&self.main, listener, a.sock, a.addr);
    }

    fn quit(&self) {
        for (i, (listener, task)) in self.accepting.take().into_iter().enumerate() {
            event::task::cancel(task);
            for a in listener.drain() {
                accept(&self.main, i, a.sock, a.addr);
            }
        }
        self.main.gate.close();
    }

    fn idle(&self) -> bool {
        self.main.active() == 0
    }

    fn force(&self) {
        self.main.forced.set(true);
        event::task::wake_all();
    }

    fn wants(&self, helper: Helper) -> bool {
        let caches = crate::cache::caches(&self.main);
        match helper {
            Helper::CacheManager => !caches.is_empty(),
            Helper::CacheLoader => caches.iter().any(|cache| !cache.is_known()),
        }
    }

    fn help(&self, helper: Helper, seat: &Seat) -> Option<Help> {
        let caches = crate::cache::caches(&self.main);
        if caches.is_empty() {
            return None;
        }
        caches.iter().for_each(|cache| cache.use_slot(seat.slot));
        Some(Box::pin(crate::cache::help(
            crate::cache::caches(&self.main),
            helper,
            self.main.gate.clone(),
        )))
    }

    fn worker_died(&self, slot: usize) {
        self.main.stats.worker_died(slot);
    }
}

/// Accepts on one socket until the listener is closed.
async fn listen(main: Rc<HttpMain>, number: usize, listener: Rc<Listener>) {
    loop {
        match listener.accept().await {
            Ok(a) => accept(&main, number, a.sock, a.addr),
            Err(e) => {
                let log = base::log::default();
                base::log!(log, Level::Alert, None, "accept() failed {}", base::log::os_error(&e));
                return;
            }
        }
    }
}
