//! A database, and the connections to it that a worker has.
//!
//! Connections are used on threads of pools, and counted on the event loop: a thread never waits
//! for one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params};
use weir_module::timer::Notify;

use crate::answer::{Answer, Column, Format};

/// A connection that lay idle for longer is tried before it is trusted with a query.
const TRUSTED: Duration = Duration::from_secs(5);

/// A kept connection that fails sooner was closed before it was used.
const WAS_CLOSED: Duration = Duration::from_millis(100);

/// The address of a database, and the user that queries it.
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub db: String,
    pub timeout_ms: u64,
    pub connections: usize,
    pub queue: usize,
}

/// A database with a worker's connections to it.
pub struct Server {
    at: Database,
    name: String,
    pool: Arc<Connections>,
    free: Cell<usize>,
    waiting: Cell<usize>,
    freed: Notify,
}

/// The right to use one connection.
pub struct Permit(Rc<Server>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
        self.0.freed.notify_one();
    }
}

/// As many requests wait for a connection as may.
pub struct Crowded;

impl Server {
    pub fn new(at: Database) -> Server {
        let name = match at.host.starts_with("unix:") {
            true => at.host.clone(),
            false => format!("{}:{}", at.host, at.port),
        };
        let pool = Arc::new(Connections { opts: opts(&at), idle: Mutex::default() });
        let free = Cell::new(at.connections);
        Server { at, name, pool, free, waiting: Cell::new(0), freed: Notify::new() }
    }

    pub fn at(&self) -> &Database {
        &self.at
    }

    /// The address, for logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn connections(&self) -> Arc<Connections> {
        self.pool.clone()
    }

    /// The right to use a connection, if one is free now.
    pub fn try_permit(self: &Rc<Self>) -> Option<Permit> {
        let left = self.free.get().checked_sub(1)?;
        self.free.set(left);
        Some(Permit(self.clone()))
    }

    /// Waits for the right to use a connection.
    ///
    /// # Errors
    /// Too many wait.
    pub async fn permit(self: &Rc<Self>) -> Result<Permit, Crowded> {
        // Waiting requests go first.
        if self.waiting.get() == 0
            && let Some(permit) = self.try_permit()
        {
            return Ok(permit);
        }
        if self.waiting.get() >= self.at.queue {
            return Err(Crowded);
        }
        let _waits = Waits::new(self);
        loop {
            self.freed.notified().await;
            if let Some(permit) = self.try_permit() {
                return Ok(permit);
            }
        }
    }
}

struct Waits<'a>(&'a Server);

impl Waits<'_> {
    fn new(server: &Server) -> Waits<'_> {
        server.waiting.set(server.waiting.get() + 1);
        Waits(server)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

fn opts(at: &Database) -> Opts {
    let limit = Some(Duration::from_millis(at.timeout_ms.max(1)));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut opts = OptsBuilder::new()
        .user(some(&at.user))
        .pass(some(&at.password))
        .db_name(some(&at.db))
        .prefer_socket(false)
        .tcp_connect_timeout(limit)
        .read_timeout(limit)
        .write_timeout(limit)
        // Else each connection begins with a query for it.
        .max_allowed_packet(Some(64 << 20));
    opts = match at.host.strip_prefix("unix:") {
        Some(path) => opts.socket(Some(path)),
        None => opts.ip_or_hostname(Some(at.host.clone())).tcp_port(at.port),
    };
    opts.into()
}

/// A query with its parameters.
pub struct Question {
    pub text: String,
    /// `None`: asked as text, without preparation.
    pub parameters: Option<Vec<mysql::Value>>,
    pub format: Format,
    pub max_response: usize,
    /// No result is of use behind it.
    pub until: Instant,
}

impl Question {
    /// Whether asking twice does no harm.
    fn reads_only(&self) -> bool {
        let word = self.text.split_whitespace().next().unwrap_or_default();
        ["select", "show"].iter().any(|only| word.eq_ignore_ascii_case(only))
    }
}

/// The reason why there is no answer.
pub enum Failure {
    /// Not in time.
    Late,
    /// The connection is of no use any more; the text is for the log.
    Failed(String),
    /// The database says no, and the connection is as it was.
    Refused(String),
}

struct Idle {
    conn: Conn,
    since: Instant,
}

/// The connections; used from threads.
pub struct Connections {
    opts: Opts,
    idle: Mutex<Vec<Idle>>,
}

impl Connections {
    /// Asks, on this thread, until the answer is there.
    ///
    /// # Errors
    /// There is none; unless the database itself said so, the connection is closed.
    pub fn ask(&self, question: &Question) -> Result<Vec<u8>, Failure> {
        let answer = self.ask_in_time(question);
        match answer {
            // The client library wraps the error of a read that takes too long in several others.
            Err(Failure::Failed(_)) if Instant::now() >= question.until => Err(Failure::Late),
            answer => answer,
        }
    }

    fn ask_in_time(&self, question: &Question) -> Result<Vec<u8>, Failure> {
        let began = Instant::now();
        if began >= question.until {
            return Err(Failure::Late);
        }
        // A connection that the database closed meanwhile is found out by using it.
        if let Some(conn) = self.kept() {
            match self.ask_on(conn, question) {
                Err(Failure::Failed(_))
                    if question.reads_only() && began.elapsed() < WAS_CLOSED => {}
                answer => return answer,
            }
        }
        let conn = Conn::new(self.opts.clone()).map_err(|e| failed(&e, "connect()"))?;
        self.ask_on(conn, question)
    }

    fn ask_on(&self, mut conn: Conn, question: &Question) -> Result<Vec<u8>, Failure> {
        let answer = match &question.parameters {
            None => match conn.query_iter(&question.text) {
                Ok(result) => read(result, question),
                Err(e) => Err(failed(&e, "query")),
            },
            Some(values) => {
                let values = match values.is_empty() {
                    true => Params::Empty,
                    false => Params::Positional(values.clone()),
                };
                match conn.exec_iter(&question.text, values) {
                    Ok(result) => read(result, question),
                    Err(e) => Err(failed(&e, "query")),
                }
            }
        };
        if matches!(answer, Ok(_) | Err(Failure::Refused(_))) {
            self.keep(conn);
        }
        answer
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        // A thread that panicked held no connection of the list.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, conn: Conn) {
        self.list().push(Idle { conn, since: Instant::now() });
    }

    /// The connection that was used last, if it is alive.
    fn kept(&self) -> Option<Conn> {
        loop {
            let mut idle = self.list().pop()?;
            if idle.since.elapsed() < TRUSTED || idle.conn.ping().is_ok() {
                return Some(idle.conn);
            }
        }
    }
}

fn read<T: mysql::prelude::Protocol>(
    mut result: mysql::QueryResult<'_, '_, '_, T>,
    question: &Question,
) -> Result<Vec<u8>, Failure> {
    let read = read_rows(&mut result, question);
    if read.is_err() {
        // Dropping it would read the rest of the result, however long. The connection is closed.
        std::mem::forget(result);
    }
    read
}

fn read_rows<T: mysql::prelude::Protocol>(
    result: &mut mysql::QueryResult<'_, '_, '_, T>,
    question: &Question,
) -> Result<Vec<u8>, Failure> {
    let columns: Vec<Column> = (result.columns().as_ref().iter())
        .map(|c| Column::new(c.name_str().into_owned(), c.column_type()))
        .collect();
    if columns.is_empty() {
        let (rows, id) = (result.affected_rows(), result.last_insert_id());
        return Ok(Answer::changed(question.format, rows, id));
    }
    let mut answer = Answer::new(question.format, columns);
    let mut rows: u32 = 0;
    for row in result.by_ref() {
        let mut row = row.map_err(|e| failed(&e, "reading the result"))?;
        answer.row((0..row.len()).map(|i| row.take(i).unwrap_or(mysql::Value::NULL)));
        if answer.len() > question.max_response {
            let max = question.max_response;
            return Err(Failure::Failed(format!(
                "the result is larger than mysql_max_response, {max} bytes"
            )));
        }
        rows += 1;
        if rows.is_multiple_of(1024) && Instant::now() >= question.until {
            return Err(Failure::Late);
        }
    }
    Ok(answer.finish())
}

fn failed(e: &mysql::Error, what: &str) -> Failure {
    let text = format!("{what} failed: {e}");
    match e {
        mysql::Error::MySqlError(_) => Failure::Refused(text),
        _ => Failure::Failed(text),
    }
}
