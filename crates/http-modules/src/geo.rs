//! `geo`: a variable whose value goes by an address.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::template::{VarId, VarNames};
use conf::{ConfError, Node, Word};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;
use http::request::Request;
use net::forwarded;
use net::geo::Geo;

use crate::behind::Proxies;

/// The module's table.
pub static MODULE: Module = Module { name: "geo", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "geo",
    Contexts::HTTP,
    Args::BLOCK.or(Args::T12),
    "",
    "A variable whose value is looked up by an address, the client's or another variable's.",
    geo,
)];

fn geo(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (from, name) = match &n.args[..] {
        [from, name] => (Some(address_variable(cx, from)?), name),
        _ => (None, &n.args[0]),
    };
    cx.vars.define(name)?;
    let mut geo = Geo::parse(n)?;
    let volatile = geo.volatile;
    let nets = std::mem::take(&mut geo.proxies);
    let proxies = Proxies { nets, recursive: Some(geo.recursive) };
    let value = Rc::new(move |r: &mut Request| Some(find(r, &geo, &proxies, from)));
    cx.vars.define_value(name, volatile, value).map(drop)
}

fn address_variable(cx: &mut Cx, word: &Word) -> Result<VarId, ConfError> {
    match word.bytes().strip_prefix(b"$") {
        Some(name) if !name.is_empty() => cx.vars.var_id(name, word),
        _ => Err(ConfError::at(word, format!("invalid variable name \"{}\"", word.lossy()))),
    }
}

fn find(r: &mut Request, geo: &Geo, proxies: &Proxies, from: Option<VarId>) -> Bytes {
    let own = match from {
        Some(var) => r.var(var).and_then(|text| forwarded::parse_ip(&text)),
        None => r.peer().ip_addr(),
    };
    geo.find(own.and_then(|ip| proxies.behind(r, ip))).clone()
}
