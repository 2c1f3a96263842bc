//! From the text of an `http` block to what workers run: apply, merge, compile.

use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Contexts, Table};
use conf::{ConfError, Node};
use event::Gate;

use crate::core_blocks::ServerDef;
use crate::core_conf::{CoreLoc, CoreLocDraft, CoreSrv, CoreSrvDraft, TempPath};
use crate::core_listen::ListenDef;
use crate::cx::{Cx, Level, LoadEnv, LocationDraft, ServerDraft};
use crate::location::{LocKind, Location, LocationInfo, Tree};
use crate::module::{ConfSet, LocView, Module, Pipeline, Scope};
use crate::names::{self, ServerName};
use crate::server::{Address, HttpMain, Listen, Server};
use crate::traps;
use crate::vars::Registry;
use crate::watch;

/// How deep locations may nest.
const DEPTH_MAX: usize = 100;

/// The ordered list of modules, the core's first.
pub type Modules = &'static [&'static Module];

/// All directives of the modules, for applying and for the reference page.
pub fn table(modules: Modules) -> Table<Cx> {
    Table::new(modules.iter().flat_map(|m| m.directives))
}

/// Loads an `http` block.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn build(node: &Node, env: LoadEnv, modules: Modules) -> Result<Rc<HttpMain>, ConfError> {
    let table = Rc::new(table(modules));
    let vars = Registry::new(modules);
    let mut cx = Cx::new(env, vars, table.clone());
    table.apply(&mut cx, node.children(), Contexts::HTTP)?;
    for m in modules {
        if let Some(init) = m.init {
            init(&mut cx)?;
        }
    }
    let level = cx.levels.pop().unwrap_or_else(|| Level::new(Contexts::HTTP, None));
    let servers = std::mem::take(&mut cx.servers);
    let folders = std::mem::take(&mut cx.folders);
    let env = cx.env;
    let (vars, var_names) = cx.vars.finish()?;
    let merge = Merge {
        modules,
        error_log: env.error_log.clone(),
        temp_paths: RefCell::new(folders),
        prefix: env.prefix.clone(),
    };
    let top = merge.top(&level)?;
    let mut built = Vec::with_capacity(servers.len());
    for s in servers {
        built.push(merge.server(s, &top)?);
    }
    let prefix = Bytes::copy_from_slice(env.prefix.as_os_str().as_bytes());
    let default_root = Bytes::copy_from_slice(env.path(b"html").as_os_str().as_bytes());
    let listens = listens(&built)?;
    Ok(Rc::new(HttpMain {
        vars,
        asks_real_root: var_names.names(b"realpath_root"),
        var_names,
        confs: top.set.clone(),
        sections: modules.iter().filter_map(|m| Some((m.name, m.status?))).collect(),
        starts: modules.iter().filter_map(|m| m.start).collect(),
        listens,
        stats: env.stats.clone(),
        pools: env.pools.clone(),
        servers: built.into_iter().map(|b| b.server).collect(),
        gate: Gate::new(),
        forced: Cell::new(false),
        active: Rc::new(Cell::new(0)),
        prefix,
        default_root,
        debug_from: OnceCell::new(),
        temp_paths: merge.temp_paths.take(),
        bells: env.bells.clone(),
        files: crate::files::Files::default(),
    }))
}

/// A server with what its addresses need.
struct Built {
    server: Rc<Server>,
    listens: Vec<ListenDef>,
}

struct Merge {
    modules: Modules,
    prefix: PathBuf,
    error_log: base::log::Log,
    /// Folders for temporary files that some location names.
    temp_paths: RefCell<Vec<TempPath>>,
}

/// A merged level: every type's value, shared with the parent's where nothing was set.
struct Merged {
    set: ConfSet,
    core: Rc<CoreLoc>,
    core_srv: Rc<CoreSrv>,
    /// What was set at this very level.
    own: Vec<TypeId>,
}

impl Merge {
    fn top(&self, level: &Level) -> Result<Merged, ConfError> {
        let mut items: Vec<(TypeId, Rc<dyn Any>)> = Vec::new();
        for c in self.modules.iter().flat_map(|m| m.confs) {
            let default = (c.create)();
            let id = (c.id)();
            let own = level.set.iter().find(|(i, _)| *i == id).map(|(_, v)| v.clone());
            items.push((id, own.unwrap_or(default)));
        }
        let set = ConfSet(items.into());
        let mut core = CoreLoc::from(set.get::<CoreLocDraft>().unwrap_or(&CoreLocDraft::default()));
        self.temp_path(&mut core);
        if set.get::<CoreLocDraft>().is_none_or(|d| d.error_log.is_none()) {
            core.error_log = self.error_log.clone();
        }
        let core_srv = CoreSrv::from(set.get::<CoreSrvDraft>().unwrap_or(&CoreSrvDraft::default()));
        Ok(Merged { set, core: Rc::new(core), core_srv: Rc::new(core_srv), own: Vec::new() })
    }

    /// Makes the folder for bodies absolute and notes that it is needed.
    fn temp_path(&self, core: &mut CoreLoc) {
        let temp = &mut core.client_body_temp_path;
        temp.path = self.prefix.join(&temp.path);
        let mut all = self.temp_paths.borrow_mut();
        if !all.iter().any(|t| t.path == temp.path) {
            all.push(temp.clone());
        }
    }

    /// Merges a level below `up`. Nothing set: everything is shared.
    fn level(&self, level: &mut Level, up: &Merged) -> Result<Merged, ConfError> {
        let mut own = std::mem::take(&mut level.set);
        own.retain(|(id, _)| *id != TypeId::of::<ServerDef>());
        if own.is_empty() {
            let (core, core_srv) = (up.core.clone(), up.core_srv.clone());
            return Ok(Merged { set: up.set.clone(), core, core_srv, own: Vec::new() });
        }
        let mut items = Vec::with_capacity(up.set.0.len());
        let types = self.modules.iter().flat_map(|m| m.confs);
        for (c, (id, prev)) in types.zip(up.set.0.iter()) {
            let value = match own.iter_mut().find(|(i, _)| i == id) {
                Some((_, v)) if c.scope != Scope::Main => {
                    if let Some(v) = Rc::get_mut(v) {
                        (c.merge)(v, prev.as_ref())?;
                    }
                    v.clone()
                }
                _ => prev.clone(),
            };
            items.push((*id, value));
        }
        let set = ConfSet(items.into());
        let has = |id| own.iter().any(|(i, _)| *i == id);
        let core = match set.get::<CoreLocDraft>() {
            Some(d) if has(TypeId::of::<CoreLocDraft>()) => {
                let mut core = CoreLoc::from(d);
                self.temp_path(&mut core);
                if d.error_log.is_none() {
                    core.error_log = self.error_log.clone();
                }
                Rc::new(core)
            }
            _ => up.core.clone(),
        };
        let core_srv = match set.get::<CoreSrvDraft>() {
            Some(d) if has(TypeId::of::<CoreSrvDraft>()) => Rc::new(CoreSrv::from(d)),
            _ => up.core_srv.clone(),
        };
        let own = own.iter().map(|(id, _)| *id).collect();
        Ok(Merged { set, core, core_srv, own })
    }

    fn server(&self, draft: ServerDraft, top: &Merged) -> Result<Built, ConfError> {
        let mut level = draft.level;
        let def = std::mem::take(level.get::<ServerDef>());
        let merged = self.level(&mut level, top)?;
        let mut named = HashMap::new();
        let info = LocationInfo { kind: LocKind::Server, name: Bytes::new(), auto_redirect: false };
        let root = self.location(info, None, level, (&merged, &[]), &mut named, 0)?;
        let mut names = def.names;
        if names.is_empty() {
            names.push(ServerName::empty(&draft.at));
        }
        let server = Rc::new(Server {
            name: names[0].shown(),
            names: names.into(),
            by_name: OnceCell::new(),
            core: merged.core_srv.clone(),
            root,
            named,
        });
        let mut listens = def.listens;
        if listens.is_empty() {
            listens.push(ListenDef::default_of(&draft.at));
        }
        Ok(Built { server, listens })
    }

    /// Merges and compiles a location with all that nests in it. `level` is merged already where it
    /// is the server's own.
    fn location(
        &self,
        info: LocationInfo,
        regex: Option<Rc<crate::regex::Regex>>,
        level: Level,
        (merged, around): (&Merged, &[TypeId]),
        named: &mut HashMap<Bytes, Rc<Location>>,
        depth: usize,
    ) -> Result<Rc<Location>, ConfError> {
        let mut children = Vec::with_capacity(level.locations.len());
        for l in level.locations {
            let at = l.at.clone();
            let child = self.child(l, merged, named, depth + 1)?;
            match child.info.kind {
                LocKind::Named => drop(named.insert(child.info.name.clone(), child)),
                _ => children.push((child, at)),
            }
        }
        traps::shadowed(&merged.core, &children);
        let (mut ifs, mut open_ifs) = (Vec::with_capacity(level.ifs.len()), Vec::new());
        for l in level.ifs {
            let (at, ends) = (l.at.clone(), l.ends);
            let block = self.child(l, merged, named, depth + 1)?;
            if !ends {
                open_ifs.push((block.clone(), at));
            }
            ifs.push(block);
        }
        let limit_except = match level.limit_except {
            Some((methods, l)) => Some((methods, self.child(*l, merged, named, depth + 1)?)),
            None => None,
        };
        let mut pipeline = Pipeline::default();
        let view = LocView { info: &info, confs: &merged.set, own: &merged.own, around };
        for m in self.modules {
            let Some(install) = m.install else { continue };
            if m.added {
                watch::install(m.name, install, &view, &mut pipeline)?;
            } else {
                install(&view, &mut pipeline)?;
            }
        }
        traps::lost_in_ifs(&pipeline, &open_ifs);
        let mut info = info;
        info.auto_redirect |= pipeline.auto_redirect && info.name.last() == Some(&b'/');
        Ok(Rc::new(Location {
            info,
            core: merged.core.clone(),
            pipeline,
            confs: merged.set.clone(),
            regex,
            tree: Tree::new(children.into_iter().map(|(child, _)| child).collect()),
            ifs,
            limit_except,
        }))
    }

    fn child(
        &self,
        draft: LocationDraft,
        up: &Merged,
        named: &mut HashMap<Bytes, Rc<Location>>,
        depth: usize,
    ) -> Result<Rc<Location>, ConfError> {
        if depth > DEPTH_MAX {
            return Err(ConfError::at(&draft.at, "locations nest too deep"));
        }
        let LocationDraft { kind, name, regex, mut level, .. } = draft;
        let merged = self.level(&mut level, up)?;
        let info = LocationInfo { kind, name, auto_redirect: false };
        let around: &[TypeId] = match kind {
            LocKind::If | LocKind::LimitExcept => &up.own,
            _ => &[],
        };
        self.location(info, regex, level, (&merged, around), named, depth)
    }
}

/// One address of the whole block while servers are gathered.
struct AddressDraft {
    def: ListenDef,
    servers: Vec<usize>,
    default: Option<usize>,
}

/// Gathers servers by address, then addresses by socket: a wildcard socket stands for all addresses
/// of its port that ask for no socket of their own.
fn listens(built: &[Built]) -> Result<Vec<Listen>, ConfError> {
    let mut drafts: Vec<AddressDraft> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for (i, b) in built.iter().enumerate() {
        for l in &b.listens {
            let key = l.spec.addr.to_string();
            let at = *index.entry(key).or_insert_with(|| {
                drafts.push(AddressDraft { def: l.clone(), servers: Vec::new(), default: None });
                drafts.len() - 1
            });
            join(&mut drafts[at], l, i)?;
        }
    }
    let mut sockets: Vec<Listen> = Vec::new();
    let wildcard = |d: &AddressDraft, other: &AddressDraft| {
        other.def.spec.addr.is_wildcard()
            && other.def.spec.addr.port() == d.def.spec.addr.port()
            && other.def.spec.addr.family() == d.def.spec.addr.family()
    };
    for (i, d) in drafts.iter().enumerate() {
        let covered = !d.def.spec.bind
            && !d.def.spec.addr.is_wildcard()
            && drafts.iter().any(|o| wildcard(d, o));
        if covered {
            continue;
        }
        let mut addresses = Vec::new();
        if d.def.spec.addr.is_wildcard() && !d.def.spec.addr.is_unix() {
            for (j, o) in drafts.iter().enumerate() {
                if j != i && wildcard(o, d) && !o.def.spec.bind && !o.def.spec.addr.is_wildcard() {
                    addresses.push(address(o, built));
                }
            }
        }
        addresses.push(address(d, built));
        let mut spec = d.def.spec.clone();
        // A client of HTTP speaks first: until it does, a worker that is woken for its connection
        // has nothing to do but to wait again.
        spec.deferred.get_or_insert(net::Deferral::UnderLoad);
        sockets.push(Listen { spec, addresses });
    }
    Ok(sockets)
}

fn join(d: &mut AddressDraft, l: &ListenDef, server: usize) -> Result<(), ConfError> {
    if d.servers.is_empty() {
        d.def = l.clone();
    } else if l.set {
        if d.def.set {
            let m = format!("duplicate listen options for {}", l.spec.addr);
            return Err(ConfError::at(&l.at, m));
        }
        let (proxy_protocol, bind) = (d.def.proxy_protocol, d.def.spec.bind);
        d.def = l.clone();
        d.def.proxy_protocol |= proxy_protocol;
        d.def.spec.bind |= bind;
    }
    d.def.proxy_protocol |= l.proxy_protocol;
    if l.default_server {
        if d.default.is_some() {
            let m = format!("a duplicate default server for {}", l.spec.addr);
            return Err(ConfError::at(&l.at, m));
        }
        d.default = Some(server);
    }
    d.servers.push(server);
    Ok(())
}

fn address(d: &AddressDraft, built: &[Built]) -> Rc<Address> {
    let default = built[d.default.unwrap_or(d.servers[0])].server.clone();
    let of: Vec<_> =
        d.servers.iter().map(|i| (built[*i].server.clone(), &*built[*i].server.names)).collect();
    let text = d.def.spec.addr.to_string();
    let limits_differ = of.iter().any(|(s, _)| !Rc::ptr_eq(&s.core, &default.core));
    Rc::new(Address {
        limits_differ,
        addr: d.def.spec.addr.clone(),
        default,
        names: names::of_address(&of, &text),
        proxy_protocol: d.def.proxy_protocol,
    })
}
