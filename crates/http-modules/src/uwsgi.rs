//! `uwsgi`: requests passed on to servers that speak uwsgi.

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::value::{self, set_str};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::join_directives;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};

use crate::gateway::pass::{Pass, To};
use crate::gateway::plain::{self, Kind, Shape};
use crate::gateway::{Common, HIDDEN};
use crate::{gateway, gateway_directives};

/// The module's table.
pub static MODULE: Module = Module {
    name: "uwsgi",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Pass<UwsgiConf>>(Scope::Location),
        ConfType::of::<UwsgiConf>(Scope::Location),
    ],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] =
    join_directives!(OWN, gateway_directives!("uwsgi", UwsgiConf));

const OWN: &[Directive<Cx>] = &[
    directive(
        "uwsgi_modifier1",
        HSL,
        Args::T1,
        "0",
        "The first modifier of requests: which kind of application is asked.",
        |cx, n| set_byte(&mut cx.loc::<UwsgiConf>().modifier1, n),
    ),
    directive(
        "uwsgi_modifier2",
        HSL,
        Args::T1,
        "0",
        "The second modifier of requests.",
        |cx, n| set_byte(&mut cx.loc::<UwsgiConf>().modifier2, n),
    ),
    directive(
        "uwsgi_string",
        HSL,
        Args::T1,
        "",
        "What stands behind the parameters of requests.",
        |cx, n| set_str(&mut cx.loc::<UwsgiConf>().string, n),
    ),
];

/// The directives of one level.
#[derive(Default)]
pub(crate) struct UwsgiConf {
    common: Common,
    modifier1: Option<u8>,
    modifier2: Option<u8>,
    string: Option<Bytes>,
}

/// A number of one byte.
fn set_byte(slot: &mut Option<u8>, n: &Node) -> Result<(), ConfError> {
    value::set_once(slot, n, |n| {
        let number = value::number(n, 0)?;
        u8::try_from(number)
            .map_err(|_| ConfError::at(&n.name, "value must be between 0 and 255".to_owned()))
    })
}

impl Conf for UwsgiConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.common.merge(&prev.common);
        macro_rules! inherit {
            ($($field:ident)*) => {
                $(if self.$field.is_none() { self.$field.clone_from(&prev.$field); })*
            };
        }
        inherit!(modifier1 modifier2 string);
        Ok(())
    }
}

gateway!(UwsgiConf, "uwsgi", "uwsgi://", Some("suwsgi://"));

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(to) = To::<UwsgiConf>::of(l) else { return Ok(()) };
    let own = l.conf::<UwsgiConf>();
    let (conf, params) = own.common.finish(l, &to, &HIDDEN[1..])?;
    let kind = Kind::Uwsgi {
        modifier1: own.modifier1.unwrap_or(0),
        modifier2: own.modifier2.unwrap_or(0),
        string: own.string.clone().unwrap_or_default(),
    };
    plain::install(to, conf, Shape { params, kind }, p);
    Ok(())
}
