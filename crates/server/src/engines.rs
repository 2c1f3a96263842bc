//! The engines: which blocks there are, and how each is read. **An engine is added to [`ALL`]**,
//! and its block to `directives::BLOCKS`.

use std::io;
use std::rc::Rc;

use base::log::Log;
use conf::reference;
use conf::table::Contexts;
use conf::{ConfError, Node};
use http::engine::HttpEngine;
use net::engine::{Engine, SLOTS};
use net::logs::LogFiles;

use crate::added;
use crate::paths::Paths;

/// What is lent to an engine that reads its block.
pub struct LoadCx<'a> {
    /// Where things are.
    pub paths: &'a Paths,
    /// The log files of this configuration.
    pub logs: &'a Rc<LogFiles>,
    /// The error log of the outermost level.
    pub log: &'a Log,
    /// The number of workers.
    pub workers: usize,
    /// The most connections of a worker.
    pub connections: usize,
    /// What outlives configurations.
    pub lasting: &'a Lasting,
    /// The pools of threads.
    pub pools: &'a Rc<event::Pools>,
    /// The shared zones of this configuration.
    pub zones: &'a Rc<shm::Zones>,
}

/// What engines keep from one configuration to the next: made once by the master.
pub struct Lasting {
    http_stats: Rc<http::stats::Stats>,
    bells: Rc<shm::Bells>,
}

impl Lasting {
    /// Maps what is shared by all processes.
    pub fn new() -> io::Result<Lasting> {
        Ok(Lasting {
            http_stats: Rc::new(http::stats::Stats::new(SLOTS)?),
            bells: Rc::new(shm::Bells::new(SLOTS)?),
        })
    }
}

/// Reads an engine's block.
pub type Build = fn(&Node, &LoadCx<'_>) -> Result<Rc<dyn Engine>, ConfError>;

/// An engine's block and how it is read.
pub struct Entry {
    /// The block's name.
    pub name: &'static str,
    /// Reads it.
    pub build: Build,
}

/// All engines.
pub static ALL: &[Entry] = &[Entry { name: "http", build: build_http }];

/// The engines' directives with the places where they may stand, so that a stray one is called
/// misplaced.
pub fn directives() -> impl Iterator<Item = (&'static str, Contexts)> {
    let modules = added::modules().iter().flat_map(|m| m.directives);
    modules.map(|d| (d.name, d.contexts))
}

/// A line of reference for each directive of the engines.
pub fn dump(add: &mut dyn FnMut(String)) {
    for module in added::modules() {
        module.directives.iter().for_each(|d| add(reference::line(d, module.name)));
    }
}

fn build_http(node: &Node, cx: &LoadCx<'_>) -> Result<Rc<dyn Engine>, ConfError> {
    let env = http::LoadEnv {
        prefix: cx.paths.prefix.clone(),
        conf_prefix: cx.paths.conf_prefix.clone(),
        logs: cx.logs.clone(),
        error_log: cx.log.clone(),
        workers: cx.workers,
        connections: cx.connections,
        stats: cx.lasting.http_stats.clone(),
        pools: cx.pools.clone(),
        zones: cx.zones.clone(),
        bells: cx.lasting.bells.clone(),
    };
    let main = http::build::build(node, env, added::modules())?;
    Ok(Rc::new(HttpEngine::new(main)))
}
