//! Compiles an `http` block into the structures that workers run: apply, merge, compile.

use std::any::TypeId;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::ssl::addresses::check as check_tls;
use common_modules::ssl::{Compiled, variables};
use conf::{ConfError, Node, Word};
use engine::addresses::{self, ListenAddress};
use engine::cx::Applied;
use engine::life::Life;
use engine::merge::Merged;
use engine::metrics::Kind;
use engine::names::ServerName;
use engine::regex::Regex;
use engine::{Metrics, TempPath};
use os::SockAddr;

use crate::core_conf::{CoreLoc, CoreLocDraft, CoreSrv, CoreSrvDraft};
use crate::cx::{Level, LoadEnv, LocationDraft};
use crate::http2_conf::{self, Http2};
use crate::http3_conf::Http3;
use crate::module::{LocView, Modules, Pipeline};
use crate::server::location::{LocKind, Location, LocationInfo, Tree};
use crate::server::{Built, HttpMain, Listen, Server};
use crate::status_zone;
use crate::warnings;
use crate::watch;

/// The depth to which locations may nest.
const DEPTH_MAX: usize = 100;

/// Loads an `http` block.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn build(node: &Node, env: LoadEnv, modules: Modules) -> Result<Rc<HttpMain>, ConfError> {
    let Applied { top: level, servers, folders, vars, env } =
        engine::cx::apply(node, env, modules)?;
    let merge = Merge {
        modules,
        error_log: env.error_log.clone(),
        metrics: env.metrics.clone(),
        temp_paths: RefCell::new(folders),
        body_folder: env.temp_folder("client_body_temp"),
        tls: Compiled::default(),
        http2_addresses: RefCell::default(),
    };
    let top = merge.top(&level);
    let of_http2 = servers.iter().flat_map(|(level, _)| &level.block.listens).filter(|l| l.http2);
    *merge.http2_addresses.borrow_mut() = of_http2.map(|l| l.spec.addr.clone()).collect();
    let mut built = Vec::with_capacity(servers.len());
    for (level, at) in servers {
        built.push(merge.server(level, &at, &top)?);
    }
    let prefix = Bytes::copy_from_slice(env.prefix.as_os_str().as_bytes());
    let default_root = Bytes::copy_from_slice(env.path(b"html").as_os_str().as_bytes());
    let listens = listens(&built)?;
    check_tls(&built, &listens)?;
    Ok(Rc::new(HttpMain {
        asks_hello: variables::OF_HELLO.iter().any(|name| vars.names(name.as_bytes())),
        asks_real_root: vars.names(b"realpath_root"),
        vars: Rc::new(vars),
        confs: top.values.set.clone(),
        sections: modules.iter().filter_map(|m| Some((m.name, m.status?))).collect(),
        starts: modules.iter().filter_map(|m| m.start).collect(),
        helps: modules.iter().flat_map(|m| m.helps).collect(),
        tls_challenges: OnceCell::new(),
        tunnels: OnceCell::new(),
        tls_ordered: OnceCell::new(),
        listens,
        stats: env.stats.clone(),
        metrics: env.metrics.clone(),
        pools: env.pools.clone(),
        servers: built.into_iter().map(|b| b.server).collect(),
        life: Life::default(),
        run_subrequest: crate::answer::run_subrequest,
        prefix,
        default_root,
        debug_from: OnceCell::new(),
        trace: OnceCell::new(),
        temp_paths: merge.temp_paths.take(),
        places: env.places.clone(),
        files: files::FileCaches::default(),
    }))
}

/// The sockets to answer on, with their servers.
fn listens(built: &[Built]) -> Result<Vec<Listen>, ConfError> {
    let mut listens =
        addresses::gather(built, |server| &server.names, |a, b| !Rc::ptr_eq(&a.core, &b.core))?;
    for listen in &mut listens {
        // A client of HTTP speaks first: until it does, a worker that is woken for its connection
        // has nothing to do but to wait again.
        if listen.spec.kind == net::Kind::Stream {
            listen.spec.deferred.get_or_insert(net::Deferral::UnderLoad);
        }
    }
    Ok(listens)
}

struct Merge {
    modules: Modules,
    /// The default folder for bodies.
    body_folder: PathBuf,
    error_log: base::log::Log,
    metrics: Rc<Metrics>,
    /// Folders for temporary files that some location names.
    temp_paths: RefCell<Vec<TempPath>>,
    tls: Compiled,
    /// The addresses that some server gives to HTTP/2.
    http2_addresses: RefCell<Vec<SockAddr>>,
}

/// A merged level with the core's settings as plain values, all of them shared with the level
/// around where nothing was set.
struct MergedLevel {
    values: Merged,
    core: Rc<CoreLoc>,
    core_srv: Rc<CoreSrv>,
}

impl Merge {
    fn top(&self, level: &Level) -> MergedLevel {
        let values = Merged::top(self.modules, level);
        let draft = values.set.get_rc::<CoreLocDraft>().unwrap_or_default();
        let core = Rc::new(self.core(&draft));
        let core_srv =
            CoreSrv::from(values.set.get::<CoreSrvDraft>().unwrap_or(&CoreSrvDraft::default()));
        MergedLevel { values, core, core_srv: Rc::new(core_srv) }
    }

    fn core(&self, draft: &CoreLocDraft) -> CoreLoc {
        let mut core = CoreLoc::from(draft);
        self.temp_path(&mut core);
        if draft.error_log.is_none() {
            core.error_log = self.error_log.clone();
        }
        core
    }

    /// Sets the default folder for bodies if no other is named, and notes that it is needed.
    fn temp_path(&self, core: &mut CoreLoc) {
        let temp = &mut core.client_body_temp_path;
        if temp.path.as_os_str().is_empty() {
            temp.path.clone_from(&self.body_folder);
        }
        let mut all = self.temp_paths.borrow_mut();
        match all.iter_mut().find(|t| t.path == temp.path) {
            Some(known) => known.is_default &= temp.is_default,
            None => all.push(temp.clone()),
        }
    }

    /// Merges a level below `up`. Nothing set: everything is shared.
    fn level(&self, level: &mut Level, up: &MergedLevel) -> Result<MergedLevel, ConfError> {
        let values = up.values.below(self.modules, level)?;
        let core = match values.set.get::<CoreLocDraft>() {
            Some(draft) if values.sets::<CoreLocDraft>() => Rc::new(self.core(draft)),
            _ => up.core.clone(),
        };
        let core_srv = match values.set.get::<CoreSrvDraft>() {
            Some(draft) if values.sets::<CoreSrvDraft>() => Rc::new(CoreSrv::from(draft)),
            _ => up.core_srv.clone(),
        };
        Ok(MergedLevel { values, core, core_srv })
    }

    fn server(&self, mut level: Level, at: &Word, top: &MergedLevel) -> Result<Built, ConfError> {
        let mut names = std::mem::take(&mut level.block.names);
        let mut listens = std::mem::take(&mut level.block.listens);
        let identity = addresses::identity(&listens, &names);
        let merged = self.level(&mut level, top).map_err(|e| e.or_at(at))?;
        let mut named = HashMap::new();
        let (kind, at_pos) = (LocKind::Server, at.pos.clone());
        let name = Bytes::new();
        let info = LocationInfo { kind, name, auto_redirect: false, identity, at: at_pos };
        let root = self.location(info, None, level, (&merged, &[]), &mut named, 0);
        let root = root.map_err(|e| e.or_at(at))?;
        if names.is_empty() {
            names.push(ServerName::empty(at));
        }
        let addresses = self.http2_addresses.borrow();
        let of_http2 = |l: &ListenAddress| !l.spec.quic && addresses.contains(&l.spec.addr);
        let listens_http2 = listens.iter().any(of_http2);
        let http2 = Http2::of(&merged.values.set, listens_http2);
        if listens.is_empty() {
            listens.push(ListenAddress::default_of(at));
        }
        let name = names[0].shown();
        let first = listens.first().map(|listen| &listen.spec.addr);
        let zone = self.metrics.of_server(&merged.values.set, Kind::HttpServer, &name, first);
        // Without keep-alive, a client that has connected still has time for its first request.
        let idle_ms = match merged.core.keepalive_timeout {
            0 => merged.core_srv.client_header_timeout,
            ms => ms,
        };
        let server = Rc::new(Server {
            http2,
            http3: Http3::of(&merged.values.set, idle_ms)?,
            name,
            zone,
            names: names.into(),
            by_name: OnceCell::new(),
            core: merged.core_srv.clone(),
            tls: self.tls.of(&merged.values.set, crate::ssl::engine(http2.enabled), at)?,
            root,
            named,
        });
        Ok(Built { server, listens })
    }

    /// Merges and compiles a location and its nested ones. A server's own `level` is merged
    /// already.
    fn location(
        &self,
        info: LocationInfo,
        regex: Option<Rc<Regex>>,
        level: Level,
        (merged, around): (&MergedLevel, &[TypeId]),
        named: &mut HashMap<Bytes, Rc<Location>>,
        depth: usize,
    ) -> Result<Rc<Location>, ConfError> {
        let mut children = Vec::with_capacity(level.block.locations.len());
        for l in level.block.locations {
            let at = l.at.clone();
            let child = self.child(l, (merged, &info), named, depth + 1)?;
            match child.info.kind {
                LocKind::Named => drop(named.insert(child.info.name.clone(), child)),
                _ => children.push((child, at)),
            }
        }
        warnings::shadowed(&merged.core, &children);
        let (mut ifs, mut open_ifs) = (Vec::with_capacity(level.block.ifs.len()), Vec::new());
        for l in level.block.ifs {
            let (at, ends) = (l.at.clone(), l.ends);
            let block = self.child(l, (merged, &info), named, depth + 1)?;
            if !ends {
                open_ifs.push((block.clone(), at));
            }
            ifs.push(block);
        }
        let limit_except = match level.block.limit_except {
            Some((methods, l)) => {
                Some((methods, self.child(*l, (merged, &info), named, depth + 1)?))
            }
            None => None,
        };
        let mut pipeline = Pipeline::default();
        let view =
            LocView { info: &info, confs: &merged.values.set, own: &merged.values.own, around };
        for m in self.modules {
            let Some(install) = m.install else { continue };
            if m.added {
                watch::install(m.name, install, &view, &mut pipeline)?;
            } else {
                install(&view, &mut pipeline)?;
            }
        }
        warnings::lost_in_ifs(&pipeline, &open_ifs);
        let mut info = info;
        info.auto_redirect |= pipeline.auto_redirect && info.name.last() == Some(&b'/');
        Ok(Rc::new(Location {
            info,
            core: merged.core.clone(),
            pipeline,
            confs: merged.values.set.clone(),
            http2_chunk: http2_conf::chunk(&merged.values.set),
            zone: status_zone::zone_of_location(&merged.values.set),
            regex,
            tree: Tree::new(children.into_iter().map(|(child, _)| child).collect()),
            ifs,
            limit_except,
        }))
    }

    fn child(
        &self,
        draft: LocationDraft,
        (up, outer): (&MergedLevel, &LocationInfo),
        named: &mut HashMap<Bytes, Rc<Location>>,
        depth: usize,
    ) -> Result<Rc<Location>, ConfError> {
        if depth > DEPTH_MAX {
            return Err(ConfError::at(&draft.at, "locations nest too deep"));
        }
        let LocationDraft { kind, name, regex, mut level, at, .. } = draft;
        let merged = self.level(&mut level, up).map_err(|e| e.or_at(&at))?;
        let caseless = regex.as_ref().is_some_and(|regex| regex.is_caseless());
        let identity = base::hash::stable(&(outer.identity, kind as u8, &name, caseless));
        let info = LocationInfo { kind, name, auto_redirect: false, identity, at: at.pos.clone() };
        let around: &[TypeId] = match kind {
            LocKind::If | LocKind::LimitExcept => &up.values.own,
            _ => &[],
        };
        let location = self.location(info, regex, level, (&merged, around), named, depth);
        location.map_err(|e| e.or_at(&at))
    }
}
