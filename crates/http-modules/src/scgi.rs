//! `scgi`: requests passed on to SCGI servers.

use conf::ConfError;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};

use crate::gateway::pass::{Pass, To};
use crate::gateway::plain::{self, Kind, Shape};
use crate::gateway::{Common, HIDDEN};
use crate::{gateway, gateway_directives};

/// The module's table.
pub static MODULE: Module = Module {
    name: "scgi",
    directives: gateway_directives!("scgi", ScgiConf),
    confs: &[
        ConfType::of::<Pass<ScgiConf>>(Scope::Location),
        ConfType::of::<ScgiConf>(Scope::Location),
    ],
    install: Some(install),
    ..Module::EMPTY
};

/// The directives of one level.
#[derive(Default)]
pub(crate) struct ScgiConf {
    common: Common,
}

impl Conf for ScgiConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.common.merge(&prev.common);
        Ok(())
    }
}

gateway!(ScgiConf, "scgi", "scgi://", None);

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<ScgiConf>::of(l) else { return Ok(()) };
    let (conf, params) = l.conf::<ScgiConf>().common.finish(l, &to, HIDDEN)?;
    plain::install(to, conf, Shape { params, kind: Kind::Scgi }, p);
    Ok(())
}
