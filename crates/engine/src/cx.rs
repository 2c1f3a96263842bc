//! The state while directives are applied: a stack of levels with the values set so far, the
//! variables' registry, and what the rest of the server lends for loading.

use std::any::{Any, TypeId};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use conf::table::{Contexts, Table};
use conf::template::Template;
use conf::{ConfError, Node, Word};

use crate::module::{self, Modules};
use crate::session::Session;
use crate::settings::Conf;
use crate::temp_path::TempPath;
use crate::vars::{ForServers, Registry};

/// The means that the server lends for the loading of an engine's block.
#[derive(Clone)]
pub struct LoadEnv {
    /// The prefix that relative paths of data start from (`-p`).
    pub prefix: PathBuf,
    /// The folder that relative paths of configuration (password files, …) start from.
    pub conf_prefix: PathBuf,
    /// The main file of the configuration.
    pub conf_file: PathBuf,
    /// The error log before the configuration names one; empty for standard error.
    pub first_error_log: PathBuf,
    /// Where files go that only built-in defaults name.
    pub places: Rc<crate::places::Places>,
    /// Log files, opened once a path and reopened together.
    pub logs: Rc<crate::logs::LogFiles>,
    /// The error log of the main level.
    pub error_log: base::log::Log,
    /// The number of workers that will share zones and counters.
    pub workers: usize,
    /// `worker_connections` of this configuration.
    pub connections: usize,
    /// Counters shared by all workers, made before the fork.
    pub stats: Rc<crate::stats::Stats>,
    /// Counters by zone.
    pub metrics: Rc<crate::metrics::Metrics>,
    /// Pools of threads, by name.
    pub pools: Rc<event::Pools>,
    /// The shared zones of this configuration, by name.
    pub zones: Rc<shm::Zones>,
    /// Bells that wake other processes of the server.
    pub bells: Rc<shm::Bells>,
    /// The files of certificates and keys.
    pub tls_objects: Rc<crate::tls_objects::TlsObjects>,
    /// What is shared with other servers.
    pub fleet: Rc<fleet::Fleet>,
}

impl LoadEnv {
    /// The means of a process that serves alone: one worker, with memory of its own and `prefix`
    /// for all paths. For tests, and engines outside of the server.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn alone(prefix: &Path, error_log: base::log::Log) -> io::Result<LoadEnv> {
        Ok(LoadEnv {
            prefix: prefix.to_owned(),
            conf_prefix: prefix.to_owned(),
            conf_file: prefix.join("nginx.conf"),
            first_error_log: PathBuf::new(),
            places: Rc::default(),
            logs: Rc::new(crate::logs::LogFiles::new(prefix)),
            error_log,
            workers: 1,
            connections: 64,
            stats: Rc::new(crate::stats::Stats::new(1)?),
            metrics: Rc::default(),
            pools: Rc::default(),
            zones: Rc::default(),
            bells: Rc::default(),
            tls_objects: Rc::default(),
            fleet: Rc::default(),
        })
    }

    /// A path of data made absolute with the prefix.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        join(&self.prefix, name)
    }

    /// The folder for temporary files that a default names.
    pub fn temp_folder(&self, name: &str) -> PathBuf {
        let place = self.places.temp.path(&self.prefix, name.as_bytes());
        place.unwrap_or_else(|| self.prefix.join(name))
    }

    /// A path of configuration made absolute with the folder of the main file.
    pub fn conf_path(&self, name: &[u8]) -> PathBuf {
        join(&self.conf_prefix, name)
    }

    /// The slots that shared memory needs for this configuration's workers: its own, those of
    /// configurations before it that are still leaving, and helpers.
    pub fn slots(&self) -> usize {
        self.workers.saturating_mul(4).saturating_add(16).min(crate::SLOTS)
    }
}

fn join(base: &Path, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    base.join(std::ffi::OsStr::from_bytes(name))
}

/// The values set inside one block.
pub struct Level<S: Session> {
    /// The kind of the block.
    pub here: Contexts,
    /// The values that directives of this block set, by type.
    pub set: Vec<(TypeId, Rc<dyn Any>)>,
    /// The parts of the block that no directive's value holds.
    pub block: S::Block,
}

impl<S: Session> Level<S> {
    /// An empty level.
    pub fn new(here: Contexts, block: S::Block) -> Level<S> {
        Level { here, set: Vec::new(), block }
    }

    /// The value of type `T` set at this level, made now if there is none.
    pub fn get<T: Conf>(&mut self) -> &mut T {
        let id = TypeId::of::<T>();
        let i = match self.set.iter().position(|(i, _)| *i == id) {
            Some(i) => i,
            None => {
                self.set.push((id, Rc::new(T::default())));
                self.set.len() - 1
            }
        };
        Rc::get_mut(&mut self.set[i].1)
            .and_then(|v| v.downcast_mut())
            .expect("nobody else holds a draft, and it was stored under its own type id")
    }
}

impl<S: Session> Level<S> {
    /// The value of type `T` set at this level so far.
    pub fn peek<T: Conf>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.set.iter().find(|(i, _)| *i == id).and_then(|(_, v)| v.downcast_ref())
    }
}

/// The apply pass: every directive's setter gets it.
pub struct Cx<S: Session> {
    /// The means that the server lends.
    pub env: LoadEnv,
    /// Variables by name.
    pub vars: Registry<S>,
    levels: Vec<Level<S>>,
    /// The `server` blocks read so far, with the places of their names.
    servers: Vec<(Level<S>, Word)>,
    table: Rc<Table<Cx<S>>>,
    folders: Vec<TempPath>,
    ids: u32,
}

/// An engine's block, applied and not yet merged.
pub struct Applied<S: Session> {
    /// The engine's own level.
    pub top: Level<S>,
    /// Its `server` blocks, in order, each with the place of its name.
    pub servers: Vec<(Level<S>, Word)>,
    /// The folders for temporary files that its directives name.
    pub folders: Vec<TempPath>,
    /// The variables that were named, compiled to numbers.
    pub vars: crate::vars::Variables<S>,
    /// The server's own parts, lent while it loads.
    pub env: LoadEnv,
}

/// Applies the directives of an engine's block and runs the modules' [`init`](crate::Module::init).
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn apply<S: Session>(
    node: &Node,
    env: LoadEnv,
    modules: Modules<S>,
) -> Result<Applied<S>, ConfError> {
    let table = Rc::new(module::table(modules));
    let levels = vec![Level::new(S::BLOCK, S::Block::default())];
    let (vars, servers, folders) = (Registry::new(modules), Vec::new(), Vec::new());
    let mut cx = Cx { env, vars, levels, servers, table: table.clone(), folders, ids: 0 };
    let before = conf::collect::count();
    table.apply(&mut cx, node.children(), S::BLOCK)?;
    conf::collect::settle(before)?;
    for m in modules {
        if let Some(init) = m.init {
            init(&mut cx)?;
        }
    }
    let Cx { env, vars, mut levels, servers, folders, .. } = cx;
    let top = levels.pop().unwrap_or_else(|| Level::new(S::BLOCK, S::Block::default()));
    let vars = vars.finish(!servers.is_empty())?;
    Ok(Applied { top, servers, folders, vars, env })
}

impl<S: Session> Cx<S> {
    /// The level of the directive.
    pub fn top(&mut self) -> &mut Level<S> {
        self.levels.last_mut().expect("the engine's own level is never popped")
    }

    /// The levels around the directive, its own first.
    pub fn around(&self) -> impl Iterator<Item = &Level<S>> {
        self.levels.iter().rev()
    }

    /// The configuration of scope `Location` at the level of the directive.
    pub fn loc<T: Conf>(&mut self) -> &mut T {
        self.top().get()
    }

    /// The settings of `T` made so far at the level of the directive, without making it.
    pub fn peek_loc<T: Conf>(&self) -> Option<&T> {
        self.levels.last().and_then(Level::peek)
    }

    /// The configuration of scope `Server` at the level of the directive, or of the enclosing
    /// server.
    pub fn srv<T: Conf>(&mut self) -> &mut T {
        let i = self
            .levels
            .iter()
            .rposition(|l| l.here == S::SERVER || l.here == S::BLOCK)
            .unwrap_or(0);
        self.levels[i].get()
    }

    /// The configuration of scope `Main`.
    pub fn main<T: Conf>(&mut self) -> &mut T {
        self.levels[0].get()
    }

    /// The `server` blocks read so far, in order.
    pub fn servers(&mut self) -> impl Iterator<Item = &mut Level<S>> {
        self.servers.iter_mut().map(|(level, _)| level)
    }

    /// The kind of block that the directive stands in.
    pub fn here(&self) -> Contexts {
        self.levels.last().map_or(S::BLOCK, |l| l.here)
    }

    /// A number that no other directive of this configuration got.
    pub fn next_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// Notes that a folder for temporary files is needed: it is made before the workers start.
    pub fn need_folder(&mut self, folder: &TempPath) {
        match self.folders.iter_mut().find(|f| f.path == folder.path) {
            Some(known) => known.is_default &= folder.is_default,
            None => self.folders.push(folder.clone()),
        }
    }

    /// A string with variables, compiled.
    pub fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
        Template::parse(word, &mut self.vars)
    }

    /// The same for a directive without effect where there is no `server` block: an unknown
    /// variable in it is no error then.
    ///
    /// # Errors
    /// Those of [`Template::parse`].
    pub fn template_for_servers(&mut self, word: &Word) -> Result<Template, ConfError> {
        Template::parse(word, &mut ForServers(&mut self.vars))
    }

    /// Sets a string with variables from the first argument.
    ///
    /// # Errors
    /// `is duplicate`, and those of [`Cx::template`].
    pub fn set_template<T: Conf>(
        &mut self,
        n: &Node,
        field: fn(&mut T) -> &mut Option<Template>,
    ) -> Result<(), ConfError> {
        if field(self.loc()).is_some() {
            return Err(ConfError::directive(n, "is duplicate"));
        }
        let template = self.template(n.arg(0)?)?;
        *field(self.loc()) = Some(template);
        Ok(())
    }

    /// Applies a block's directives as a level of their own and gives that level back.
    ///
    /// # Errors
    /// The first directive that is wrong.
    pub fn block(
        &mut self,
        node: &Node,
        here: Contexts,
        block: S::Block,
    ) -> Result<Level<S>, ConfError> {
        self.levels.push(Level::new(here, block));
        let table = self.table.clone();
        let done = table.apply(self, node.children(), here);
        let level = self.levels.pop().expect("the level pushed above");
        done.map(|()| level)
    }

    /// Applies a `server` block.
    ///
    /// # Errors
    /// The first directive in it that is wrong.
    pub fn server_block(&mut self, node: &Node) -> Result<(), ConfError> {
        let level = self.block(node, S::SERVER, S::Block::default())?;
        self.servers.push((level, node.name.clone()));
        Ok(())
    }
}
