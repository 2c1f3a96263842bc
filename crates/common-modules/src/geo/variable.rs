//! The directive `geo`: a variable whose value is looked up by an address.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Directive, directive};
use conf::template::{VarId, VarNames};
use conf::{ConfError, Node, Word};
use engine::{Cx, Module, Session};
use net::ip::parse_ip;

use super::Geo;
use crate::proxies::Proxies;

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module { name: "geo", directives: const { &directives() }, ..Module::EMPTY }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 1] {
    [directive(
        "geo",
        S::BLOCK,
        Args::BLOCK.or(Args::T12),
        "",
        "A variable looked up by IP address: the client's, or that in another variable.",
        geo,
    )]
}

fn geo<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (from, name) = match &n.args[..] {
        [from, name] => (Some(address_variable(cx, from)?), name),
        _ => (None, &n.args[0]),
    };
    cx.vars.define(name)?;
    let mut geo = Geo::parse(n)?;
    let volatile = geo.volatile;
    let nets = std::mem::take(&mut geo.proxies);
    let proxies = Proxies { nets, recursive: Some(geo.recursive) };
    let value = Rc::new(move |s: &mut S| Some(find(s, &geo, &proxies, from)));
    cx.vars.define_value(name, volatile, value).map(drop)
}

fn address_variable<S: Session>(cx: &mut Cx<S>, word: &Word) -> Result<VarId, ConfError> {
    match word.bytes().strip_prefix(b"$") {
        Some(name) if !name.is_empty() => cx.vars.var_id(name, word),
        _ => Err(ConfError::at(word, format!("invalid variable name \"{}\"", word.lossy()))),
    }
}

fn find<S: Session>(s: &mut S, geo: &Geo, proxies: &Proxies, from: Option<VarId>) -> Bytes {
    let own = match from {
        Some(var) => engine::vars::value(s, var).and_then(|text| parse_ip(&text)),
        None => s.address().ip_addr(),
    };
    geo.find(own.and_then(|ip| proxies.behind(s, ip))).clone()
}
