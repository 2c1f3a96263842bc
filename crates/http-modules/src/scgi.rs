//! `scgi`: requests passed on to SCGI servers.

use conf::ConfError;
use conf::table::{Args, Directive};
use http::cache::{CacheConf, Caching};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use http::upstream::conf::Draft;
use http::upstream::directives::Shared;
use http::{join_directives, upstream_directives};

use crate::gateway::params::{self, Params};
use crate::gateway::pass::{self, Pass, To};
use crate::gateway::plain::{self, Kind, Shape};
use crate::gateway::{Gateway, HIDDEN};

/// The module's table.
pub static MODULE: Module = Module {
    name: "scgi",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Pass<ScgiConf>>(Scope::Location),
        ConfType::of::<ScgiConf>(Scope::Location),
    ],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = join_directives!(
    OWN,
    upstream_directives!("scgi", ScgiConf, connecting),
    upstream_directives!("scgi", ScgiConf, sockets),
    upstream_directives!("scgi", ScgiConf, fields),
    upstream_directives!("scgi", ScgiConf, passing),
    upstream_directives!("scgi", ScgiConf, caching),
);

const OWN: &[Directive<Cx>] = &[
    pass::pass::<ScgiConf>("scgi_pass"),
    directive(
        "scgi_param",
        HSL,
        Args::T23,
        "",
        "A parameter that the server is told; a level that has some inherits none.",
        |cx, n| params::set(cx, n, |cx| &mut cx.loc::<ScgiConf>().params),
    ),
];

/// What was written at one level; see the directives.
#[derive(Default)]
pub(crate) struct ScgiConf {
    up: Draft,
    cache: http::cache::Draft,
    params: params::List,
}

impl Conf for ScgiConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.up.merge(&prev.up);
        self.cache.merge(&prev.cache);
        if self.params.is_none() {
            self.params.clone_from(&prev.params);
        }
        Ok(())
    }
}

impl Shared for ScgiConf {
    fn shared(&mut self) -> &mut Draft {
        &mut self.up
    }
}

impl Caching for ScgiConf {
    const PREFIX: &'static str = "scgi";

    fn caching(&mut self) -> &mut http::cache::Draft {
        &mut self.cache
    }
}

impl Gateway for ScgiConf {
    const PREFIX: &'static str = "scgi";
    const SCHEME: &'static str = "scgi://";
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<ScgiConf>::of(l) else { return Ok(()) };
    let own = l.conf::<ScgiConf>();
    let conf = own.up.finish("scgi", HIDDEN, &pass::folder::<ScgiConf>(l))?;
    let conf = conf.with_cache(CacheConf::finish::<ScgiConf>(l, &own.cache)?);
    let defaults = pass::defaults::<ScgiConf>(l);
    let params = Params::new(&own.params, &defaults, conf.pass_request_headers);
    let kind = Kind::Scgi;
    plain::install(to, conf, Shape { params, kind }, p);
    Ok(())
}
