//! The balancing methods: tables of directives whose setters stand with the methods in
//! [`::upstream::balance`].

use ::upstream::balance;
use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use stream::{Cx, Module};

const fn method(
    name: &'static str,
    args: Args,
    doc: &'static str,
    set: fn(&mut Cx, &Node) -> Result<(), ConfError>,
) -> [Directive<Cx>; 1] {
    [directive(name, C::STREAM_UPSTREAM, args, "", doc, set)]
}

const fn alone(name: &'static str, directives: &'static [Directive<Cx>]) -> Module {
    Module { name, directives, ..Module::EMPTY }
}

/// The table of `hash`.
pub static HASH: Module = alone("upstream_hash", &HASH_METHOD);
const HASH_METHOD: [Directive<Cx>; 1] = method(
    "hash",
    Args::T12,
    "Sessions go to servers by a key; consistent moves few keys when servers change.",
    balance::hash::set,
);

/// The table of `least_conn`.
pub static LEAST_CONN: Module = alone("upstream_least_conn", &LEAST_CONN_METHOD);
const LEAST_CONN_METHOD: [Directive<Cx>; 1] = method(
    "least_conn",
    Args::NONE,
    "Sessions go to the server with the fewest under way, for its weight.",
    balance::least_conn::set,
);

/// The table of `least_time`.
pub static LEAST_TIME: Module = alone("upstream_least_time", &LEAST_TIME_METHOD);
const LEAST_TIME_METHOD: [Directive<Cx>; 1] = method(
    "least_time",
    Args::T12,
    "Sessions go to the server with the least average time to connect, or to the first or last \
     byte.",
    balance::least_time::set,
);

/// The table of `random`.
pub static RANDOM: Module = alone("upstream_random", &RANDOM_METHOD);
const RANDOM_METHOD: [Directive<Cx>; 1] = method(
    "random",
    Args::NONE.or(Args::T12),
    "Sessions go to servers at random, or to the better of two that were chosen at random.",
    balance::random::set,
);
