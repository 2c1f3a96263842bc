//! The state while directives are applied: a stack of levels with the values set so far, the
//! variables' registry, and what the rest of the server lends for loading.

use std::any::{Any, TypeId};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Contexts, Table};
use conf::template::Template;
use conf::{ConfError, Node, Word};

use crate::core_conf::TempPath;
use crate::location::LocKind;
use crate::module::Conf;
use crate::regex::Regex;
use crate::vars::Registry;

/// What the server lends to the loading of an `http` block.
pub struct LoadEnv {
    /// The prefix that relative paths of data start from (`-p`).
    pub prefix: PathBuf,
    /// The folder that relative paths of configuration (password files, …) start from.
    pub conf_prefix: PathBuf,
    /// Log files, opened once a path and reopened together.
    pub logs: Rc<net::logs::LogFiles>,
    /// The error log of the main level.
    pub error_log: base::log::Log,
    /// How many workers will share zones and counters.
    pub workers: usize,
    /// `worker_connections` of this configuration.
    pub connections: usize,
    /// Counters shared by all workers, made before the fork.
    pub stats: Rc<crate::stats::Stats>,
    /// Pools of threads, by name.
    pub pools: Rc<event::Pools>,
    /// The shared zones of this configuration, by name.
    pub zones: Rc<shm::Zones>,
    /// Bells that wake other processes of the server.
    pub bells: Rc<shm::Bells>,
}

impl LoadEnv {
    /// A path of data made absolute with the prefix.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        join(&self.prefix, name)
    }

    /// A path of configuration made absolute with the folder of the main file.
    pub fn conf_path(&self, name: &[u8]) -> PathBuf {
        join(&self.conf_prefix, name)
    }
}

fn join(base: &Path, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    base.join(std::ffi::OsStr::from_bytes(name))
}

/// A location as it was written, before merging.
pub(crate) struct LocationDraft {
    pub kind: LocKind,
    pub name: Bytes,
    pub regex: Option<Rc<Regex>>,
    pub level: Level,
    pub at: Word,
    /// An `if` whose instructions end the request: its settings are for that answer.
    pub ends: bool,
}

/// A server as it was written, before merging.
pub(crate) struct ServerDraft {
    pub level: Level,
    pub at: Word,
}

/// The values set inside one block.
pub(crate) struct Level {
    pub here: Contexts,
    pub set: Vec<(TypeId, Rc<dyn Any>)>,
    pub locations: Vec<LocationDraft>,
    /// Blocks that only switch configuration: `if`, in order of appearance.
    pub ifs: Vec<LocationDraft>,
    /// `limit_except` with the methods that it does not limit.
    pub limit_except: Option<(Vec<Bytes>, Box<LocationDraft>)>,
    /// The location's own kind and name; `None` above locations.
    pub me: Option<(LocKind, Bytes)>,
}

impl Level {
    pub fn new(here: Contexts, me: Option<(LocKind, Bytes)>) -> Level {
        Level {
            here,
            set: Vec::new(),
            locations: Vec::new(),
            ifs: Vec::new(),
            limit_except: None,
            me,
        }
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

impl Level {
    /// The value of type `T` set at this level so far.
    fn peek<T: Conf>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.set.iter().find(|(i, _)| *i == id).and_then(|(_, v)| v.downcast_ref())
    }
}

/// The apply pass: what every directive's setter gets.
pub struct Cx {
    /// What the server lends.
    pub env: LoadEnv,
    /// Variables by name.
    pub vars: Registry,
    pub(crate) levels: Vec<Level>,
    pub(crate) servers: Vec<ServerDraft>,
    pub(crate) table: Rc<Table<Cx>>,
    pub(crate) folders: Vec<TempPath>,
    ids: u32,
}

impl Cx {
    pub(crate) fn new(env: LoadEnv, vars: Registry, table: Rc<Table<Cx>>) -> Cx {
        let levels = vec![Level::new(Contexts::HTTP, None)];
        Cx { env, vars, levels, servers: Vec::new(), table, folders: Vec::new(), ids: 0 }
    }

    pub(crate) fn top(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the http level is never popped")
    }

    /// The configuration of scope `Location` at the level of the directive.
    pub fn loc<T: Conf>(&mut self) -> &mut T {
        self.top().get()
    }

    /// What was set so far of `T` at the level of the directive, without making it.
    pub fn peek_loc<T: Conf>(&self) -> Option<&T> {
        self.levels.last().and_then(Level::peek)
    }

    /// The configuration of scope `Server` at the level of the directive, or of the enclosing
    /// server.
    pub fn srv<T: Conf>(&mut self) -> &mut T {
        let i = self
            .levels
            .iter()
            .rposition(|l| l.here == Contexts::SERVER || l.here == Contexts::HTTP)
            .unwrap_or(0);
        self.levels[i].get()
    }

    /// The configuration of scope `Main`.
    pub fn main<T: Conf>(&mut self) -> &mut T {
        self.levels[0].get()
    }

    /// In which block the directive stands.
    pub fn here(&self) -> Contexts {
        self.levels.last().map_or(Contexts::HTTP, |l| l.here)
    }

    /// Kind and name of the location that the directive stands in; `None` above locations.
    pub fn location(&self) -> Option<&(LocKind, Bytes)> {
        self.levels.iter().rev().find_map(|l| l.me.as_ref())
    }

    /// A number that no other directive of this configuration got.
    pub fn next_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// Notes that a folder for temporary files is needed: it is made before the workers start.
    pub fn need_folder(&mut self, folder: &TempPath) {
        if !self.folders.iter().any(|f| f.path == folder.path) {
            self.folders.push(folder.clone());
        }
    }

    /// A string with variables, compiled.
    pub fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
        Template::parse(word, &mut self.vars)
    }

    /// Applies a block's directives as a level of their own and gives that level back.
    pub(crate) fn block(
        &mut self,
        node: &Node,
        here: Contexts,
        me: Option<(LocKind, Bytes)>,
    ) -> Result<Level, ConfError> {
        self.levels.push(Level::new(here, me));
        let table = self.table.clone();
        let done = table.apply(self, node.block.as_deref().unwrap_or(&[]), here);
        let level = self.levels.pop().expect("the level pushed above");
        done.map(|()| level)
    }

    /// Applies an `if` block of the rewrite module: gives the index by which the location finds the
    /// configuration inside it at run time, or `None` where the block sets nothing but `own`'s
    /// values.
    ///
    /// `take` moves the rewrite module's own value out of the block's level.
    pub fn if_block<T: Conf>(&mut self, node: &Node) -> Result<(T, Option<usize>), ConfError> {
        let here = if self.here() == Contexts::SERVER {
            Contexts::IF_SERVER
        } else {
            Contexts::IF_LOCATION
        };
        let me = self.location().cloned();
        let mut level = self.block(node, here, me.clone())?;
        let inner = std::mem::take(level.get::<T>());
        level.set.retain(|(id, _)| *id != TypeId::of::<T>());
        if level.set.is_empty() {
            return Ok((inner, None));
        }
        let draft = LocationDraft {
            kind: LocKind::If,
            name: me.map(|m| m.1).unwrap_or_default(),
            regex: None,
            level,
            at: node.name.clone(),
            ends: false,
        };
        let ifs = &mut self.top().ifs;
        ifs.push(draft);
        Ok((inner, Some(ifs.len() - 1)))
    }

    /// Says that the `if` block of that index always ends the request itself.
    pub fn if_ends(&mut self, index: usize) {
        if let Some(block) = self.top().ifs.get_mut(index) {
            block.ends = true;
        }
    }
}
