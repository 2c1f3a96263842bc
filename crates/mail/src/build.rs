//! Compiles the text of a `mail` block into the structures that workers run.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;

use common_modules::ssl::Compiled;
use common_modules::ssl::addresses::check as check_tls;
use conf::{ConfError, Node, Word};
use engine::LoadEnv;
use engine::addresses;
use engine::cx::{Applied, Level};
use engine::life::Life;
use engine::merge::Merged;
use engine::names::ServerName;
use engine::vars::Values;
use mail_proto::StartTls;

use crate::auth_http::AuthHttp;
use crate::core_conf::{CoreConf, CoreDraft};
use crate::module::Modules;
use crate::proxy::{ProxyConf, ProxyDraft};
use crate::server::{Built, MailMain, Server};
use crate::session::MailSession;
use crate::{protocols, ssl};

/// Loads a `mail` block.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn build(node: &Node, env: LoadEnv, modules: Modules) -> Result<Rc<MailMain>, ConfError> {
    let Applied { top, servers, vars, env, .. } = engine::cx::apply(node, env, modules)?;
    let top = Merged::top(modules, &top);
    let merge = Merge { modules, log: &env.error_log, tls: Compiled::default() };
    let mut built = Vec::with_capacity(servers.len());
    for (level, at) in servers {
        built.push(merge.server(level, &at, &top)?);
    }
    check_addresses(&built)?;
    let listens = addresses::gather(&built, |server| &server.names, |_, _| false)?;
    check_tls(&built, &listens)?;
    Ok(Rc::new(MailMain {
        vars: Rc::new(vars),
        listens,
        servers: built.into_iter().map(|b| b.server).collect(),
        stats: env.stats.clone(),
        metrics: env.metrics.clone(),
        life: Life::default(),
        starts: modules.iter().filter_map(|m| m.start).collect(),
        seat: OnceCell::new(),
        nothing: Values::default(),
    }))
}

/// Servers of mail are not chosen by name: each has its addresses for itself.
fn check_addresses(built: &[Built]) -> Result<(), ConfError> {
    let mut seen = HashSet::new();
    for listen in built.iter().flat_map(|b| &b.listens) {
        if !seen.insert(listen.spec.addr.to_string()) {
            let m = format!("duplicate \"{}\" address and port pair", listen.at.lossy());
            return Err(ConfError::at(&listen.at, m));
        }
    }
    Ok(())
}

struct Merge<'a> {
    modules: Modules,
    log: &'a base::log::Log,
    tls: Compiled,
}

impl Merge<'_> {
    fn server(
        &self,
        mut level: Level<MailSession>,
        at: &Word,
        top: &Merged,
    ) -> Result<Built, ConfError> {
        let block = std::mem::take(&mut level.block);
        let missing = |what: &str| {
            let (file, line) = (at.pos.file.display(), at.pos.line);
            Err(ConfError::new(format!("{what} for server in {file}:{line}")))
        };
        if block.listens.is_empty() {
            return missing("no \"listen\" is defined");
        }
        let Some(protocol) = block.protocol.or(block.by_port) else {
            return missing("unknown mail protocol");
        };
        let confs = top.below(self.modules, &mut level)?.set;
        let core = CoreConf::new(confs.get().unwrap_or(&CoreDraft::default()), self.log);
        let Some(auth) = AuthHttp::new(&confs)? else {
            return missing("no \"auth_http\" is defined");
        };
        let tls = self.tls.of(&confs, ssl::engine(protocol), at)?;
        let starttls = ssl::starttls(&confs);
        if starttls != StartTls::Off && !tls.has_certificates() {
            return missing("no \"ssl_certificate\" is defined for the \"starttls\" directive");
        }
        let proxy = ProxyConf::new(confs.get().unwrap_or(&ProxyDraft::default()))?;
        let (dialogue, greeting_delay) = protocols::dialogue(&confs, protocol, starttls, &core);
        let server = Rc::new(Server {
            names: Box::new([ServerName::empty(at)]),
            core,
            tls,
            dialogue: Rc::new(dialogue),
            greeting_delay,
            auth,
            proxy,
            confs,
        });
        Ok(Built { server, listens: block.listens })
    }
}
