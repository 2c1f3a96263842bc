//! The life of an engine in a worker: its work in progress, and how it leaves.
//!
//! A leaving worker does not close a kept connection just when the client's next request may
//! arrive: the connection moves to another worker ([`net::moves`]). Where it cannot, the worker
//! continues to answer for a short while, sends `Connection: close` with the last response, and
//! closes connections that stay idle (`http::h1`; HTTP/2 and HTTP/3 send GOAWAY).

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use base::log::Level;
use event::{Accepted, Gate, Listener, TaskId};
use net::Origin;
use net::moves::Moves;
use os::SockAddr;

use crate::stats::{Field, Stats};

use crate::lifecycle::Help;

/// Whether a worker's engine is to leave, or gives up, and how much of its work is left.
#[derive(Default)]
pub struct Life {
    /// Closed when the worker is to leave: parked connections wake, and answers end theirs.
    pub gate: Gate,
    given_up: Cell<bool>,
    active: Rc<Cell<usize>>,
    endings: RefCell<Vec<Ending>>,
    moves: OnceCell<Rc<Moves>>,
}

/// See [`Life::at_end`].
type Ending = Box<dyn Fn() -> Option<Help>>;

impl Life {
    /// Has a worker that is to exit at once ask for what must leave the process before. That has a
    /// moment: see [`crate::Engine::last_work`].
    pub fn at_end(&self, ending: impl Fn() -> Option<Help> + 'static) {
        self.endings.borrow_mut().push(Box::new(ending));
    }

    /// The tasks that have to end before the worker exits.
    pub fn last_work(&self) -> Vec<Help> {
        self.endings.borrow().iter().filter_map(|ending| ending()).collect()
    }

    /// Lets connections move to another process when the worker leaves.
    pub fn set_moves(&self, moves: Option<&Rc<Moves>>) {
        if let Some(moves) = moves {
            let _ = self.moves.set(moves.clone());
        }
    }

    /// The worker's part in moves; none in a server of one process.
    #[inline]
    pub fn moves(&self) -> Option<&Rc<Moves>> {
        self.moves.get()
    }

    /// Says whether the worker is to leave.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.gate.is_closed()
    }

    /// Gives up what is under way: every task wakes and finds its work at an end.
    pub fn give_up(&self) {
        self.given_up.set(true);
        event::task::wake_all();
    }

    /// Whether what is under way is to end.
    pub fn is_given_up(&self) -> bool {
        self.given_up.get()
    }

    /// Work that keeps a worker from leaving while it lasts.
    pub fn work(&self) -> Work {
        self.begin();
        Work(self.active.clone())
    }

    /// A piece of work begins, whose owner calls [`Life::end`] in its drop.
    fn begin(&self) {
        self.active.set(self.active.get() + 1);
    }

    /// A piece of work ended that [`Life::begin`] has counted.
    fn end(&self) {
        self.active.set(self.active.get().saturating_sub(1));
    }

    /// The pieces of work under way.
    pub fn active(&self) -> usize {
        self.active.get()
    }

    /// Runs `future` until it ends, or until connections are given up: it is dropped then. Costs
    /// nothing meanwhile, as every task is woken when that comes.
    pub fn unless_given_up<T>(
        &self,
        mut future: impl Future<Output = T> + Unpin,
    ) -> impl Future<Output = Option<T>> {
        std::future::poll_fn(move |cx| match self.given_up.get() {
            true => Poll::Ready(None),
            false => Pin::new(&mut future).poll(cx).map(Some),
        })
    }
}

/// An engine's block, compiled, as far as all engines have it.
pub trait Main {
    /// The state of the engine's life in this worker.
    fn life(&self) -> &Life;

    /// The counters of all workers.
    fn stats(&self) -> &Stats;

    /// `debug_connection`; none before the worker has begun.
    fn debug_connections(&self) -> &[Origin];

    /// Whether every line about this client is logged: `debug_connection` names it, or `weir debug`
    /// for the moment.
    fn debugs(&self, peer: &SockAddr) -> bool {
        self.debug_connections().iter().any(|origin| origin.matches(peer))
            || self.stats().live_debug.matches(peer)
    }
}

/// The block that a connection is served under, which counts as active as long as it has it.
pub struct Active<M: Main>(Rc<M>);

impl<M: Main> Active<M> {
    /// A connection begins.
    pub fn new(main: &Rc<M>) -> Active<M> {
        main.stats().add(Field::Active, 1);
        main.life().begin();
        Active(main.clone())
    }
}

impl<M: Main> Deref for Active<M> {
    type Target = Rc<M>;

    fn deref(&self) -> &Rc<M> {
        &self.0
    }
}

impl<M: Main> Drop for Active<M> {
    fn drop(&mut self) {
        self.0.stats().sub(Field::Active, 1);
        self.0.life().end();
    }
}

/// A piece of work under way; it ends when this is dropped.
pub struct Work(Rc<Cell<usize>>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// The listening sockets of an engine in a worker, each with the task that accepts from it.
#[derive(Default)]
pub struct Accepting(RefCell<Vec<(Rc<Listener>, TaskId)>>);

impl Accepting {
    /// Accepts from now on; `serve` gets each connection with the number of its listener.
    pub fn begin(
        &self,
        listeners: Vec<Listener>,
        serve: impl Fn(usize, Accepted) + Clone + 'static,
    ) {
        let mut all = self.0.borrow_mut();
        for (i, listener) in listeners.into_iter().enumerate() {
            let (listener, serve) = (Rc::new(listener), serve.clone());
            let task = event::spawn(accept(listener.clone(), move |accepted| serve(i, accepted)));
            all.push((listener, task));
        }
    }

    /// Accepts no more: connections that wait in the sockets' queues are served, and the sockets
    /// are closed.
    pub fn end(&self, serve: impl Fn(usize, Accepted)) {
        for (i, (listener, task)) in self.0.take().into_iter().enumerate() {
            event::task::cancel(task);
            listener.drain().into_iter().for_each(|accepted| serve(i, accepted));
        }
    }
}

/// Accepts on one socket until the listener is closed.
async fn accept(listener: Rc<Listener>, serve: impl Fn(Accepted)) {
    loop {
        match listener.accept().await {
            Ok(accepted) => serve(accepted),
            Err(e) => {
                let log = base::log::default();
                base::log!(log, Level::Alert, None, "accept() failed {}", base::log::os_error(&e));
                return;
            }
        }
    }
}
