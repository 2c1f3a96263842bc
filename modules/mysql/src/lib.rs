//! `mysql`: answers requests with the results of queries, asked through a client library that
//! blocks.
//!
//! ```nginx
//! server {
//!     mysql_host  127.0.0.1;
//!     mysql_user  app;
//!     mysql_pass  file:/etc/weir/mysql.pass;
//!     mysql_db    shop;
//!     mysql_query "select * from car where id = $arg_id";
//!
//!     location /car { mysql_with_thread; }
//! }
//! ```
//!
//! `mysql_with_thread` asks on a thread of a pool, so that the worker serves others meanwhile.
//! `mysql_with_block` asks on the worker itself and holds up all its connections: it is there to
//! show what that does. Variables in a query are bound as parameters, and never become part of its
//! text. README.md has all directives.
#![forbid(unsafe_code)]

mod answer;
mod conf;
mod handler;
mod query;
mod server;

use conf::{HandlerConf, MysqlConf, Servers};
use weir_module::prelude::*;

/// The module's table.
pub static MODULE: Module = Module {
    name: "mysql",
    directives: conf::DIRECTIVES,
    confs: &[
        ConfType::of::<Servers>(Scope::Main),
        ConfType::of::<MysqlConf>(Scope::Location),
        ConfType::of::<HandlerConf>(Scope::Location),
    ],
    install: Some(handler::install),
    secrets: &["mysql_pass"],
    ..Module::EMPTY
};
