//! The event loop of one thread: sockets, timers, tasks, and the drivers beneath them.
//!
//! A thread makes one [`Loop`]; free functions and the types here use the loop of their thread. An
//! operation is tried at once, where the driver allows it, and only one that would block takes a
//! slot, a timer and a turn of the loop. Futures hold the keys of slots and no memory that the
//! kernel sees; dropping one cancels its operation.

mod deadline;
mod deferral;
mod driver;
mod fd;
mod gate;
mod listener;
mod notify;
mod op;
pub mod pool;
mod race;
mod runtime;
mod side_by_side;
mod sock;
mod socketless;
pub mod testing;

pub use deadline::{Deadline, Elapsed, sleep, sleep_until, timeout};
pub use driver::{DriverKind, EPOLL_EVENTS, SELECT_MAX, sim};
pub use fd::Fd;
pub use gate::Gate;
pub use listener::{AcceptLock, Accepted, ListenOpts, Listener, accept_from};
pub use notify::Notify;
pub use op::fd_set::{FdSet, Member};
pub use op::{Side, Wake, read_file, read_over, reads_files};
pub use pool::{Pool, Pools, TaskError, run_blocking};
pub use race::{Either, Race, race, race_if, ready_now};
pub use runtime::clients::{Standing, forget_standings};
pub use runtime::spare::spare_time;
pub use runtime::task::{self, TaskId, spawn};
pub use runtime::turn::{
    Loop, Options, Presence, Room, STALL_MS, Stats, connections_in_use, connections_max,
    descriptor_closed, driver_name, posted, presence, room, stats, turn,
};
pub use runtime::victims::{
    Asked, displace, forget_unmoved, give_back, shed, shed_parked, shed_unmoved,
};
pub use side_by_side::side_by_side;
pub use sock::Sock;
pub use socketless::{Call, Rest, Socketless, has_room};
