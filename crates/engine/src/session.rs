//! The interface between an engine and the parts of this crate.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use base::log::Log;
use conf::table::Contexts;
use conf::template::VarSource;

use crate::client::Client;
use crate::metrics::Metrics;
use crate::regex::Captures;
use crate::settings::ConfSet;
use crate::stats::Stats;
use crate::vars::{Values, Variables};

/// A session of one engine: an HTTP request, a connection of `stream`. Directives, variables and
/// configuration are generic over it, so that each engine has its own tables and no dynamic call.
pub trait Session: Client + VarSource + Sized + 'static {
    /// The engine's own block, as in `http { … }`.
    const BLOCK: Contexts;
    /// Its `server` blocks.
    const SERVER: Contexts;
    /// Its `upstream` blocks.
    const UPSTREAM: Contexts;

    /// Whether what servers answer has a head.
    const HAS_HEADS: bool = true;

    /// The rest of a block while it is read, beside the values of directives: an HTTP block has the
    /// locations in it.
    type Block: Default;
    /// The place that a module installs its handlers into, as the module sees it.
    type Place;
    /// Handlers and filters of one place.
    type Pipeline: Default;
    /// The engine's block, compiled.
    type Main;

    /// The variables of the configuration that the session runs under.
    fn variables(&self) -> &Rc<Variables<Self>>;

    /// The values of variables that this session has computed or stored.
    fn values(&self) -> &Values;

    /// The same, to be changed.
    fn values_mut(&mut self) -> &mut Values;

    /// The groups of the last regular expression that matched.
    fn captures(&self) -> &Captures;

    /// The same, to be changed.
    fn captures_mut(&mut self) -> &mut Captures;

    /// The merged configuration in force.
    fn confs(&self) -> &ConfSet;

    /// A module's state that this session and those that it made (subrequests) have in common, made
    /// now if there is none. It is dropped when the last of them is over.
    fn shared<T: Default + 'static>(&mut self) -> Rc<T>;

    /// The counters of all workers, with this worker's slot.
    fn stats(&self) -> &Stats;

    /// Counters by zone.
    fn metrics(&self) -> &Rc<Metrics>;

    /// The lists of addresses that proxies put before the client's data (`X-Forwarded-For`), in
    /// order; none where the engine's protocol has no place for them.
    fn forwarded_for(&self) -> Vec<&[u8]> {
        Vec::new()
    }

    /// Writes a line for the `debug` level, without the session's context, as nginx does.
    fn debug(&self, message: fmt::Arguments<'_>);

    /// The error log in force.
    fn error_log(&self) -> &Log;

    /// The number of the connection in log lines.
    fn connection(&self) -> u64;

    /// Whether the use of a variable that `set` declares and nobody has set is warned of.
    fn warns_of_uninitialized(&self) -> bool {
        true
    }
}

/// The value of this type in a session's list, made now if there is none: for
/// [`Session::shared`].
pub fn shared_in<T: Default + 'static>(list: &mut Vec<Rc<dyn Any>>) -> Rc<T> {
    if let Some(found) = list.iter().find_map(|s| s.clone().downcast().ok()) {
        return found;
    }
    let made = Rc::new(T::default());
    list.push(made.clone());
    made
}
