//! The seam between the server, which owns processes, sockets and signals, and the engines (`http`,
//! `mail`, `stream`), which own the conversations over connections.
//!
//! An engine is the outcome of reading its block of the configuration. The life of one in a worker:
//!
//! ```text
//!  built ─(fork)─► start(sockets) ─► serves ─► quit() ─► answers what is left ─► idle() ─► dropped
//!                                                └─(worker_shutdown_timeout)─► force() ─┘
//! ```
//!
//! In the master it is only asked for its sockets and its folders, and told of dead workers.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;

use base::log::Log;
use conf::ConfError;
use event::{Accepted, Gate, Listener};
use net::listeners::Removals;
use net::moves::Moves;
use net::quic_relay::Relay;
use net::{ListenSpec, Origin};

/// The place that a worker has among the processes of its master.
#[derive(Clone)]
pub struct Seat {
    /// The number among the workers of its configuration, from 0.
    pub index: usize,
    /// The number among all living processes of the master, below [`SLOTS`]: the line of counters
    /// that is this process's alone.
    pub slot: usize,
    /// The main error log.
    pub log: Log,
    /// `debug_connection`: whose connections are logged in full.
    pub debug_connections: Rc<[Origin]>,
    /// Closed once no process of a configuration before receives datagrams from the same sockets:
    /// until then they are that process's.
    pub alone: Gate,
    /// The connections of QUIC that this process and others have; none where no address is QUIC's.
    pub relay: Option<Rc<Relay>>,
    /// The moves of live connections to and from other workers; none in a server of one process.
    pub moves: Option<Rc<Moves>>,
    /// Whether the addresses of datagrams are removed: a leaving worker looks.
    pub removals: Removals,
}

/// The most processes of a master, with those that are leaving.
pub const SLOTS: usize = 1024;

/// A process beside the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// Looks after caches as long as the server runs.
    CacheManager,
    /// Reads which entries they hold, and exits.
    CacheLoader,
    /// Has certificates issued and renewed.
    Acme,
    /// Shares zones with other servers through Redis or Valkey.
    SharedState,
}

impl Helper {
    /// All, in the order of their start.
    pub const ALL: [Helper; 4] =
        [Helper::CacheManager, Helper::CacheLoader, Helper::Acme, Helper::SharedState];
}

/// The work of a helper; the process exits when it is done.
pub type Help = Pin<Box<dyn Future<Output = ()>>>;

/// A part of the server that serves connections.
pub trait Engine: std::any::Any {
    /// The name of its block in the configuration.
    fn name(&self) -> &'static str;

    /// The sockets it wants, always in the same order.
    fn listeners(&self) -> Vec<ListenSpec>;

    /// Makes the folders it needs (temporary files, caches) and gives them to the workers' user,
    /// when there is one to give them to. In the master, before the fork. A `test` of the
    /// configuration makes only those that the configuration names.
    fn create_paths(&self, owner: Option<u32>, test: bool) -> Result<(), ConfError> {
        let _ = (owner, test);
        Ok(())
    }

    /// Begins to serve: in the worker, with its event loop running. The listeners are those that
    /// [`Engine::listeners`] named, in that order.
    fn start(&self, seat: &Seat, listeners: Vec<Listener>) -> io::Result<()>;

    /// Receives from a further socket of datagrams, of a worker that there was, after
    /// [`Engine::start`]. `listener` is its number among [`Engine::listeners`].
    fn receive_from(&self, listener: usize, socket: OwnedFd) -> io::Result<()> {
        let _ = (listener, socket);
        Ok(())
    }

    /// Serves a connection that waited in the queue of another worker, which is stuck. `listener`
    /// is its number among [`Engine::listeners`].
    fn take(&self, listener: usize, accepted: Accepted) {
        let _ = (listener, accepted);
    }

    /// Leaves: takes what still waits in the listening sockets' queues ([`Listener::drain`]),
    /// closes them, and answers what has begun. Idle connections are not cut under their clients'
    /// next request.
    fn quit(&self);

    /// Nothing is left to do. Asked before each turn of the loop once [`Engine::quit`] was called.
    fn idle(&self) -> bool;

    /// Gives up every connection that is left: `worker_shutdown_timeout` is over. What they had
    /// begun is logged, after which the engine is idle; it has a moment for that.
    fn force(&self);

    /// Asked in a worker that is told to exit at once: what must leave the process before, such as
    /// spans for a collector. The worker waits for it for half a second at most.
    fn last_work(&self) -> Vec<Help> {
        Vec::new()
    }

    /// The log files have been opened again (USR1), for engines that hold files which no
    /// configuration names.
    fn reopened(&self) {}

    /// In the master: whether there is something for a helper to do.
    fn wants(&self, helper: Helper) -> bool {
        let _ = helper;
        false
    }

    /// In a helper that has just been forked, while it has the privileges of the master: the time
    /// to read what its user may not.
    fn prepare_help(&self, helper: Helper) {
        let _ = helper;
    }

    /// In a helper, with its event loop running: what it is to do. Also in the only process of a
    /// server that has no master.
    fn help(&self, helper: Helper, seat: &Seat) -> Option<Help> {
        let _ = (helper, seat);
        None
    }

    /// In the master: the certificates that its servers show, by file or order, each with its last
    /// second since 1970, if that is known.
    fn certificates(&self) -> Vec<(String, Option<i64>)> {
        Vec::new()
    }

    /// In the master: the worker with that slot is dead; what it had under way no longer is.
    fn worker_died(&self, slot: usize) {
        let _ = slot;
    }
}
