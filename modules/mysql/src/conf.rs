//! The directives.

use std::cell::RefCell;
use std::rc::Rc;

use weir_module::blocking::Pool;
use weir_module::prelude::*;

use crate::answer::Format;
use crate::query::Query;
use crate::server::{Database, Server};

/// `mysql_timeout` where it is not written.
const TIMEOUT_MS: u64 = 60_000;

pub static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "mysql_host",
        EVERYWHERE,
        Args::T1,
        "127.0.0.1",
        "The database's host name or address, or unix:PATH of its socket.",
        |cx, n| value::set_str(&mut cx.loc::<MysqlConf>().host, n),
    ),
    directive("mysql_port", EVERYWHERE, Args::T1, "3306", "The database's port.", port),
    directive("mysql_user", EVERYWHERE, Args::T1, "", "The user at the database.", |cx, n| {
        value::set_str(&mut cx.loc::<MysqlConf>().user, n)
    }),
    directive(
        "mysql_pass",
        EVERYWHERE,
        Args::T1,
        "",
        "The user's password, or where it is: file:PATH (its first line), or env:NAME.",
        password,
    ),
    directive("mysql_db", EVERYWHERE, Args::T1, "", "The database's name.", |cx, n| {
        value::set_str(&mut cx.loc::<MysqlConf>().db, n)
    }),
    directive(
        "mysql_query",
        EVERYWHERE,
        Args::T1,
        "",
        "The query; variables in it are bound as parameters.",
        |cx, n| {
            let query = Query::parse(cx, n.arg(0)?)?;
            value::set_once(&mut cx.loc::<MysqlConf>().query, n, |_| Ok(Rc::new(query)))
        },
    ),
    directive(
        "mysql_format",
        EVERYWHERE,
        Args::T1,
        "json",
        "How results are written: json, an array of objects; tsv, lines with tabs between.",
        |cx, n| {
            let formats = &[("json", Format::Json), ("tsv", Format::Tsv)];
            value::set_enum(&mut cx.loc::<MysqlConf>().format, n, formats)
        },
    ),
    directive(
        "mysql_timeout",
        EVERYWHERE,
        Args::T1,
        "60s",
        "How long a request may wait for its answer, for a connection and all else.",
        |cx, n| value::set_msec(&mut cx.loc::<MysqlConf>().timeout_ms, n),
    ),
    directive(
        "mysql_connections",
        EVERYWHERE,
        Args::T1.or(Args::T2),
        "32 queue=65536",
        "How many connections to the database a worker has at most, and how many requests wait.",
        connections,
    ),
    directive(
        "mysql_max_response",
        EVERYWHERE,
        Args::T1,
        "16m",
        "The largest answer, as it is written; a query that gives more ends in 502.",
        |cx, n| value::set_size(&mut cx.loc::<MysqlConf>().max_response, n),
    ),
    directive(
        "mysql_with_thread",
        LOCATION,
        Args::NONE.or(Args::T1),
        "",
        "Answers with the query's result, asked for on a thread of a pool.",
        |cx, n| handler(cx, n, true),
    ),
    directive(
        "mysql_with_block",
        LOCATION,
        Args::NONE,
        "",
        "The same, asked for on the worker itself, which serves nobody else meanwhile.",
        |cx, n| handler(cx, n, false),
    ),
];

/// The settings of a query and its database.
#[derive(Default)]
pub struct MysqlConf {
    host: Option<Bytes>,
    port: Option<u16>,
    user: Option<Bytes>,
    password: Option<Bytes>,
    db: Option<Bytes>,
    pub query: Option<Rc<Query>>,
    format: Option<Format>,
    timeout_ms: Option<u64>,
    connections: Option<(usize, usize)>,
    max_response: Option<usize>,
}

impl Conf for MysqlConf {
    fn merge(&mut self, outer: &Self) -> Result<(), ConfError> {
        fn fill<T: Clone>(own: &mut Option<T>, outer: &Option<T>) {
            if own.is_none() {
                own.clone_from(outer);
            }
        }
        fill(&mut self.host, &outer.host);
        fill(&mut self.port, &outer.port);
        fill(&mut self.user, &outer.user);
        fill(&mut self.password, &outer.password);
        fill(&mut self.db, &outer.db);
        fill(&mut self.query, &outer.query);
        fill(&mut self.format, &outer.format);
        fill(&mut self.timeout_ms, &outer.timeout_ms);
        fill(&mut self.connections, &outer.connections);
        fill(&mut self.max_response, &outer.max_response);
        Ok(())
    }
}

impl MysqlConf {
    pub fn format(&self) -> Format {
        self.format.unwrap_or(Format::Json)
    }

    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(TIMEOUT_MS)
    }

    pub fn max_response(&self) -> usize {
        self.max_response.unwrap_or(16 << 20)
    }

    /// The database, shared with other locations that ask the same one.
    pub fn server(&self, servers: &Servers) -> Rc<Server> {
        let text = |value: &Option<Bytes>, default: &str| match value {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => default.to_owned(),
        };
        let (connections, queue) = self.connections.unwrap_or((32, 65_536));
        let at = Database {
            host: text(&self.host, "127.0.0.1"),
            port: self.port.unwrap_or(3306),
            user: text(&self.user, ""),
            password: text(&self.password, ""),
            db: text(&self.db, ""),
            timeout_ms: self.timeout_ms(),
            connections,
            queue,
        };
        let mut list = servers.0.borrow_mut();
        if let Some(known) = list.iter().find(|server| *server.at() == at) {
            return known.clone();
        }
        let server = Rc::new(Server::new(at));
        list.push(server.clone());
        server
    }
}

/// All databases of a configuration.
#[derive(Default)]
pub struct Servers(RefCell<Vec<Rc<Server>>>);

impl Conf for Servers {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

/// The query that answers in a location; not inherited.
#[derive(Default)]
pub struct HandlerConf(pub Option<Asked>);

/// See [`HandlerConf`].
#[derive(Clone)]
pub struct Asked {
    /// The directive, for messages.
    pub at: Word,
    /// `mysql_with_thread`, and its pool where one is named.
    pub thread: Option<Option<Pool>>,
}

impl Conf for HandlerConf {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

fn handler(cx: &mut Cx, n: &Node, on_thread: bool) -> Result<(), ConfError> {
    let pool = match n.args.first() {
        None => None,
        Some(word) => {
            let Some(name) = word.bytes().strip_prefix(b"pool=") else {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            };
            let unknown = || {
                let name = String::from_utf8_lossy(name);
                ConfError::at(word, format!("unknown thread pool \"{name}\""))
            };
            Some(cx.env.pools.get(name).ok_or_else(unknown)?)
        }
    };
    let asked = Asked { at: n.name.clone(), thread: on_thread.then_some(pool) };
    value::set_once(&mut cx.loc::<HandlerConf>().0, n, |_| Ok(asked))
}

fn port(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    value::set_once(&mut cx.loc::<MysqlConf>().port, n, |n| {
        let port = u16::try_from(value::number(n, 0)?).ok().filter(|port| *port > 0);
        port.ok_or_else(|| ConfError::directive(n, "invalid value"))
    })
}

fn connections(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let most = value::number(n, 0)? as usize;
    if most == 0 {
        return Err(ConfError::directive(n, "invalid value"));
    }
    let queue = match n.args.get(1) {
        None => 65_536,
        Some(word) => {
            let text = word.bytes().strip_prefix(b"queue=").and_then(|t| str::from_utf8(t).ok());
            text.and_then(|t| t.parse().ok()).ok_or_else(|| {
                ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy()))
            })?
        }
    };
    value::set_once(&mut cx.loc::<MysqlConf>().connections, n, |_| Ok((most, queue)))
}

/// The password itself is in no message.
fn password(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let text = word.bytes();
    let found = if let Some(path) = text.strip_prefix(b"file:") {
        let path = cx.env.conf_path(path);
        let read = std::fs::read(&path).map_err(|e| {
            ConfError::at(word, format!("open() \"{}\" failed ({e})", path.display()))
        })?;
        let line = read.split(|b| *b == b'\n').next().unwrap_or_default();
        Bytes::copy_from_slice(line.strip_suffix(b"\r").unwrap_or(line))
    } else if let Some(name) = text.strip_prefix(b"env:") {
        let name = String::from_utf8_lossy(name);
        let value = std::env::var_os(&*name).ok_or_else(|| {
            ConfError::at(word, format!("there is no environment variable \"{name}\""))
        })?;
        Bytes::from(value.into_encoded_bytes())
    } else {
        word.text.clone()
    };
    value::set_once(&mut cx.loc::<MysqlConf>().password, n, |_| Ok(found))
}
