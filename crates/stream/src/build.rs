//! Compiles a `stream` block into the structures that workers use.

use std::cell::OnceCell;
use std::rc::Rc;

use common_modules::ssl::addresses::check as check_tls;
use common_modules::ssl::{Compiled, variables};
use conf::{ConfError, Node, Word};
use engine::LoadEnv;
use engine::addresses;
use engine::cx::{Applied, Level};
use engine::life::Life;
use engine::merge::Merged;
use engine::metrics::Kind;
use engine::names::ServerName;

use crate::core_conf::{CoreConf, CoreDraft};
use crate::module::{Modules, Pipeline, ServerInfo, View};
use crate::server::{Built, Server, StreamMain};
use crate::session::{Rare, StreamSession};
use crate::ssl;

/// Compiles a `stream` block.
///
/// # Errors
/// The first error in the configuration, with its position.
pub fn build(node: &Node, env: LoadEnv, modules: Modules) -> Result<Rc<StreamMain>, ConfError> {
    let Applied { top, servers, vars, env, .. } = engine::cx::apply(node, env, modules)?;
    let top = Merged::top(modules, &top);
    let (log, metrics) = (&env.error_log, &*env.metrics);
    let merge = Merge { modules, log, metrics, tls: Compiled::default() };
    let mut built = Vec::with_capacity(servers.len());
    for (level, at) in servers {
        built.push(merge.server(level, &at, &top)?);
    }
    let listens = addresses::gather(&built, |server| &server.names, |_, _| false)?;
    check_tls(&built, &listens)?;
    Ok(Rc::new(StreamMain {
        asks_hello: variables::OF_HELLO.iter().any(|name| vars.names(name.as_bytes())),
        vars: Rc::new(vars),
        confs: top.set.clone(),
        listens,
        servers: built.into_iter().map(|b| b.server).collect(),
        stats: env.stats.clone(),
        metrics: env.metrics.clone(),
        life: Life::default(),
        starts: modules.iter().filter_map(|m| m.start).collect(),
        seat: OnceCell::new(),
        udp_sessions: Rc::default(),
        nothing: Rare::default(),
    }))
}

struct Merge<'a> {
    modules: Modules,
    log: &'a base::log::Log,
    metrics: &'a engine::Metrics,
    tls: Compiled,
}

impl Merge<'_> {
    fn server(
        &self,
        mut level: Level<StreamSession>,
        at: &Word,
        top: &Merged,
    ) -> Result<Built, ConfError> {
        let block = std::mem::take(&mut level.block);
        let (mut names, listens) = (block.names, block.listens);
        if listens.is_empty() {
            return Err(ConfError::at(at, "no \"listen\" is defined for server"));
        }
        if block.content.is_empty() {
            // Recent versions of nginx also accept such a server; its sessions end after the
            // phases.
            conf::warn(at, "no handler for server, whose sessions end with status 500");
        }
        let merged = top.below(self.modules, &mut level).map_err(|e| e.or_at(at))?;
        if names.is_empty() {
            names.push(ServerName::empty(at));
        }
        let info = ServerInfo { content: block.content };
        let view = View { info: &info, confs: &merged.set, own: &merged.own, around: &[] };
        let mut pipeline = Pipeline::default();
        for install in self.modules.iter().filter_map(|m| m.install) {
            install(&view, &mut pipeline).map_err(|e| e.or_at(at))?;
        }
        let name = names[0].shown();
        let first = listens.first().map(|listen| &listen.spec.addr);
        let zone = self.metrics.of_server(&merged.set, Kind::StreamServer, &name, first);
        let server = Rc::new(Server {
            name,
            zone,
            names: names.into(),
            core: CoreConf::new(merged.set.get().unwrap_or(&CoreDraft::default()), self.log),
            confs: merged.set.clone(),
            tls: self.tls.of(&merged.set, ssl::ENGINE, at)?,
            pipeline,
        });
        Ok(Built { server, listens })
    }
}
