//! A connection whose calls run on threads. A thread that an engine, a sentinel or a name server
//! holds up is left behind after a while, and the next attempt takes another one.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use event::{Deadline, Either, Notify};
use fleet::{Answer, Call, Failure, Settings};

use crate::link::{Link, Secrets};

/// Threads that may be held up at a time. More attempts wait for one of them.
const HELD_UP_MAX: usize = 4;

/// Time of a thread beyond `timeout=`: several steps, each with that limit, come one after the
/// other (a connection, the account, a round).
const STEPS: u64 = 4;

/// Attempts of [`Caller::attempt`] that may be in flight at a time, in a pool of many threads.
const ATTEMPTS_MAX: u64 = 8;

/// The same in the pool of this thread. Silent attempts leave half of its threads to calls of the
/// connection that has come, and to others.
fn attempts_max() -> u64 {
    let half = u64::try_from(event::pool::default().threads() / 2).unwrap_or(u64::MAX);
    half.clamp(1, ATTEMPTS_MAX)
}

/// The attempts of [`Caller::attempt`].
#[derive(Default)]
struct Attempts {
    in_flight: Cell<u64>,
    /// Whether connections are wanted: one that comes late is closed.
    are_wanted: Cell<bool>,
    /// Outcomes that nobody has looked at yet.
    ended: RefCell<Vec<Result<Link, Failure>>>,
    changed: Notify,
}

/// See the head of the file.
pub struct Caller {
    settings: Settings,
    secrets: Secrets,
    /// The connection, while there is one and no thread has it.
    link: Option<Link>,
    /// Counts threads that did not return in time.
    held_up: Rc<Cell<usize>>,
    attempts: Rc<Attempts>,
}

impl Caller {
    /// Without a connection.
    pub fn new(settings: &Settings, secrets: &Secrets) -> Caller {
        let (settings, secrets) = (settings.clone(), secrets.clone());
        let (held_up, attempts) = Default::default();
        Caller { settings, secrets, link: None, held_up, attempts }
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
        self.link = Some(self.link().await?);
        Ok(())
    }

    /// A new connection. The future has nothing of this value.
    fn link(&self) -> impl Future<Output = Result<Link, Failure>> + use<> {
        let (settings, secrets) = (self.settings.clone(), self.secrets.clone());
        let made = self.on_thread(move || Link::connect(&settings, &secrets));
        async move { made.await.and_then(|made| made) }
    }

    /// Begins an attempt to make the connection, and waits for it for `wait_ms` at most. Attempts
    /// that have not ended until then continue, next to those of later calls: an engine that is
    /// back answers a new one at once, and an old one late or never, because its packets were lost
    /// or wait where the engine was slow. Returns whether there is a connection.
    ///
    /// # Errors
    /// An attempt has failed, and no other one has made the connection.
    pub async fn attempt(&mut self, wait_ms: u64) -> Result<bool, Failure> {
        let attempts = self.attempts.clone();
        let (until, mut has_begun, mut failed) = (Deadline::in_ms(wait_ms), false, None);
        loop {
            // An earlier one may have ended meanwhile: an engine that is just back gets no second
            // connection, which would be closed at once.
            failed = self.take_ended().or(failed);
            if self.is_connected() {
                return Ok(true);
            }
            attempts.are_wanted.set(true);
            // If as many as may are in flight, it begins when one of them ends.
            if !has_begun && attempts.in_flight.get() < attempts_max() {
                has_begun = true;
                attempts.in_flight.set(attempts.in_flight.get() + 1);
                event::spawn(end(self.link(), attempts.clone()));
            }
            let are_over = attempts.in_flight.get() == 0;
            if are_over || !attempts.changed.notified_by(until).await {
                return failed.map_or(Ok(false), Err);
            }
        }
    }

    /// Whether one of the attempts before has made the connection.
    pub fn has_arrived(&mut self) -> bool {
        self.take_ended();
        self.is_connected()
    }

    /// Takes the connection, if an attempt has made one; a failure.
    fn take_ended(&mut self) -> Option<Failure> {
        let mut failed = None;
        for outcome in self.attempts.ended.take() {
            match outcome {
                Ok(link) => self.link = Some(link),
                Err(failure) => failed = Some(failure),
            }
        }
        if self.is_connected() {
            self.attempts.are_wanted.set(false);
        }
        failed
    }

    /// The time between the beginnings of two attempts, milliseconds. Not all of `timeout=`: if
    /// packets were lost, only a new attempt finds the engine.
    pub fn retry_ms(&self) -> u64 {
        self.settings.interval_ms.max(self.settings.timeout_ms / attempts_max())
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
    fn on_thread<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Failure>> + use<T, W> {
        let limit_ms = self.settings.timeout_ms.saturating_mul(STEPS);
        on_thread(self.held_up.clone(), limit_ms, work)
    }
}

/// Waits for the end of an attempt.
async fn end(link: impl Future<Output = Result<Link, Failure>>, attempts: Rc<Attempts>) {
    let outcome = link.await;
    attempts.in_flight.set(attempts.in_flight.get() - 1);
    if attempts.are_wanted.get() {
        attempts.ended.borrow_mut().push(outcome);
        attempts.changed.notify_one();
    }
}

/// Runs something that blocks on a thread. After the limit it is left behind, and counted.
async fn on_thread<T: Send + 'static>(
    held_up: Rc<Cell<usize>>,
    limit_ms: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if held_up.get() >= HELD_UP_MAX {
        return Err(failure("timed out: threads still wait for it"));
    }
    let mut work = Box::pin(event::run_blocking(work));
    match event::race(work.as_mut(), pin!(event::sleep(limit_ms))).await {
        Either::First(Ok(done)) => Ok(done),
        Either::First(Err(_)) => Err(failure("no thread could be had")),
        Either::Second(()) => {
            held_up.set(held_up.get() + 1);
            event::spawn(async move {
                let _ = work.await;
                held_up.set(held_up.get() - 1);
            });
            Err(failure("timed out"))
        }
    }
}

fn failure(reason: &str) -> Failure {
    Failure { reason: reason.to_owned(), reconnect: true }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Instant;

    use event::testing::real_drivers;
    use event::{Loop, Options};
    use fleet::Address;
    use testkit::Peer;

    use super::*;

    /// A relay to that port. Of the first connections, `silent`, nothing is answered as long as the
    /// relay lives.
    fn relay(to: u16, silent: usize) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for client in listener.incoming().map(Result::unwrap) {
                if held.len() < silent {
                    held.push(client);
                    continue;
                }
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
                let other = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || io::copy(&mut &client, &mut &server));
                std::thread::spawn(move || io::copy(&mut &other.0, &mut &other.1));
            }
        });
        port
    }

    fn caller(port: u16) -> Caller {
        let mut settings = fleet::model::settings();
        settings.addresses = vec![Address::Tcp("127.0.0.1".to_owned(), port)];
        // The silent ones do not end within a test.
        settings.timeout_ms = 3_600_000;
        Caller::new(&settings, &Secrets::default())
    }

    #[test]
    fn a_silent_attempt_hides_no_engine_that_is_back() {
        let peer = Peer::redis();
        for driver in real_drivers() {
            let port = relay(peer.port(), 3);
            let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
            let body = async move {
                let mut caller = caller(port);
                let mut calls = 1;
                while !caller.attempt(1).await.unwrap() {
                    calls += 1;
                }
                assert!(calls > 3, "on {driver:?}: connected at attempt {calls}");
                assert!(caller.is_connected());
                // One that is made late by another attempt is closed.
                let attempts = caller.attempts.clone();
                assert!(!attempts.are_wanted.get() && attempts.ended.borrow().is_empty());
            };
            event_loop.block_on(body).unwrap();
        }
    }

    /// A client that waits a limit for the answer to each command of the login takes two limits,
    /// or three with a database, however fast the machine is.
    #[test]
    fn a_silent_engine_takes_an_attempt_one_limit() {
        const LIMIT_MS: u128 = 300;
        let port = relay(1, usize::MAX);
        for (driver, database) in real_drivers().into_iter().flat_map(|one| [(one, 0), (one, 3)]) {
            let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
            let body = async move {
                let mut caller = caller(port);
                caller.settings.timeout_ms = LIMIT_MS as u64;
                caller.settings.database = database;
                // On a busy machine, one of a few tries shows it.
                for _ in 0..20 {
                    let began = Instant::now();
                    let failure = caller.attempt(3_600_000).await.unwrap_err();
                    assert_eq!(failure.reason, "timed out");
                    if began.elapsed().as_millis() < 2 * LIMIT_MS {
                        return;
                    }
                }
                panic!("on {driver:?}, database {database}: each try takes two limits");
            };
            event_loop.block_on(body).unwrap();
        }
    }

    #[test]
    fn a_connection_that_has_come_is_taken_before_another_attempt() {
        let peer = Peer::redis();
        let mut event_loop = Loop::new(Options::default()).unwrap();
        let body = async move {
            let mut caller = caller(peer.port());
            let attempts = caller.attempts.clone();
            // The first one begins here, and has no time to end.
            assert_eq!(caller.attempt(0).await, Ok(false));
            assert!(attempts.changed.notified_by(Deadline::in_ms(3_600_000)).await);
            assert_eq!(caller.attempt(0).await, Ok(true));
            assert_eq!(attempts.in_flight.get(), 0);
        };
        event_loop.block_on(body).unwrap();
    }

    #[test]
    fn attempts_leave_threads_of_a_small_pool_to_others() {
        let port = relay(1, usize::MAX);
        let mut event_loop = Loop::new(Options::default()).unwrap();
        let body = async move {
            for (threads, most) in [(1, 1), (6, 3), (64, ATTEMPTS_MAX)] {
                event::pool::set_default(event::pool::Pool::new("default", threads, 100));
                let mut caller = caller(port);
                for _ in 0..2 * ATTEMPTS_MAX {
                    assert_eq!(caller.attempt(0).await, Ok(false));
                }
                assert_eq!(caller.attempts.in_flight.get(), most);
            }
        };
        event_loop.block_on(body).unwrap();
    }

    #[test]
    fn an_attempt_begins_when_one_of_all_ends() {
        let peer = Peer::redis();
        for driver in real_drivers() {
            let port = relay(peer.port(), 1);
            let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
            let body = async move {
                // It allows one attempt.
                event::pool::set_default(event::pool::Pool::new("default", 1, 100));
                let mut caller = caller(port);
                caller.settings.timeout_ms = 300;
                assert_eq!(caller.attempt(0).await, Ok(false));
                caller.settings.timeout_ms = 3_600_000;
                assert_eq!(caller.attempt(3_600_000).await, Ok(true), "on {driver:?}");
            };
            event_loop.block_on(body).unwrap();
        }
    }

    #[test]
    fn a_number_of_attempts_is_in_flight_at_most() {
        let port = relay(1, usize::MAX);
        let mut event_loop = Loop::new(Options::default()).unwrap();
        let body = async move {
            let mut caller = caller(port);
            for n in 1..3 * ATTEMPTS_MAX {
                assert_eq!(caller.attempt(0).await, Ok(false));
                assert_eq!(caller.attempts.in_flight.get(), n.min(ATTEMPTS_MAX));
            }
        };
        event_loop.block_on(body).unwrap();
    }

    #[test]
    fn a_refused_attempt_is_a_failure_at_once() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut event_loop = Loop::new(Options::default()).unwrap();
        let body = async move {
            let failure = caller(port).attempt(3_600_000).await.unwrap_err();
            assert_eq!(failure.reason, "connection refused");
        };
        event_loop.block_on(body).unwrap();
    }
}
