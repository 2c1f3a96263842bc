//! The relays of a worker's UDP sessions, and the single task that runs their turns.
//!
//! ```text
//!   a client's datagram ───────────────────────────┐
//!   a server's datagram ─▶ set ──┐                 ▼
//!   a deadline ─▶ timer ─────────┴▶ the task ──▶ turn ──▶ waits, is queued, or ends
//!   eviction, or more to do ▶ queue ┘
//! ```
//!
//! An idle session is an entry in this table, a timer, and its socket's registration in the loop:
//! it has no task, future or other allocation. A panic in a turn costs that session alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::task::Waker;

use base::time::now_ms;
use event::{Deadline, FdSet, Member};

use super::client::{Client, NO_PLACE};
use super::outbox::Outbox;
use super::relay::{Pause, Relay};
use super::timers::{PLACES_MAX, Timers};
use crate::accept;
use crate::phases::status;
use crate::server::StreamMain;

/// The maximum duration of a timer, in milliseconds.
const TIMER_MAX_MS: u64 = 1 << 30;

/// The UDP relays of a worker.
pub(crate) struct Table {
    set: FdSet,
    places: RefCell<Places>,
    /// Sessions queued for a turn.
    queue: RefCell<Vec<Rc<Client>>>,
    timers: RefCell<Timers>,
    /// Tasks of sessions that are not in the table, by client.
    arrivals: RefCell<HashMap<*const Client, Waker>>,
    /// Answers of the sessions that had their turn.
    outbox: RefCell<Outbox>,
    /// The time at which the waiting task checks its timers, in milliseconds.
    looks_ms: Cell<u64>,
}

#[derive(Default)]
struct Places {
    list: Vec<Option<Rc<Client>>>,
    free: Vec<u32>,
}

impl Places {
    fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    fn get(&self, place: u32) -> Option<&Rc<Client>> {
        self.list.get(place as usize)?.as_ref()
    }

    fn take(&mut self, client: Rc<Client>) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            self.list[place as usize] = Some(client);
            return Some(place);
        }
        let place = self.list.len();
        (place < PLACES_MAX).then(|| {
            self.list.push(Some(client));
            place as u32
        })
    }

    fn give_back(&mut self, place: u32) -> Option<Rc<Client>> {
        let client = self.list.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(client)
    }
}

/// Ends all sessions when the event loop drops the table's task.
struct Owner(Rc<Table>);

impl Drop for Owner {
    fn drop(&mut self) {
        let clients = std::mem::take(&mut self.0.places.borrow_mut().list);
        for client in clients.into_iter().flatten() {
            client.place.set(NO_PLACE);
            // Taken out of the borrow first, because dropping the relay accesses the client.
            let relay = client.relay.take();
            drop(relay);
        }
    }
}

impl Table {
    /// Creates the table of this thread's loop, and its task.
    pub fn start(main: &Rc<StreamMain>) -> Rc<Table> {
        mem::on_trim(super::inbox::trim);
        let table = Rc::new(Table {
            set: FdSet::new(),
            places: RefCell::default(),
            queue: RefCell::default(),
            timers: RefCell::default(),
            arrivals: RefCell::default(),
            outbox: RefCell::default(),
            looks_ms: Cell::new(0),
        });
        let (owner, main) = (Owner(table.clone()), Rc::downgrade(main));
        event::spawn(async move { owner.0.run(main).await });
        table
    }

    pub(super) fn member(&self, fd: OwnedFd, place: u32) -> Member {
        self.set.add(fd, place)
    }

    /// Adds a session, which had a task until now.
    pub(super) fn adopt(&self, client: &Rc<Client>, relay: Relay) {
        let Some(place) = self.places.borrow_mut().take(client.clone()) else {
            return end(relay, status::INTERNAL);
        };
        client.place.set(place);
        let server = relay.s.server.clone();
        *client.relay.borrow_mut() = Some(relay);
        if let Some(more) = server.pipeline.datagrams.as_ref().and_then(|p| p.further_datagrams()) {
            client.limit(more);
        }
        self.turn(client, false);
    }

    /// Runs a session's turn now, or queues it if it is already running.
    pub(super) fn turn(&self, client: &Rc<Client>, came: bool) {
        let Ok(mut place) = client.relay.try_borrow_mut() else {
            // Its turn is running: the next one will see what has arrived since.
            return self.queue(client);
        };
        let Some(relay) = place.as_mut() else {
            drop(place);
            return self.forget_arrivals(client).into_iter().for_each(Waker::wake);
        };
        let paused = event::task::caught(|| {
            let server = relay.s.server.clone();
            match &server.pipeline.datagrams {
                Some(proxy) => proxy.turn(relay, client, came),
                None => Err(status::INTERNAL),
            }
        });
        drop(place);
        match paused {
            Some(Ok(Pause::Busy)) => self.queue(client),
            Some(Ok(Pause::Until(at_ms))) => self.set_timer(client, at_ms),
            Some(Err(status)) => self.leave(client, Some(status)),
            None => self.leave(client, None),
        }
        if self.has_full_outbox() {
            self.flush();
        }
    }

    /// Wakes the task of a session that is not in the table when it would have a turn.
    pub(super) fn wake_at_arrival(&self, client: &Rc<Client>, waker: &Waker) {
        self.arrivals.borrow_mut().insert(Rc::as_ptr(client), waker.clone());
    }

    /// Undoes that. Returns what would have been woken.
    pub(super) fn forget_arrivals(&self, client: &Client) -> Option<Waker> {
        let mut arrivals = self.arrivals.borrow_mut();
        if arrivals.is_empty() { None } else { arrivals.remove(&std::ptr::from_ref(client)) }
    }

    /// Queues an answer until the task has run all turns.
    pub(super) fn answer(&self, client: &Rc<Client>, bytes: &[u8], segment: usize) {
        self.outbox.borrow_mut().push(client, bytes, segment);
    }

    pub(super) fn has_full_outbox(&self) -> bool {
        self.outbox.borrow().is_full()
    }

    /// Sends the queued answers. No turn runs during that.
    fn flush(&self) {
        if self.outbox.borrow().is_empty() {
            return;
        }
        let mut outbox = self.outbox.take();
        outbox.flush(|client, bytes, e| {
            if let Ok(relay) = client.relay.try_borrow()
                && let Some(relay) = &*relay
            {
                relay.answer_failed(bytes as u64, &e);
            }
        });
        *self.outbox.borrow_mut() = outbox;
    }

    /// Ends a session after its answers; without a status if a panic ended it.
    fn leave(&self, client: &Rc<Client>, status: Option<u16>) {
        self.flush();
        let relay = client.relay.take();
        let known = self.places.borrow_mut().give_back(client.place.replace(NO_PLACE));
        drop(known);
        event::task::caught(|| match (relay, status) {
            (Some(relay), Some(status)) => end(relay, status),
            (relay, _) => drop(relay),
        });
    }

    /// Queues a session for a turn.
    pub(super) fn queue(&self, client: &Rc<Client>) {
        if !client.is_queued.replace(true) {
            self.queue.borrow_mut().push(client.clone());
            self.set.wake();
        }
    }

    fn set_timer(&self, client: &Client, at_ms: u64) {
        // Limited to less than half the range of the 32-bit times, so that they can be compared; 0
        // means no timer.
        let at_ms = at_ms.min(now_ms() + TIMER_MAX_MS);
        let at_ms = at_ms + u64::from(at_ms as u32 == 0);
        let timer = client.timer.get();
        // The existing timer fires earlier, and will be set again then.
        if timer != 0 && (at_ms as u32).wrapping_sub(timer) <= u32::MAX / 2 {
            return;
        }
        client.timer.set(at_ms as u32);
        let mut timers = self.timers.borrow_mut();
        timers.begin(at_ms, client.place.get());
        if at_ms < self.looks_ms.get() {
            self.set.wake();
        }
        let places = self.places.borrow();
        if timers.want_sweep(places.len()) {
            timers.sweep(|at_ms, place| {
                places.get(place).is_some_and(|client| client.timer.get() == at_ms as u32)
            });
        }
    }

    async fn run(&self, main: Weak<StreamMain>) {
        let Some(gate) = main.upgrade().map(|main| main.life.gate.clone()) else { return };
        let mut is_leaving = false;
        let mut ready = Vec::new();
        loop {
            if self.queue.borrow().is_empty() {
                let looks_ms = self.timers.borrow().next_ms().unwrap_or(u64::MAX);
                self.looks_ms.set(looks_ms);
                self.set.ready(&gate, Deadline::at(looks_ms)).await;
                self.looks_ms.set(0);
            } else {
                // Let other tasks run first.
                event::task::yield_now().await;
            }
            self.set.take_ready(&mut ready);
            for place in ready.drain(..) {
                self.turn_at(place, true);
            }
            let queued = std::mem::take(&mut *self.queue.borrow_mut());
            for client in queued {
                client.is_queued.set(false);
                self.turn(&client, true);
            }
            self.fire();
            self.flush();
            let Some(main) = main.upgrade() else { return };
            if main.life.is_given_up() {
                self.give_up();
            } else if !std::mem::replace(&mut is_leaving, gate.is_closed()) && is_leaving {
                self.leaves();
                self.flush();
            }
        }
    }

    fn turn_at(&self, place: u32, came: bool) {
        let client = self.places.borrow().get(place).cloned();
        if let Some(client) = client {
            self.turn(&client, came);
        }
    }

    /// Runs the turns of all sessions whose timers are due.
    fn fire(&self) {
        let now = now_ms();
        loop {
            let Some((at_ms, place)) = self.timers.borrow_mut().take(now) else { return };
            let client = self.places.borrow().get(place).cloned();
            if let Some(client) = client
                && client.timer.get() == at_ms as u32
            {
                client.timer.set(0);
                self.turn(&client, true);
            }
        }
    }

    fn all(&self) -> Vec<Rc<Client>> {
        self.places.borrow().list.iter().flatten().cloned().collect()
    }

    /// Called on graceful shutdown: the successor reads the shared socket, and so gets the
    /// datagrams of clients without their own socket.
    fn leaves(&self) {
        for client in self.all() {
            if !client.is_kept() {
                client.close();
            }
            self.turn(&client, true);
        }
    }

    /// Ends all sessions.
    fn give_up(&self) {
        for client in self.all() {
            let status = client.relay.borrow().as_ref().map(|relay| accept::given_up(&relay.s));
            self.leave(&client, status);
        }
    }
}

/// Logs an ended session.
fn end(relay: Relay, status: u16) {
    accept::end_datagrams(relay.into_session(), status);
}
