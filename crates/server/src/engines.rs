//! The engines, with their blocks and readers. **An engine is added to [`ALL`]**, and its block to
//! `directives::BLOCKS`.

use std::io;
use std::rc::Rc;

use conf::reference::Entry;
use conf::table::Contexts;
use conf::{ConfError, Node};
use engine::beat::Beats;
use engine::{Engine, LoadEnv, SLOTS, Stats};
use http::engine::HttpEngine;
use mail::engine::MailEngine;
use stream::engine::StreamEngine;

use crate::added;

/// Shared memory that engines keep from one configuration to the next: made once by the master.
pub struct Lasting {
    /// The counters of all engines.
    pub stats: Rc<Stats>,
    /// Bells that wake other processes of the server.
    pub bells: Rc<shm::Bells>,
    /// The beats of workers.
    pub beats: &'static Beats,
    /// The state of the connection to the engine that servers share.
    pub shared_state: Rc<fleet::Status>,
    /// The questions of workers to it.
    pub questions: fleet::LastingQuestions,
}

impl Lasting {
    /// Maps the memory that all processes share.
    pub fn new() -> io::Result<Lasting> {
        Ok(Lasting {
            stats: Rc::new(Stats::new(SLOTS)?),
            bells: Rc::new(shm::Bells::new(SLOTS)?),
            beats: Beats::new(SLOTS)?,
            shared_state: Rc::new(fleet::Status::new()?),
            questions: Rc::default(),
        })
    }
}

/// Reads an engine's block.
pub type Build = fn(&Node, LoadEnv) -> Result<Rc<dyn Engine>, ConfError>;

/// An engine with its block.
pub struct EngineBlock {
    /// The block's name.
    pub name: &'static str,
    /// The reader of the block.
    pub build: Build,
}

/// The engines in the order of their blocks: `http`, `stream`, `mail`.
pub static ALL: &[EngineBlock] = &[
    EngineBlock { name: "http", build: build_http },
    EngineBlock { name: "stream", build: build_stream },
    EngineBlock { name: "mail", build: build_mail },
];

/// The engines' directives with the places where they may stand, so that a stray one is called
/// misplaced.
pub fn directives() -> impl Iterator<Item = (&'static str, Contexts)> {
    let modules = added::modules().iter().flat_map(|m| m.directives);
    let of_stream = stream_modules().iter().flat_map(|m| m.directives);
    let of_mail = mail::MODULES.iter().flat_map(|m| m.directives);
    let of_others =
        of_stream.map(|d| (d.name, d.contexts)).chain(of_mail.map(|d| (d.name, d.contexts)));
    modules.map(|d| (d.name, d.contexts)).chain(of_others)
}

/// The facts of each directive of the engines.
pub fn entries(add: &mut dyn FnMut(Entry)) {
    for module in added::modules() {
        module.directives.iter().for_each(|d| add(Entry::new(d, module.name)));
    }
    for module in stream_modules() {
        module.directives.iter().for_each(|d| add(Entry::new(d, module.name)));
    }
    for module in mail::MODULES {
        module.directives.iter().for_each(|d| add(Entry::new(d, module.name)));
    }
}

/// The names of the variables of `stream`.
pub fn stream_variables() -> impl Iterator<Item = &'static str> {
    stream_modules().iter().flat_map(|module| module.variables).map(|variable| variable.name)
}

/// All modules of `stream`.
fn stream_modules() -> stream::module::Modules {
    stream_modules::MODULES
}

fn build_http(node: &Node, env: LoadEnv) -> Result<Rc<dyn Engine>, ConfError> {
    let main = http::build::build(node, env, added::modules())?;
    Ok(Rc::new(HttpEngine::new(main)))
}

fn build_stream(node: &Node, env: LoadEnv) -> Result<Rc<dyn Engine>, ConfError> {
    let main = stream::build::build(node, env, stream_modules())?;
    Ok(Rc::new(StreamEngine::new(main)))
}

fn build_mail(node: &Node, env: LoadEnv) -> Result<Rc<dyn Engine>, ConfError> {
    let main = mail::build::build(node, env, mail::MODULES)?;
    Ok(Rc::new(MailEngine::new(main)))
}
