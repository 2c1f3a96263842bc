//! The tasks that wait for something of a stream.

use std::task::{Context, Waker};

/// Keeps the waker of the one task that waits.
pub fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}

/// Keeps the waker of a task that waits beside others.
pub fn add(all: &mut Vec<Waker>, cx: &Context<'_>) {
    if !all.iter().any(|waker| waker.will_wake(cx.waker())) {
        all.push(cx.waker().clone());
    }
}

/// Wakes the task that waits; says whether there was one.
pub fn wake(place: &mut Option<Waker>) -> bool {
    place.take().map(Waker::wake).is_some()
}
