//! Measures how long modules from outside the project hold up the event loop, and names the module
//! in the log if it is too long.
//!
//! What such a module installs is wrapped (`http::watch`): the clock is read around each call, and
//! around each poll of the module's futures, body sources and filters. A stretch of 100 ms or more
//! is logged. *Waiting* for something does not count, only the time between two waits.
//!
//! The project's own modules are not wrapped, because reading the clock twice a call costs more
//! than most of them.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use base::log::{Level, Log};

use crate::beat::{self, Outer};
use crate::session::Session;

/// The length from which on a stretch is logged, in milliseconds.
const HELD_MS: u128 = 100;

thread_local! {
    /// Stretches logged so far: of stretches within each other, the innermost alone is logged.
    static LOGGED: Cell<u64> = const { Cell::new(0) };
}

/// The log of a stretch, and the connection that its line names.
pub type StretchLog = Rc<(Log, u64)>;

/// The log for stretches of this session.
pub fn log_of<S: Session>(s: &S) -> StretchLog {
    Rc::new((s.error_log().clone(), s.connection()))
}

/// One stretch on the loop.
struct Stretch {
    began: Instant,
    logged: u64,
    outer: Outer,
}

impl Stretch {
    fn begin(module: &str) -> Stretch {
        let outer = beat::enter(module);
        Stretch { began: Instant::now(), logged: LOGGED.get(), outer }
    }

    #[inline]
    fn end(self, module: &str, log: impl FnOnce() -> (Log, u64)) {
        beat::leave(self.outer);
        let ms = self.began.elapsed().as_millis();
        if ms >= HELD_MS && self.logged == LOGGED.get() {
            held(ms, module, log());
        }
    }
}

#[cold]
fn held(ms: u128, module: &str, (log, connection): (Log, u64)) {
    LOGGED.set(LOGGED.get() + 1);
    base::log!(
        log,
        Level::Warn,
        Some(connection),
        "event loop was held for {ms} ms by module {module}"
    );
}

/// Calls code of a module.
pub fn call<S: Session, T>(s: &mut S, module: &'static str, f: impl FnOnce(&mut S) -> T) -> T {
    let stretch = Stretch::begin(module);
    let value = f(s);
    stretch.end(module, || (s.error_log().clone(), s.connection()));
    value
}

/// Calls code of a module whose result may borrow the session.
pub fn call_with<T>(log: &StretchLog, module: &'static str, f: impl FnOnce() -> T) -> T {
    let stretch = Stretch::begin(module);
    let value = f();
    stretch.end(module, || (**log).clone());
    value
}

/// A module's future: each poll of it is a stretch.
pub struct Watched<F: ?Sized> {
    /// The module to name.
    pub module: &'static str,
    /// The log for its stretches.
    pub log: StretchLog,
    /// The future itself.
    pub future: Pin<Box<F>>,
}

impl<F: Future + ?Sized> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let stretch = Stretch::begin(self.module);
        let polled = self.future.as_mut().poll(cx);
        stretch.end(self.module, || (*self.log).clone());
        polled
    }
}
