//! The connections that a worker keeps to a server: `connections` at most, each used by one request
//! at a time.

use std::cell::{Cell, RefCell};

use base::time::now_ms;
use event::{Deadline, Notify};

use super::connection::{Connection, Failure};
use super::server::Server;

/// The time after which an idle connection is not used again, milliseconds: firewalls drop them
/// silently, and a request over one would wait for nothing.
const IDLE_MS: u64 = 60_000;

/// The connections to a server.
pub(super) struct Pool {
    max: usize,
    /// Idle ones, the one used last at the end.
    idle: RefCell<Vec<Connection>>,
    /// The number of those in use or being made.
    leased: Cell<usize>,
    /// A place is free.
    free: Notify,
    /// Until then the server is asked after others.
    down_until_ms: Cell<u64>,
}

/// The place of a connection, with it if it is made. Dropped, it is the next one's.
pub(super) struct Lease<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    /// It was idle before: the server may have closed it in the meantime.
    pub is_old: bool,
}

impl Pool {
    pub(super) fn new(max: usize) -> Pool {
        Pool {
            max,
            idle: RefCell::default(),
            leased: Cell::new(0),
            free: Notify::new(),
            down_until_ms: Cell::new(0),
        }
    }

    /// Whether the server failed a short time ago.
    pub(super) fn is_down(&self) -> bool {
        now_ms() < self.down_until_ms.get()
    }

    pub(super) fn set_down(&self, ms: u64) {
        self.down_until_ms.set(now_ms() + ms);
    }

    pub(super) fn set_up(&self) {
        self.down_until_ms.set(0);
    }

    /// Takes an idle connection, or the right to make one; waits until there is either.
    ///
    /// # Errors
    /// All are in use until the deadline.
    pub(super) async fn lease(&self, deadline: Deadline) -> Result<Lease<'_>, Failure> {
        while self.leased.get() >= self.max {
            if !self.free.notified_by(deadline).await {
                let m = "all connections were in use for too long: increase \"connections\"";
                return Err(Failure::other(m));
            }
        }
        self.leased.set(self.leased.get() + 1);
        let mut idle = self.idle.borrow_mut();
        // Those that ended are closed on the way.
        idle.retain(|connection| connection.idle_ms() < IDLE_MS && connection.is_usable());
        let connection = idle.pop();
        Ok(Lease { pool: self, is_old: connection.is_some(), connection })
    }
}

impl Lease<'_> {
    /// The connection, which is made if there is none.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) async fn connection(
        &mut self,
        server: &Server,
        deadline: Deadline,
    ) -> Result<&mut Connection, Failure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => server.connect(deadline).await?,
        };
        Ok(self.connection.insert(connection))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(Connection::is_usable) {
            self.pool.idle.borrow_mut().push(connection);
        }
        self.pool.leased.set(self.pool.leased.get() - 1);
        self.pool.free.notify_one();
    }
}
