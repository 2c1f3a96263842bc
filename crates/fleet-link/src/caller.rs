//! A connection whose calls run on threads. A thread that an engine, a sentinel or a name server
//! holds up is left behind after a while, and the next attempt takes another one.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use event::Either;
use fleet::{Answer, Call, Failure, Settings};

use crate::link::{Link, Secrets};

/// Threads that may be held up at a time. More attempts wait for one of them.
const HELD_UP_MAX: usize = 4;

/// Time of a thread beyond `timeout=`: several steps, each with that limit, come one after the
/// other (a connection, the account, a round).
const STEPS: u64 = 4;

/// See the head of the file.
pub struct Caller {
    settings: Settings,
    secrets: Secrets,
    /// The connection, while there is one and no thread has it.
    link: Option<Link>,
    /// Counts threads that did not return in time.
    held_up: Rc<Cell<usize>>,
}

impl Caller {
    /// Without a connection.
    pub fn new(settings: &Settings, secrets: &Secrets) -> Caller {
        let (settings, secrets) = (settings.clone(), secrets.clone());
        Caller { settings, secrets, link: None, held_up: Rc::default() }
    }

    /// `prefix=`
    pub fn prefix(&self) -> String {
        self.settings.prefix.clone()
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Ends the connection.
    pub fn disconnect(&mut self) {
        self.link = None;
    }

    /// Makes the connection.
    ///
    /// # Errors
    /// It could not be made.
    pub async fn connect(&mut self) -> Result<(), Failure> {
        let (settings, secrets) = (self.settings.clone(), self.secrets.clone());
        let made = self.on_thread(move || Link::connect(&settings, &secrets)).await;
        self.link = Some(made.and_then(|made| made)?);
        Ok(())
    }

    /// Runs a call; connects if there is no connection.
    ///
    /// # Errors
    /// There is no answer, or it is an error of the engine; the connection is gone then.
    pub async fn run(&mut self, call: Call) -> Result<Answer, Failure> {
        if !self.is_connected() {
            self.connect().await?;
        }
        let answer = self.exchange(vec![call]).await.and_then(|mut answers| match answers.pop() {
            Some(Answer::Error(text)) => Err(failure(&text)),
            Some(answer) => Ok(answer),
            None => Err(failure("there is no answer")),
        });
        if answer.is_err() {
            self.disconnect();
        }
        answer
    }

    /// Runs calls. The connection is gone if that takes too long.
    ///
    /// # Errors
    /// There are no answers.
    pub async fn exchange(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, Failure> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mut link) = self.link.take() else {
            return Err(failure("there is no connection"));
        };
        let exchanged = self.on_thread(move || {
            let outcome = link.exchange(&calls);
            (link, outcome)
        });
        let (link, outcome) = exchanged.await?;
        self.link = Some(link);
        outcome
    }

    /// Runs something that blocks on a thread, and waits for it for a while.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.held_up.get() >= HELD_UP_MAX {
            return Err(failure("timed out: threads still wait for it"));
        }
        let mut work = Box::pin(event::run_blocking(work));
        let limit_ms = self.settings.timeout_ms.saturating_mul(STEPS);
        match event::race(work.as_mut(), pin!(event::sleep(limit_ms))).await {
            Either::First(Ok(done)) => Ok(done),
            Either::First(Err(_)) => Err(failure("no thread could be had")),
            Either::Second(()) => {
                let held_up = self.held_up.clone();
                held_up.set(held_up.get() + 1);
                event::spawn(async move {
                    let _ = work.await;
                    held_up.set(held_up.get() - 1);
                });
                Err(failure("timed out"))
            }
        }
    }
}

fn failure(reason: &str) -> Failure {
    Failure { reason: reason.to_owned(), reconnect: true }
}
