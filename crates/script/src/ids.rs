//! Numbers by which the host names what a script waits for.

/// What a native has asked of the host; `Instance::complete` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// A timer of `setTimeout`; `Instance::timer_fired` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(pub u64);
