//! The balancing methods that all engines have: tables of directives whose setters stand with the
//! methods in [`::upstream::balance`].

use ::upstream::balance;
use conf::table::{Args, Contexts as C, Directive};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;

/// The table of `hash`.
pub static HASH: Module =
    Module { name: "upstream_hash", directives: HASH_DIRECTIVES, ..Module::EMPTY };

/// The table of `least_conn`.
pub static LEAST_CONN: Module =
    Module { name: "upstream_least_conn", directives: LEAST_CONN_DIRECTIVES, ..Module::EMPTY };

/// The table of `least_time`.
pub static LEAST_TIME: Module =
    Module { name: "upstream_least_time", directives: LEAST_TIME_DIRECTIVES, ..Module::EMPTY };

/// The table of `random`.
pub static RANDOM: Module =
    Module { name: "upstream_random", directives: RANDOM_DIRECTIVES, ..Module::EMPTY };

static HASH_DIRECTIVES: &[Directive<Cx>] = &[directive(
    "hash",
    C::UPSTREAM,
    Args::T12,
    "",
    "Requests go to servers by a key; consistent moves few keys when servers change.",
    balance::hash::set,
)];

static LEAST_CONN_DIRECTIVES: &[Directive<Cx>] = &[directive(
    "least_conn",
    C::UPSTREAM,
    Args::NONE,
    "",
    "Requests go to the server with the fewest under way, for its weight.",
    balance::least_conn::set,
)];

static LEAST_TIME_DIRECTIVES: &[Directive<Cx>] = &[directive(
    "least_time",
    C::UPSTREAM,
    Args::T12,
    "",
    "Requests go to the server with the least average time to the head or the end of a response.",
    balance::least_time::set,
)];

static RANDOM_DIRECTIVES: &[Directive<Cx>] = &[directive(
    "random",
    C::UPSTREAM,
    Args::NONE.or(Args::T12),
    "",
    "Requests go to servers at random, or to the better of two that were chosen at random.",
    balance::random::set,
)];
