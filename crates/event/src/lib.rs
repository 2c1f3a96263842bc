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
mod hold;
mod listener;
mod notify;
mod op;
pub mod pool;
mod race;
mod runtime;
mod side_by_side;
pub mod sim;
mod sock;
mod socketless;
mod state;
pub mod testing;

pub use deadline::{Deadline, Elapsed, sleep, sleep_until, timeout};
pub use driver::{DriverKind, EPOLL_EVENTS, SELECT_MAX};
pub use fd::Fd;
pub use gate::Gate;
pub use hold::{Hold, hold, is_held};
pub use listener::{AcceptLock, Accepted, ListenOpts, Listener, accept_from};
pub use notify::Notify;
pub use op::fd_set::{FdSet, Member};
pub use op::read::{read_file, read_over, reads_files};
pub use op::ready::{Side, Wake};
pub use pool::{Pool, Pools, TaskError, run_blocking};
pub use race::{Either, Race, race, race_if, ready_now};
pub use runtime::accepting::descriptor_closed;
pub use runtime::clients::forget_standings;
pub use runtime::inner::{Presence, driver_name, posted, presence, stats, turn};
pub use runtime::room::{Room, connections_in_use, connections_max, room};
pub use runtime::spare::spare_time;
pub use runtime::task::{self, TaskId, spawn};
pub use runtime::turn::{Loop, Options, STALL_MS};
pub use runtime::victims::{displace, forget_unmoved, give_back, shed, shed_parked, shed_unmoved};
pub use side_by_side::side_by_side;
pub use sock::Sock;
pub use socketless::{Call, Rest, Socketless, has_room};
pub use state::Stats;
pub use state::clients::Standing;
pub use state::victims::Asked;
