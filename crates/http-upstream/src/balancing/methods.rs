//! The tables of the balancing methods that all engines share; see [`::upstream::balance`].

use ::upstream::balance;
use http::module::Module;

/// The table of `hash`.
pub static HASH: Module = balance::hash::module();

/// The table of `least_conn`.
pub static LEAST_CONN: Module = balance::least_conn::module();

/// The table of `least_time`.
pub static LEAST_TIME: Module = balance::least_time::module();

/// The table of `random`.
pub static RANDOM: Module = balance::random::module();
