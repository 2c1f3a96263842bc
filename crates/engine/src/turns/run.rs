//! Runs requests within the task of their connection. A request is polled once, as soon as its
//! header section is complete; if its body follows, it is polled after the frames that were
//! received with it, because a small body is complete then. Only a request that has to wait becomes
//! a task of its own.
//!
//! Most requests finish with the first poll, and the box of their future serves the next one. Such
//! a poll has a task name of its own (`event::task::Unborn`), so that a wake-up reaches the request
//! and not its connection.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use crate::slice::{InTurn, Share};
use event::task::Unborn;

/// The jobs of a future that does one after the other.
pub struct Inbox<J> {
    job: Cell<Option<J>>,
    /// The job was done.
    done: Cell<bool>,
    /// There are no others behind this one.
    last: Cell<bool>,
}

impl<J> Inbox<J> {
    fn new() -> Inbox<J> {
        Inbox { job: Cell::new(None), done: Cell::new(false), last: Cell::new(false) }
    }

    /// Does the jobs, up to the first one that has to wait.
    pub async fn work(&self, job: impl AsyncFn(J)) {
        loop {
            job(poll_fn(|_| self.job.take().map_or(Poll::Pending, Poll::Ready)).await).await;
            self.done.set(true);
            if self.last.get() {
                return;
            }
        }
    }
}

struct Worker<J, F> {
    inbox: Rc<Inbox<J>>,
    future: Pin<Box<F>>,
    name: Unborn,
}

/// Runs jobs, each in a future that `make` has made for it or for one before it. A future is built
/// in its box and stays there, however many jobs it does at once.
pub struct Runner<J, F, M> {
    /// The time of those that have become tasks.
    share: Rc<Share>,
    make: M,
    idle: Option<Worker<J, F>>,
}

impl<J, F, M> Runner<J, F, M>
where
    J: 'static,
    F: Future<Output = ()> + 'static,
    M: Fn(Rc<Inbox<J>>) -> Pin<Box<F>>,
{
    /// A runner without jobs.
    pub fn new(make: M) -> Runner<J, F, M> {
        Runner { share: Rc::default(), make, idle: None }
    }

    /// Has a job done; where it waits, it goes on as a task. Says whether it does.
    pub fn run(&mut self, job: J) -> bool {
        let mut worker = self.idle.take().unwrap_or_else(|| {
            let inbox = Rc::new(Inbox::new());
            Worker { future: (self.make)(inbox.clone()), inbox, name: Unborn::new() }
        });
        worker.inbox.job.set(Some(job));
        worker.inbox.done.set(false);
        let polled = worker.name.poll(&mut worker.future);
        let waits = polled.is_pending() && !worker.inbox.done.get();
        if waits {
            worker.inbox.last.set(true);
            worker.name.spawn(InTurn { share: self.share.clone(), stream: worker.future });
        } else if polled.is_pending() {
            self.idle = Some(worker);
        }
        waits
    }
}
